//! Locked-memory limits. Registered memory is pinned and counts towards them.

use base::error::split_help;
use base::units::Size;
use host::HostFacts;
use host::environment::{Container, Environment, Manager};
use host::limits::{ConfiguredLimit, ResourceLimit, SUFFICIENT};

use super::finding::{Finding, Level};
use super::spelling;

const RAISE_LIMITS: &str = "printf '@rdma soft memlock unlimited\\n@rdma hard memlock unlimited\\n' >> /etc/security/limits.conf; groupadd -f rdma; usermod -aG rdma USER; log in again (for a systemd service: LimitMEMLOCK=infinity)";

/// The remedy in a pod, whose container runtime passes its own limit on.
const RAISE_IN_POD: &str = "set LimitMEMLOCK=infinity in the service of the container runtime (systemctl edit containerd, or crio), restart it and the pod; or add the capability IPC_LOCK to the pod";

/// The remedy in a container of LXC (lxc.container.conf(5)).
const RAISE_IN_LXC: &str = "in the configuration of the container: lxc.prlimit.memlock = unlimited (LXD and Incus: lxc config set NAME limits.kernel.memlock unlimited); then start it again";

/// The remedy in a container of Docker that has a user namespace.
const RAISE_IN_ROOTLESS_DOCKER: &str = "start the container with --ulimit memlock=-1; if Docker runs without root, first raise the limit of its service: systemctl --user edit docker: LimitMEMLOCK=infinity, with USER hard memlock unlimited in /etc/security/limits.conf";

/// The remedy in a job of Slurm (slurm.conf(5)).
const RAISE_IN_SLURM: &str = "jobs of Slurm have the limits of slurmd and of the shell that submits them: set PropagateResourceLimitsExcept=MEMLOCK in slurm.conf and LimitMEMLOCK=infinity in the unit (systemctl edit slurmd); systemctl restart slurmd; submit the job again";

/// The remedy in a container of an ordinary user, who cannot raise a limit (setrlimit(2)). The
/// limit `host` of podman-run(1) is that of the user.
const RAISE_FOR_ROOTLESS: &str = "on the host, as root: printf 'USER soft memlock unlimited\\nUSER hard memlock unlimited\\n' >> /etc/security/limits.conf; log in again; start the container with --ulimit host (a rootless container cannot have more than its user)";

/// Returns the remedy that raises the limit where it was set.
fn raise(environment: &Environment) -> String {
    let is_rootless = environment.is_rootless;
    let remedy = match (environment.container, &environment.manager) {
        (Some(Container::Pod), _) => RAISE_IN_POD,
        (Some(Container::Lxc), _) => RAISE_IN_LXC,
        (Some(Container::Nspawn), _) => "start the container with --rlimit=RLIMIT_MEMLOCK=infinity",
        (Some(Container::Docker), _) if is_rootless => RAISE_IN_ROOTLESS_DOCKER,
        _ if is_rootless => RAISE_FOR_ROOTLESS,
        (Some(_), _) => "start the container with --ulimit memlock=-1",
        (None, Some(Manager::Slurm)) => RAISE_IN_SLURM,
        (None, Some(Manager::Service(unit))) => {
            return format!(
                "set LimitMEMLOCK=infinity in [Service] (systemctl edit {unit}); systemctl restart {unit}"
            );
        }
        (None, None) => RAISE_LIMITS,
    };
    remedy.to_owned()
}

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let (limits, exempt) = (facts.memlock.limits, facts.memlock.is_exempt);
    let limited = !exempt && !matches!(limits, Some((None, _)));
    let raise = raise(&facts.environment);
    let limit = check_limits(limits, exempt, &raise);
    let mut findings = check_limits_conf(facts);
    findings.extend(spelling::check(facts, "/etc/security/"));
    findings.extend(check_processes(facts));
    // The limit is the cause of a failed registration, unless it is not known.
    let is_cause = limited && limit.level == Level::Warning;
    let mut has_failed = false;
    for registration in facts.probe.registrations.iter() {
        let size = Size(registration.bytes);
        let finding = match &registration.result {
            Ok(()) => Finding::ok(format!("registering {size} succeeded")),
            Err(error) => {
                has_failed = true;
                let (cause, _) = split_help(error);
                let limit_text = if is_cause {
                    format!(" ({})", limit.text)
                } else {
                    String::new()
                };
                let fault = format!("registering {size} failed: {cause}{limit_text}");
                let remedy = limit.remedy.as_deref().filter(|_| is_cause);
                // Without a limit, the cause is a lack of memory or the device.
                let other = if limited {
                    raise.as_str()
                } else {
                    "free -m; dmesg | tail"
                };
                Finding::fault(fault).with_remedy(remedy.unwrap_or(other))
            }
        };
        findings.push(finding.on(&registration.device));
    }
    if !(has_failed && is_cause) {
        findings.insert(0, limit);
    }
    findings
}

