//! Resource limits and capabilities of this process, from `/proc/self`.

/// Bit number of `CAP_IPC_LOCK`. A process with this capability may lock any amount of memory.
const CAP_IPC_LOCK: u32 = 14;

/// A resource limit in bytes. `None` means unlimited.
pub type ResourceLimit = Option<u64>;

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

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
