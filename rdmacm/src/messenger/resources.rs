//! What a messenger is made with, and of.

use ibverbs::{
    AccessFlags, CompletionChannel, CompletionQueue, Context, CqOptions, Error, Pool, QpOptions,
    QueuePair, Rc, Result, wr,
};

use crate::params::ConnectParams;

/// How a [`Messenger`](crate::Messenger) is made.
///
/// # Example
/// ```no_run
/// use rdmacm::{Messenger, MessengerOptions};
/// use std::time::Duration;
/// let options = MessengerOptions {
///     max_len: 64 << 10,
///     depth: 8,
///     ..MessengerOptions::default()
/// };
/// let messenger =
///     Messenger::connect("10.99.0.1:7471".parse()?, &options, Duration::from_secs(5))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessengerOptions<'a> {
    /// The longest message, in bytes, in either direction. A longer one from the peer ends the
    /// connection.
    pub max_len: usize,
    /// Messages of either side that can be on their way. Twice as many receives are posted, before
    /// the peer can send.
    ///
    /// On InfiniBand and RoCE a peer that sends faster than this side receives is held back; on
    /// iWARP nothing holds it back, and what finds no receive ends the connection: there the
    /// two sides must not run further ahead of each other than this.
    pub depth: u16,
    /// What the peer may do to memory that is registered for it; messages need none.
    pub access: AccessFlags,
    /// What the handshake says.
    pub params: ConnectParams<'a>,
}

impl Default for MessengerOptions<'_> {
    fn default() -> Self {
        Self {
            max_len: 4096,
            depth: 32,
            access: AccessFlags::empty(),
            params: ConnectParams::default(),
        }
    }
}

/// What a queue pair is made of.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: CompletionChannel,
    receives: Pool,
    pub(crate) sends: Pool,
}

impl Resources {
    pub(crate) fn new(
        context: &Context,
        options: &MessengerOptions<'_>,
    ) -> Result<(Self, QueuePair<Rc>)> {
        let depth = u32::from(options.depth.max(1));
        let pd = context.alloc_pd()?;
        let channel = context.create_comp_channel()?;
        let cq_options = CqOptions {
            depth: 3 * depth,
            channel: Some(&channel),
            ..CqOptions::default()
        };
        let mut cq = context.create_cq(cq_options)?;
        cq.arm(false)?;
        let qp_options = QpOptions {
            max_send_wr: depth,
            max_recv_wr: 2 * depth,
            ..QpOptions::default()
        };
        let qp = pd.create_qp::<Rc>(&cq, &cq, qp_options)?;
        let (count, len) = (usize::from(options.depth.max(1)), options.max_len.max(1));
        let parts = Self {
            cq,
            channel,
            receives: pd.pool(2 * count, len)?,
            sends: pd.pool(count, len)?,
        };
        Ok((parts, qp))
    }

    /// Posts every receive buffer that nobody has.
    pub(crate) fn refill(&self, qp: &mut QueuePair<Rc>) -> Result<()> {
        while qp.recv_slots_free() > 0 {
            let Some(buf) = self.receives.take() else {
                break;
            };
            qp.post_recv(wr::recv(buf)).map_err(Error::from)?;
        }
        Ok(())
    }
}
