//! iWARP ports: TCP, connected by rdma_cm only.

use super::finding::Finding;
use super::modules::{Modules, present};
use crate::ribinfo::collect::HostFacts;

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let modules = Modules::read(facts.root);
    for (device, port) in facts
        .ports()
        .filter(|(device, port)| device.is_iwarp() && port.is_active())
    {
        let on = format!("{}/{}", device.name, port.port);
        let Some(netdev) = &port.netdev else {
            findings.push(
                Finding::fault("no network interface is behind it")
                    .on(on)
                    .mend("rdma link show"),
            );
            continue;
        };
        let mut addresses: Vec<_> = facts
            .addresses(netdev)
            .map(|address| address.ip.to_string())
            .collect();
        addresses.retain(|ip| !ip.starts_with("fe80"));
        findings.push(
            if addresses.is_empty() {
                Finding::fault(format!(
                    "{netdev} has no address: rdma_cm, the only way to connect by iWARP, cannot find it"
                ))
                .mend(format!("ip addr add ADDRESS/BITS dev {netdev}"))
            } else {
                Finding::ok(format!(
                    "rdma_cm connects by {} (without rdma_cm iWARP does not connect)",
                    addresses.join(", ")
                ))
            }
            .on(&on),
        );
        // Its listener takes the port that rdma_cm wants on every iWARP device.
        if present(facts.root, &modules, "rds_tcp", None) {
            findings.push(
                Finding::fault("RDS over TCP listens on port 16385, so rdma_cm refuses the device")
                    .on(&on)
                    .mend("modprobe -r rds_tcp"),
            );
        }
    }
    findings
}
