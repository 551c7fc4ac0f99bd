//! Messages between identifiers: those of connection management (IBA, chapter 12), with only the
//! fields that this model uses.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::address::Address;
use crate::abi::rdma_cm::{Ece, SOCKADDR_IN6};
use crate::network::packet::Packet;

pub(super) const REQ: u8 = 1;
/// The receiver of a request asks for time.
pub(super) const MRA: u8 = 2;
pub(super) const REJ: u8 = 3;
pub(super) const REP: u8 = 4;
pub(super) const RTU: u8 = 5;
pub(super) const DREQ: u8 = 6;
pub(super) const DREP: u8 = 7;

/// Room for private data, in bytes. A request also has the addresses there.
pub(super) const REQ_PRIVATE: usize = 56;
pub(super) const REP_PRIVATE: usize = 196;
pub(super) const REJ_PRIVATE: usize = 148;

/// Reasons of a rejection.
pub(super) mod reason {
    pub(crate) const TIMEOUT: u8 = 4;
    pub(crate) const INVALID_SERVICE_ID: u8 = 8;
    pub(crate) const CONSUMER_DEFINED: u8 = 28;
    pub(crate) const VENDOR_OPTION_NOT_SUPPORTED: u8 = 35;
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) qp_type: u8,
    pub(super) reason: u8,
    pub(super) srq: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) packet_life_time: u8,
    pub(super) traffic_class: u8,
    pub(super) reserved: u8,
    /// Process and identifier of the sender.
    pub(super) node: u32,
    pub(super) sender: u32,
    /// Identifier of the receiver. 0 in a request.
    pub(super) receiver: u32,
    pub(super) qpn: u32,
    pub(super) psn: u32,
    pub(super) port_space: u32,
    pub(super) ece: Ece,
    pub(super) source: [u8; SOCKADDR_IN6],
    pub(super) destination: [u8; SOCKADDR_IN6],
    pub(super) private_data: [u8; REP_PRIVATE],
}

impl Message {
    pub(super) fn new(kind: u8) -> Self {
        Self {
            kind,
            ..Self::new_zeroed()
        }
    }

    /// Reads a message that arrived.
    pub(super) fn from_packet(packet: &Packet) -> Option<Self> {
        Self::read_from_bytes(&packet.payload).ok()
    }

    /// Sets the addresses of a request.
    pub(super) fn with_addresses(mut self, source: Address, destination: Address) -> Self {
        self.source
            .copy_from_slice(&source.to_storage()[..SOCKADDR_IN6]);
        self.destination
            .copy_from_slice(&destination.to_storage()[..SOCKADDR_IN6]);
        self
    }

    pub(super) fn with_private_data(mut self, data: &[u8]) -> Self {
        self.private_data[..data.len()].copy_from_slice(data);
        self
    }

    /// Returns a rejection of this message.
    pub(super) fn rejection(&self, reason: u8) -> Self {
        Self {
            reason,
            sender: self.receiver,
            receiver: self.sender,
            ..Self::new(REJ)
        }
    }
}
