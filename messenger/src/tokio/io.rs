//! Messengers as streams of bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use super::reactor::TaskWait;
use super::{AsyncMessenger, AsyncRecvHalf, AsyncSendHalf, Reactor};
use crate::Message;
use crate::shared::Shared;
use crate::state::{Side, State};

/// The message that is being read, the number of its bytes already returned, and the wait of a
/// reader.
#[derive(Debug, Default)]
pub(super) struct ReadState {
    current: Option<(Message, usize)>,
    wait: TaskWait,
}

/// The wait of a writer.
#[derive(Debug, Default)]
pub(super) struct WriteState {
    wait: TaskWait,
}

impl ReadState {
    /// Returns the bytes of the current message that were not consumed.
    fn rest(&self) -> &[u8] {
        let current = self.current.as_ref();
        current.map_or(&[], |(message, start)| &message[*start..])
    }

    fn poll_fill_buf(
        &mut self,
        shared: &Shared,
        reactor: &Reactor,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<&[u8]>> {
        // An empty message is no end of the stream.
        while self.rest().is_empty() {
            let mut step = State::try_recv;
            let wait = &mut self.wait;
            let polled = reactor.poll(shared, Side::Recv, context, wait, false, &mut step);
            let message = ready!(polled)?.into_message(&shared.endpoint);
            self.current = message.map(|message| (message, 0));
            if self.current.is_none() {
                break;
            }
        }
        Poll::Ready(Ok(self.rest()))
    }

    fn poll(
        &mut self,
        shared: &Shared,
        reactor: &Reactor,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = ready!(self.poll_fill_buf(shared, reactor, context))?;
        let count = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..count]);
        self.consume(count);
        Poll::Ready(Ok(()))
    }

    fn consume(&mut self, count: usize) {
        if let Some((message, start)) = &mut self.current {
            *start = start.saturating_add(count).min(message.len());
            if *start == message.len() {
                self.current = None;
            }
        }
    }
}

impl WriteState {
    fn poll<T>(
        &mut self,
        shared: &Shared,
        reactor: &Reactor,
        context: &mut Context<'_>,
        mut step: impl FnMut(&mut State) -> ibverbs::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        let wait = &mut self.wait;
        reactor
            .poll(shared, Side::Send, context, wait, false, &mut step)
            .map_err(io::Error::from)
    }

    fn poll_write(
        &mut self,
        shared: &Shared,
        reactor: &Reactor,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll(shared, reactor, context, |state| state.try_write(bytes))
    }
}

macro_rules! impl_read {
    ($name:ident, $this:ident => $shared:expr) => {
        impl AsyncRead for $name {
            fn poll_read(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let $this = self.get_mut();
                $this.read.poll($shared, &$this.reactor, context, buf)
            }
        }

        impl AsyncBufRead for $name {
            fn poll_fill_buf(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<&[u8]>> {
                let $this = self.get_mut();
                $this.read.poll_fill_buf($shared, &$this.reactor, context)
            }

            fn consume(self: Pin<&mut Self>, count: usize) {
                self.get_mut().read.consume(count);
            }
        }
    };
}

macro_rules! impl_write {
    ($name:ident, $this:ident => $shared:expr) => {
        impl AsyncWrite for $name {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                let $this = self.get_mut();
                $this
                    .write
                    .poll_write($shared, &$this.reactor, context, bytes)
            }

            /// Awaits until the peer's messenger has received everything.
            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $this = self.get_mut();
                $this
                    .write
                    .poll($shared, &$this.reactor, context, State::try_flush)
            }

            /// Ends the stream, and awaits until the peer's messenger has received everything.
            fn poll_shutdown(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                let $this = self.get_mut();
                $this
                    .write
                    .poll($shared, &$this.reactor, context, State::try_shutdown)
            }
        }
    };
}

impl_read!(AsyncMessenger, this => this.messenger.shared());
impl_read!(AsyncRecvHalf, this => &this.owner.0);
impl_write!(AsyncMessenger, this => this.messenger.shared());
impl_write!(AsyncSendHalf, this => &this.owner.0);
