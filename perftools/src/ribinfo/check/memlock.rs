//! Locked-memory limits. Registered memory is pinned and counts towards them.

use super::finding::Finding;
use crate::common::units::Size;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::limits::{ResourceLimit, has_ipc_lock, memlock};

/// Smallest limit, in bytes, without a warning.
const SUFFICIENT: u64 = 1 << 30;
const RAISE_LIMITS: &str = "printf '@rdma soft memlock unlimited\\n@rdma hard memlock unlimited\\n' >> /etc/security/limits.conf; groupadd -f rdma; usermod -aG rdma USER; log in again (for a systemd service: LimitMEMLOCK=infinity)";

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let limits = facts.root.text("/proc/self/limits").unwrap_or_default();
    let status = facts.root.text("/proc/self/status").unwrap_or_default();
    let (limits, exempt) = (memlock(&limits), has_ipc_lock(&status));
    let limited = !exempt && !matches!(limits, Some((None, _)));
    let mut findings = vec![check_limits(limits, exempt)];
    for registration in &facts.probe.registrations {
        let size = Size(registration.bytes);
        findings.push(match &registration.result {
            Ok(()) => Finding::ok(format!("registering {size} succeeded")).on(&registration.device),
            Err(error) => {
                // Without a limit, the cause is a lack of memory or the device.
                let remedy = if limited {
                    RAISE_LIMITS
                } else {
                    "free -m; dmesg | tail"
                };
                Finding::fault(format!("registering {size} failed: {error}"))
                    .on(&registration.device)
                    .with_remedy(remedy)
            }
        });
    }
    findings
}

fn check_limits(limits: Option<(ResourceLimit, ResourceLimit)>, exempt: bool) -> Finding {
    let Some((soft, hard)) = limits else {
        return Finding::ok("the locked-memory limits of this process are unknown");
    };
    let text = format!(
        "soft limit {}, hard limit {}",
        limit_text(soft),
        limit_text(hard)
    );
    match soft {
        None => Finding::ok(text),
        Some(soft) if soft >= SUFFICIENT => Finding::ok(text),
        Some(_) if exempt => Finding::warning(format!(
            "{text}: this user is exempt (CAP_IPC_LOCK), other users are not"
        ))
        .with_remedy(RAISE_LIMITS),
        Some(_) if hard.is_none_or(|hard| hard >= SUFFICIENT) => {
            Finding::warning(format!("{text}: registrations above the soft limit fail"))
                .with_remedy(format!(
                    "ulimit -l {}",
                    if hard.is_none() { "unlimited" } else { "hard" }
                ))
        }
        Some(_) => Finding::warning(format!("{text}: registrations above the limit fail"))
            .with_remedy(RAISE_LIMITS),
    }
}

fn limit_text(limit: ResourceLimit) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| Size(limit).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ribinfo::check::finding::Level;

    #[test]
    fn small_limit_is_a_warning_with_a_remedy() {
        assert_eq!(check_limits(Some((None, None)), false).level, Level::Ok);
        assert_eq!(
            check_limits(Some((Some(65536), None)), false)
                .remedy
                .as_deref(),
            Some("ulimit -l unlimited")
        );
        assert!(
            check_limits(Some((Some(65536), Some(65536))), false)
                .remedy
                .unwrap()
                .contains("limits.conf")
        );
        assert!(
            check_limits(Some((Some(65536), Some(65536))), true)
                .text
                .contains("exempt")
        );
        assert!(
            has_ipc_lock("CapEff:\t000001ffffffffff\n")
                && !has_ipc_lock("CapEff:\t0000000000000000\n")
                && !has_ipc_lock("")
        );
    }
}
