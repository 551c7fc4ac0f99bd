//! The CPU frequency governor.

use host::HostFacts;

use super::finding::Finding;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let governors = &facts.cpus.governors;
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
        .with_command("cpupower frequency-set -g performance"),
    }]
}