/// Returns warnings for limits that pam_limits applies at the next login.
fn check_limits_conf(facts: &HostFacts) -> Vec<Finding> {
    let small = |limit: &&ConfiguredLimit| limit.kibibytes < SUFFICIENT / 1024;
    let warn = |limit: &ConfiguredLimit| {
        let ConfiguredLimit {
            file,
            kibibytes,
            line,
        } = limit;
        let size = Size(kibibytes * 1024);
        Finding::warning(format!(
            "limits locked memory to {size} at the next login: {line}"
        ))
        .on(file)
        .with_remedy(format!(
            "replace {kibibytes} by unlimited in {file}, then log in again"
        ))
    };
    facts
        .memlock
        .configured
        .iter()
        .filter(small)
        .map(warn)
        .collect()
}

/// Returns a warning for running RDMA servers with a small limit. A limit of systemd or of PAM can
/// differ from the limit of this process.
fn check_processes(facts: &HostFacts) -> Option<Finding> {
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

fn check_limits(
    limits: Option<(ResourceLimit, ResourceLimit)>,
    exempt: bool,
    raise: &str,
) -> Finding {
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
        .with_remedy(raise),
        Some(_) if hard.is_none_or(|hard| hard >= SUFFICIENT) => {
            Finding::warning(format!("{text}: registrations above the soft limit fail"))
                .with_remedy(format!(
                    "ulimit -l {}",
                    if hard.is_none() { "unlimited" } else { "hard" }
                ))
        }
        Some(_) => Finding::warning(format!("{text}: registrations above the limit fail"))
            .with_remedy(raise),
    }
}

fn limit_text(limit: ResourceLimit) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| Size(limit).to_string())
}

#[cfg(test)]
mod tests {
    use host::probe::{Probe, Registration};

    use super::*;

    #[test]
    fn small_limit_is_a_warning_with_a_remedy() {
        let check = |soft, hard, exempt| check_limits(Some((soft, hard)), exempt, RAISE_LIMITS);
        assert_eq!(check(None, None, false).level, Level::Ok);
        assert_eq!(
            check(Some(65536), None, false).remedy.as_deref(),
            Some("ulimit -l unlimited")
        );
        assert!(
            check(Some(65536), Some(65536), false)
                .remedy
                .unwrap()
                .contains("limits.conf")
        );
        assert!(
            check(Some(65536), Some(65536), true)
                .text
                .contains("exempt")
        );
    }

    #[test]
    fn a_failed_registration_has_one_remedy() {
        let error = "ibv_reg_mr: out of memory; help: the limit is 64 KiB: raise it";
        let registration = Registration {
            device: "mlx5_0".into(),
            bytes: 1 << 20,
            result: Err(error.into()),
        };
        let facts = HostFacts {
            probe: Probe {
                registrations: vec![registration].into(),
                ..Probe::default()
            },
            ..HostFacts::default()
        };
        let findings = check(&facts);
        let fault = findings.iter().find(|f| f.level == Level::Fault).unwrap();
        assert_eq!(
            fault.text,
            "registering 1 MiB failed: ibv_reg_mr: out of memory"
        );
        assert!(fault.remedy.is_some());
    }
}
