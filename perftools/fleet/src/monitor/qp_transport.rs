//! Probes as datagrams of RDMA, from a port.
//!
//! An address handle can take the driver a second to create if the host does not respond. Threads
//! create them, so that such a host does not delay the probes to others.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::system::random;
use ibverbs::wr::{Destination, HeldAddress};
use ibverbs::{AddressHandle, AhAttr, Gid, GlobalRoute, Lid, ProtectionDomain, Qkey, Qpn};
use measure::data_key::random_qkey;
use measure::transport::address::{PortAddress, choose};
use measure::transport::device::OpenedDevice;
use measure::transport::{ControlAddrs, LinkType};
use session::probe::datagram_qp::{DatagramQp, Event, nanos_since};
use session::probe::packet::{Kind, Packet};
use session::probe::{ReflectorAddress, ReflectorInfo};

use super::prober::{Arrival, ProbeTransport};
use super::udp_transport::arrival;

/// Maximum number of addresses that are held at a time, old ones included.
const MAX_ADDRESSES: usize = 65_536;
/// Number of threads that create address handles.
const RESOLVERS: usize = 4;
/// Time after which an address that could not be resolved is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Time after which an address counts as one that cannot be resolved.
const RESOLVE_TIME: Duration = Duration::from_secs(2);
/// Stack of a thread that creates address handles.
const STACK: usize = 256 << 10;

/// Probes over datagrams of RDMA.
#[derive(Debug)]
pub struct QpTransport {
    qp: DatagramQp,
    qkey: Qkey,
    port: OpenedDevice,
    targets: Vec<PathReflector>,
    /// Number of addresses that the queue pair holds, those of earlier reflectors included.
    held: usize,
    flows: u8,
    session: u64,
    begin: Instant,
    events: Vec<Event>,
    requests: Sender<HandleRequest>,
    resolved: Receiver<(u32, u8, AhAttr, Option<AddressHandle>)>,
}

/// A request to create an address handle.
type HandleRequest = (u32, u8, AhAttr);

/// The reflector of a path.
#[derive(Clone, Debug, Default)]
struct PathReflector {
    qpn: u32,
    qkey: u32,
    key: u64,
    /// The path without its flow label; `None` if no address of this port reaches the reflector.
    attr: Option<AhAttr>,
    flows: Vec<Address>,
}

/// The address for a flow label.
#[derive(Clone, Copy, Debug, Default)]
struct Address {
    flow_label: u32,
    held: Option<HeldAddress>,
    /// Time of the latest request for the address.
    requested: Option<Instant>,
}

impl PathReflector {
    /// Requests the address for a flow label, unless it is known or was requested recently.
    fn resolve(&mut self, path: u32, flow: u8, requests: &Sender<HandleRequest>) {
        let address = self.flows.get_mut(usize::from(flow));
        let (Some(attr), Some(address)) = (self.attr, address) else {
            return;
        };
        let is_recent = |at: Instant| at.elapsed() < RETRY_INTERVAL;
        if address.held.is_none() && !address.requested.is_some_and(is_recent) {
            address.requested = Some(Instant::now());
            let _ = requests.send((path, flow, with_flow_label(attr, address.flow_label)));
        }
    }
}

impl QpTransport {
    /// Creates a transport from a port with a number of flow labels.
    pub fn new(port: OpenedDevice, flows: u8) -> Result<Self> {
        let qkey = random_qkey();
        let qp = DatagramQp::new(&port, qkey).map_err(|e| e.context(port.name()))?;
        let (requests, received) = channel();
        let (sender, resolved) = channel();
        let received = Arc::new(Mutex::new(received));
        for _ in 0..RESOLVERS {
            let (received, sender, pd) = (Arc::clone(&received), sender.clone(), qp.pd().clone());
            std::thread::Builder::new()
                .name("addresses".into())
                .stack_size(STACK)
                .spawn(move || resolve(&received, &sender, &pd))
                .map_err(|e| Error::system("cannot create a thread for addresses", &e))?;
        }
        Ok(Self {
            qp,
            qkey,
            port,
            targets: Vec::new(),
            held: 0,
            flows,
            session: random(),
            begin: Instant::now(),
            events: Vec::new(),
            requests,
            resolved,
        })
    }

    /// Returns `true` if the device takes the times of probes.
    pub fn has_device_clock(&self) -> bool {
        self.qp.has_device_clock()
    }

    /// Stores the addresses that were created.
    fn take_resolved(&mut self) {
        // Fails while probes are in flight, and is tried again. Meanwhile no address is held, and
        // the probes that need one are lost.
        if self.held >= MAX_ADDRESSES && self.qp.qp().release_addresses().is_ok() {
            self.held = 0;
            for address in self.targets.iter_mut().flat_map(|target| &mut target.flows) {
                (address.held, address.requested) = (None, None);
            }
        }
        for (path, flow, attr, handle) in self.resolved.try_iter() {
            let Some(target) = self.targets.get_mut(path as usize) else {
                continue;
            };
            let is_current = target.attr == Some(attr);
            let address = target.flows.get_mut(usize::from(flow));
            let has_room = self.held < MAX_ADDRESSES;
            if let (Some(address), Some(handle), true) = (address, handle, is_current && has_room) {
                address.held = self.qp.qp().hold_address(&handle).ok();
                self.held += 1;
            }
        }
    }
}

