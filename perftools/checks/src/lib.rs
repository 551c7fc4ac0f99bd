//! The subjects of `ribinfo check`: findings about the configuration of a host.
//!
//! Each subject has a file with a function that turns [`HostFacts`] into [`Finding`]s, and
//! [`SUBJECTS`] lists all of them. [`selection`] runs those that a user names, [`expect`] compares
//! the ports with the user's requirements, and [`finding`] has the result with its remedy.
//!
//! The crate opens no device and prints nothing. `ribinfo check` prints the findings, and the
//! exporter counts them.

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

/// A subject of `ribinfo check`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Subject {
    /// The name, printed before each finding.
    pub name: &'static str,
    /// The description for `ribinfo check --list`.
    pub about: &'static str,
    #[serde(skip)]
    check: fn(&HostFacts<'_>) -> Vec<Finding>,
}

/// All subjects in the order of the report. A subject comes after those that it depends on.
pub const SUBJECTS: &[Subject] = &[
    Subject {
        name: "modules",
        about: "RDMA devices exist; kernel modules are loaded now and after a reboot",
        check: modules::check,
    },
    Subject {
        name: "nodes",
        about: "device nodes in /dev/infiniband exist and this user can open them",
        check: nodes::check,
    },
    Subject {
        name: "memlock",
        about: "locked-memory limits, and a test registration",
        check: memlock::check,
    },
    Subject {
        name: "port",
        about: "each port is ACTIVE and its GSI queue pair works, or the reason why not",
        check: port::check,
    },
    Subject {
        name: "sm",
        about: "the subnet manager of each InfiniBand port answers; LIDs, priority, standby",
        check: sm::check,
    },
    Subject {
        name: "link",
        about: "width and speed of the link and the PCIe slot, compared with what the adapter supports",
        check: link::check,
    },
    Subject {
        name: "counters",
        about: "error counters of each port, compared with thresholds",
        check: counters::check,
    },
    Subject {
        name: "mtu",
        about: "RDMA MTU, compared with the MTU of the network interface",
        check: mtu::check,
    },
    Subject {
        name: "gid",
        about: "GID table entries for the IP addresses of the network interface",
        check: gid::check,
    },
    Subject {
        name: "addresses",
        about: "IP addresses and subnets of RDMA interfaces",
        check: addresses::check,
    },
    Subject {
        name: "roce",
        about: "RoCE v1 or v2, on this host and on the peer",
        check: roce::check,
    },
    Subject {
        name: "dcb",
        about: "PFC, ECN, trusted priorities and CNPs of RoCE ports",
        check: dcb::check,
    },
    Subject {
        name: "iwarp",
        about: "what rdma_cm needs for iWARP connections",
        check: iwarp::check,
    },
    Subject {
        name: "ipoib",
        about: "mode, MTU, partition, parent and hardware address of IPoIB interfaces",
        check: ipoib::check,
    },
    Subject {
        name: "nfs",
        about: "NFS over RDMA: modules, port 20049, mounts",
        check: nfs::check,
    },
    Subject {
        name: "eipoib",
        about: "Ethernet over IPoIB: interfaces, slaves, VLANs",
        check: eipoib::check,
    },
    Subject {
        name: "opensm",
        about: "opensm.conf, its numbered instances, ignored files",
        check: opensm::check,
    },
    Subject {
        name: "partitions",
        about: "partitions.conf: syntax, default partition, rates, MTU codes, membership",
        check: partitions::check,
    },
    Subject {
        name: "governor",
        about: "CPU frequency governor",
        check: governor::check,
    },
    Subject {
        name: "numa",
        about: "NUMA node and CPUs close to the adapter",
        check: numa::check,
    },
    Subject {
        name: "hugepages",
        about: "reserved and free huge pages",
        check: hugepages::check,
    },
    Subject {
        name: "iommu",
        about: "address translation by the IOMMU",
        check: iommu::check,
    },
    Subject {
        name: "firewall",
        about: "the packet filter, evaluated for RoCE v2, ribping, NFS over RDMA, perftest and rperf",
        check: firewall::check,
    },
    Subject {
        name: "peer",
        about: "ports of the host that --peer names, compared with those of this host",
        check: peer::check,
    },
];

/// Checks the named subjects, or all subjects if `names` is empty.
pub fn check(facts: &HostFacts<'_>, names: &[String]) -> Vec<Finding> {
    let wanted =
        |subject: &&Subject| names.is_empty() || names.iter().any(|name| name == subject.name);
    let subjects = SUBJECTS.iter().filter(wanted);
    subjects
        .flat_map(|subject| {
            (subject.check)(facts).into_iter().map(|finding| Finding {
                subject: subject.name,
                ..finding
            })
        })
        .collect()
}
