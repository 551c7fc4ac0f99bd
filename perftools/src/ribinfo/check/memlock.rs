//! Locked memory: a registration pins what it registers.

use super::finding::Finding;
use crate::common::units::Size;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::limits::{ResourceLimit, is_free, memlock};

/// What real programs pin at least.
const ENOUGH: u64 = 1 << 30;
const LIMITS: &str = "printf '@rdma soft memlock unlimited\\n@rdma hard memlock unlimited\\n' >> /etc/security/limits.conf; groupadd -f rdma; usermod -aG rdma USER; log in again (a service of systemd: LimitMEMLOCK=infinity)";

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let limits = facts.root.text("/proc/self/limits").unwrap_or_default();
    let status = facts.root.text("/proc/self/status").unwrap_or_default();
    let (limits, free) = (memlock(&limits), is_free(&status));
    let bounded = !free && !matches!(limits, Some((None, _)));
    let mut findings = vec![judge(limits, free)];
    for tried in &facts.probe.registrations {
        let size = Size(tried.bytes);
        findings.push(match &tried.result {
            Ok(()) => Finding::ok(format!("{size} were registered")).on(&tried.device),
            Err(error) => {
                // Where no limit holds, it is the memory, or the device.
                let mend = if bounded {
                    LIMITS
                } else {
                    "free -m; dmesg | tail"
                };
                Finding::fault(format!("{size} cannot be registered: {error}"))
                    .on(&tried.device)
                    .mend(mend)
            }
        });
    }
    findings
}

fn judge(limits: Option<(ResourceLimit, ResourceLimit)>, free: bool) -> Finding {
    let Some((soft, hard)) = limits else {
        return Finding::ok("the limits of locked memory are not known here");
    };
    let text = format!("soft limit {}, hard limit {}", show(soft), show(hard));
    match soft {
        None => Finding::ok(text),
        Some(soft) if soft >= ENOUGH => Finding::ok(text),
        Some(_) if free => Finding::warning(format!(
            "{text}: not for this privileged user, but for others"
        ))
        .mend(LIMITS),
        Some(_) if hard.is_none_or(|hard| hard >= ENOUGH) => Finding::warning(format!(
            "{text}: registrations beyond the soft limit fail"
        ))
        .mend(format!(
            "ulimit -l {}",
            if hard.is_none() { "unlimited" } else { "hard" }
        )),
        Some(_) => Finding::warning(format!("{text}: registrations beyond it fail")).mend(LIMITS),
    }
}

fn show(limit: ResourceLimit) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| Size(limit).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ribinfo::check::finding::Level;

    #[test]
    fn a_small_limit_is_a_warning_with_the_way_out() {
        assert_eq!(judge(Some((None, None)), false).level, Level::Ok);
        assert_eq!(
            judge(Some((Some(65536), None)), false).remedy.as_deref(),
            Some("ulimit -l unlimited")
        );
        assert!(
            judge(Some((Some(65536), Some(65536))), false)
                .remedy
                .unwrap()
                .contains("limits.conf")
        );
        assert!(
            judge(Some((Some(65536), Some(65536))), true)
                .text
                .contains("privileged")
        );
        assert!(
            is_free("CapEff:\t000001ffffffffff\n")
                && !is_free("CapEff:\t0000000000000000\n")
                && !is_free("")
        );
    }
}
