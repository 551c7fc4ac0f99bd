//! Resources that a process uses.

use std::thread::sleep;
use std::time::Duration;
use std::{fmt, fs};

use crate::process::{status_field, wait_until};

/// Time in which a server must release what its last clients used. It is longer than the time after
/// which a server closes a connection that sends nothing.
const RELEASE: Duration = Duration::from_secs(40);
/// Time without a change after which a server is idle.
const UNCHANGED: Duration = Duration::from_millis(500);

/// Memory, files and threads of a process.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Resident memory in KiB.
    pub resident_kib: u64,
    /// Number of open files.
    pub files: u64,
    /// Number of threads.
    pub threads: u64,
}

/// Returns the peak of the resident memory of a process in KiB; 0 if it has ended.
pub fn peak_kib(pid: u32) -> u64 {
    status_field(pid, "VmHWM").unwrap_or(0)
}

/// Resets the peak of the resident memory to the current value.
///
/// # Panics
/// Panics if the process does not exist or belongs to another user.
pub fn reset_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("an own process");
}

impl Usage {
    /// Reads what a process uses.
    ///
    /// # Panics
    /// Panics if the process does not exist.
    pub fn of(pid: u32) -> Self {
        let field = |name: &str| status_field(pid, name).expect("a process");
        let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process");
        Self {
            resident_kib: field("VmRSS"),
            files: files.count() as u64,
            threads: field("Threads"),
        }
    }

    /// Waits until a process that is idle has ended the work that it began before, and returns what
    /// it uses.
    ///
    /// # Panics
    /// Panics if the process does not become idle.
    pub fn when_idle(pid: u32) -> Self {
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
    ///
    /// # Panics
    /// Panics if the process does not release them.
    #[must_use]
    pub fn wait_until_released(self, pid: u32) -> Self {
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
