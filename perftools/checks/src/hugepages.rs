//! Huge pages. A large registration on them needs fewer address translations.

use host::HostFacts;

use super::finding::Finding;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let pages = &facts.huge_pages;
    let transparent = pages.transparent.as_ref().map_or_else(String::new, |mode| {
        format!("; transparent huge pages: {mode}")
    });
    vec![match (pages.total, pages.free, pages.size_kib) {
        (Some(0), _, Some(size)) => Finding::ok(format!(
            "no huge pages of {size} kB are reserved (to reserve N: sysctl vm.nr_hugepages=N){transparent}"
        )),
        (Some(total), Some(free), Some(size)) => Finding::ok(format!(
            "{free} of {total} reserved huge pages of {size} kB are free{transparent}"
        )),
        _ => Finding::ok(format!("the kernel has no huge pages{transparent}")),
    }]
}
