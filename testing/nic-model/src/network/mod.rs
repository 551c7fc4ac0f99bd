//! The network between queue pairs, in one process and between processes.

mod counters;
pub(crate) mod fault;
pub(crate) mod packet;
pub(crate) mod service;
mod socket;

use std::collections::VecDeque;
use std::sync::Arc;

use fault::{Faults, Treatment};
use packet::{Header, MANAGEMENT, MULTICAST_QPN, Packet};
use service::{Service, Services};
use socket::Sockets;

pub use counters::{Counters, Traffic};

use crate::errno::Result;

/// The packets in transit.
pub(crate) struct Network {
    /// Name of the device. Only devices with the same name reach each other.
    device: String,
    /// Number of this process. It is the upper part of its queue pair numbers.
    pub(crate) node: u32,
    /// Number of bits of a queue pair number below those of its process.
    qpn_bits: u32,
    largest_qpn: u32,
    /// `false` while the link of the port is down: packets are lost.
    pub(crate) link_up: bool,
    pub(crate) faults: Faults,
    /// Packets that the queue pairs of this process have sent.
    pub(crate) sent: u64,
    pub(crate) counters: Counters,
    /// Multicast messages reach the other processes.
    pub(crate) groups_reach_others: bool,
    sockets: Option<Sockets>,
    /// The process reaches no other one.
    is_alone: bool,
    services: Services,
    queue: VecDeque<Packet>,
    /// Delayed packets with the time of their arrival.
    delayed: Vec<(u64, Packet)>,
}

impl Network {
    pub(crate) fn new(
        device: impl Into<String>,
        qpn_bits: u32,
        largest_qpn: u32,
        is_alone: bool,
    ) -> Self {
        Self {
            device: device.into(),
            node: 1,
            qpn_bits,
            largest_qpn,
            link_up: true,
            faults: Faults::default(),
            sent: 0,
            counters: Counters::default(),
            groups_reach_others: false,
            sockets: None,
            is_alone,
            services: Services::default(),
            queue: VecDeque::new(),
            delayed: Vec::new(),
        }
    }

    /// Connects the network to other processes. Without sockets, the process has only itself.
    ///
    /// The first queue pair needs this, because its number contains that of the process.
    pub(crate) fn open(&mut self) {
        if self.sockets.is_none() && !self.is_alone {
            match Sockets::open(&self.device, self.largest_qpn, self.qpn_bits) {
                Ok((node, sockets)) => {
                    self.node = node;
                    self.sockets = Some(sockets);
                }
                Err(error) => eprintln!("nic-model: no network to other processes: {error}"),
            }
        }
    }

    /// Takes packets from other processes. Returns `true` if there were any.
    pub(crate) fn poll(&mut self) -> bool {
        let arrived = self
            .sockets
            .as_mut()
            .map(|sockets| sockets.receive(self.services.accept()))
            .unwrap_or_default();
        let any = !arrived.is_empty();
        self.queue.extend(arrived);
        any
    }

    /// Returns `true` if the queue pair belongs to another process.
    pub(crate) fn is_remote(&self, qpn: u32) -> bool {
        self.local_index(qpn).is_none()
    }

    /// Returns the number of the queue pair with this index in this process.
    pub(crate) fn qpn(&self, index: u32) -> u32 {
        self.node << self.qpn_bits | index
    }

    /// Returns the number of the queue pair that has this one in datagrams to the port with this
    /// LID. Other numbers than 0 and 1 contain that of their port.
    pub(crate) fn datagram_destination(&self, lid: u16, qpn: u32) -> u32 {
        if qpn <= 1 {
            u32::from(lid) << self.qpn_bits | qpn
        } else {
            qpn
        }
    }

    /// Returns the index of a queue pair of this process.
    pub(crate) fn local_index(&self, qpn: u32) -> Option<u32> {
        (qpn >> self.qpn_bits == self.node).then_some(qpn & ((1 << self.qpn_bits) - 1))
    }

    /// Sends a packet. Faults that were ordered apply here.
    pub(crate) fn send(&mut self, packet: Packet, now: u64) {
        self.sent += 1;
        if !self.link_up {
            return;
        }
        self.counters.count_sent(&packet);
        for treatment in self.faults.treat(packet) {
            match treatment {
                Treatment::Now(packet) => self.deliver(packet),
                Treatment::After(nanoseconds, packet) => {
                    self.delayed.push((now + nanoseconds, packet));
                }
            }
        }
    }

    /// Takes a name under which other processes can send management packets to this one.
    pub(crate) fn bind_service(&mut self, name: &str) -> Result<Arc<Service>> {
        self.services.bind(&self.device, name)
    }

    /// Sends a management packet to the process with the first of these names that is in use.
    /// Returns `false` if none is.
    pub(crate) fn send_to_service(&mut self, names: &[String], payload: &[u8]) -> bool {
        if !self.link_up {
            return true;
        }
        let packet = self.management(self.node, payload);
        for name in names {
            if self.services.contains(name) {
                self.deliver(packet);
                return true;
            }
            if service::send(&self.device, name, &socket::frame(&packet)) {
                return true;
            }
        }
        false
    }

    /// Sends a management packet to a process. Ordered faults do not apply to it.
    pub(crate) fn send_management(&mut self, node: u32, payload: &[u8]) {
        if self.link_up {
            self.deliver(self.management(node, payload));
        }
    }

    fn management(&self, node: u32, payload: &[u8]) -> Packet {
        Packet {
            header: Header {
                kind: MANAGEMENT,
                source: self.qpn(0),
                destination: node << self.qpn_bits,
                ..Header::default()
            },
            payload: payload.to_vec(),
        }
    }

    /// Returns the processes that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<u32> {
        let ended = self.sockets.as_mut().map(Sockets::take_ended);
        ended.unwrap_or_default()
    }

    /// Returns the number of descriptors that the network uses.
    pub(crate) fn descriptors(&self) -> usize {
        self.sockets.as_ref().map_or(0, Sockets::count) + self.services.count()
    }

    fn deliver(&mut self, packet: Packet) {
        let destination = packet.header.destination;
        if destination == MULTICAST_QPN {
            if let Some(sockets) = self.sockets.as_mut().filter(|_| self.groups_reach_others) {
                sockets.send_to_all(self.node, &packet);
            }
            self.queue.push_back(packet);
        } else if self.local_index(destination).is_some() {
            self.queue.push_back(packet);
        } else if let Some(sockets) = &mut self.sockets {
            sockets.send(destination >> self.qpn_bits, &packet);
        }
    }

    /// Returns the next packet that has arrived.
    pub(crate) fn receive(&mut self, now: u64) -> Option<Packet> {
        if !self.delayed.is_empty() {
            let (due, later) = std::mem::take(&mut self.delayed)
                .into_iter()
                .partition(|&(at, _)| at <= now);
            self.delayed = later;
            let due: Vec<(u64, Packet)> = due;
            for (_, packet) in due {
                self.deliver(packet);
            }
        }
        let packet = self.queue.pop_front()?;
        self.counters.count_received(&packet);
        Some(packet)
    }
}
