//! Huge pages. A large registration on them needs fewer address translations.

use host::HostFacts;

use super::finding::Finding;

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let meminfo = facts.root.text("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = meminfo
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next())
            .and_then(|number| number.parse::<u64>().ok())
    };
    let transparent = facts
        .root
        .value("/sys/kernel/mm/transparent_hugepage/enabled")
        .unwrap_or_default();
    let transparent = transparent
        .split(['[', ']'])
        .nth(1)
        .map_or_else(String::new, |mode| {
            format!("; transparent huge pages: {mode}")
        });
    vec![match (
        field("HugePages_Total"),
        field("HugePages_Free"),
        field("Hugepagesize"),
    ) {
        (Some(0), _, Some(size)) => Finding::ok(format!(
            "no huge pages of {size} kB are reserved (to reserve N: sysctl vm.nr_hugepages=N){transparent}"
        )),
        (Some(total), Some(0), Some(size)) => Finding::warning(format!(
            "none of the {total} reserved huge pages of {size} kB is free{transparent}"
        ))
        .with_remedy(format!(
            "sysctl vm.nr_hugepages={}",
            total.saturating_mul(2)
        )),
        (Some(total), Some(free), Some(size)) => Finding::ok(format!(
            "{free} of {total} reserved huge pages of {size} kB are free{transparent}"
        )),
        _ => Finding::ok(format!("the kernel has no huge pages{transparent}")),
    }]
}
