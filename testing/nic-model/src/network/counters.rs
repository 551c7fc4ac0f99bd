//! Counters of the port.

use super::packet::{MULTICAST_QPN, Packet};

/// Packets, and the bytes of their data without headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets that the messages have on a network.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Traffic of the port, and failures of its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sent to one port.
    pub sent: Traffic,
    /// Sent to multicast groups.
    pub sent_to_groups: Traffic,
    /// Received by one port.
    pub received: Traffic,
    /// Received by multicast groups.
    pub received_in_groups: Traffic,
    /// Times that the link has gone down.
    pub link_downed: u64,
}

impl Counters {
    pub(super) fn count_sent(&mut self, packet: &Packet) {
        count(&mut self.sent, &mut self.sent_to_groups, packet);
    }

    pub(super) fn count_received(&mut self, packet: &Packet) {
        count(&mut self.received, &mut self.received_in_groups, packet);
    }
}

fn count(to_one: &mut Traffic, to_groups: &mut Traffic, packet: &Packet) {
    let traffic = if packet.header.destination == MULTICAST_QPN {
        to_groups
    } else {
        to_one
    };
    // A response has no count, and is one packet.
    traffic.packets += u64::from(packet.header.packets.max(1));
    traffic.bytes += packet.payload.len() as u64;
}
