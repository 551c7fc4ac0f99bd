//! Resource limits and capabilities of this process, from `/proc/self`.

use std::fs;

use crate::root::Root;

pub(crate) const LIMITS: &str = "/etc/security/limits.conf";
pub(crate) const DROP_INS: &str = "/etc/security/limits.d";
/// Bit number of `CAP_IPC_LOCK`. A process with this capability may lock any amount of memory.
const CAP_IPC_LOCK: u32 = 14;

/// A resource limit in bytes. `None` means unlimited.
pub type ResourceLimit = Option<u64>;

/// The limits of locked memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memlock {
    /// The soft and the hard limit of this process. `None` if they are not known.
    pub limits: Option<(ResourceLimit, ResourceLimit)>,
    /// This process has `CAP_IPC_LOCK`.
    pub is_exempt: bool,
    /// The limits in `limits.conf` and its drop-ins, which pam_limits applies at the next login.
    pub configured: Vec<ConfiguredLimit>,
}

/// A line of `limits.conf` that limits locked memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredLimit {
    /// The file.
    pub file: String,
    /// The line, without its comment.
    pub line: String,
    /// The limit in KiB.
    pub kibibytes: u64,
}

impl Memlock {
    /// Reads the limits.
    pub(crate) fn read(root: &Root) -> Self {
        let text = |file: &str| root.text(file).unwrap_or_default();
        let mut configured = Vec::new();
        for file in [vec![LIMITS.to_owned()], root.files(DROP_INS, ".conf")].concat() {
            configured.extend(text(&file).lines().filter_map(|line| {
                Some(ConfiguredLimit {
                    kibibytes: configured_memlock(line)?,
                    line: without_comment(line),
                    file: file.clone(),
                })
            }));
        }
        Self {
            limits: memlock(&text("/proc/self/limits")),
            is_exempt: has_ipc_lock(&text("/proc/self/status")),
            configured,
        }
    }
}

/// Returns the words of a line, with one space between them.
fn without_comment(line: &str) -> String {
    let line = line.split('#').next().unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the limit in KiB that a line of `limits.conf` sets for locked memory.
fn configured_memlock(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split('#').next()?.split_whitespace().collect();
    match words.as_slice() {
        [_, "soft" | "hard" | "-", "memlock", value] => value.parse().ok(),
        _ => None,
    }
}

/// Returns the soft and the hard limit of locked memory. `limits` is the text of
/// `/proc/self/limits`.
pub fn memlock(limits: &str) -> Option<(ResourceLimit, ResourceLimit)> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))?;
    let mut words = line.split_whitespace();
    let mut limit = || match words.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some((limit()?, limit()?))
}

/// Returns `true` if `CAP_IPC_LOCK` is among the effective capabilities. `status` is the text of
/// `/proc/self/status`.
pub fn has_ipc_lock(status: &str) -> bool {
    let caps = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    caps.and_then(|caps| u64::from_str_radix(caps.trim(), 16).ok())
        .is_some_and(|caps| caps >> CAP_IPC_LOCK & 1 == 1)
}

/// Smallest limit of locked memory, in bytes, that is sufficient for a program.
pub const SUFFICIENT: u64 = 1 << 30;

/// Returns the processes that have an RDMA device open and a small limit of locked memory, without
/// those of other users if this user is not root.
pub(crate) fn limited_processes() -> Vec<String> {
    let mut limited = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let text = |file: &str| fs::read_to_string(process.path().join(file)).unwrap_or_default();
        let files = fs::read_dir(process.path().join("fd"));
        let has_device = files.into_iter().flatten().flatten().any(|file| {
            fs::read_link(file.path()).is_ok_and(|target| target.starts_with("/dev/infiniband"))
        });
        if !has_device || has_ipc_lock(&text("status")) {
            continue;
        }
        if let Some((Some(soft), _)) = memlock(&text("limits")) {
            if soft < SUFFICIENT {
                let id = process.file_name().to_string_lossy().into_owned();
                limited.push(format!(
                    "{} ({id}, {} KiB)",
                    text("comm").trim(),
                    soft / 1024
                ));
            }
        }
    }
    limited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_conf_is_parsed() {
        assert_eq!(
            configured_memlock("* hard memlock 65536 # small"),
            Some(65536)
        );
        assert_eq!(configured_memlock("@rdma - memlock 8192"), Some(8192));
        for line in [
            "* hard memlock unlimited",
            "# * hard memlock 1",
            "* hard nofile 1",
            "",
        ] {
            assert_eq!(configured_memlock(line), None, "{line}");
        }
    }

    #[test]
    fn limits_are_parsed() {
        let line = |rest: &str| {
            memlock(&format!(
                "Limit\nMax locked memory         {rest} bytes     \n"
            ))
        };
        assert_eq!(line("65536 unlimited"), Some((Some(65536), None)));
        assert_eq!(line("unlimited unlimited"), Some((None, None)));
        assert_eq!((line("x"), memlock("")), (None, None));
        assert!(has_ipc_lock("CapEff:\t000001ffffffffff\n"));
        assert!(!has_ipc_lock("CapEff:\t0000000000000000\n") && !has_ipc_lock(""));
    }
}
