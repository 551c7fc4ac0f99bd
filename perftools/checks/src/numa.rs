//! NUMA distance between the CPUs and the adapter.

use base::cpus::parse_list;
use host::HostFacts;
use host::device::Device;

use super::finding::Finding;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let (nodes, allowed) = (facts.cpus.nodes.len(), &facts.cpus.allowed);
    let mut findings = Vec::new();
    let devices = facts
        .devices
        .iter()
        .filter(|device| !device.is_software() && nodes > 1 && facts.is_given(device));
    // A process that is bound to a node uses the adapters of that node.
    let is_near = |device: &Device| {
        let node = facts.cpus.nodes.iter();
        let mut node = node.filter(|node| Some(node.number) == device.numa_node);
        node.any(|node| {
            parse_list(&node.cpus).is_some_and(|cpus| cpus.iter().any(|cpu| allowed.contains(cpu)))
        })
    };
    let has_near = allowed.is_empty() || devices.clone().any(is_near);
    for device in devices {
        let Some(node) = device.numa_node.filter(|node| *node >= 0) else {
            findings.push(
                Finding::ok("the firmware does not report the NUMA node of this adapter")
                    .on(&device.name),
            );
            continue;
        };
        let found = facts.cpus.nodes.iter().find(|found| found.number == node);
        let found = found.cloned().unwrap_or_default();
        let (near, distance) = (found.cpus, found.distances);
        let text = format!("on NUMA node {node} of {nodes}, CPUs {near}, distances {distance}");
        let cpus = parse_list(&near).unwrap_or_default();
        let far = !has_near && !allowed.iter().any(|cpu| cpus.contains(cpu));
        findings.push(
            if far && !cpus.is_empty() {
                Finding::warning(format!(
                    "{text}: this process cannot run on any of these CPUs"
                ))
                .with_remedy(format!(
                    "give the container or the job CPUs of NUMA node {node} (docker --cpuset-cpus={near}; the topology manager of Kubernetes; Slurm --cpu-bind); otherwise: numactl --cpunodebind={node} --membind={node} COMMAND"
                ))
            } else {
                Finding::ok(format!(
                    "{text}; to run there: numactl --cpunodebind={node} COMMAND"
                ))
            }
            .on(&device.name),
        );
    }
    findings
}
