//! Progress of a queue pair of SRD.

use super::descriptor::Send;
use crate::network::packet::Packet;

/// An SRD request that was sent.
pub(super) struct InFlight {
    pub(super) send: Send,
    pub(super) sequence: u32,
    /// Time at which it is sent again.
    pub(super) deadline: u64,
    pub(super) attempts: u8,
    pub(super) rnr_retries: u8,
}

/// An SRD message that was received, with the answer.
pub(super) struct Message {
    pub(super) source: u32,
    pub(super) sequence: u32,
    pub(super) answer: Packet,
}
