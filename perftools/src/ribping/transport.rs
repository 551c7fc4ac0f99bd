//! A way to ping: what management datagrams and connections have in common.

use std::time::Duration;

use crate::common::error::Result;

/// What was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PingEvent {
    /// Nothing in that time.
    Nothing,
    /// An answer to the ping of this number.
    Pong {
        /// The ping's number.
        seq: u32,
        /// Who answered, as it calls itself.
        from: String,
    },
    /// That no answer to this ping will come any more.
    Failed {
        /// The ping's number.
        seq: u32,
        /// Why.
        why: String,
    },
}

/// A way to ping one target.
pub trait PingTransport {
    /// What is pinged, as in ibping's lines: `Lid 4`.
    fn target(&self) -> String;

    /// `umad` or `rdma_cm`.
    fn name(&self) -> &'static str;

    /// The own device.
    fn device(&self) -> String;

    /// Its port.
    fn port(&self) -> u8;

    /// Sends the ping of this number; a second time after the first one failed.
    ///
    /// # Errors
    /// It cannot be sent, and the next one cannot either.
    fn send(&mut self, seq: u32) -> Result<()>;

    /// Waits for what comes, at most for `time`; it may return earlier with nothing.
    ///
    /// # Errors
    /// Nothing will come any more.
    fn wait(&mut self, time: Duration) -> Result<PingEvent>;
}
