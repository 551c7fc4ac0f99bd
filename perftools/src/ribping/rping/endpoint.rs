//! The verbs objects of one end of a connection.

use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use ibverbs::{
    CompletionChannel, CompletionQueue, Context, CqOptions, Direction, Pool, ProtectionDomain,
    QpOptions, QueuePair, Rc, RemoteMemory, Retired, WcStatus, device::TransportType, wr,
};
use rdmacm::Connection;

use super::message::MESSAGE_LEN;

/// Maximum time between a flushed request and the disconnect event that explains it.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The verbs objects of a connection and the buffers of its messages.
pub(super) struct RpingEndpoint {
    pub(super) pd: ProtectionDomain,
    channel: CompletionChannel,
    cq: CompletionQueue,
    messages: Pool,
}

/// A successful completion.
#[derive(Debug)]
pub(super) enum CompletionKind {
    /// A message was received.
    Received(Vec<u8>),
    /// A send, RDMA READ or RDMA WRITE request completed.
    Request,
}

impl RpingEndpoint {
    pub(super) fn new(context: &Context) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let channel = context.create_comp_channel()?;
        let options = CqOptions::new().depth(16).channel(&channel);
        let cq = context.create_cq(options)?;
        let messages = pd.pool(8, MESSAGE_LEN)?;
        Ok(Self {
            pd,
            channel,
            cq,
            messages,
        })
    }

    /// Creates a queue pair with capacity for one ping at a time.
    pub(super) fn create_qp(&self) -> Result<QueuePair<Rc>> {
        let options = QpOptions::new().max_send_wr(8).max_recv_wr(8);
        self.pd
            .create_qp::<Rc>(&self.cq, &self.cq, options)
            .map_err(Error::from)
    }

    /// Posts a receive request for the next message.
    pub(super) fn post_recv(&self, qp: &mut QueuePair<Rc>) -> Result<()> {
        let buf = self
            .messages
            .take()
            .ok_or_else(|| Error::protocol("cannot receive from the peer: unexpected message"))?;
        qp.post_recv(wr::recv(buf)).map_err(Error::from)
    }

    pub(super) fn send(&self, qp: &mut QueuePair<Rc>, message: [u8; MESSAGE_LEN]) -> Result<()> {
        let mut buf = self.messages.take().ok_or_else(|| {
            Error::protocol("cannot send to the peer: earlier messages have not completed")
        })?;
        buf.copy_from_slice(&message);
        qp.post_send(wr::send(buf)).map_err(Error::from)
    }

    /// Waits for the next completion, at most for `timeout`. Posts another receive request for each
    /// received message.
    ///
    /// # Errors
    /// Returns [`Kind::Gone`] if the peer closed the connection.
    pub(super) fn next_completion(
        &mut self,
        connection: &mut Connection,
        timeout: Duration,
    ) -> Result<Option<CompletionKind>> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(retired) = self.poll(connection)? {
                return self.handle(connection, retired).map(Some);
            }
            self.cq.arm(false)?;
            // Completions from before the queue was armed cause no event.
            if let Some(retired) = self.poll(connection)? {
                return self.handle(connection, retired).map(Some);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if self.channel.wait(Some(remaining))?.is_none() {
                let _ = connection.try_event()?;
                if connection.is_disconnected() {
                    return Err(disconnected());
                }
                if Instant::now() >= deadline {
                    return Ok(None);
                }
            }
        }
    }

    fn poll(&mut self, connection: &mut Connection) -> Result<Option<Retired>> {
        let retired = self
            .cq
            .poll()?
            .next()
            .map(|completion| connection.qp_mut().retire(completion));
        Ok(retired.transpose().map_err(ibverbs::Error::from)?)
    }

    fn handle(&self, connection: &mut Connection, retired: Retired) -> Result<CompletionKind> {
        if let Err(error) = retired.check() {
            // On iWARP the flush error can be polled before the disconnect event that caused it.
            let _ = if retired.status() == WcStatus::WR_FLUSH_ERR && !connection.is_disconnected() {
                connection.wait_event(Some(DISCONNECT_TIMEOUT))
            } else {
                connection.try_event()
            };
            return Err(if connection.is_disconnected() {
                disconnected()
            } else {
                error.into()
            });
        }
        if retired.direction() != Direction::Recv {
            return Ok(CompletionKind::Request);
        }
        let message = retired
            .into_buf()
            .map(|buf| buf.to_vec())
            .unwrap_or_default();
        self.post_recv(connection.qp_mut())?;
        Ok(CompletionKind::Received(message))
    }
}

/// Posts an empty WRITE on iWARP. The passive side of Soft-iWARP can overlook the first message
/// until more data arrives (docs/drivers.md, fault 50).
pub(super) fn post_rtr(connection: &mut Connection) -> Result<()> {
    let is_iwarp = connection.transport() == TransportType::IWARP;
    let qp = connection.qp_mut();
    // A slot stays free for the next message.
    if is_iwarp && qp.send_slots_free() > 1 {
        let nowhere = RemoteMemory {
            addr: 0,
            len: 0,
            rkey: 0,
        };
        qp.post_send(wr::write(wr::Empty, nowhere))
            .map_err(ibverbs::Error::from)?;
    }
    Ok(())
}

fn disconnected() -> Error {
    Error::new(Kind::Gone, "the peer closed the connection")
}
