//! The messenger on tokio.

mod halves;
mod io;
mod reactor;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ibverbs::{QueuePair, Rc, Result, Retired};
use rdmacm::{ConnectError, ConnectRequest, InProgress, Resolver};

pub use self::halves::{AsyncRecvHalf, AsyncSendHalf};
use self::io::{ReadState, WriteState};
pub(crate) use self::reactor::Reactor;
use super::resources::Resources;
use super::state::{Side, State};
use super::{Message, Messenger, MessengerOptions};

/// A [`Messenger`] for tokio. Every future can be dropped at any time: a message is then either
/// sent or not, and a received message is not lost.
///
/// It also implements [`AsyncRead`](tokio::io::AsyncRead) and
/// [`AsyncWrite`](tokio::io::AsyncWrite), which transfer a stream of bytes. A write posts as many
/// buffers as it can at once, each as a message of its own, and does not wait for earlier ones. Use
/// either the stream or the messages in one direction.
///
/// # Example
/// ```no_run
/// # async fn echo(listener: rdmacm::AsyncListener) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use messenger::{AsyncMessenger, MessengerOptions};
///
/// loop {
///     let request = listener.accept().await?;
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
    /// # Errors
    /// Same as [`Messenger::connect`].
    pub async fn connect_with(
        resolver: Resolver,
        options: &MessengerOptions<'_>,
    ) -> Result<Self, ConnectError> {
        let route = resolver.start()?.finish().await?;
        let (resources, qp) = Resources::new(options, || route.context())?;
        let mut ready = route.access(options.access).with_qp(qp)?;
        resources.fill(ready.qp_mut())?;
        let connection = ready.start(&options.params)?.finish().await?;
        Self::greeted(Messenger::new(connection, resources, true)?).await
    }

    /// Accepts a connect request.
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
        let connection = ready.start(&options.params)?.finish().await?;
        Self::greeted(Messenger::new(connection, resources, false)?).await
    }

    async fn greeted(messenger: Messenger) -> Result<Self, ConnectError> {
        let this = Self::new(messenger)?;
        this.reactor
            .wait(this.messenger.shared(), Side::Recv, State::try_greet)
            .await?;
        Ok(this)
    }

    /// Returns the messenger.
    pub fn get_ref(&self) -> &Messenger {
        &self.messenger
    }

    /// Returns the messenger after deregistering it from the runtime. Bytes that
    /// [`AsyncRead`](tokio::io::AsyncRead) has not returned yet are lost.
    pub fn into_inner(self) -> Messenger {
        self.messenger
    }

    /// Sends a copy of `message` after awaiting credit of the peer: see [`Messenger::send`].
    ///
    /// Dropping the future before it completes either sends the whole message or nothing of it.
    ///
    /// # Errors
    /// Same as [`Messenger::send`], except for the timeout.
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        self.reactor.send(self.messenger.shared(), message).await
    }

    /// Awaits until the peer's messenger has received all messages.
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
    /// # Errors
    /// Same as [`Messenger::recv`], except for the timeout.
    pub async fn recv(&mut self) -> Result<Option<Message>> {
        self.reactor.recv(self.messenger.shared()).await
    }

    /// Awaits the completion of a request that the application posted itself.
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
