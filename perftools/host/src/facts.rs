//! The facts that the checks evaluate.

use std::collections::BTreeMap;

use crate::counters::Counters;
use crate::cpus::Cpus;
use crate::dcb::Dcb;
use crate::device::{self, Device, PciDevice, Port};
use crate::eipoib::Eipoib;
use crate::environment::Environment;
use crate::fact::Fact;
use crate::limits::Memlock;
use crate::link_caps::LinkCaps;
use crate::listeners::listening;
use crate::memory::{HugePages, Iommu};
use crate::modules::Modules;
use crate::netdev::{self, ArpSettings, Netdev};
use crate::nfs::Nfs;
use crate::nm::{self, Profile};
use crate::opensm;
use crate::partitions::{self, PartitionFile};
use crate::peer::PeerFacts;
use crate::probe::{Address, Probe};
use crate::root::Root;
use crate::spelling::{self, Misspelled};
use crate::udev::{self, UdevRule};
use crate::{counters, gpu, redaction, verbs};

/// The facts of a host that `ribinfo check` evaluates.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// The RDMA devices, sorted by name.
    pub devices: Vec<Device>,
    /// The network interfaces, sorted by name.
    pub netdevs: Vec<Netdev>,
    /// The facts that are not in files.
    pub probe: Probe,
    /// The facts of the peer or the error message, if a peer was requested.
    pub peer: Option<Result<PeerFacts, String>>,
    /// The kernel modules.
    pub modules: Modules,
    /// The PCI devices that are network adapters.
    pub pci: Vec<PciDevice>,
    /// The limits of locked memory.
    pub memlock: Memlock,
    /// The counters of each port, by device and port.
    pub counters: Fact<BTreeMap<(String, u32), Counters>>,
    /// Thresholds of the file of infiniband-diags, by the name of the counter.
    pub thresholds: BTreeMap<String, u64>,
    /// The handling of ARP requests, by network interface, and that of `all` interfaces.
    pub arp: BTreeMap<String, ArpSettings>,
    /// Flow control of Ethernet ports, by device and port.
    pub dcb: BTreeMap<(String, u32), Dcb>,
    /// The profiles of NetworkManager for InfiniBand interfaces.
    pub profiles: Vec<Profile>,
    /// The rules of udev that name IPoIB interfaces.
    pub udev_rules: Vec<UdevRule>,
    /// NFS over RDMA.
    pub nfs: Nfs,
    /// eIPoIB.
    pub eipoib: Eipoib,
    /// The configuration of opensm.
    pub opensm: opensm::Files,
    /// The files with the partitions of opensm.
    pub partitions: Vec<PartitionFile>,
    /// The misspelled words of the configuration files.
    pub misspelled: Vec<Misspelled>,
    /// The processors.
    pub cpus: Cpus,
    /// The huge pages.
    pub huge_pages: HugePages,
    /// The IOMMU.
    pub iommu: Iommu,
    /// The module of iptables has tables.
    pub has_ip_tables: bool,
    /// The place where this process runs.
    pub environment: Environment,
    /// The GPU driver can share the memory of GPUs as dma-bufs.
    pub has_gpu_dma_bufs: bool,
    /// The TCP ports on which a program listens.
    pub listening: Vec<u16>,
}

/// Returns the counters of ports. They are in many files, and adapters query their firmware for
/// each one.
fn counters_of(root: &Root, ports: Vec<(String, u32)>) -> Fact<BTreeMap<(String, u32), Counters>> {
    let root = root.clone();
    Fact::new(move || {
        let read = |key: (String, u32)| {
            let counters = Counters::of_port(&root, &key.0, u8::try_from(key.1).ok()?);
            Some((key, counters))
        };
        ports.into_iter().filter_map(read).collect()
    })
}

impl HostFacts {
    /// Reads the facts. Those that take time are read when they are first used. `peer` is the
    /// result of the request to the peer.
    pub fn read(root: &Root, peer: Option<Result<PeerFacts, String>>) -> Self {
        let devices = device::all(root);
        let netdevs = netdev::all(root);
        let probe = redaction::probe(root.probe());
        let ports = || {
            let ports = devices
                .iter()
                .flat_map(|device| device.ports.iter().map(move |port| (device, port)));
            ports.map(|(device, port)| ((device.name.clone(), port.port), port))
        };
        let dcb = |(key, port): ((String, u32), &Port)| {
            let dcb = Dcb::read(root, &probe.dcb, &key.0, key.1, port.netdev.as_ref()?);
            Some((key, dcb))
        };
        let opensm = opensm::Files::find(root);
        let tables = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];
        let sockets = ["/proc/net/tcp", "/proc/net/tcp6"];
        let sockets = sockets.map(|path| listening(&root.text(path).unwrap_or_default()));
        Self {
            modules: Modules::read(root),
            pci: device::network_adapters(root),
            memlock: Memlock::read(root),
            counters: counters_of(root, ports().map(|(key, _)| key).collect()),
            thresholds: counters::thresholds(root),
            arp: netdev::arp_settings(root, &netdevs),
            dcb: ports().filter_map(dcb).collect(),
            profiles: nm::infiniband_profiles(root),
            udev_rules: udev::ipoib_rules(root),
            nfs: Nfs::read(root),
            eipoib: Eipoib::read(root),
            partitions: partitions::files(root, &opensm),
            opensm,
            misspelled: spelling::misspelled(root),
            cpus: Cpus::read(root),
            huge_pages: HugePages::read(root),
            iommu: Iommu::read(root, &devices),
            environment: Environment::read(root),
            has_gpu_dma_bufs: gpu::has_dma_bufs(root),
            has_ip_tables: tables.iter().any(|path| root.value(path).is_some()),
            listening: sockets.concat().into_iter().map(|(port, _)| port).collect(),
            devices,
            netdevs,
            probe,
            peer,
        }
    }

    /// Returns the network interface with this name.
    pub fn netdev(&self, name: &str) -> Option<&Netdev> {
        self.netdevs.iter().find(|netdev| netdev.name == name)
    }

    /// Returns `true` if a device is only for management datagrams. An XDR adapter has one of them,
    /// `smi1`, with a port for each plane.
    pub fn is_management_only(&self, device: &Device) -> bool {
        let has_umad = device.ports.iter().any(|port| port.umad.is_some());
        device.uverbs.is_none() && has_umad && self.modules.is_present("ib_uverbs")
    }

    /// Returns all ports, each with its device, without those for management only.
    pub fn ports(&self) -> impl Iterator<Item = (&Device, &Port)> {
        self.devices
            .iter()
            .filter(|device| !self.is_management_only(device))
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
