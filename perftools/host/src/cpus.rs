//! The processors: frequency governors, NUMA nodes, and those that this process may use.

use std::collections::BTreeMap;

use base::cpus::parse_list;

use crate::root::Root;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

/// The processors of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    /// The number of processors with each frequency governor.
    pub governors: BTreeMap<String, usize>,
    /// The NUMA nodes.
    pub nodes: Vec<NumaNode>,
    /// The processors that this process may use. Empty if they are not known.
    pub allowed: Vec<usize>,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// The number.
    pub number: i32,
    /// The processors, for example `0-7`.
    pub cpus: String,
    /// The distances to all nodes.
    pub distances: String,
}

impl Cpus {
    /// Reads the processors.
    pub(crate) fn read(root: &Root) -> Self {
        let status = root.text("/proc/self/status").unwrap_or_default();
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let value = |node: &str, file| {
            root.value(&format!("{NODES}/{node}/{file}"))
                .unwrap_or_default()
        };
        let nodes = root.list(NODES).into_iter().filter_map(|name| {
            Some(NumaNode {
                number: name.strip_prefix("node")?.parse().ok()?,
                cpus: value(&name, "cpulist"),
                distances: value(&name, "distance"),
            })
        });
        Self {
            governors: governors(root),
            nodes: nodes.collect(),
            allowed: allowed.and_then(parse_list).unwrap_or_default(),
        }
    }
}

/// Returns the number of processors with each frequency governor.
pub(crate) fn governors(root: &Root) -> BTreeMap<String, usize> {
    let mut governors = BTreeMap::new();
    let is_cpu = |name: &String| name.starts_with("cpu");
    for cpu in root.list(CPUS).into_iter().filter(is_cpu) {
        let file = format!("{CPUS}/{cpu}/cpufreq/scaling_governor");
        if let Some(governor) = root.value(&file) {
            *governors.entry(governor).or_default() += 1;
        }
    }
    governors
}
