//! RoCE v1 or v2: what rdma_cm prefers here, what the GID table has, and what the peer prefers.

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::device::{Device, Port};
use crate::ribinfo::collect::peer::PeerPort;
use crate::ribinfo::collect::roce::{V1, V2, has, is_roce, mode};

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, port) in facts
        .ports()
        .filter(|(device, port)| is_roce(device, port) && !port.gids.is_empty())
    {
        let on = format!("{}/{}", device.name, port.port);
        findings.push(here(device, port).on(&on));
        if let Some(Ok(peer)) = &facts.peer {
            let theirs: Vec<&PeerPort> = peer.ports.iter().filter(|port| port.is_roce()).collect();
            findings.extend(
                theirs
                    .iter()
                    .filter_map(|theirs| against(device, port, &peer.host, theirs))
                    .map(|f| f.on(&on)),
            );
        }
    }
    findings
}

fn here(device: &Device, port: &Port) -> Finding {
    let mode = mode(port);
    let set = if port.roce_mode.is_some() {
        "set until the reboot"
    } else {
        "the kernel's choice"
    };
    if !has(port, mode) {
        let other = if mode == V1 { V2 } else { V1 };
        return Finding::fault(format!(
            "rdma_cm uses {mode} ({set}), but the GID table has only {other}: connections fail"
        ))
        .mend(set_mode(&device.name, port.port, other));
    }
    if mode == V1 {
        return Finding::warning(format!(
            "rdma_cm uses {mode} ({set}): it stays within one broadcast domain, and both ends must use it"
        ))
        .mend(set_mode(&device.name, port.port, V2));
    }
    Finding::ok(format!(
        "rdma_cm uses {mode} ({set}); both ends must use the same"
    ))
}

fn set_mode(device: &str, port: u32, mode: &str) -> String {
    let directory = format!("/sys/kernel/config/rdma_cm/{device}");
    format!("mkdir -p {directory} && echo '{mode}' > {directory}/ports/{port}/default_roce_mode")
}

fn against(device: &Device, port: &Port, host: &str, theirs: &PeerPort) -> Option<Finding> {
    let (ours, peers) = (mode(port), theirs.roce_mode.as_deref()?);
    let name = format!("{}/{} of {host}", theirs.device, theirs.port);
    if ours == peers {
        return Some(Finding::ok(format!("{name} uses {peers} too")));
    }
    let text = format!(
        "rdma_cm uses {ours} here and {peers} on {name}: they must match, a v2 client and a v1 server do not connect"
    );
    let both = |kind: &str| has(port, kind) && theirs.kinds.iter().any(|k| k == kind);
    Some(Finding::fault(text).mend(if both(V2) || !both(V1) {
        if ours == V2 {
            format!("on {host}: {}", set_mode(&theirs.device, theirs.port, V2))
        } else {
            set_mode(&device.name, port.port, V2)
        }
    } else if ours == V1 {
        format!("on {host}: {}", set_mode(&theirs.device, theirs.port, V1))
    } else {
        set_mode(&device.name, port.port, V1)
    }))
}
