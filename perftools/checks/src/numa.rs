//! NUMA distance between the CPUs and the adapter.

use base::cpus::parse_list;
use host::HostFacts;

use super::finding::Finding;

const NODES: &str = "/sys/devices/system/node";

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let nodes = facts
        .root
        .list(NODES)
        .iter()
        .filter(|name| {
            name.strip_prefix("node")
                .is_some_and(|n| n.parse::<u32>().is_ok())
        })
        .count();
    let allowed = facts.root.text("/proc/self/status").unwrap_or_default();
    let allowed = allowed
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .and_then(parse_list)
        .unwrap_or_default();
    let mut findings = Vec::new();
    for device in facts
        .devices
        .iter()
        .filter(|device| !device.is_software() && nodes > 1)
    {
        let Some(node) = device.numa_node.filter(|node| *node >= 0) else {
            findings.push(
                Finding::ok("the firmware does not report the NUMA node of this adapter")
                    .on(&device.name),
            );
            continue;
        };
        let near = facts
            .root
            .value(&format!("{NODES}/node{node}/cpulist"))
            .unwrap_or_default();
        let distance = facts
            .root
            .value(&format!("{NODES}/node{node}/distance"))
            .unwrap_or_default();
        let text = format!("on NUMA node {node} of {nodes}, CPUs {near}, distances {distance}");
        let cpus = parse_list(&near).unwrap_or_default();
        let far = !allowed.is_empty() && !allowed.iter().any(|cpu| cpus.contains(cpu));
        findings.push(
            if far && !cpus.is_empty() {
                Finding::warning(format!(
                    "{text}: this process cannot run on any of these CPUs"
                ))
                .with_remedy(format!(
                    "numactl --cpunodebind={node} --membind={node} COMMAND"
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
