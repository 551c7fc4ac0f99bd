//! The RDMA MTU of each active port.

use host::HostFacts;

use super::finding::Finding;

/// Smallest MTU of a network interface, in bytes, for RDMA MTU 4096 and all headers.
const NETDEV_FOR_4096: u32 = 4200;

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
            (None, Some((name, mtu))) if mtu < NETDEV_FOR_4096 => {
                Finding::warning(format!("the MTU of {name} ({mtu} bytes) is too small for an RDMA MTU of 4096 bytes"))
                    .with_remedy(format!("ip link set {name} mtu {NETDEV_FOR_4096}"))
            }
            (None, _) => continue,
        };
        findings.push(finding.on(format!("{}/{}", device.name, port.port)));
    }
    findings
}
