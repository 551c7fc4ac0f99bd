//! Messages that were sent and not received yet.

use std::fmt;

/// The expected completion of the receive that takes a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It completes without another action.
    Certain,
    /// It completes when the receiver has a receive.
    Waiting,
    /// The message can be lost.
    Possible,
}

/// A message to be received.
pub(crate) struct Message {
    /// The request that sent it.
    pub(crate) tag: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) imm: Option<u32>,
    /// `false` for an RDMA WRITE, which writes no receive buffer.
    pub(crate) in_buffer: bool,
    /// The request that bound the window which the message invalidates.
    pub(crate) invalidates: Option<u64>,
    /// Number of bytes in the receive buffer before those of the message.
    pub(crate) header: usize,
    pub(crate) arrival: Arrival,
    /// The receive fails, because the message is longer than every receive of the receiver.
    pub(crate) is_too_long: bool,
    /// Number of the queue pair that sent a datagram.
    pub(crate) source: Option<u32>,
}

impl Message {
    /// Creates a message of a connection.
    pub(crate) fn new(tag: u64, bytes: Vec<u8>) -> Self {
        Self {
            tag,
            bytes,
            imm: None,
            in_buffer: true,
            invalidates: None,
            header: 0,
            arrival: Arrival::Certain,
            is_too_long: false,
            source: None,
        }
    }

    /// Returns the number of bytes that the completion reports.
    pub(crate) fn len(&self) -> usize {
        self.header + self.bytes.len()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "message {} of {} bytes, immediate data {:?}",
            self.tag,
            self.len(),
            self.imm
        )
    }
}
