//! The messenger on tokio.

mod halves;
mod io;
mod reactor;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ibverbs::{QueuePair, Rc, Result, Retired};
use rdmacm::{ConnectError, ConnectRequest, Resolver};

pub use self::halves::{AsyncRecvHalf, AsyncSendHalf};
use self::io::{ReadState, WriteState};
pub(crate) use self::reactor::Reactor;
pub use self::reactor::SendPermit;
use super::resources::Resources;
use super::state::{Side, State};
use super::{Message, Messenger, MessengerOptions, SendBuffer};

/// A [`Messenger`] for tokio.
///
/// Every future of its methods can be dropped at any time, as `tokio::select!` and
/// `tokio::time::timeout` do. Then nothing of the message was sent, and no received message is
/// lost. Each method states this as its cancel safety.
///
/// It also implements [`AsyncRead`](tokio::io::AsyncRead),
/// [`AsyncBufRead`](tokio::io::AsyncBufRead) and [`AsyncWrite`](tokio::io::AsyncWrite), which
/// transfer a stream of bytes. A write posts as many buffers as it can at once, each as a message
/// of its own, and does not wait for earlier ones. `AsyncBufRead` lends the received buffers
/// without copying them, and [`send_buffer`](Self::send_buffer) writes to the stream without a
/// copy. Otherwise use either the stream or the messages in one direction.
///
/// # Example
/// ```no_run
/// # async fn echo(listener: rdmacm::AsyncListener) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use messenger::{AsyncMessenger, MessengerOptions};
///
/// loop {
///     let request = listener.next_request().await?;
///     tokio::spawn(async move {
///         let mut client = AsyncMessenger::accept(request, &MessengerOptions::default()).await?;
///         while let Some(message) = client.recv().await? {
///             client.send(&message).await?;
///         }
///         client.shutdown().await
///     });
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncMessenger {
    messenger: Messenger,
    reactor: Arc<Reactor>,
    read: ReadState,
    write: WriteState,
}

impl AsyncMessenger {
    /// Registers a messenger with the current tokio runtime, which must have I/O enabled.
    ///
    /// # Errors
    /// Same as [`AsyncListener::new`](rdmacm::AsyncListener::new).
    ///
    /// # Panics
    /// Panics if the runtime does not have I/O enabled.
    pub fn new(messenger: Messenger) -> Result<Self> {
        let reactor = Reactor::of(&messenger.shared().driver)?;
        Ok(Self {
            messenger,
            reactor,
            read: ReadState::default(),
            write: WriteState::default(),
        })
    }

    /// Connects to `peer`.
    ///
    /// # Cancel safety
    /// Dropping the future ends the attempt, and the connection if it exists already. The peer may
    /// have accepted it, and then sees that it ends.
    ///
    /// # Errors
    /// Same as [`Messenger::connect`].
    pub async fn connect(
        peer: SocketAddr,
        options: &MessengerOptions<'_>,
    ) -> Result<Self, ConnectError> {
        Self::connect_with(Resolver::new(peer), options).await
    }

    /// Connects with a resolver that has further options.
    ///
    /// # Cancel safety
    /// Same as [`connect`](Self::connect).
    ///
    /// # Errors
    /// Same as [`Messenger::connect`].
    pub async fn connect_with(
        resolver: Resolver,
        options: &MessengerOptions<'_>,
    ) -> Result<Self, ConnectError> {
        let route = resolver.start()?.await?;
        let (resources, qp) = Resources::new(options, || route.context())?;
        let mut ready = route.access(options.access).with_qp(qp)?;
        resources.fill(ready.qp_mut())?;
        let connection = ready.start(&options.params)?.await?;
        Self::greeted(Messenger::new(connection, resources, true)?).await
    }

    /// Accepts a connect request.
    ///
    /// # Cancel safety
    /// The future owns the request. Dropping the future rejects it, or ends the connection if the
    /// peer was answered already. To give up other work instead, accept in a task.
    ///
    /// # Errors
    /// Same as [`Messenger::accept`].
    pub async fn accept(
        request: ConnectRequest,
        options: &MessengerOptions<'_>,
    ) -> Result<Self, ConnectError> {
        let (resources, qp) = Resources::new(options, || request.context())?;
        let mut ready = request.access(options.access).with_qp(qp)?;
        if let Some(cleanup) = resources.cleanup() {
            ready.set_cleanup(cleanup);
        }
        resources.fill(ready.qp_mut())?;
        let connection = ready.start(&options.params)?.await?;
        Self::greeted(Messenger::new(connection, resources, false)?).await
    }

