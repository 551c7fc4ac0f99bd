//! Options of a messenger, and the objects it creates.

use ibverbs::{
    AccessFlags, CompletionChannel, CompletionQueue, Context, CqOptions, Error, Pool, QpOptions,
    QueuePair, Rc, Result, wr,
};

use crate::params::ConnectParams;

/// Options of a [`Messenger`](crate::Messenger).
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
    /// Maximum length of a message in bytes, in both directions. A longer message from the peer
    /// ends the connection.
    pub max_len: usize,
    /// Maximum number of messages of each side in flight. Twice as many receives are posted before
    /// the peer can send.
    ///
    /// On InfiniBand and RoCE flow control slows down a peer that sends faster than this side
    /// recv_pool. iWARP has no flow control: a message that finds no receive ends the connection,
    /// so the application must limit the number of messages in flight.
    pub depth: u16,
    /// Operations that the peer may perform on registered memory. Messages need none.
    pub access: AccessFlags,
    /// Parameters of the connection handshake.
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

/// Queues and buffer pools of a messenger.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: CompletionChannel,
    recv_pool: Pool,
    pub(crate) send_pool: Pool,
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
        let resources = Self {
            cq,
            channel,
            recv_pool: pd.pool(2 * count, len)?,
            send_pool: pd.pool(count, len)?,
        };
        Ok((resources, qp))
    }

    /// Posts all free receive buffers.
    pub(crate) fn refill(&self, qp: &mut QueuePair<Rc>) -> Result<()> {
        while qp.recv_slots_free() > 0 {
            let Some(buf) = self.recv_pool.take() else {
                break;
            };
            qp.post_recv(wr::recv(buf)).map_err(Error::from)?;
        }
        Ok(())
    }
}
