//! The facts that the checks evaluate.

use crate::device::{self, Device};
use crate::link_caps::LinkCaps;
use crate::netdev::{self, Netdev};
use crate::peer::PeerFacts;
use crate::probe::{Address, Probe};
use crate::root::Root;
use crate::verbs;

/// The facts that the subjects of `ribinfo check` evaluate.
#[derive(Debug)]
pub struct HostFacts<'a> {
    /// The root directory, from which subjects read further files.
    pub root: &'a Root,
    /// The RDMA devices, sorted by name.
    pub devices: Vec<Device>,
    /// The network interfaces, sorted by name.
    pub netdevs: Vec<Netdev>,
    /// The facts that are not in files.
    pub probe: Probe,
    /// The facts of the peer or the error message, if a peer was requested.
    pub peer: Option<Result<PeerFacts, String>>,
}

impl<'a> HostFacts<'a> {
    /// Reads the facts for the named subjects, or for all subjects if `subjects` is empty. `peer`
    /// is the result of the request to the peer.
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

    /// Returns the network interface with this name.
    pub fn netdev(&self, name: &str) -> Option<&Netdev> {
        self.netdevs.iter().find(|netdev| netdev.name == name)
    }

    /// Returns all ports, each with its device.
    pub fn ports(&self) -> impl Iterator<Item = (&Device, &device::Port)> {
        self.devices
            .iter()
            .flat_map(|device| device.ports.iter().map(move |port| (device, port)))
    }

    /// Returns the verbs attributes of a port.
    pub fn verbs_port(&self, device: &str, port: u32) -> Option<&verbs::VerbsPort> {
        self.probe.verbs.device(device)?.port(port)
    }

    /// Returns `true` if the queue pair for general services of a port has failed.
    pub fn has_failed_gsi_qp(&self, device: &str, port: u32) -> bool {
        let mut gsi_qps = self.probe.gsi_qps.iter();
        gsi_qps.any(|qp| (qp.device.as_str(), qp.port) == (device, port) && qp.has_failed())
    }

    /// Returns the widths and speeds of the link of an InfiniBand port.
    pub fn link_caps(&self, device: &str, port: u32) -> Option<LinkCaps> {
        let found = self
            .probe
            .link_caps
            .iter()
            .find(|caps| caps.device == device && u32::from(caps.port) == port);
        found.and_then(|found| found.caps.as_ref().ok()).copied()
    }

    /// Returns the IP addresses of a network interface.
    pub fn addresses(&self, netdev: &str) -> impl Iterator<Item = &Address> {
        self.probe
            .addresses
            .iter()
            .filter(move |a| a.netdev == netdev)
    }
}
