//! iWARP ports. iWARP runs over TCP, and its connections can be made only with rdma_cm.

use host::HostFacts;

use super::addresses::{is_spare, iwarp_netdev};
use super::finding::Finding;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, port) in facts
        .ports()
        .filter(|(device, port)| device.is_iwarp() && port.is_active())
    {
        let on = format!("{}/{}", device.name, port.port);
        let Some(netdev) = iwarp_netdev(facts, port) else {
            findings.push(
                Finding::fault("the port has no network interface")
                    .on(on)
                    .with_remedy("rdma link show"),
            );
            continue;
        };
        let mut addresses: Vec<_> = facts
            .addresses(netdev)
            .map(|address| address.ip.to_string())
            .collect();
        addresses.retain(|ip| !ip.starts_with("fe80"));
        findings.push(
            if addresses.is_empty() && is_spare(facts, device) {
                Finding::ok(format!(
                    "{netdev} has no address, but another function of the adapter has one"
                ))
            } else if addresses.is_empty() {
                Finding::fault(format!(
                    "{netdev} has no address: rdma_cm cannot use the port, and iWARP connections need rdma_cm"
                ))
                .with_remedy(format!("ip addr add ADDRESS/BITS dev {netdev}"))
            } else {
                Finding::ok(format!(
                    "rdma_cm can connect through {} (iWARP connections need rdma_cm)",
                    addresses.join(", ")
                ))
            }
            .on(&on),
        );
        // rds_tcp listens on a TCP port that rdma_cm also needs, on each iWARP device.
        if facts.modules.is_present("rds_tcp") {
            findings.push(
                Finding::fault(
                    "RDS over TCP listens on TCP port 16385, so rdma_cm cannot use this device",
                )
                .on(&on)
                .with_remedy("when nothing uses RDS over TCP: modprobe -r rds_tcp"),
            );
        }
    }
    findings
}
