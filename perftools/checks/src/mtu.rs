//! The RDMA MTU of each active port.

use host::HostFacts;
use host::netdev::Netdev;

use super::addresses::is_link_local;
use super::finding::Finding;

/// Smallest MTU of a network interface, in bytes, for RDMA MTU 4096 and all headers.
const NETDEV_FOR_4096: u32 = 4200;
/// Length of the headers that the kernel subtracts from an MTU, in bytes (`iboe_get_mtu`).
const HEADERS: u32 = 96;

/// Returns a warning for a VLAN whose MTU is smaller than the port needs. rdma_cm takes the MTU of
/// the path from the interface of the address (`iboe_get_mtu` in `cma_resolve_iboe_route`).
fn check_vlan(facts: &HostFacts, parent: &str, mtu: u32, rdma: u32) -> Option<Finding> {
    let is_small = |vlan: &&Netdev| {
        let mut addresses = facts.addresses(&vlan.name);
        let has_address = addresses.any(|address| !is_link_local(address.ip));
        let needed = mtu.min(rdma.saturating_add(HEADERS)).min(NETDEV_FOR_4096);
        vlan.is_on(parent) && has_address && vlan.mtu.is_some_and(|mtu| mtu < needed)
    };
    let vlan = facts.netdevs.iter().find(is_small)?;
    Some(
        Finding::warning(format!(
            "the MTU of the VLAN {} ({} bytes) is smaller than that of {parent} ({mtu} bytes), so rdma_cm uses a smaller RDMA MTU on it",
            vlan.name,
            vlan.mtu.unwrap_or(0)
        ))
        .with_remedy(format!("ip link set {} mtu {mtu} (and on the peers)", vlan.name)),
    )
}

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, port) in facts.ports().filter(|(_, port)| port.is_active()) {
        let verbs = facts.verbs_port(&device.name, port.port);
        let rdma =
            verbs.and_then(|verbs| Some((verbs.active_mtu_bytes()?, verbs.max_mtu_bytes()?)));
        let netdev = port.netdev.as_ref().and_then(|name| facts.netdev(name));
        let ethernet = netdev.and_then(|netdev| Some((&netdev.name, netdev.mtu?)));
        let finding = match (rdma, ethernet) {
            _ if device.is_iwarp() => match ethernet {
                Some((name, mtu)) => {
                    Finding::ok(format!("iWARP runs over TCP: the MTU of {name} ({mtu} bytes) limits TCP segments, not RDMA messages"))
                }
                None => continue,
            },
            (Some((active, max)), Some((name, mtu))) if active < max => Finding::warning(format!(
                "RDMA MTU is {active} bytes (maximum {max}), limited by the MTU of {name} ({mtu} bytes)"
            ))
            .with_remedy(format!(
                "ip link set {name} mtu {NETDEV_FOR_4096} (or 9000); do the same on the peers and the switch"
            )),
            (Some((active, _)), Some((name, mtu))) => Finding::ok(format!("RDMA MTU is {active} bytes; the MTU of {name} is {mtu} bytes")),
            // EFA has no interface. That of a RoCE port can be in another namespace.
            _ if ethernet.is_none() && !port.is_infiniband() => continue,
            (Some((active, max)), None) if active < max.min(2048) => Finding::warning(format!(
                "RDMA MTU is {active} bytes (maximum {max}), limited by the subnet manager or the other end of the link"
            ))
            .with_remedy(format!(
                "find the other end with iblinkinfo -C {} -P {} and check its MtuCap (smpquery portinfo), which depends on its model and firmware",
                device.name, port.port
            )),
            (Some((active, max)), None) => Finding::ok(format!("RDMA MTU is {active} bytes (maximum {max})")),
            (None, _) => continue,
        };
        let on = format!("{}/{}", device.name, port.port);
        let vlan = ethernet
            .filter(|_| !device.is_iwarp())
            .and_then(|(parent, mtu)| {
                check_vlan(
                    facts,
                    parent,
                    mtu,
                    rdma.map_or(u32::MAX, |(active, _)| active),
                )
            });
        findings.push(finding.on(&on));
        findings.extend(vlan.map(|finding| finding.on(&on)));
    }
    findings
}
