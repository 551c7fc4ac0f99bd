//! Flow control of RoCE ports: PFC, ECN, the priority of RDMA packets and of CNPs.

use host::HostFacts;
use host::dcb::Dcb;

use super::finding::Finding;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, port) in facts.ports() {
        let is_roce = port.is_ethernet() && !device.is_iwarp() && !device.is_software();
        let Some(netdev) = port.netdev.as_ref().filter(|_| is_roce && port.is_active()) else {
            continue;
        };
        let (name, number) = (&device.name, port.port);
        let Some(dcb) = facts.dcb.get(&(name.clone(), number)) else {
            continue;
        };
        // Packets of a VLAN have the priority of their tag.
        let mut vlans = facts.netdevs.iter().filter(|vlan| vlan.is_on(netdev));
        let has_vlan = vlans.any(|vlan| facts.addresses(&vlan.name).next().is_some());
        let has_tags = has_vlan && dcb.trusts_dscp() == Some(false);
        let found = if has_tags {
            check_ecn(dcb, netdev)
        } else {
            check_port(dcb, name, number, netdev)
        };
        let on = format!("{name}/{number}");
        findings.extend(found.into_iter().map(|finding| finding.on(&on)));
    }
    findings
}

fn check_port(dcb: &Dcb, device: &str, port: u32, netdev: &str) -> Vec<Finding> {
    let ecn = dcb.ecn_np.as_ref().zip(dcb.ecn_rp.as_ref());
    let Some(pfc) = &dcb.pfc else {
        return match ecn {
            None => vec![Finding::unknown(format!(
                "PFC and ECN of {netdev} are not known: the command dcb or the driver does not report them"
            ))],
            Some(_) => check_ecn(dcb, netdev),
        };
    };
    if pfc.is_empty() {
        let no_ecn = ecn.is_some_and(|(np, rp)| np.is_empty() || rp.is_empty());
        if no_ecn {
            return vec![
                Finding::warning(
                    "neither PFC nor ECN is enabled: RoCE loses packets under congestion",
                )
                .with_remedy(format!("dcb pfc set dev {netdev} prio-pfc all:off 3:on")),
            ];
        }
        let mut findings = check_ecn(dcb, netdev);
        if findings.is_empty() {
            findings.push(Finding::ok("no priority has PFC"));
        }
        return findings;
    }
    let lossless = list(pfc);
    let mut findings = Vec::new();
    if dcb.trusts_dscp() == Some(true) && dcb.data_dscp().is_none() && !has_default(dcb, pfc) {
        let class = pfc
            .first()
            .map_or(0, |priority| dscp_of(dcb, *priority) << 2);
        findings.push(
            Finding::warning(format!(
                "PFC is on for priority {lossless}, but no traffic class is set: RDMA packets have DSCP 0, unless the application sets another one"
            ))
            .with_remedy(format!(
                "mkdir -p /sys/kernel/config/rdma_cm/{device} && echo {class} > /sys/kernel/config/rdma_cm/{device}/ports/{port}/default_roce_tos"
            )),
        );
    } else if dcb.trusts_dscp() == Some(false) && !pfc.contains(&0) {
        findings.push(
            Finding::warning(format!(
                "PFC is on for priority {lossless}, but {netdev} trusts PCP: packets without a VLAN tag have priority 0, which loses packets"
            ))
            .with_remedy(format!("mlnx_qos -i {netdev} --trust dscp")),
        );
    } else if let Some((dscp, priority)) = data_priority(dcb).filter(|(_, p)| !pfc.contains(p)) {
        let class = pfc
            .first()
            .map_or(0, |priority| dscp_of(dcb, *priority) << 2);
        findings.push(
            Finding::warning(format!(
                "RDMA packets have DSCP {dscp} and priority {priority}, but PFC is on for priority {lossless}"
            ))
            .with_remedy(format!(
                "echo {class} > /sys/kernel/config/rdma_cm/{device}/ports/{port}/default_roce_tos"
            )),
        );
    }
    if pfc.len() > 2 {
        findings.push(
            Finding::warning(format!(
                "PFC is on for priorities {lossless}: switches reserve buffers for each, and TCP can pause RDMA"
            ))
            .with_remedy(format!("dcb pfc set dev {netdev} prio-pfc all:off 3:on")),
        );
    }
    findings.extend(check_ecn(dcb, netdev));
    if findings.is_empty() {
        findings.push(Finding::ok(format!("PFC is on for priority {lossless}")));
    }
    findings
}

/// Checks ECN and CNPs.
fn check_ecn(dcb: &Dcb, netdev: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let data = data_priority(dcb).map(|(_, priority)| priority);
    for (point, enabled) in [("roce_np", &dcb.ecn_np), ("roce_rp", &dcb.ecn_rp)] {
        let (Some(enabled), Some(data)) = (enabled, data) else {
            continue;
        };
        if !enabled.contains(&data) {
            findings.push(
                Finding::warning(format!(
                    "ECN ({point}) is off for priority {data}, which RDMA packets have"
                ))
                .with_command(format!(
                    "echo 1 > /sys/class/net/{netdev}/ecn/{point}/enable/{data}"
                )),
            );
        }
    }
    // With DSCP trust, the DSCP value of a CNP decides; otherwise its priority.
    let cnp = match (dcb.trusts_dscp(), dcb.cnp_dscp) {
        (Some(true), Some(dscp)) => dcb.priority(dscp),
        _ => dcb.cnp_priority,
    };
    if let (Some(cnp), Some(data)) = (cnp, data) {
        if cnp == data {
            findings.push(
                Finding::warning(format!(
                    "CNPs have the priority {cnp} of the data, and wait behind it under congestion"
                ))
                .with_remedy(format!(
                    "echo 48 > /sys/class/net/{netdev}/ecn/roce_np/cnp_dscp"
                )),
            );
        }
    }
    findings
}

/// Returns `true` if PFC is on for the priority of packets without a traffic class.
fn has_default(dcb: &Dcb, pfc: &[u8]) -> bool {
    dcb.priority(0)
        .is_none_or(|priority| pfc.contains(&priority))
}

/// Returns the DSCP value and the priority of RDMA packets.
fn data_priority(dcb: &Dcb) -> Option<(u8, u8)> {
    let dscp = dcb.data_dscp()?;
    Some((dscp, dcb.priority(dscp)?))
}

/// Returns a DSCP value of a priority.
fn dscp_of(dcb: &Dcb, priority: u8) -> u8 {
    let mapped = dcb.dscp.iter().flatten().find(|(_, p)| *p == priority);
    mapped.map_or(priority << 3, |(dscp, _)| *dscp)
}

fn list(priorities: &[u8]) -> String {
    let texts: Vec<String> = priorities.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