/// Creates address handles until the transport is dropped.
fn resolve(
    requests: &Mutex<Receiver<HandleRequest>>,
    resolved: &Sender<(u32, u8, AhAttr, Option<AddressHandle>)>,
    pd: &ProtectionDomain,
) {
    loop {
        let request = requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok((path, flow, attr)) = request else {
            return;
        };
        let handle = pd.create_ah(&attr).ok();
        let attr = with_flow_label(attr, 0);
        if resolved.send((path, flow, attr, handle)).is_err() {
            return;
        }
    }
}

fn with_flow_label(mut attr: AhAttr, flow_label: u32) -> AhAttr {
    attr.grh = attr.grh.map(|grh| grh.flow_label(flow_label));
    attr
}

/// Returns the path from a port to a reflector, without a flow label.
fn attr(
    port: &OpenedDevice,
    link: LinkType,
    addresses: &[PortAddress],
    lid: u16,
) -> Option<AhAttr> {
    if link != port.link {
        return None;
    }
    if link == LinkType::InfiniBand {
        return Some(AhAttr::for_lid(port.port_num, Lid(lid)));
    }
    // The addresses of the control connection play no part: each port has its own.
    let unspecified = IpAddr::from([0, 0, 0, 0]);
    let control = ControlAddrs {
        local: unspecified,
        peer: unspecified,
    };
    let (own, peer) = choose(&port.addresses, addresses, control)?;
    let index = u8::try_from(port.addresses[own].gid_index?).ok()?;
    let gid = Gid::from(addresses[peer].ip?);
    Some(AhAttr::for_lid(port.port_num, Lid(0)).grh(GlobalRoute::new(gid, index)))
}

impl ProbeTransport for QpTransport {
    fn now(&self) -> u64 {
        nanos_since(self.begin)
    }

    fn set_target(&mut self, path: u32, reflector: &ReflectorInfo) {
        let ReflectorAddress::QueuePair {
            link,
            addresses,
            lid,
            qpn,
            qkey,
        } = &reflector.address
        else {
            return;
        };
        let path = path as usize;
        if self.targets.len() <= path {
            self.targets.resize_with(path + 1, PathReflector::default);
        }
        let attr = attr(&self.port, *link, addresses, *lid);
        let target = &mut self.targets[path];
        if target.attr != attr {
            let flow = || Address {
                flow_label: u32::try_from(random() & 0xf_ffff).unwrap_or(0),
                ..Address::default()
            };
            target.flows = (0..self.flows).map(|_| flow()).collect();
        }
        (target.attr, target.qpn, target.qkey) = (attr, *qpn, *qkey);
        target.key = reflector.key;
        let number = u32::try_from(path).unwrap_or(u32::MAX);
        for flow in 0..self.flows {
            target.resolve(number, flow, &self.requests);
        }
    }

    fn is_ready(&mut self, path: u32) -> bool {
        self.take_resolved();
        let is_ready = |address: &Address| {
            let is_overdue = |at: Instant| at.elapsed() > RESOLVE_TIME;
            address.held.is_some() || address.requested.is_some_and(is_overdue)
        };
        let target = self.targets.get(path as usize);
        target.is_none_or(|target| target.attr.is_none() || target.flows.iter().all(is_ready))
    }

    fn slots_free(&mut self) -> usize {
        self.qp.slots_free()
    }

    fn send(&mut self, path: u32, flow: u8, id: u64) -> Result<()> {
        self.take_resolved();
        let Some(target) = self.targets.get_mut(path as usize) else {
            return Ok(());
        };
        let Some(address) = target.flows.get(usize::from(flow)).copied() else {
            return Ok(());
        };
        let Some(held) = address.held else {
            target.resolve(path, flow, &self.requests);
            return Ok(());
        };
        let packet = Packet {
            kind: Kind::Probe,
            flow_label: address.flow_label,
            key: target.key,
            session: self.session,
            id,
            nanos: 0,
            qkey: self.qkey.0,
        };
        let to = Destination {
            address: held,
            qpn: Qpn(target.qpn),
            qkey: Qkey(target.qkey),
        };
        self.qp.send(&packet, to, id).map(drop)
    }

    fn receive(&mut self, wait: Duration, arrivals: &mut Vec<Arrival>) -> Result<()> {
        self.qp.wait(wait)?;
        self.qp.poll(&mut self.events)?;
        let session = self.session;
        arrivals.extend(self.events.drain(..).filter_map(|event| match event {
            Event::Sent { tag, at } => Some(Arrival::Posted { id: tag, at }),
            Event::Received { packet, at, .. } if packet.session == session => arrival(&packet, at),
            Event::Received { .. } => None,
        }));
        Ok(())
    }

    fn flow_label(&self, path: u32, flow: u8) -> u32 {
        let target = self.targets.get(path as usize);
        let address = target.and_then(|target| target.flows.get(usize::from(flow)));
        address.map_or(0, |address| address.flow_label)
    }
}
