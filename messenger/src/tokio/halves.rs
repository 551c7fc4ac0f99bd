//! The halves of a messenger on tokio, for two tasks.

use std::sync::Arc;

use ibverbs::Result;

use super::io::{ReadState, WriteState};
use super::{Reactor, SendPermit};
use crate::shared::Owner;
use crate::state::{Side, State};
use crate::{Message, SendBuffer};

/// The half of an [`AsyncMessenger`](crate::AsyncMessenger) that sends. It also implements
/// [`AsyncWrite`](tokio::io::AsyncWrite).
///
/// # Example
/// ```no_run
/// use messenger::AsyncSendHalf;
/// # async fn f(mut sender: AsyncSendHalf) -> ibverbs::Result<()> {
/// sender.send(b"hello").await?;
/// sender.shutdown().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct AsyncSendHalf {
    pub(super) owner: Arc<Owner>,
    pub(super) reactor: Arc<Reactor>,
    pub(super) write: WriteState,
}

impl AsyncSendHalf {
    pub(super) fn new(owner: Arc<Owner>, reactor: Arc<Reactor>, write: WriteState) -> Self {
        Self {
            owner,
            reactor,
            write,
        }
    }

    /// Sends a message: see [`AsyncMessenger::send`](crate::AsyncMessenger::send).
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has sent nothing.
    ///
    /// # Errors
    /// Same as [`AsyncMessenger::send`](crate::AsyncMessenger::send).
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        self.reactor.send(&self.owner.0, message).await
    }

    /// Awaits until the next message can be sent: see
    /// [`AsyncMessenger::reserve`](crate::AsyncMessenger::reserve).
    ///
    /// # Cancel safety
    /// Dropping the future or the permit has no effect.
    ///
    /// # Errors
    /// Same as [`AsyncMessenger::reserve`](crate::AsyncMessenger::reserve).
    pub async fn reserve(&mut self) -> Result<SendPermit<'_>> {
        self.reactor.reserve(&self.owner.0).await
    }

    /// Awaits a registered buffer for a message that is sent without a copy: see
    /// [`AsyncMessenger::buffer`](crate::AsyncMessenger::buffer).
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has taken no buffer.
    ///
    /// # Errors
    /// Same as [`AsyncMessenger::buffer`](crate::AsyncMessenger::buffer).
    pub async fn buffer(&mut self) -> Result<SendBuffer> {
        self.reactor.buffer(&self.owner.0).await
    }

    /// Sends a message in a [`buffer`](Self::buffer) without copying it: see
    /// [`AsyncMessenger::send_buffer`](crate::AsyncMessenger::send_buffer).
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has sent nothing. Dropping it returns the buffer
    /// to the messenger, so its content is lost.
    ///
    /// # Errors
    /// Same as [`AsyncMessenger::send_buffer`](crate::AsyncMessenger::send_buffer).
    pub async fn send_buffer(&mut self, buffer: SendBuffer) -> Result<()> {
        self.reactor.send_buffer(&self.owner.0, buffer).await
    }

    /// Awaits until the peer's messenger has received all messages.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect on the messages.
    ///
    /// # Errors
    /// Same as [`AsyncMessenger::flush`](crate::AsyncMessenger::flush).
    pub async fn flush(&mut self) -> Result<()> {
        self.reactor
            .wait(&self.owner.0, Side::Send, State::try_flush)
            .await
    }

    /// Ends the stream: see [`Messenger::shutdown`](crate::Messenger::shutdown).
    ///
    /// # Cancel safety
    /// The stream may have ended when the future is dropped: send no further message.
    ///
    /// # Errors
    /// Same as [`AsyncMessenger::shutdown`](crate::AsyncMessenger::shutdown).
    pub async fn shutdown(&mut self) -> Result<()> {
        self.reactor
            .wait(&self.owner.0, Side::Send, State::try_shutdown)
            .await
    }
}

/// The half of an [`AsyncMessenger`](crate::AsyncMessenger) that receives. It also implements
/// [`AsyncRead`](tokio::io::AsyncRead) and [`AsyncBufRead`](tokio::io::AsyncBufRead).
///
/// # Example
/// ```no_run
/// use messenger::AsyncRecvHalf;
/// # async fn f(mut receiver: AsyncRecvHalf) -> ibverbs::Result<()> {
/// while let Some(message) = receiver.recv().await? {
///     println!("{} bytes", message.len());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct AsyncRecvHalf {
    pub(super) owner: Arc<Owner>,
    pub(super) reactor: Arc<Reactor>,
    pub(super) read: ReadState,
}

impl AsyncRecvHalf {
    pub(super) fn new(owner: Arc<Owner>, reactor: Arc<Reactor>, read: ReadState) -> Self {
        Self {
            owner,
            reactor,
            read,
        }
    }

    /// Returns the next message: see [`AsyncMessenger::recv`](crate::AsyncMessenger::recv).
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has taken no message.
    ///
    /// # Errors
    /// Same as [`AsyncMessenger::recv`](crate::AsyncMessenger::recv).
    pub async fn recv(&mut self) -> Result<Option<Message>> {
        self.reactor.recv(&self.owner.0).await
    }
}
