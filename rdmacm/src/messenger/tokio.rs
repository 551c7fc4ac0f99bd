//! The messenger, awaited.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use ibverbs::{Buf, Result, Retired, device::TransportType};

use super::resources::Resources;
use super::{Messenger, MessengerOptions};
use crate::active::Resolver;
use crate::connection::Connection;
use crate::error::ConnectError;
use crate::passive::ConnectRequest;
use crate::progress::InProgress;
use crate::wait::Readable;

/// A [`Messenger`] awaited on tokio. Every future may be dropped at any point: a message is sent or
/// not, received or still there.
///
/// # Example
/// ```no_run
/// # async fn echo(listener: rdmacm::AsyncListener) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use rdmacm::{AsyncMessenger, MessengerOptions};
///
/// loop {
///     let request = listener.accept().await?;
///     tokio::spawn(async move {
///         let mut client = AsyncMessenger::accept(request, &MessengerOptions::default()).await?;
///         while let Some(message) = client.recv().await? {
///             client.send(&message).await?;
///         }
///         Ok::<(), ibverbs::Error>(())
///     });
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncMessenger {
    completions: Readable,
    events: Readable,
    messenger: Messenger,
}

impl AsyncMessenger {
    /// Watches a messenger on the tokio runtime that this is called on, which must have I/O
    /// enabled.
    ///
    /// # Errors
    /// As [`AsyncListener::new`](crate::AsyncListener::new).
    ///
    /// # Panics
    /// As there.
    pub fn new(messenger: Messenger) -> Result<Self> {
        let completions = Readable::new(Arc::new(messenger.parts.channel.clone()))?;
        let events = messenger.connection().channel().register_with_tokio()?;
        Ok(Self {
            completions,
            events,
            messenger,
        })
    }

    /// Connects to `peer`.
    ///
    /// # Errors
    /// As [`Messenger::connect`].
    pub async fn connect(
        peer: SocketAddr,
        options: &MessengerOptions<'_>,
    ) -> std::result::Result<Self, ConnectError> {
        Self::connect_with(Resolver::new(peer), options).await
    }

    /// Connects by a resolver that knows more than the peer's address.
    ///
    /// # Errors
    /// As [`Messenger::connect`].
    pub async fn connect_with(
        resolver: Resolver,
        options: &MessengerOptions<'_>,
    ) -> std::result::Result<Self, ConnectError> {
        let route = resolver.start()?.finish().await?;
        let (parts, qp) = Resources::new(&route.context()?, options)?;
        let mut ready = route.access(options.access).with_qp(qp)?;
        parts.refill(ready.qp_mut())?;
        let connection = ready.start(&options.params)?.finish().await?;
        Ok(Self::new(Messenger::new(connection, parts, true))?)
    }

    /// Accepts a request.
    ///
    /// # Errors
    /// As [`Messenger::accept`].
    pub async fn accept(
        request: ConnectRequest,
        options: &MessengerOptions<'_>,
    ) -> std::result::Result<Self, ConnectError> {
        let (parts, qp) = Resources::new(&request.context()?, options)?;
        let mut pending = request.access(options.access).with_qp(qp)?;
        parts.refill(pending.qp_mut())?;
        let connection = pending.start(&options.params)?.finish().await?;
        let may_speak = connection.transport() != TransportType::IWARP;
        Ok(Self::new(Messenger::new(connection, parts, may_speak))?)
    }

    /// The messenger.
    pub fn get_ref(&self) -> &Messenger {
        &self.messenger
    }

    /// The messenger, watched no more.
    pub fn into_inner(self) -> Messenger {
        self.messenger
    }

    /// Sends a copy of `message`, awaiting room for it.
    ///
    /// # Errors
    /// As [`Messenger::send`], without its time.
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        self.until(|messenger| messenger.try_send(message).map(|sent| sent.then_some(())))
            .await
    }

    /// Awaits that all messages sent have arrived.
    ///
    /// # Errors
    /// As [`Messenger::flush`], without its time.
    pub async fn flush(&mut self) -> Result<()> {
        self.until(|messenger| messenger.try_flush().map(|done| done.then_some(())))
            .await
    }

    /// Awaits the next message; `None` when the peer has ended the connection and all its messages
    /// were taken.
    ///
    /// # Errors
    /// As [`Messenger::recv`], without its time.
    pub async fn recv(&mut self) -> Result<Option<Buf>> {
        self.until(|messenger| {
            messenger.try_recv().map(|outcome| match outcome {
                Poll::Ready(outcome) => Some(outcome),
                Poll::Pending => None,
            })
        })
        .await
    }

    /// Awaits the end of a request that was posted by hand.
    ///
    /// # Errors
    /// As [`Messenger::completed`], without its time.
    pub async fn completed(&mut self) -> Result<Retired> {
        self.until(Messenger::try_completed).await
    }

    /// The connection: see [`Messenger::connection_mut`].
    pub fn connection_mut(&mut self) -> &mut Connection {
        self.messenger.connection_mut()
    }

    /// Tries whenever something completed or happened.
    async fn until<T>(
        &mut self,
        mut step: impl FnMut(&mut Messenger) -> Result<Option<T>>,
    ) -> Result<T> {
        let Self {
            completions,
            events,
            messenger,
        } = self;
        poll_fn(|context| {
            loop {
                if let Some(done) = step(messenger)? {
                    return Poll::Ready(Ok(done));
                }
                // Both are asked, so that both wake; one that was readable and gave nothing new is
                // cleared and asked again.
                let cleared = [
                    completions.poll_clear(context)?,
                    events.poll_clear(context)?,
                ];
                if cleared == [false, false] {
                    return Poll::Pending;
                }
            }
        })
        .await
    }
}
