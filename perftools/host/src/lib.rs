//! The facts of a host, parsed into types and read through one [`root::Root`].
//!
//! Files in `/sys`, `/proc` and `/etc` are read below the root. Facts that are not in files (verbs,
//! a memory registration, the rules of the packet filter) are a [`probe::Probe`]: queried on this
//! host, or read from `probe.json` if the root is a captured tree. [`HostFacts`] has the facts that
//! the checks evaluate, and [`peer::PeerFacts`] those that another host may request.
//!
//! The crate reads files, netlink and verbs, and starts the programs that list the rules of the
//! packet filter. It judges nothing and prints nothing. The checks, the programs and the crates
//! that describe a measurement use it.

#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "errors explain themselves")]

pub mod adapters;
pub mod capture;
mod capture_directory;
mod command;
pub mod conditions;
pub mod counters;
pub mod cpus;
pub mod dcb;
pub mod dcb_output;
pub mod device;
pub mod eipoib;
pub mod environment;
pub mod fact;
mod facts;
pub mod filter;
pub mod gpu;
pub mod hardware;
pub mod host_conf;
pub mod hwaddr;
mod interface_files;
pub mod limits;
pub mod link_caps;
pub mod link_log;
mod link_statistics;
pub mod listeners;
pub mod memory;
#[cfg(any(test, feature = "testing"))]
mod memory_files;
pub mod modules;
pub mod netdev;
mod netlink;
pub mod nfs;
pub mod nm;
pub mod opensm;
pub mod partitions;
pub mod pci;
pub mod pci_link;
pub mod peer;
pub mod probe;
pub mod rate;
mod redaction;
pub mod resources;
pub mod roce;
pub mod root;
pub mod sm;
pub mod spelling;
pub mod tcp;
pub mod tcp_table;
pub mod transceiver;
mod tree;
pub mod udev;
pub mod verbs;

pub use facts::HostFacts;
