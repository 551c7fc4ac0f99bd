//! The messenger on tokio.

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

/// A [`Messenger`] for tokio. Every future can be dropped at any time: a message is then either
/// sent or not, and a received message is not lost.
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
    /// Registers a messenger with the current tokio runtime, which must have I/O enabled.
    ///
    /// # Errors
    /// Same as [`AsyncListener::new`](crate::AsyncListener::new).
    ///
    /// # Panics
    /// Panics if the runtime does not have I/O enabled.
    pub fn new(messenger: Messenger) -> Result<Self> {
        let completions = Readable::new(Arc::new(messenger.resources.channel.clone()))?;
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
    /// Same as [`Messenger::connect`].
    pub async fn connect(
        peer: SocketAddr,
        options: &MessengerOptions<'_>,
    ) -> std::result::Result<Self, ConnectError> {
        Self::connect_with(Resolver::new(peer), options).await
    }

    /// Connects with a resolver that has further options.
    ///
    /// # Errors
    /// Same as [`Messenger::connect`].
    pub async fn connect_with(
        resolver: Resolver,
        options: &MessengerOptions<'_>,
    ) -> std::result::Result<Self, ConnectError> {
        let route = resolver.start()?.finish().await?;
        let (resources, qp) = Resources::new(&route.context()?, options)?;
        let mut ready = route.access(options.access).with_qp(qp)?;
        resources.refill(ready.qp_mut())?;
        let connection = ready.start(&options.params)?.finish().await?;
        Ok(Self::new(Messenger::new(connection, resources, true))?)
    }

    /// Accepts a connect request.
    ///
    /// # Errors
    /// Same as [`Messenger::accept`].
    pub async fn accept(
        request: ConnectRequest,
        options: &MessengerOptions<'_>,
    ) -> std::result::Result<Self, ConnectError> {
        let (resources, qp) = Resources::new(&request.context()?, options)?;
        let mut ready = request.access(options.access).with_qp(qp)?;
        resources.refill(ready.qp_mut())?;
        let connection = ready.start(&options.params)?.finish().await?;
        let may_send = connection.transport() != TransportType::IWARP;
        Ok(Self::new(Messenger::new(connection, resources, may_send))?)
    }

    /// Returns the messenger.
    pub fn get_ref(&self) -> &Messenger {
        &self.messenger
    }

    /// Returns the messenger after deregistering it from the runtime.
    pub fn into_inner(self) -> Messenger {
        self.messenger
    }

    /// Sends a copy of `message` after awaiting a free send buffer.
    ///
    /// # Errors
    /// Same as [`Messenger::send`], except for the timeout.
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        self.retry(|messenger| {
            messenger
                .try_send(message)
                .map(|is_sent| is_sent.then_some(()))
        })
        .await
    }

    /// Awaits the delivery of all messages sent.
    ///
    /// # Errors
    /// Same as [`Messenger::flush`], except for the timeout.
    pub async fn flush(&mut self) -> Result<()> {
        self.retry(|messenger| messenger.try_flush().map(|is_done| is_done.then_some(())))
            .await
    }

    /// Awaits the next message. Returns `None` after the connection has ended and all its messages
    /// were returned.
    ///
    /// # Errors
    /// Same as [`Messenger::recv`], except for the timeout.
    pub async fn recv(&mut self) -> Result<Option<Buf>> {
        self.retry(|messenger| {
            messenger.try_recv().map(|poll| match poll {
                Poll::Ready(message) => Some(message),
                Poll::Pending => None,
            })
        })
        .await
    }

    /// Awaits the completion of a request that the application posted itself.
    ///
    /// # Errors
    /// Same as [`Messenger::completed`], except for the timeout.
    pub async fn completed(&mut self) -> Result<Retired> {
        self.retry(Messenger::try_completed).await
    }

    /// Returns the connection: see [`Messenger::connection_mut`].
    pub fn connection_mut(&mut self) -> &mut Connection {
        self.messenger.connection_mut()
    }

    /// Calls `step` until it returns a value, waiting for completions or events between calls.
    async fn retry<T>(
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
                // Poll both, so that both wake the task. If one was readable without new data, its
                // readiness is now cleared and the step is tried again.
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