    async fn greeted(messenger: Messenger) -> Result<Self, ConnectError> {
        let this = Self::new(messenger)?;
        this.reactor
            .wait(this.messenger.shared(), Side::Recv, State::try_greet)
            .await?;
        Ok(this)
    }

    /// Returns the messenger, for its protection domain, its addresses and the private data of the
    /// peer.
    pub fn get_ref(&self) -> &Messenger {
        &self.messenger
    }

    /// Returns the messenger after deregistering it from the runtime. Bytes that
    /// [`AsyncRead`](tokio::io::AsyncRead) has not returned yet are lost.
    pub fn into_inner(self) -> Messenger {
        self.messenger
    }

    /// Sends a copy of `message` after awaiting credit of the peer.
    ///
    /// The future is ready once the first bytes are on their way. If the message is longer than the
    /// buffers, a task of the runtime sends the rest while the peer receives it, and the next
    /// message waits for that. Use [`flush`](Self::flush) to await the delivery.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has sent nothing. The message can be sent again.
    ///
    /// # Errors
    /// Same as [`Messenger::send`], except for the timeout.
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        self.reactor.send(self.messenger.shared(), message).await
    }

    /// Awaits until the next message can be sent, and returns a permit to send it without waiting.
    /// The message need not exist before.
    ///
    /// # Cancel safety
    /// Dropping the future or the permit has no effect.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    pub async fn reserve(&mut self) -> Result<SendPermit<'_>> {
        self.reactor.reserve(self.messenger.shared()).await
    }

    /// Awaits a registered buffer for a message that is sent without a copy: see
    /// [`Messenger::buffer`].
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has taken no buffer.
    ///
    /// # Errors
    /// Same as [`Messenger::buffer`], except for the timeout.
    pub async fn buffer(&mut self) -> Result<SendBuffer> {
        self.reactor.buffer(self.messenger.shared()).await
    }

    /// Sends a message in a [`buffer`](Self::buffer) of this messenger without copying it, after
    /// awaiting credit of the peer.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has sent nothing. Dropping it returns the buffer
    /// to the messenger, so its content is lost.
    ///
    /// # Errors
    /// Same as [`Messenger::send_buffer`], except for the timeout.
    pub async fn send_buffer(&mut self, buffer: SendBuffer) -> Result<()> {
        let shared = self.messenger.shared();
        self.reactor.send_buffer(shared, buffer).await
    }

    /// Awaits until the peer's messenger has received all messages.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect on the messages. Another call goes on waiting for them.
    ///
    /// # Errors
    /// Same as [`Messenger::flush`], except for the timeout.
    pub async fn flush(&mut self) -> Result<()> {
        self.reactor
            .wait(self.messenger.shared(), Side::Send, State::try_flush)
            .await
    }

    /// Ends the stream of messages: see [`Messenger::shutdown`].
    ///
    /// # Cancel safety
    /// The stream may have ended when the future is dropped: send no further message. Another call
    /// goes on waiting for the peer.
    ///
    /// # Errors
    /// Same as [`Messenger::shutdown`], except for the timeout.
    pub async fn shutdown(&mut self) -> Result<()> {
        self.reactor
            .wait(self.messenger.shared(), Side::Send, State::try_shutdown)
            .await
    }

    /// Awaits the next message. Returns `None` after the peer has ended its stream and all its
    /// messages were returned.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has taken no message.
    ///
    /// # Errors
    /// Same as [`Messenger::recv`], except for the timeout.
    pub async fn recv(&mut self) -> Result<Option<Message>> {
        self.reactor.recv(self.messenger.shared()).await
    }

    /// Awaits the completion of a request that the application posted itself.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has taken no completion.
    ///
    /// # Errors
    /// Same as [`Messenger::completed`], except for the timeout.
    pub async fn completed(&mut self) -> Result<Retired> {
        self.reactor
            .wait(
                self.messenger.shared(),
                Side::Requests,
                State::try_completed,
            )
            .await
    }

    /// Calls a function on the queue pair: see [`Messenger::with_qp`].
    ///
    /// # Errors
    /// Same as [`Messenger::with_qp`].
    pub fn with_qp<R>(&mut self, f: impl FnOnce(&mut QueuePair<Rc>) -> R) -> Result<R> {
        self.messenger.with_qp(f)
    }

    /// Divides the messenger into a half that sends and one that receives, for two tasks. The
    /// connection ends when both are dropped.
    pub fn split(self) -> (AsyncSendHalf, AsyncRecvHalf) {
        let owner = self.messenger.owner;
        (
            AsyncSendHalf::new(Arc::clone(&owner), Arc::clone(&self.reactor), self.write),
            AsyncRecvHalf::new(owner, self.reactor, self.read),
        )
    }
}

impl AsFd for AsyncMessenger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.messenger.as_fd()
    }
}
