//! The interface that both transports, management datagrams and connections, implement.

use std::time::Duration;

use crate::common::error::Result;

/// An event from the transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PingEvent {
    /// No event before the timeout.
    Nothing,
    /// A reply to a ping.
    Pong {
        /// Sequence number of the ping.
        seq: u32,
        /// Name that the peer gave itself.
        from: String,
    },
    /// A failure of a ping, to which no reply will be received.
    Failed {
        /// Sequence number of the ping.
        seq: u32,
        /// Reason of the failure.
        reason: String,
    },
}

/// A transport for pings to one target.
pub trait PingTransport {
    /// Returns the target in ibping's notation, such as `Lid 4`.
    fn target(&self) -> String;

    /// Returns the name of the transport: `umad` or `rdma_cm`.
    fn name(&self) -> &'static str;

    /// Returns the name of the local device.
    fn device(&self) -> String;

    /// Returns the port number of the local device.
    fn port(&self) -> u8;

    /// Sends the ping with this sequence number. Called again for each resend.
    ///
    /// # Errors
    /// Returns an error if the transport has failed and cannot send further pings.
    fn send(&mut self, seq: u32) -> Result<()>;

    /// Waits for the next event, at most for `timeout`. May return [`PingEvent::Nothing`] earlier.
    ///
    /// # Errors
    /// Returns an error if the transport has failed and cannot receive further replies.
    fn wait(&mut self, timeout: Duration) -> Result<PingEvent>;
}
