//! The CPU frequency governor.

use std::collections::BTreeMap;

use host::HostFacts;

use super::finding::Finding;

const CPUS: &str = "/sys/devices/system/cpu";

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let mut governors: BTreeMap<String, usize> = BTreeMap::new();
    for cpu in facts.root.list(CPUS) {
        if cpu
            .strip_prefix("cpu")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        {
            if let Some(governor) = facts
                .root
                .value(&format!("{CPUS}/{cpu}/cpufreq/scaling_governor"))
            {
                *governors.entry(governor).or_default() += 1;
            }
        }
    }
    let slow: Vec<_> = governors
        .iter()
        .filter(|(name, _)| *name != "performance")
        .map(|(name, count)| format!("{name} on {count}"))
        .collect();
    vec![match (governors.is_empty(), slow.is_empty()) {
        (true, _) => Finding::ok("no CPU frequency scaling on this host"),
        (_, true) => Finding::ok("performance on all CPUs"),
        _ => Finding::warning(format!(
            "{} CPUs: latency is higher and varies",
            slow.join(", ")
        ))
        .with_remedy("cpupower frequency-set -g performance"),
    }]
}
