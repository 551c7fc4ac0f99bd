//! Packets between queue pairs. A packet carries a whole message or a response.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of the group queue pair, to which multicast messages are addressed.
pub(crate) const MULTICAST_QPN: u32 = 0x00ff_ffff;

/// Kinds of packets.
pub(crate) const REQUEST: u8 = 0;
pub(crate) const RESPONSE: u8 = 1;
/// A message between identifiers of rdma_cm. The queue pair numbers only name the processes.
pub(crate) const MANAGEMENT: u8 = 2;

/// Flags of requests.
pub(crate) mod flag {
    /// The receiver gets a solicited event.
    pub(crate) const SOLICITED: u8 = 1;
    /// The message has a global route header.
    pub(crate) const GRH: u8 = 1 << 1;
    /// A datagram.
    pub(crate) const DATAGRAM: u8 = 1 << 2;
    /// A message of an unreliable connection.
    pub(crate) const UNRELIABLE: u8 = 1 << 3;
    /// A message of a DC initiator.
    pub(crate) const DC: u8 = 1 << 4;
    /// A message of an XRC queue pair: `srqn` is valid.
    pub(crate) const XRC: u8 = 1 << 5;
    /// The message has immediate data: `immediate` is valid.
    pub(crate) const IMMEDIATE: u8 = 1 << 6;
}

/// Result of a request, in a response.
pub(crate) mod status {
    pub(crate) const ACK: u8 = 0;
    /// No receive request was posted: `length` is the wait in nanoseconds.
    pub(crate) const RNR: u8 = 1;
    /// A request is missing: `psn` is the expected one.
    pub(crate) const SEQUENCE: u8 = 2;
    pub(crate) const INVALID: u8 = 3;
    pub(crate) const ACCESS: u8 = 4;
    pub(crate) const OPERATION: u8 = 5;
    /// The queue pair does not exist, or does not receive.
    pub(crate) const DESTINATION: u8 = 6;
    /// The message is longer than the receive request.
    pub(crate) const LENGTH: u8 = 7;
}

/// Header of a packet. Fields that a packet does not need are 0.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    /// Operation of a request, in the adapter's own numbers.
    pub(crate) opcode: u8,
    pub(crate) status: u8,
    pub(crate) flags: u8,
    pub(crate) service_level: u8,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) reserved: u8,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    /// Sequence number of the first packet that the message has on a network.
    pub(crate) psn: u32,
    /// Number of packets that the message has on a network.
    pub(crate) packets: u32,
    /// Immediate data or key to invalidate, in network byte order.
    pub(crate) immediate: u32,
    pub(crate) rkey: u32,
    /// Bytes to transfer.
    pub(crate) length: u32,
    pub(crate) srqn: u32,
    pub(crate) qkey: u32,
    pub(crate) flow_label: u32,
    /// Stream of a DC initiator, which the response repeats.
    pub(crate) stream: u32,
    /// LID of the port that sends the packet.
    pub(crate) source_lid: u16,
    pub(crate) reserved2: u16,
    pub(crate) address: u64,
    pub(crate) swap_add: u64,
    pub(crate) compare: u64,
    pub(crate) dc_key: u64,
    pub(crate) source_gid: [u8; 16],
    pub(crate) destination_gid: [u8; 16],
}

#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
}
