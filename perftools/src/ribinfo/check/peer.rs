//! What the peer is, compared with this end.

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::device::Port;
use crate::ribinfo::collect::peer::{PeerPort, technology};
use crate::ribinfo::collect::verbs::VerbsPort;

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let peer = match &facts.peer {
        None => return Vec::new(),
        Some(Err(error)) => {
            return vec![Finding::fault(format!("it does not tell what it is: {error}")).mend(
                "at the peer: ribinfo serve, or rperf; or: ssh PEER ribinfo facts > FILE && ribinfo check --peer-facts FILE",
            )];
        }
        Some(Ok(peer)) => peer,
    };
    let mut findings = Vec::new();
    for theirs in peer.ports.iter().filter(|port| !port.active) {
        findings.push(
            Finding::warning(format!(
                "{}/{} is not ACTIVE there",
                theirs.device, theirs.port
            ))
            .on(&peer.host)
            .mend("at the peer: ribinfo check"),
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
                    "{name}: RDMA MTU {a} here and {b} there: the smaller one holds, where it is known"
                );
                findings.push(Finding::warning(text).on(ours).mend(widen(
                    ours,
                    a < b,
                    port,
                    theirs,
                    &peer.host,
                )));
            } else if ours == "InfiniBand" && port.subnet_prefix() != theirs.subnet_prefix {
                findings.push(
                    Finding::warning(format!("{name} are in different subnets"))
                        .on(ours)
                        .mend("a cable or switch between them, or a router"),
                );
            } else {
                findings.push(Finding::ok(name).on(ours));
            }
        }
    }
    if !common {
        findings.push(
            Finding::fault("no ACTIVE port there speaks what one here does")
                .on(&peer.host)
                .mend("ribinfo links, here and there"),
        );
    }
    findings
}

/// What gives the end with the smaller RDMA MTU a larger one.
fn widen(technology: &str, here: bool, port: &Port, theirs: &PeerPort, host: &str) -> String {
    if technology == "InfiniBand" {
        return "iblinkinfo names the other ends of both links: MtuCap (smpquery portinfo) of one of them bounds it"
            .to_owned();
    }
    let set = |netdev: &Option<String>| {
        format!(
            "ip link set {} mtu 4200",
            netdev.as_deref().unwrap_or("NETDEV")
        )
    };
    if here {
        set(&port.netdev)
    } else {
        format!("on {host}: {}", set(&theirs.netdev))
    }
}
