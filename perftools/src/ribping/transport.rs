//! The interface that both transports, management datagrams and connections, implement.

use std::time::Duration;

use base::error::{Error, Result};

/// Reason of a ping without an answer.
pub(super) const NO_REPLY: &str = "no reply before the timeout";

/// An event from the transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PingEvent {
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
pub(crate) trait PingTransport {
    /// Returns the target in ibping's notation, such as `Lid 4`.
    fn target(&self) -> String;

    /// Returns the name of the transport: `umad` or `rdma_cm`.
    fn name(&self) -> &'static str;

    /// Returns the name of the local device.
    fn device(&self) -> String;

    /// Returns the port number of the local device.
    fn port(&self) -> u8;

    /// Sends the ping with this sequence number. Called again for each resend.
    fn send(&mut self, seq: u32) -> Result<()>;

    /// Waits for the next event, at most for `timeout`. May return [`PingEvent::Nothing`] earlier.
    fn wait(&mut self, timeout: Duration) -> Result<PingEvent>;

    /// Returns the fault of this host that explains a missing reply, if there is one: a port that
    /// is down, or an adapter that does not work.
    fn local_fault(&mut self) -> Option<String> {
        None
    }

    /// Returns what is known about a target that has not replied, such as that its host is
    /// reachable.
    fn explain_silence(&mut self) -> Option<String> {
        None
    }
}

/// Opens the transport, at the start and again after it has failed.
pub(super) type Open<'a> = dyn FnMut() -> Result<Box<dyn PingTransport>> + 'a;

/// The transport of a run. It is opened again when it has failed.
pub(crate) struct Link<'a> {
    open: Box<Open<'a>>,
    transport: Option<Box<dyn PingTransport>>,
}

impl<'a> Link<'a> {
    /// Creates a link that is not open.
    pub(crate) fn new(open: Box<Open<'a>>) -> Self {
        Self {
            open,
            transport: None,
        }
    }

    /// Returns the transport, and opens it if necessary.
    pub(crate) fn transport(&mut self) -> Result<&mut dyn PingTransport> {
        if self.transport.is_none() {
            self.transport = Some((self.open)()?);
        }
        self.transport
            .as_deref_mut()
            .map(|transport| transport as &mut dyn PingTransport)
            .ok_or_else(|| Error::protocol("open the transport: it is missing"))
    }

    /// Returns `true` if the transport is open.
    pub(crate) fn is_open(&self) -> bool {
        self.transport.is_some()
    }

    /// Returns the fault of this host that explains a missing reply, if there is one.
    pub(crate) fn local_fault(&mut self) -> Option<String> {
        self.transport.as_mut()?.local_fault()
    }

    /// Closes the transport after an error. Returns the reason, which is a fault of this host if
    /// there is one.
    pub(crate) fn close_after(&mut self, error: &Error) -> String {
        let fault = self.local_fault();
        self.transport = None;
        match fault {
            Some(fault) => format!("{fault}: {error}"),
            None => error.to_string(),
        }
    }
}

impl std::fmt::Debug for Link<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}
