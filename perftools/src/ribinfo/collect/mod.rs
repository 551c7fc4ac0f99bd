//! The facts of a host, parsed into types and read through one [`Root`].
//!
//! Files below `/sys`, `/proc` and `/etc` are read below the root. Facts that are not in files
//! (verbs, a memory registration, the rules of the packet filter) are a [`Probe`]: taken from this
//! host, or read from `probe.json` if the root is a captured tree. `display`, `check`, `peer` and
//! `rperf` use these facts.

pub mod device;
pub mod eipoib;
pub mod filter;
pub mod hwaddr;
pub mod limits;
pub mod link_caps;
pub mod mounts;
pub mod netdev;
pub mod opensm;
pub mod partitions;
pub mod peer;
pub mod probe;
pub mod rate;
pub mod roce;
pub mod root;
pub mod sm;
pub mod verbs;

use device::Device;
use link_caps::LinkCaps;
use netdev::Netdev;
use peer::PeerFacts;
use probe::{Address, Probe};
use root::Root;

/// All that the subjects judge.
#[derive(Debug)]
pub struct HostFacts<'a> {
    /// Where further files are read.
    pub root: &'a Root,
    /// The RDMA devices, in the order of their names.
    pub devices: Vec<Device>,
    /// The network interfaces, in the order of their names.
    pub netdevs: Vec<Netdev>,
    /// What is no file.
    pub probe: Probe,
    /// What the peer is, if one was asked.
    pub peer: Option<Result<PeerFacts, String>>,
}

impl<'a> HostFacts<'a> {
    /// Reads them for the subjects that are named, or all; `peer` is what came of asking the peer.
    pub fn read(
        root: &'a Root,
        subjects: &[String],
        peer: Option<Result<PeerFacts, String>>,
    ) -> Self {
        let wanted =
            |subject: &str| subjects.is_empty() || subjects.iter().any(|name| name == subject);
        Self {
            root,
            devices: device::all(root),
            netdevs: netdev::all(root),
            probe: root.probe(wanted),
            peer,
        }
    }

    /// The network interface of this name.
    pub fn netdev(&self, name: &str) -> Option<&Netdev> {
        self.netdevs.iter().find(|netdev| netdev.name == name)
    }

    /// All ports, each with its device.
    pub fn ports(&self) -> impl Iterator<Item = (&Device, &device::Port)> {
        self.devices
            .iter()
            .flat_map(|device| device.ports.iter().map(move |port| (device, port)))
    }

    /// What the verbs say of a port.
    pub fn verbs_port(&self, device: &str, port: u32) -> Option<&verbs::VerbsPort> {
        self.probe.verbs.device(device)?.port(port)
    }

    /// What an InfiniBand port says that its link can do.
    pub fn link_caps(&self, device: &str, port: u32) -> Option<LinkCaps> {
        let found = self
            .probe
            .link_caps
            .iter()
            .find(|caps| caps.device == device && u32::from(caps.port) == port);
        found.and_then(|found| found.caps.as_ref().ok()).copied()
    }

    /// The addresses of a network interface.
    pub fn addresses(&self, netdev: &str) -> impl Iterator<Item = &Address> {
        self.probe
            .addresses
            .iter()
            .filter(move |a| a.netdev == netdev)
    }
}
