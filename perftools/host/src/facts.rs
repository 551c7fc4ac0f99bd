//! The facts that the checks evaluate.

use std::collections::BTreeMap;

use crate::adapters::{self, Adapter};
use crate::counters::Counters;
use crate::cpus::Cpus;
use crate::dcb::Dcb;
use crate::device::{self, Device, Port};
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
use crate::probe::{Address, Node, Probe};
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
    /// The namespaces of the network share all RDMA devices (rdma-system(8)), if it is known.
    pub shares_devices: Option<bool>,
    /// The PCI functions that support RDMA.
    pub adapters: Fact<Vec<Adapter>>,
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
    /// The profiles of InfiniBand interfaces.
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

/// The parameter of the kernel that `rdma system` sets: `Y` if namespaces share the devices.
pub(crate) const NETNS_MODE: &str = "/sys/module/ib_core/parameters/netns_mode";

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
            shares_devices: root.value(NETNS_MODE).map(|mode| mode == "Y"),
            adapters: {
                let root = root.clone();
                Fact::new(move || adapters::adapters(&root))
            },
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

    /// Returns `true` if a device can be used here. A container sees every device of its host in
    /// `/sys`, but only the nodes of those that it was given. If it was given none, all of them
    /// count, so that they are reported.
    pub fn is_given(&self, device: &Device) -> bool {
        self.environment.container.is_none()
            || self.has_node(device)
            || !self.devices.iter().any(|device| self.has_node(device))
    }

    /// Returns the node of this name in `/dev/infiniband`.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.probe.nodes.iter().find(|node| node.name == name)
    }

    /// Returns `true` if the verbs node of a device exists.
    pub fn has_node(&self, device: &Device) -> bool {
        let name = device.uverbs.as_deref();
        name.is_some_and(|name| self.node(name).is_some())
    }

    /// Returns `true` if a port carries raw packets only: its adapter is in switchdev mode, RoCE is
    /// disabled, or the driver has no RoCE (mana of older kernels). Such ports have
    /// `RDMA_CORE_PORT_RAW_PACKET` only (`mlx5_port_rep_immutable`, `mana_ib_get_port_immutable`),
    /// so they have neither GIDs nor a node for management datagrams.
    pub fn is_raw(&self, device: &Device, port: &Port) -> bool {
        let can_be_raw = matches!(device.driver.as_deref(), Some("mlx5_core" | "mana"));
        let lacks_umad = port.umad.is_none() && self.modules.is_present("ib_umad");
        // In a container, the interface and the node can be elsewhere.
        let is_here = port.netdev.is_some() && self.environment.container.is_none();
        port.is_ethernet()
            && port.gids.is_empty()
            && (self.is_switchdev(device) || (can_be_raw && lacks_umad && is_here))
    }

    /// Returns `true` if the adapter of a device is in switchdev mode: an interface has the
    /// identifier of a switch, or the device has ports for other functions than its own.
    pub fn is_switchdev(&self, device: &Device) -> bool {
        let netdevs = || device.ports.iter().filter_map(|port| port.netdev.as_ref());
        let has_switch = |name: &String| {
            self.netdev(name)
                .is_some_and(|netdev| netdev.switch_id.is_some())
        };
        let is_representor = |port: &Port| port.is_ethernet() && port.umad.is_none();
        let has_umad = device.ports.iter().any(|port| port.umad.is_some());
        let has_representors = device.ports.len() > 1 && device.ports.iter().any(is_representor);
        netdevs().any(has_switch)
            || (has_representors && (has_umad || self.modules.is_present("ib_umad")))
    }

    /// Returns all ports that can be used here, each with its device, without those for management
    /// only.
    pub fn ports(&self) -> impl Iterator<Item = (&Device, &Port)> {
        self.devices
            .iter()
            .filter(|device| !self.is_management_only(device) && self.is_given(device))
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

    /// Returns `true` if rdma_cm supports the device. It supports neither EFA, nor usNIC, nor ports
    /// for raw packets.
    pub fn has_rdma_cm(&self, device: &Device) -> bool {
        let mut ports = device.ports.iter();
        let has_cm = |port: &Port| port.is_infiniband() || port.is_ethernet();
        !device.is_usnic() && ports.any(|port| has_cm(port) && !self.is_raw(device, port))
    }

    /// Returns the bond, bridge or VRF that an interface belongs to.
    pub fn master(&self, netdev: &str) -> Option<&Netdev> {
        let link = self.netdev(netdev)?.master.as_deref();
        let is_master = |other: &&Netdev| {
            link == Some(other.name.as_str()) || other.slaves.iter().any(|slave| slave == netdev)
        };
        self.netdevs.iter().find(is_master)
    }

    /// Returns the IP addresses of a network interface.
    pub fn addresses(&self, netdev: &str) -> impl Iterator<Item = &Address> {
        self.probe
            .addresses
            .iter()
            .filter(move |a| a.netdev == netdev)
    }
}
