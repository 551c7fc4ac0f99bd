//! Locked memory: a registration pins what it registers.

use super::finding::Finding;
use crate::facts::Facts;
use crate::units::Size;

/// What real programs pin at least.
const ENOUGH: u64 = 1 << 30;
/// `CAP_IPC_LOCK`: no limit holds.
const CAP_IPC_LOCK: u32 = 14;
const LIMITS: &str = "in /etc/security/limits.conf: `@rdma soft memlock unlimited` and `@rdma hard memlock unlimited`; usermod -aG rdma USER; log in again";

/// A limit; none: unlimited.
type Limit = Option<u64>;

pub(super) fn check(facts: &Facts<'_>) -> Vec<Finding> {
    let limits = facts.root.text("/proc/self/limits").unwrap_or_default();
    let status = facts.root.text("/proc/self/status").unwrap_or_default();
    let mut findings = vec![judge(memlock(&limits), is_free(&status))];
    for tried in &facts.probe.registrations {
        let size = Size(tried.bytes);
        findings.push(match &tried.result {
            Ok(()) => Finding::ok(format!("{size} were registered")).on(&tried.device),
            Err(error) => {
                Finding::fault(format!("{size} cannot be registered: {error}")).on(&tried.device).mend(LIMITS)
            }
        });
    }
    findings
}

fn judge(limits: Option<(Limit, Limit)>, free: bool) -> Finding {
    let Some((soft, hard)) = limits else { return Finding::ok("the limits of locked memory are not known here") };
    let text = format!("soft limit {}, hard limit {}", show(soft), show(hard));
    match soft {
        None => Finding::ok(text),
        Some(soft) if soft >= ENOUGH => Finding::ok(text),
        Some(_) if free => {
            Finding::warning(format!("{text}: not for this privileged user, but for others")).mend(LIMITS)
        }
        Some(_) if hard.is_none_or(|hard| hard >= ENOUGH) => {
            Finding::warning(format!("{text}: registrations beyond the soft limit fail"))
                .mend(format!("ulimit -l {}", if hard.is_none() { "unlimited" } else { "hard" }))
        }
        Some(_) => Finding::warning(format!("{text}: registrations beyond it fail")).mend(LIMITS),
    }
}

fn show(limit: Limit) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| Size(limit).to_string())
}

/// The soft and the hard limit of `/proc/self/limits`.
fn memlock(limits: &str) -> Option<(Limit, Limit)> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let mut words = line.split_whitespace();
    let mut limit = || match words.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some((limit()?, limit()?))
}

/// Whether `/proc/self/status` shows `CAP_IPC_LOCK`.
fn is_free(status: &str) -> bool {
    let caps = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    caps.and_then(|caps| u64::from_str_radix(caps.trim(), 16).ok()).is_some_and(|caps| caps >> CAP_IPC_LOCK & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::finding::Level;

    #[test]
    fn limits_are_read() {
        let line = |rest: &str| memlock(&format!("Limit\nMax locked memory         {rest} bytes     \n"));
        assert_eq!(line("65536 unlimited"), Some((Some(65536), None)));
        assert_eq!(line("unlimited unlimited"), Some((None, None)));
        assert_eq!((line("x"), memlock("")), (None, None));
    }

    #[test]
    fn a_small_limit_is_a_warning_with_the_way_out() {
        assert_eq!(judge(Some((None, None)), false).level, Level::Ok);
        assert_eq!(judge(Some((Some(65536), None)), false).remedy.as_deref(), Some("ulimit -l unlimited"));
        assert!(judge(Some((Some(65536), Some(65536))), false).remedy.unwrap().contains("limits.conf"));
        assert!(judge(Some((Some(65536), Some(65536))), true).text.contains("privileged"));
        assert!(is_free("CapEff:\t000001ffffffffff\n") && !is_free("CapEff:\t0000000000000000\n") && !is_free(""));
    }
}
