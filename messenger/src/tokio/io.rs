//! Messengers as streams of bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
    fn poll(
        &mut self,
        shared: &Shared,
        reactor: &Reactor,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some((message, start)) = &mut self.current {
                let rest = &message[*start..];
                let count = rest.len().min(buf.remaining());
                buf.put_slice(&rest[..count]);
                *start += count;
                if *start == message.len() {
                    self.current = None;
                }
                // An empty message is no end of the stream.
                if count > 0 || buf.remaining() == 0 {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            let mut step = State::try_recv;
            let wait = &mut self.wait;
            let polled = reactor.poll(shared, Side::Recv, context, wait, false, &mut step);
            match polled {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Ready(Ok(received)) => match received.into_message(&shared.endpoint) {
                    Some(message) => self.current = Some((message, 0)),
                    None => return Poll::Ready(Ok(())),
                },
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
