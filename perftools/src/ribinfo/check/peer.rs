//! Compatibility of the peer's ports with the ports of this host.

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::device::Port;
use crate::ribinfo::collect::peer::{PeerPort, technology};
use crate::ribinfo::collect::verbs::VerbsPort;

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let peer = match &facts.peer {
        None => return Vec::new(),
        Some(Err(error)) => {
            return vec![Finding::fault(format!("cannot get the facts of the peer: {error}")).with_remedy(
                "run ribinfo serve or rperf on the peer; or: ssh PEER ribinfo facts > FILE && ribinfo check --peer-facts FILE",
            )];
        }
        Some(Ok(peer)) => peer,
    };
    let mut findings = Vec::new();
    for theirs in peer.ports.iter().filter(|port| !port.active) {
        findings.push(
            Finding::warning(format!(
                "{}/{} is not ACTIVE on the peer",
                theirs.device, theirs.port
            ))
            .on(&peer.host)
            .with_remedy("run ribinfo check on the peer"),
        );
    }
    let mut common = false;
    for (device, port) in facts.ports().filter(|(_, port)| port.is_active()) {
        let ours = technology(&port.link_layer, device.is_iwarp());
        let mtu = facts
            .verbs_port(&device.name, port.port)
            .and_then(VerbsPort::active_mtu_bytes);
        for theirs in peer
            .ports
            .iter()
            .filter(|theirs| theirs.active && theirs.technology() == ours)
        {
            common = true;
            let name = format!(
                "{}/{} and {}/{} of {}",
                device.name, port.port, theirs.device, theirs.port, peer.host
            );
            if let Some((a, b)) = mtu
                .zip(theirs.mtu)
                .filter(|(a, b)| a != b && ours != "iWARP")
            {
                let text = format!(
                    "{name}: RDMA MTU {a} bytes on this host, {b} bytes on the peer; connections can only use the smaller one"
                );
                findings.push(
                    Finding::warning(text)
                        .on(ours)
                        .with_remedy(raise_mtu_command(ours, a < b, port, theirs, &peer.host)),
                );
            } else if ours == "InfiniBand" && port.subnet_prefix() != theirs.subnet_prefix {
                findings.push(
                    Finding::warning(format!("{name} are in different subnets"))
                        .on(ours)
                        .with_remedy("connect them with a cable, a switch or a router"),
                );
            } else {
                findings.push(Finding::ok(name).on(ours));
            }
        }
    }
    if !common {
        findings.push(
            Finding::fault(
                "no technology (InfiniBand, RoCE, iWARP) has an ACTIVE port on both hosts",
            )
            .on(&peer.host)
            .with_remedy("compare ribinfo links on both hosts"),
        );
    }
    findings
}

/// Returns the remedy that raises the RDMA MTU at the end where it is smaller.
fn raise_mtu_command(
    technology: &str,
    local: bool,
    port: &Port,
    theirs: &PeerPort,
    host: &str,
) -> String {
    if technology == "InfiniBand" {
        return "find the other ends of both links with iblinkinfo and check their MtuCap (smpquery portinfo)"
            .to_owned();
    }
    let set = |netdev: &Option<String>| {
        format!(
            "ip link set {} mtu 4200",
            netdev.as_deref().unwrap_or("NETDEV")
        )
    };
    if local {
        set(&port.netdev)
    } else {
        format!("on {host}: {}", set(&theirs.netdev))
    }
}
