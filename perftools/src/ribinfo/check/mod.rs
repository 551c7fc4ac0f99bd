//! What `ribinfo check` checks: one file a subject, each a function from facts to findings.

pub mod finding;

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

use serde::Serialize;

use crate::ribinfo::collect::HostFacts;
use finding::Finding;

/// A subject.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Subject {
    /// Its name, in front of its findings.
    pub name: &'static str,
    /// What it looks at, for `ribinfo check --list`.
    pub about: &'static str,
    #[serde(skip)]
    check: fn(&HostFacts<'_>) -> Vec<Finding>,
}

/// All subjects, in the order in which they are reported: what the others need comes first.
pub const SUBJECTS: &[Subject] = &[
    Subject {
        name: "modules",
        about: "RDMA devices are there; modules are loaded and configured to stay",
        check: modules::check,
    },
    Subject {
        name: "nodes",
        about: "the nodes in /dev/infiniband are there and this user may open them",
        check: nodes::check,
    },
    Subject {
        name: "memlock",
        about: "limits of locked memory, and a registration that is really made",
        check: memlock::check,
    },
    Subject {
        name: "port",
        about: "each port is ACTIVE; where not, why",
        check: port::check,
    },
    Subject {
        name: "link",
        about: "width and speed of the link and of the slot against what the card can do",
        check: link::check,
    },
    Subject {
        name: "mtu",
        about: "the RDMA MTU against the network interface's",
        check: mtu::check,
    },
    Subject {
        name: "gid",
        about: "the GID table has what IP addresses need",
        check: gid::check,
    },
    Subject {
        name: "roce",
        about: "RoCE v1 or v2, here and at the peer",
        check: roce::check,
    },
    Subject {
        name: "iwarp",
        about: "what rdma_cm needs to connect by iWARP",
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
        about: "opensm.conf, its numbered instances, which files are ignored",
        check: opensm::check,
    },
    Subject {
        name: "partitions",
        about: "partitions.conf: syntax, default partition, rates, MTU codes, membership",
        check: partitions::check,
    },
    Subject {
        name: "governor",
        about: "the processors' frequency governor",
        check: governor::check,
    },
    Subject {
        name: "numa",
        about: "which processors are near the card",
        check: numa::check,
    },
    Subject {
        name: "hugepages",
        about: "huge pages",
        check: hugepages::check,
    },
    Subject {
        name: "iommu",
        about: "the IOMMU",
        check: iommu::check,
    },
    Subject {
        name: "firewall",
        about: "UDP port 4791 and the control port 19765 against the packet filter",
        check: firewall::check,
    },
    Subject {
        name: "peer",
        about: "the peer's ports, where --peer names one",
        check: peer::check,
    },
];

/// Checks all subjects, or those named.
pub fn check(facts: &HostFacts<'_>, only: &[String]) -> Vec<Finding> {
    let wanted =
        |subject: &&Subject| only.is_empty() || only.iter().any(|name| name == subject.name);
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
