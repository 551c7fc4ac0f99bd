//! RoCE versions: the default of rdma_cm, the GID table, and the peer's default.

use host::HostFacts;
use host::device::{Device, Port};
use host::peer::PeerPort;
use host::roce::{V1, V2, has_gid_type, is_roce, rdma_cm_mode};

use super::finding::Finding;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, port) in facts
        .ports()
        .filter(|(device, port)| is_roce(device, port) && port.is_active() && !port.gids.is_empty())
    {
        let on = format!("{}/{}", device.name, port.port);
        findings.push(check_local(device, port).on(&on));
        if let Some(Ok(peer)) = &facts.peer {
            let theirs: Vec<&PeerPort> = peer.ports.iter().filter(|port| port.is_roce()).collect();
            let is_namesake =
                |theirs: &&&PeerPort| theirs.device == device.name && theirs.port == port.port;
            let (namesakes, others): (Vec<_>, Vec<_>) = theirs.iter().partition(is_namesake);
            let compared = namesakes.into_iter().chain(others);
            let compared = compared.filter_map(|theirs| compare(device, port, &peer.host, theirs));
            // As in the check `peer`, one good partner is enough.
            findings.extend(
                compared
                    .min_by_key(|finding| finding.level)
                    .map(|f| f.on(&on)),
            );
        }
    }
    findings
}

fn check_local(device: &Device, port: &Port) -> Finding {
    if port.gids.iter().all(|row| row.kind.is_none()) {
        return Finding::ok("this kernel does not report the versions of GIDs");
    }
    let mode = rdma_cm_mode(port);
    let origin = if port.roce_mode.is_some() {
        "configured, lost at reboot"
    } else {
        "kernel default"
    };
    if !has_gid_type(port, mode) {
        let other = if mode == V1 { V2 } else { V1 };
        return Finding::fault(format!(
            "rdma_cm uses {mode} ({origin}), but the GID table has only {other}: connections fail"
        ))
        .with_remedy(set_mode_command(&device.name, port.port, other));
    }
    if mode == V1 && !has_gid_type(port, V2) {
        return Finding::warning(format!(
            "the GID table has no {V2} entries, so connections use {V1}, which cannot be routed"
        ))
        .with_remedy(
            "use one subnet and v1 on all hosts, or another adapter; see if newer firmware or a newer driver has RoCE v2",
        );
    }
    if mode == V1 {
        return Finding::warning(format!(
            "rdma_cm uses {mode} ({origin}), which cannot be routed; both ends must use the same version"
        ))
        .with_remedy(set_mode_command(&device.name, port.port, V2));
    }
    Finding::ok(format!(
        "rdma_cm uses {mode} ({origin}); both ends must use the same version"
    ))
}

fn set_mode_command(device: &str, port: u32, mode: &str) -> String {
    let directory = format!("/sys/kernel/config/rdma_cm/{device}");
    format!("mkdir -p {directory} && echo '{mode}' > {directory}/ports/{port}/default_roce_mode")
}

fn compare(device: &Device, port: &Port, host: &str, theirs: &PeerPort) -> Option<Finding> {
    let (ours, peers) = (rdma_cm_mode(port), theirs.roce_mode.as_deref()?);
    let name = format!("{}/{} of {host}", theirs.device, theirs.port);
    if ours == peers {
        return Some(Finding::ok(format!("{name} also uses {peers}")));
    }
    let text = format!(
        "rdma_cm uses {ours} on this host and {peers} on {name}: they must match, because a v2 client cannot connect to a v1 server"
    );
    let has = |kind: &str| theirs.kinds.iter().any(|other| other == kind);
    // Old versions of ribinfo do not send the types.
    if !theirs.kinds.is_empty()
        && ![V1, V2]
            .iter()
            .any(|kind| has(kind) && has_gid_type(port, kind))
    {
        return Some(Finding::fault(format!("{text} No version is in both GID tables.")).with_remedy(
            "update the driver or firmware of the adapter without RoCE v2; see ribinfo gids on both hosts",
        ));
    }
    let on_both = |kind: &str| has_gid_type(port, kind) && theirs.kinds.iter().any(|k| k == kind);
    Some(
        Finding::fault(text).with_remedy(if on_both(V2) || !on_both(V1) {
            if ours == V2 {
                format!(
                    "on {host}: {}",
                    set_mode_command(&theirs.device, theirs.port, V2)
                )
            } else {
                set_mode_command(&device.name, port.port, V2)
            }
        } else if ours == V1 {
            format!(
                "on {host}: {}",
                set_mode_command(&theirs.device, theirs.port, V1)
            )
        } else {
            set_mode_command(&device.name, port.port, V1)
        }),
    )
}
