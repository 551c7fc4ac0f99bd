//! Options of a messenger.

use std::time::Duration;

use ibverbs::{AccessFlags, ProtectionDomain};
use rdma_types::setters;

use super::group::MessengerGroup;
use rdmacm::ConnectParams;

/// Options of a [`Messenger`](crate::Messenger).
///
/// A messenger registers about `(2 * depth + 6) * buffer_len` bytes of memory.
///
/// # Example
/// ```no_run
/// use messenger::{Messenger, MessengerOptions};
/// use std::time::Duration;
/// let options = MessengerOptions::new().buffer_len(64 << 10).depth(8);
/// let messenger =
///     Messenger::connect("10.99.0.1:7471".parse()?, &options, Duration::from_secs(5))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MessengerOptions<'a> {
    /// Maximum length of a received message in bytes. A longer message of the peer is an error of
    /// its `send`. Default: `1048576`.
    pub max_len: usize,
    /// Number of payload bytes in each buffer. Longer messages are sent in fragments. At most
    /// `max_len` is used. Default: `4096`.
    pub buffer_len: usize,
    /// Maximum number of buffers in flight in each direction. A sender waits if the peer's
    /// application has not taken so many. A stream passes through all buffers, so with large ones a
    /// small number is faster: 2 for 1 MiB. Default: `16`.
    pub depth: u16,
    /// Maximum number of requests in flight that the application posts itself with
    /// [`Messenger::with_qp`](crate::Messenger::with_qp). Default: `0`.
    pub requests: u16,
    /// Maximum time for which a blocking call or a task polls before it sleeps. A sleep costs
    /// several system calls and the time until the processor is available again. Between polls, a
    /// call yields the processor, and a task also lets the runtime run other tasks. Waits that are
    /// longer make the time shorter, down to zero, so that an idle connection takes no processor
    /// time. Default: `Duration::from_micros(500)`.
    pub poll_time: Duration,
    /// Operations that the peer may perform on registered memory. Messages need none. Default:
    /// `AccessFlags::empty()`.
    pub access: AccessFlags,
    /// Parameters of the connection handshake. Default: [`ConnectParams::new`].
    pub params: ConnectParams<'a>,
    /// Protection domain for the messenger's buffers, which selects the open device too. Without
    /// one, the messenger opens the device. On Soft-iWARP some 50 messengers can share one
    /// domain, and a group more. Default: `None`.
    pub pd: Option<&'a ProtectionDomain>,
    /// Group that supplies all objects of the messenger except its queue pair. The group's
    /// `max_len`, `buffer_len`, `depth` and protection domain are used. Default: `None`.
    pub group: Option<&'a MessengerGroup>,
}

impl MessengerOptions<'_> {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            max_len: 1 << 20,
            buffer_len: 4096,
            depth: 16,
            requests: 0,
            poll_time: Duration::from_micros(500),
            access: AccessFlags::empty(),
            params: ConnectParams::new(),
            pd: None,
            group: None,
        }
    }
}

impl Default for MessengerOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

setters! {
    MessengerOptions<'a> {
        max_len: usize,
        buffer_len: usize,
        depth: u16,
        requests: u16,
        poll_time: Duration,
        access: AccessFlags,
        params: ConnectParams<'a>,
        pd: Option<&'a ProtectionDomain>,
        group: Option<&'a MessengerGroup>,
    }
}
