//! The checks of `ribinfo check`: findings about the configuration of a host, from its facts.
//!
//! Each check has a file with a function that turns [`HostFacts`] into [`Finding`]s, and
//! [`CHECKS`] lists all of them. [`selection`] runs those that a user names, [`expect`] compares
//! the ports with the user's requirements, and [`finding`] has the result with its remedy.
//!
//! The crate opens no file and no device and prints nothing, which `clippy.toml` enforces. `ribinfo
//! check` prints the findings, and the exporter counts them.

#![forbid(unsafe_code)]

pub mod expect;
pub mod finding;
pub mod selection;

mod addresses;
mod counters;
mod dcb;
mod eipoib;
mod firewall;
mod gid;
mod governor;
mod gpu;
mod hugepages;
mod iommu;
mod ipoib;
mod iwarp;
mod link;
mod memlock;
mod modules;
mod mtu;
mod nfs;
mod nodes;
mod numa;
mod opensm;
mod partitions;
mod peer;
mod port;
mod roce;
mod sm;
mod spelling;

use serde::Serialize;

use finding::Finding;
use host::HostFacts;

/// One check of the configuration.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Check {
    /// The name, printed before each finding.
    pub name: &'static str,
    /// The description for `ribinfo check --list`.
    pub about: &'static str,
    #[serde(skip)]
    run: fn(&HostFacts) -> Vec<Finding>,
}

macro_rules! checks {
    ($($module:ident: $about:literal,)*) => {
        /// All checks in the order of the report. A check comes after those that it depends on.
        pub const CHECKS: &[Check] = &[$(Check {
            name: stringify!($module),
            about: $about,
            run: $module::check,
        }),*];
    };
}

checks! {
    modules: "RDMA devices exist; kernel modules are loaded",
    nodes: "device nodes in /dev/infiniband exist and this user can open them",
    memlock: "locked-memory limits, and a test registration",
    port: "each port is ACTIVE and its GSI queue pair works, or the reason why not",
    sm: "the subnet manager of each InfiniBand port answers; LIDs, priority, standby",
    link: "width, speed and outages of links, transceivers, and PCIe links up to the root",
    counters: "error counters of each port, compared with thresholds",
    mtu: "RDMA MTU, compared with the MTU of the network interface",
    gid: "GID table entries for the IP addresses of the network interface",
    addresses: "IP addresses and subnets of RDMA interfaces",
    roce: "RoCE v1 or v2, on this host and on the peer",
    dcb: "PFC, ECN, trusted priorities and CNPs of RoCE ports",
    iwarp: "what rdma_cm needs for iWARP connections",
    ipoib: "mode, MTU, partition, parent and hardware address of IPoIB interfaces",
    nfs: "NFS over RDMA: modules, port 20049, mounts",
    eipoib: "Ethernet over IPoIB: interfaces, slaves, VLANs",
    opensm: "opensm.conf, its numbered instances, ignored files",
    partitions: "partitions.conf: syntax, default partition, rates, MTU codes, membership",
    governor: "CPU frequency governor",
    numa: "NUMA node and CPUs close to the adapter",
    gpu: "GPUDirect RDMA: registration of GPU memory, ACS between adapters and GPUs",
    hugepages: "reserved and free huge pages",
    iommu: "address translation by the IOMMU",
    firewall: "the packet filter, evaluated for RoCE v2, ribping, NFS over RDMA, perftest and rperf",
    peer: "ports of the host that --peer names, compared with those of this host",
}

/// Runs the named checks, or all checks if `names` is empty.
pub fn check(facts: &HostFacts, names: &[String]) -> Vec<Finding> {
    let wanted = |check: &&Check| names.is_empty() || names.iter().any(|name| name == check.name);
    let checks = CHECKS.iter().filter(wanted);
    checks
        .flat_map(|check| {
            (check.run)(facts).into_iter().map(|finding| Finding {
                check: check.name,
                ..finding.for_place(facts)
            })
        })
        .collect()
}
