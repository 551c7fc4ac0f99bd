//! The wire between queue pairs, in one process and between processes.

pub(crate) mod fault;
pub(crate) mod packet;

use std::collections::VecDeque;

use fault::{Faults, Treatment};
use packet::{MULTICAST_QPN, Packet, QPN_BITS};

/// The packets in transit.
pub(crate) struct Wire {
    /// Number of this process. It is the upper part of its queue pair numbers.
    pub(crate) node: u32,
    /// `false` while the link of the port is down: packets are lost.
    pub(crate) link_up: bool,
    pub(crate) faults: Faults,
    queue: VecDeque<Packet>,
    /// Delayed packets with the time of their arrival.
    delayed: Vec<(u64, Packet)>,
}

impl Wire {
    pub(crate) fn new() -> Self {
        Self {
            node: 1,
            link_up: true,
            faults: Faults::default(),
            queue: VecDeque::new(),
            delayed: Vec::new(),
        }
    }

    /// Returns the number of the queue pair with this index in this process.
    pub(crate) fn qpn(&self, index: u32) -> u32 {
        self.node << QPN_BITS | index
    }

    /// Returns the index of a queue pair of this process.
    pub(crate) fn local_index(&self, qpn: u32) -> Option<u32> {
        (qpn >> QPN_BITS == self.node).then_some(qpn & ((1 << QPN_BITS) - 1))
    }

    /// Sends a packet. Faults that were ordered apply here.
    pub(crate) fn send(&mut self, packet: Packet, now: u64) {
        if !self.link_up {
            return;
        }
        for treatment in self.faults.treat(packet) {
            match treatment {
                Treatment::Now(packet) => self.deliver(packet),
                Treatment::After(nanoseconds, packet) => {
                    self.delayed.push((now + nanoseconds, packet));
                }
            }
        }
    }

    fn deliver(&mut self, packet: Packet) {
        let destination = packet.header.destination;
        if destination == MULTICAST_QPN || self.local_index(destination).is_some() {
            self.queue.push_back(packet);
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
        self.queue.pop_front()
    }
}
