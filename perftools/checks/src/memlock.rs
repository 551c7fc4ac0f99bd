//! Locked-memory limits. Registered memory is pinned and counts towards them.

use base::units::Size;
use host::HostFacts;
use host::limits::{ResourceLimit, SUFFICIENT, has_ipc_lock, memlock};

use super::finding::Finding;

const RAISE_LIMITS: &str = "printf '@rdma soft memlock unlimited\\n@rdma hard memlock unlimited\\n' >> /etc/security/limits.conf; groupadd -f rdma; usermod -aG rdma USER; log in again (for a systemd service: LimitMEMLOCK=infinity)";

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let limits = facts.root.text("/proc/self/limits").unwrap_or_default();
    let status = facts.root.text("/proc/self/status").unwrap_or_default();
    let (limits, exempt) = (memlock(&limits), has_ipc_lock(&status));
    let limited = !exempt && !matches!(limits, Some((None, _)));
    let mut findings = vec![check_limits(limits, exempt)];
    findings.extend(check_limits_conf(facts));
    findings.extend(check_processes(facts));
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

/// Returns warnings for lines of limits.conf that limit locked memory, which pam_limits applies at
/// the next login.
fn check_limits_conf(facts: &HostFacts<'_>) -> Vec<Finding> {
    const DIRECTORY: &str = "/etc/security/limits.d";
    let drop_ins = facts
        .root
        .list(DIRECTORY)
        .into_iter()
        .filter(|name| name.strip_suffix(".conf").is_some())
        .map(|name| format!("{DIRECTORY}/{name}"));
    let mut findings = Vec::new();
    for file in std::iter::once("/etc/security/limits.conf".to_owned()).chain(drop_ins) {
        for line in facts.root.text(&file).unwrap_or_default().lines() {
            if let Some(kibibytes) = configured_memlock(line) {
                if kibibytes < SUFFICIENT / 1024 {
                    findings.push(
                        Finding::warning(format!(
                            "limits locked memory to {} at the next login: {}",
                            Size(kibibytes * 1024),
                            line.trim()
                        ))
                        .on(&file)
                        .with_remedy(format!(
                            "replace {kibibytes} by unlimited in {file}, then log in again"
                        )),
                    );
                }
            }
        }
    }
    findings
}

/// Returns the limit in KiB that a line of limits.conf sets for locked memory.
fn configured_memlock(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split('#').next()?.split_whitespace().collect();
    match words.as_slice() {
        [_, "soft" | "hard" | "-", "memlock", value] => value.parse().ok(),
        _ => None,
    }
}

/// Returns a warning for running RDMA servers with a small limit. A limit of systemd or of PAM can
/// differ from the limit of this process.
fn check_processes(facts: &HostFacts<'_>) -> Option<Finding> {
    let limited: Vec<&str> = facts
        .probe
        .limited_processes
        .iter()
        .map(String::as_str)
        .collect();
    (!limited.is_empty()).then(|| {
        Finding::warning(format!(
            "running programs with an RDMA device open have a small limit: {}",
            limited.join(", ")
        ))
        .with_remedy("set LimitMEMLOCK=infinity in the unit (systemctl edit UNIT) or memlock unlimited in limits.conf; then start them again")
    })
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
    use crate::finding::Level;

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
