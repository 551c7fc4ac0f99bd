//! Compatibility of the peer's ports with the ports of this host.

use base::error::split_help;
use host::HostFacts;
use host::device::{Device, Port};
use host::netdev::needs_interface;
use host::peer::{PeerFacts, PeerPort, technology};
use host::roce::{V1, rdma_cm_mode};
use host::verbs::VerbsPort;
use ipnet::IpNet;

use super::finding::Finding;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let peer = match &facts.peer {
        None => return Vec::new(),
        Some(Err(error)) => {
            let (cause, remedy) = split_help(error);
            let fault = format!("cannot get the facts of the peer: {cause}");
            return vec![Finding::fault(fault).with_remedy(remedy.unwrap_or(
                "run rperf on the peer; or: ssh PEER ribinfo facts > FILE && ribinfo check --peer-facts FILE",
            ))];
        }
        Some(Ok(peer)) => peer,
    };
    let mut findings = Vec::new();
    for (device, port) in facts.ports().filter(|(_, port)| port.is_active()) {
        let ours = technology(&port.link_layer, device.is_iwarp());
        let same = peer.ports.iter();
        let same = same.filter(|theirs| theirs.active && theirs.technology() == ours);
        // Rails of a fabric are not connected with each other, so one good partner is enough. The
        // port of the same name is named if all partners have the problem.
        let best = same.min_by_key(|theirs| {
            let is_namesake = theirs.device == device.name && theirs.port == port.port;
            (
                !shares_subnet(facts, port, theirs),
                compare(facts, device, port, theirs, peer).level,
                !is_namesake,
            )
        });
        findings.extend(best.map(|theirs| compare(facts, device, port, theirs, peer)));
    }
    if findings.is_empty() {
        findings.push(
            Finding::fault(
                "no technology (InfiniBand, RoCE, iWARP) has an ACTIVE port on both hosts",
            )
            .on(&peer.host)
            .with_remedy("compare ribinfo links on both hosts"),
        );
    }
    for theirs in peer.ports.iter().filter(|port| !port.active) {
        // A port that is not in use is normal if another one is, or if this host has none of them.
        let is_same = |other: &PeerPort| other.technology() == theirs.technology();
        let mut active = facts.ports().filter(|(_, port)| port.is_active());
        let is_needed = active.any(|(device, port)| {
            technology(&port.link_layer, device.is_iwarp()) == theirs.technology()
        });
        let text = format!(
            "{}/{} is not ACTIVE on the peer",
            theirs.device, theirs.port
        );
        let mut others = peer.ports.iter().filter(|other| other.active);
        let finding = if !is_needed || others.any(is_same) {
            Finding::ok(text)
        } else {
            Finding::warning(text).with_remedy("run ribinfo check on the peer")
        };
        findings.push(finding.on(&peer.host));
    }
    findings
}

/// Compares a port with one of the peer that has the same technology.
fn compare(
    facts: &HostFacts,
    device: &Device,
    port: &Port,
    theirs: &PeerPort,
    peer: &PeerFacts,
) -> Finding {
    let ours = technology(&port.link_layer, device.is_iwarp());
    let mtu = facts
        .verbs_port(&device.name, port.port)
        .and_then(VerbsPort::active_mtu_bytes);
    let name = format!(
        "{}/{} and {}/{} of {}",
        device.name, port.port, theirs.device, theirs.port, peer.host
    );
    let differing = mtu
        .zip(theirs.mtu)
        .filter(|(a, b)| a != b && ours != "iWARP");
    let finding = if let Some((a, b)) = differing {
        Finding::warning(format!(
            "{name}: RDMA MTU {a} bytes on this host, {b} bytes on the peer; connections can only use the smaller one"
        ))
        .with_remedy(raise_mtu_command(ours, a < b, port, theirs, &peer.host))
    } else if ours != "InfiniBand" && !shares_subnet(facts, port, theirs) {
        if ours == "RoCE" && rdma_cm_mode(port) == V1 {
            Finding::warning(format!(
                "{name} have no address in a common subnet: RoCE v1 cannot be routed"
            ))
            .with_remedy("use RoCE v2, or addresses of one subnet")
        } else {
            Finding::ok(format!(
                "{name} have no address in a common subnet: packets need a router"
            ))
        }
    } else if ours == "InfiniBand" && port.subnet_prefix() != theirs.subnet_prefix {
        Finding::warning(format!("{name} are in different subnets"))
            .with_remedy("connect them with a cable, a switch or a router")
    } else {
        Finding::ok(name)
    };
    finding.on(ours)
}

/// Returns `true` if an address of the peer is in a subnet of the port, or if the addresses of
/// either are not known.
fn shares_subnet(facts: &HostFacts, port: &Port, theirs: &PeerPort) -> bool {
    let Some(netdev) = &port.netdev else {
        return true;
    };
    let subnets: Vec<IpNet> = facts
        .addresses(netdev)
        .filter(|address| !needs_interface(address.ip))
        .filter_map(|address| IpNet::new(address.ip, u8::try_from(address.bits?).ok()?).ok())
        .collect();
    let mut peers = theirs
        .addresses
        .iter()
        .filter(|ip| !needs_interface(**ip))
        .peekable();
    subnets.is_empty()
        || peers.peek().is_none()
        || peers.any(|ip| subnets.iter().any(|subnet| subnet.contains(ip)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_is_that_of_the_error_if_it_has_one() {
        for (error, remedy) in [
            (
                "a token is required; help: set --token-file",
                "set --token-file",
            ),
            ("refused", "run rperf on the peer"),
        ] {
            let facts = HostFacts {
                peer: Some(Err(error.to_owned())),
                ..HostFacts::default()
            };
            let text = check(&facts)[0].to_string();
            assert!(text.contains(&format!(" => {remedy}")), "{text}");
            assert!(!text.contains("; help: "), "{text}");
        }
    }
}
