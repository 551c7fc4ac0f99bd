//! One end of a connection: its queue pair, completions and messages.

use std::time::{Duration, Instant};

use ibverbs::{
    CompletionChannel, CompletionQueue, Context, CqOptions, Direction, Pool, ProtectionDomain,
    QpOptions, QueuePair, Rc, Retired, WcStatus, wr,
};
use rdmacm::Connection;

use super::message::MESSAGE_LEN;
use crate::common::error::{Error, Result};

/// How long the word that the peer has left may come after what it flushed.
const LEAVING: Duration = Duration::from_secs(1);

/// What a connection's queue pair is made of, and the messages that go over it.
pub(super) struct RpingEndpoint {
    pub(super) pd: ProtectionDomain,
    channel: CompletionChannel,
    cq: CompletionQueue,
    messages: Pool,
}

/// What completed.
#[derive(Debug)]
pub(super) enum Completed {
    /// A message came.
    Message(Vec<u8>),
    /// A request of one's own is done.
    Own,
}

impl RpingEndpoint {
    pub(super) fn new(context: &Context) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let channel = context.create_comp_channel()?;
        let options = CqOptions {
            depth: 16,
            channel: Some(&channel),
            ..CqOptions::default()
        };
        let cq = context.create_cq(options)?;
        let messages = pd.pool(8, MESSAGE_LEN)?;
        Ok(Self {
            pd,
            channel,
            cq,
            messages,
        })
    }

    /// A queue pair for one ping at a time.
    pub(super) fn queue_pair(&self) -> Result<QueuePair<Rc>> {
        let options = QpOptions {
            max_send_wr: 8,
            max_recv_wr: 8,
            ..QpOptions::default()
        };
        self.pd
            .create_qp::<Rc>(&self.cq, &self.cq, options)
            .map_err(Error::from)
    }

    /// A receive for the next message.
    pub(super) fn receive(&self, qp: &mut QueuePair<Rc>) -> Result<()> {
        let buf = self
            .messages
            .take()
            .ok_or_else(|| Error::protocol("the peer sends out of turn"))?;
        qp.post_recv(wr::recv(buf)).map_err(Error::from)
    }

    pub(super) fn send(&self, qp: &mut QueuePair<Rc>, message: [u8; MESSAGE_LEN]) -> Result<()> {
        let mut buf = self
            .messages
            .take()
            .ok_or_else(|| Error::protocol("the peer takes no messages"))?;
        buf.copy_from_slice(&message);
        qp.post_send(wr::send(buf)).map_err(Error::from)
    }

    /// Waits for the next completion, at most for `time`. A message's receive is posted anew. An
    /// end of the connection is an error that says `gone`.
    pub(super) fn next(
        &mut self,
        connection: &mut Connection,
        time: Duration,
    ) -> Result<Option<Completed>> {
        let until = Instant::now() + time;
        loop {
            if let Some(retired) = self.take(connection)? {
                return self.done(connection, retired).map(Some);
            }
            self.cq.arm(false)?;
            // What came before it was armed gives no event.
            if let Some(retired) = self.take(connection)? {
                return self.done(connection, retired).map(Some);
            }
            let left = until.saturating_duration_since(Instant::now());
            if self.channel.wait(Some(left))?.is_none() {
                let _ = connection.check_event()?;
                if connection.is_disconnected() {
                    return Err(gone());
                }
                if Instant::now() >= until {
                    return Ok(None);
                }
            }
        }
    }

    fn take(&mut self, connection: &mut Connection) -> Result<Option<Retired>> {
        let retired = self
            .cq
            .poll()?
            .next()
            .map(|completion| connection.qp_mut().retire(completion));
        Ok(retired.transpose().map_err(ibverbs::Error::from)?)
    }

    fn done(&self, connection: &mut Connection, retired: Retired) -> Result<Completed> {
        if let Err(error) = retired.ok() {
            // On iWARP the flush can be seen before the peer's leaving that caused it.
            let _ = if retired.status() == WcStatus::WR_FLUSH_ERR && !connection.is_disconnected() {
                connection.wait_event(Some(LEAVING))
            } else {
                connection.check_event()
            };
            return Err(if connection.is_disconnected() {
                gone()
            } else {
                error.into()
            });
        }
        if retired.direction() != Direction::Recv {
            return Ok(Completed::Own);
        }
        let message = retired
            .into_buf()
            .map(|buf| buf.to_vec())
            .unwrap_or_default();
        self.receive(connection.qp_mut())?;
        Ok(Completed::Message(message))
    }
}

fn gone() -> Error {
    Error::new(
        crate::common::error::Kind::Gone,
        "the peer ended the connection",
    )
}
