//! A connected queue pair as the engines' [`Wire`].

use std::time::{Duration, Instant};

use ibverbs::{
    Buf, CompletionChannel, CompletionQueue, Direction, Frozen, Held, Pool, ProtectionDomain, QueuePair, Rc, Sink, wr,
};

use super::device::device_error;
use super::payload;
use crate::config::Shape;
use crate::engine::{Progress, Wire};
use crate::error::{Error, Result};

/// Requests that one doorbell posts at most.
pub const MAX_BATCH: u32 = 64;
/// How often the connection manager is asked whether the connection stands.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// What owns the queue pair.
#[derive(Debug)]
pub enum Line {
    /// Nothing else: it was connected through the control connection.
    Direct(QueuePair<Rc>),
    /// An rdma_cm connection.
    Cm(super::cm::Connection),
}

impl Line {
    #[inline]
    fn qp(&mut self) -> &mut QueuePair<Rc> {
        match self {
            Line::Direct(qp) => qp,
            Line::Cm(connection) => connection.qp_mut(),
        }
    }
}

/// What messages are made of.
enum Content {
    /// One source for all sends, one sink for all receives: nothing is copied or looked at.
    Same { source: Held<Frozen>, bytes: Frozen, inline: bool, sink: Held<Sink> },
    /// A buffer of its own for each, filled before and checked after.
    Distinct { sends: Pool, idle: Vec<Buf>, next: u64, verified: u64 },
}

/// A connected queue pair.
pub struct VerbsWire {
    line: Line,
    cq: CompletionQueue,
    channel: CompletionChannel,
    content: Content,
    msg_size: u32,
    checked: Instant,
}

impl std::fmt::Debug for VerbsWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerbsWire").field("line", &self.line).field("msg_size", &self.msg_size).finish_non_exhaustive()
    }
}

impl VerbsWire {
    /// Makes the memory of `shape` and joins it with a connected queue pair.
    ///
    /// # Errors
    /// The memory cannot be registered (the text says why, often the memlock limit).
    pub fn new(
        mut line: Line,
        pd: &ProtectionDomain,
        cq: CompletionQueue,
        channel: CompletionChannel,
        shape: &Shape,
    ) -> Result<Self> {
        let size = shape.msg_size as usize;
        let content = if shape.verify {
            let receives = pd.pool(shape.receives() as usize, size).map_err(device_error)?;
            Content::Distinct {
                sends: pd.pool(shape.sends() as usize, size).map_err(device_error)?,
                idle: std::iter::from_fn(|| receives.take()).collect(),
                next: 0,
                verified: 0,
            }
        } else {
            let mut buf = pd.buf(size).map_err(device_error)?;
            payload::fill(&mut buf, 0);
            let bytes = buf.freeze();
            let sink = pd.sink(size).map_err(device_error)?;
            let qp = line.qp();
            Content::Same {
                source: qp.hold(&bytes).map_err(device_error)?,
                inline: shape.msg_size <= qp.caps().max_inline_data,
                bytes,
                sink: qp.hold(&sink).map_err(device_error)?,
            }
        };
        Ok(Self { line, cq, channel, content, msg_size: shape.msg_size, checked: Instant::now() })
    }
}

impl Wire for VerbsWire {
    #[inline]
    fn send(&mut self, first: u64, count: u32, signal_every: u32, last: u64) -> Result<()> {
        let content = &self.content;
        let posted: ibverbs::Result<()> = self.line.qp().batch(|batch| {
            for n in first..first + u64::from(count) {
                let signalled = (n + 1) % u64::from(signal_every) == 0 || n + 1 == last;
                match content {
                    Content::Same { bytes, inline: true, .. } => {
                        batch.send(marked(wr::send(wr::Inline(bytes)), n + 1, signalled))?;
                    }
                    Content::Same { source, .. } => batch.send(marked(wr::send(*source), n + 1, signalled))?,
                    Content::Distinct { sends, .. } => {
                        let Some(mut buf) = sends.take() else {
                            return Err(ibverbs::Error::new(
                                ibverbs::ErrorKind::InvalidInput,
                                "send",
                                "no buffer is free",
                            ));
                        };
                        payload::fill(&mut buf, n);
                        batch.send(marked(wr::send(buf), n + 1, signalled))?;
                    }
                }
            }
            Ok(())
        });
        posted.map_err(device_error)
    }

    fn send_credit(&mut self, sent: u64) -> Result<()> {
        self.line.qp().post_send(wr::send(wr::Empty).tag(sent)).map_err(|e| device_error(e.into()))
    }

    #[inline]
    fn post_receives(&mut self, count: u32) -> Result<()> {
        let content = &mut self.content;
        let qp = self.line.qp();
        let mut left = count;
        while left > 0 {
            let now = left.min(MAX_BATCH);
            left -= now;
            let posted: ibverbs::Result<()> = qp.recv_batch(|batch| {
                for _ in 0..now {
                    match content {
                        Content::Same { sink, .. } => batch.recv(wr::recv(*sink))?,
                        Content::Distinct { idle, .. } => {
                            let Some(buf) = idle.pop() else {
                                return Err(ibverbs::Error::new(
                                    ibverbs::ErrorKind::InvalidInput,
                                    "receive",
                                    "no buffer is free",
                                ));
                            };
                            batch.recv(wr::recv(buf))?;
                        }
                    }
                }
                Ok(())
            });
            posted.map_err(device_error)?;
        }
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<Progress> {
        let mut progress = Progress::default();
        let qp = self.line.qp();
        for completion in self.cq.poll().map_err(device_error)? {
            // One that matches no request in flight is stale: it says nothing.
            let Ok(retired) = qp.retire(completion) else { continue };
            retired.ok().map_err(device_error)?;
            progress.completions += 1;
            if retired.direction() == Direction::Send {
                progress.sent = progress.sent.max(retired.tag());
                continue;
            }
            let len = retired.byte_len();
            if len == 0 {
                progress.credits += 1;
            } else if len == self.msg_size as usize {
                progress.data += 1;
                progress.bytes += len as u64;
            } else {
                return Err(Error::test(format!("a message of {len} bytes arrived where all have {}", self.msg_size)));
            }
            if let (Content::Distinct { idle, next, verified, .. }, Some(buf)) = (&mut self.content, retired.into_buf())
            {
                if len > 0 {
                    payload::check(&buf, *next)?;
                    *next += 1;
                    *verified += len as u64;
                }
                idle.push(buf);
            }
        }
        Ok(progress)
    }

    fn arm(&mut self) -> Result<()> {
        self.cq.arm(false).map_err(device_error)
    }

    fn sleep(&mut self, limit: Duration) -> Result<()> {
        self.channel.wait(Some(limit)).map(drop).map_err(device_error)
    }

    fn check(&mut self) -> Result<()> {
        match &mut self.line {
            Line::Cm(connection) if self.checked.elapsed() >= CHECK_EVERY => {
                self.checked = Instant::now();
                connection.check()
            }
            _ => Ok(()),
        }
    }

    fn verified(&self) -> u64 {
        match &self.content {
            Content::Distinct { verified, .. } => *verified,
            Content::Same { .. } => 0,
        }
    }
}

#[inline]
fn marked<O, P>(request: wr::SendRequest<O, P>, tag: u64, signalled: bool) -> wr::SendRequest<O, P> {
    let request = request.tag(tag);
    if signalled { request } else { request.unsignaled() }
}
