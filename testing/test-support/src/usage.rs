//! Resources that a process uses.

use std::fmt;
use std::thread::sleep;
use std::time::Duration;

use test_support::process::wait_until;

/// Time in which a server must release what its last clients used. It is longer than the time after
/// which a server closes a connection that sends nothing.
const RELEASE: Duration = Duration::from_secs(40);
/// Time without a change after which a server is idle.
const UNCHANGED: Duration = Duration::from_millis(500);

/// Memory, files and threads of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) resident_kib: u64,
    pub(crate) files: u64,
    pub(crate) threads: u64,
}

impl Usage {
    /// Reads what a process uses.
    pub(crate) fn of(pid: u32) -> Self {
        let path = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.unwrap_or_else(|| panic!("no {name} in {path}"))
        };
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process");
        Self {
            resident_kib: field("VmRSS:"),
            files: files.count() as u64,
            threads: field("Threads:"),
        }
    }

    /// Waits until a process that is idle has ended the work that it began before, and returns what
    /// it uses.
    pub(crate) fn when_idle(pid: u32) -> Self {
        let mut last = Self::of(pid);
        let is_unchanged = || {
            sleep(UNCHANGED);
            let before = std::mem::replace(&mut last, Self::of(pid));
            (last.files, last.threads) == (before.files, before.threads)
        };
        let idle = wait_until(RELEASE, is_unchanged);
        assert!(idle, "after {RELEASE:?}: {last}");
        last
    }

    /// Waits until the process has no more files and threads than now. Returns what it uses then.
    pub(crate) fn wait_until_released(self, pid: u32) -> Self {
        let is_released = || {
            let now = Self::of(pid);
            now.files <= self.files && now.threads <= self.threads
        };
        let released = wait_until(RELEASE, is_released);
        let now = Self::of(pid);
        assert!(released, "before: {self}; after {RELEASE:?}: {now}");
        now
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resident_kib,
            files,
            threads,
        } = self;
        write!(f, "{resident_kib} KiB, {files} files, {threads} threads")
    }
}
