//! The RDMA MTU.

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;

/// Carries RDMA MTU 4096 with all headers.
const NETDEV_FOR_4096: u32 = 4200;

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, port) in facts.ports().filter(|(_, port)| port.is_active()) {
        let verbs = facts.verbs_port(&device.name, port.port);
        let bytes =
            verbs.and_then(|verbs| Some((verbs.active_mtu_bytes()?, verbs.max_mtu_bytes()?)));
        let netdev = port.netdev.as_ref().and_then(|name| facts.netdev(name));
        let on_netdev = netdev.and_then(|netdev| Some((&netdev.name, netdev.mtu?)));
        let finding = match (bytes, on_netdev) {
            _ if device.is_iwarp() => match on_netdev {
                Some((name, mtu)) => {
                    Finding::ok(format!("iWARP is TCP: MTU {mtu} of {name} sets the segments, not the messages"))
                }
                None => continue,
            },
            (Some((active, max)), Some((name, mtu))) if active < max => Finding::warning(format!(
                "RDMA MTU {active} of {max}: the MTU {mtu} of {name} allows no more"
            ))
            .mend(format!(
                "ip link set {name} mtu {NETDEV_FOR_4096} (9000 does too), on the peers and the switch as well"
            )),
            (Some((active, _)), Some((name, mtu))) => Finding::ok(format!("RDMA MTU {active}, MTU {mtu} of {name}")),
            (Some((active, max)), None) if active < max.min(2048) => Finding::warning(format!(
                "RDMA MTU {active} of {max}: the subnet manager or the link's other end set it"
            ))
            .mend(format!(
                "iblinkinfo -C {} -P {} names the other end: its MtuCap (smpquery portinfo) bounds it, and its firmware or model that",
                device.name, port.port
            )),
            (Some((active, max)), None) => Finding::ok(format!("RDMA MTU {active} of {max}")),
            (None, Some((name, mtu))) if mtu < NETDEV_FOR_4096 => {
                Finding::warning(format!("the MTU {mtu} of {name} is too small for RDMA MTU 4096"))
                    .mend(format!("ip link set {name} mtu {NETDEV_FOR_4096}"))
            }
            (None, _) => continue,
        };
        findings.push(finding.on(format!("{}/{}", device.name, port.port)));
    }
    findings
}
