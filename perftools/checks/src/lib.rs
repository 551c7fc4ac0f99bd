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

/// All checks in the order of the report. A check comes after those that it depends on.
pub const CHECKS: &[Check] = &[
    Check {
        name: "modules",
        about: "RDMA devices exist; kernel modules are loaded now and after a reboot",
        run: modules::check,
    },
    Check {
        name: "nodes",
        about: "device nodes in /dev/infiniband exist and this user can open them",
        run: nodes::check,
    },
    Check {
        name: "memlock",
        about: "locked-memory limits, and a test registration",
        run: memlock::check,
    },
    Check {
        name: "port",
        about: "each port is ACTIVE and its GSI queue pair works, or the reason why not",
        run: port::check,
    },
    Check {
        name: "sm",
        about: "the subnet manager of each InfiniBand port answers; LIDs, priority, standby",
        run: sm::check,
    },
    Check {
        name: "link",
        about: "width, speed and outages of links, transceivers, and PCIe links up to the root",
        run: link::check,
    },
    Check {
        name: "counters",
        about: "error counters of each port, compared with thresholds",
        run: counters::check,
    },
    Check {
        name: "mtu",
        about: "RDMA MTU, compared with the MTU of the network interface",
        run: mtu::check,
    },
    Check {
        name: "gid",
        about: "GID table entries for the IP addresses of the network interface",
        run: gid::check,
    },
    Check {
        name: "addresses",
        about: "IP addresses and subnets of RDMA interfaces",
        run: addresses::check,
    },
    Check {
        name: "roce",
        about: "RoCE v1 or v2, on this host and on the peer",
        run: roce::check,
    },
    Check {
        name: "dcb",
        about: "PFC, ECN, trusted priorities and CNPs of RoCE ports",
        run: dcb::check,
    },
    Check {
        name: "iwarp",
        about: "what rdma_cm needs for iWARP connections",
        run: iwarp::check,
    },
    Check {
        name: "ipoib",
        about: "mode, MTU, partition, parent and hardware address of IPoIB interfaces",
        run: ipoib::check,
    },
    Check {
        name: "nfs",
        about: "NFS over RDMA: modules, port 20049, mounts",
        run: nfs::check,
    },
    Check {
        name: "eipoib",
        about: "Ethernet over IPoIB: interfaces, slaves, VLANs",
        run: eipoib::check,
    },
    Check {
        name: "opensm",
        about: "opensm.conf, its numbered instances, ignored files",
        run: opensm::check,
    },
    Check {
        name: "partitions",
        about: "partitions.conf: syntax, default partition, rates, MTU codes, membership",
        run: partitions::check,
    },
    Check {
        name: "governor",
        about: "CPU frequency governor",
        run: governor::check,
    },
    Check {
        name: "numa",
        about: "NUMA node and CPUs close to the adapter",
        run: numa::check,
    },
    Check {
        name: "gpu",
        about: "GPUDirect RDMA: registration of GPU memory, ACS between adapters and GPUs",
        run: gpu::check,
    },
    Check {
        name: "hugepages",
        about: "reserved and free huge pages",
        run: hugepages::check,
    },
    Check {
        name: "iommu",
        about: "address translation by the IOMMU",
        run: iommu::check,
    },
    Check {
        name: "firewall",
        about: "the packet filter, evaluated for RoCE v2, ribping, NFS over RDMA, perftest and rperf",
        run: firewall::check,
    },
    Check {
        name: "peer",
        about: "ports of the host that --peer names, compared with those of this host",
        run: peer::check,
    },
];

/// Runs the named checks, or all checks if `names` is empty.
pub fn check(facts: &HostFacts, names: &[String]) -> Vec<Finding> {
    let wanted = |check: &&Check| names.is_empty() || names.iter().any(|name| name == check.name);
    let checks = CHECKS.iter().filter(wanted);
    checks
        .flat_map(|check| {
            (check.run)(facts).into_iter().map(|finding| Finding {
                check: check.name,
                ..finding
            })
        })
        .collect()
}
