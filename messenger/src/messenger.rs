//! A connection for messages, and the calls of an application.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ibverbs::{
    Error, ErrorKind, ProtectionDomain, QueuePair, Rc, Result, Retired, device::TransportType,
};

use rdmacm::internal::Deadline;
use rdmacm::{ConnectError, ConnectRequest, Connection, EventChannel, IdKey, InProgress, Resolver};

use crate::codec::VERB;
use crate::halves::{self, RecvHalf, SendHalf};
use crate::message::{Message, SendBuffer};
use crate::options::MessengerOptions;
use crate::resources::Resources;
use crate::rtr;
use crate::shared::{Owner, Shared};
use crate::state::{Side, State};

/// A reliable connection for messages. It creates the queue pair, the completion queue and the
/// buffers, and posts receives before the peer's first message can arrive.
///
/// No message is lost without an error. A sender waits if the peer's receives are used up, on
/// every transport. [`flush`](Self::flush) returns once the peer's messenger has received all
/// messages. A connection that ends without the peer's [`shutdown`](Self::shutdown) is an error of
/// [`recv`](Self::recv).
///
/// Both sides must use a messenger: it has a protocol of its own, with a header in each message.
///
/// A messenger has no thread. It processes acknowledgements and credits of the peer only while one
/// of its methods runs, or while a received [`Message`] is dropped.
///
/// The library guide lists [common mistakes](https://github.com/rdma-rs/rdma-rs/blob/main/docs/library.md#messenger).
///
/// # Example
/// ```no_run
/// use messenger::{Messenger, MessengerOptions};
/// use rdmacm::Listener;
/// use std::time::Duration;
///
/// const LIMIT: Duration = Duration::from_secs(5);
/// let listener = Listener::bind("10.99.0.1:7471".parse()?, 16)?;
/// std::thread::spawn(move || {
///     let mut client = Messenger::connect(
///         "10.99.0.1:7471".parse()?,
///         &MessengerOptions::default(),
///         LIMIT,
///     )?;
///     client.send(b"hello", LIMIT)?;
///     println!("{:?}", client.recv(LIMIT)?.as_deref());
///     client.shutdown(LIMIT)?;
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// });
/// let request = listener.next_request(Some(LIMIT))?.ok_or("no client connected")?;
/// let mut server = Messenger::accept(request, &MessengerOptions::default(), LIMIT)?;
/// while let Some(message) = server.recv(LIMIT)? {
///     server.send(&message, LIMIT)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Messenger {
    pub(crate) owner: Arc<Owner>,
    info: Arc<Info>,
}

/// Properties of a connection that never change.
#[derive(Debug)]
struct Info {
    local_addr: SocketAddr,
    peer_addr: SocketAddr,
    device_name: String,
    private_data: Vec<u8>,
    pd: ProtectionDomain,
}

impl Messenger {
    /// Connects to `peer`, at most for `timeout`.
    ///
    /// # Errors
    /// Same as [`Resolver::resolve`] and [`ReadyRoute::connect`](rdmacm::ReadyRoute::connect).
    /// [`ErrorKind::Malformed`] or [`ErrorKind::TimedOut`] if the peer is not a messenger.
    pub fn connect(
        peer: SocketAddr,
        options: &MessengerOptions<'_>,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        Self::connect_with(Resolver::new(peer).timeout(timeout), options, timeout)
    }

    /// Connects with a resolver that has further options, at most for `timeout`.
    ///
    /// # Errors
    /// Same as [`connect`](Self::connect).
    pub fn connect_with(
        resolver: Resolver,
        options: &MessengerOptions<'_>,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let deadline = Deadline::after(timeout);
        let route = resolver.start()?.wait(deadline.remaining())?;
        let (resources, qp) = Resources::new(options, || route.context())?;
        let mut ready = route.access(options.access).with_qp(qp)?;
        resources.fill(ready.qp_mut())?;
        let remaining = deadline.remaining().unwrap_or(Duration::MAX);
        let connection = ready.connect(&options.params, remaining)?;
        let messenger = Self::new(connection, resources, true)?;
        messenger.greet(deadline)?;
        Ok(messenger)
    }

    /// Accepts a connect request, at most for `timeout`.
    ///
    /// # Errors
    /// Same as [`ReadyRequest::accept`](rdmacm::ReadyRequest::accept). [`ErrorKind::Malformed`] or
    /// [`ErrorKind::TimedOut`] if the peer is not a messenger.
    pub fn accept(
        request: ConnectRequest,
        options: &MessengerOptions<'_>,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let deadline = Deadline::after(timeout);
        let (resources, qp) = Resources::new(options, || request.context())?;
        let mut ready = request.access(options.access).with_qp(qp)?;
        if let Some(cleanup) = resources.cleanup() {
            ready.set_cleanup(cleanup);
        }
        resources.fill(ready.qp_mut())?;
        let connection = ready.start(&options.params)?.wait(deadline.remaining())?;
        let messenger = Self::new(connection, resources, false)?;
        messenger.greet(deadline)?;
        Ok(messenger)
    }

    /// Creates a messenger that has not exchanged greetings.
    pub(crate) fn new(
        connection: Connection,
        resources: Resources,
        is_active: bool,
    ) -> Result<Self> {
        let info = Arc::new(Info {
            local_addr: connection.local_addr(),
            peer_addr: connection.peer_addr(),
            device_name: connection.device_name().to_owned(),
            private_data: connection.private_data().to_vec(),
            pd: connection.qp().pd().clone(),
        });
        let has_late_receiver = is_active && connection.transport() == TransportType::IWARP;
        let owner = resources.connected(connection, is_active)?;
        if has_late_receiver {
            rtr::start(&owner.0.endpoint);
        }
        Ok(Self { owner, info })
    }

    fn greet(&self, deadline: Deadline) -> Result<()> {
        self.shared()
            .block(Side::Recv, deadline.remaining(), State::try_greet)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.owner.0
    }

    /// Returns the local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.info.local_addr
    }

    /// Returns the peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.info.peer_addr
    }

    /// Returns the name of the connection's device.
    pub fn device_name(&self) -> &str {
        &self.info.device_name
    }

    /// Returns the private data that the peer sent with its request or acceptance. On InfiniBand
    /// and RoCE it is padded with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.info.private_data
    }

    /// Returns the protection domain of the queue pair.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.info.pd
    }

    /// Returns the key that an [`EventChannel`] returns for this connection.
    pub fn key(&self) -> IdKey {
        self.shared().endpoint.key
    }

    /// Returns `true` if this side has received the event of the peer's disconnect.
    pub fn is_disconnected(&self) -> bool {
        self.shared().with(|state| state.is_over())
    }

    /// Checks this side of the connection: the adapter, its port, and the queue pair. See
    /// [`Connection::check_device`].
    ///
    /// The errors of other methods name a fault of this side too. Call this function after a time
    /// limit of your own, such as `tokio::time::timeout`, has ended a call.
    ///
    /// # Errors
    /// Same as [`Connection::check_device`].
    pub fn check_device(&self) -> Result<()> {
        self.shared().with(|state| state.check_device())
    }

    /// Moves the events of the connection to another channel.
    ///
    /// # Errors
    /// Same as [`Connection::migrate`]. [`ErrorKind::InvalidInput`] if the messenger is in a group.
    pub fn migrate(&mut self, to: &EventChannel) -> Result<()> {
        if self.shared().endpoint.lease.is_some() {
            let detail = "messenger group: its messengers share an event channel";
            return Err(Error::new(ErrorKind::InvalidInput, VERB, detail)
                .with_help("create a messenger without a group"));
        }
        let driver = &self.shared().driver;
        self.shared().with(|state| {
            if let Some(channel) = state.with_connection(|connection| connection.channel().clone())
            {
                driver.unwatch(&channel)?;
            }
            state.migrate(to)
        })?;
        driver.watch(to)
    }

    /// Calls a function on the queue pair, for READ, WRITE and atomic operations. Give these
    /// requests a [tag](ibverbs::wr::SendRequest::tag) other than 0, post at most
    /// [`MessengerOptions::requests`] of them at a time, and get their completions from
    /// [`completed`](Self::completed).
    ///
    /// Other threads that use this messenger or its group wait until the function returns.
    ///
    /// The connection ends if the function replaces the queue pair, or if a
    /// [scope](QueuePair::scope) destroys it. A scope cannot wait here, because the messenger polls
    /// the completion queue.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`] if the messenger was closed.
    pub fn with_qp<R>(&mut self, f: impl FnOnce(&mut QueuePair<Rc>) -> R) -> Result<R> {
        let called = self.shared().with(|state| state.with_qp(f));
        called.ok_or_else(|| Error::new(ErrorKind::Disconnected, VERB, "closed messenger"))
    }

    /// Sends a copy of `message`, in fragments if it is longer than the buffers. Waits at most for
    /// `timeout` until all fragments are on their way, but not for the delivery. Use
    /// [`flush`](Self::flush) to wait for that.
    ///
    /// If the time runs out after the first fragment, the messenger keeps the rest, sends it during
    /// later calls, and returns `Ok`.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`]: the message is longer than the peer's `max_len`, or the
    ///   stream was ended with [`shutdown`](Self::shutdown).
    /// - [`ErrorKind::Disconnected`]: the connection has ended.
    /// - [`ErrorKind::TimedOut`]: the peer did not receive earlier messages in time. Nothing of
    ///   this message was sent.
    /// - [`ErrorKind::Malformed`]: the peer has violated the protocol.
    pub fn send(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        halves::send(self.shared(), message, timeout)
    }

    /// Like [`send`](Self::send), but returns `false` instead of waiting if nothing of the message
    /// can be sent now.
    ///
    /// # Errors
    /// Same as [`send`](Self::send), except for the timeout.
    pub fn try_send(&mut self, message: &[u8]) -> Result<bool> {
        let mut step = |state: &mut State| state.try_send(message);
        Ok(self.shared().attempt_armed(&mut step)?.is_some())
    }

    /// Returns a registered buffer for a message that is sent without a copy, waiting at most for
    /// `timeout`. Its length is the maximum that fits in one buffer of both sides.
    ///
    /// The messenger has `depth` buffers, which the other methods use too.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if all buffers are in use. [`ErrorKind::InvalidInput`] if the
    /// messenger is in a group, whose buffers are shared. Otherwise the same as
    /// [`send`](Self::send).
    pub fn buffer(&mut self, timeout: Duration) -> Result<SendBuffer> {
        let shared = self.shared();
        let buf = shared.block(Side::Send, timeout, State::try_buffer)?;
        Ok(SendBuffer::new(buf, &shared.driver))
    }

    /// Sends a message in a [`buffer`](Self::buffer) of this messenger without copying it. Waits at
    /// most for `timeout` until the peer can receive it.
    ///
    /// # Errors
    /// Same as [`send`](Self::send). The buffer returns to its messenger.
    /// [`ErrorKind::InvalidInput`] if that is another one.
    pub fn send_buffer(&mut self, buffer: SendBuffer, timeout: Duration) -> Result<()> {
        let (unsent, buf) = buffer.into_parts(&self.shared().driver)?;
        let mut buf = Some(buf);
        self.shared()
            .block(Side::Send, timeout, |state| state.try_send_buffer(&mut buf))?;
        unsent.disarm();
        Ok(())
    }

    /// Waits until the peer's messenger has received all messages sent before, at most for
    /// `timeout`. The peer's application may not have taken them yet, but must be waiting in a call
    /// such as [`recv`](Self::recv), because the acknowledgement is sent there.
    ///
    /// # Errors
    /// Same as [`send`](Self::send). After [`ErrorKind::TimedOut`] the messages may still arrive.
    pub fn flush(&mut self, timeout: Duration) -> Result<()> {
        self.shared().block(Side::Send, timeout, State::try_flush)
    }

    /// Ends the stream of messages to the peer, and waits at most for `timeout` until the peer's
    /// messenger has received all messages and the end. The peer's messages can still be received.
    ///
    /// Dropping a messenger without it makes the peer's `recv` fail. The peer's `shutdown` waits
    /// for this side in the same way, so call [`recv`](Self::recv) until it returns `None` before
    /// the messenger is dropped.
    ///
    /// # Errors
    /// Same as [`flush`](Self::flush).
    pub fn shutdown(&mut self, timeout: Duration) -> Result<()> {
        self.shared()
            .block(Side::Send, timeout, State::try_shutdown)
    }

    /// Returns the next message, waiting at most for `timeout`. Returns `None` after the peer has
    /// ended its stream with [`shutdown`](Self::shutdown) and all its messages were returned.
    ///
    /// # Errors
    /// - [`ErrorKind::TimedOut`]: no message arrived in time.
    /// - [`ErrorKind::Disconnected`]: the connection ended before the end of the peer's stream, so
    ///   messages may be lost. All complete messages that arrived were returned before.
    /// - [`ErrorKind::Malformed`]: the peer has violated the protocol.
    /// - [`ErrorKind::NotFound`]: the device was removed.
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<Message>> {
        halves::recv(self.shared(), timeout)
    }

    /// Like [`recv`](Self::recv), but returns [`TryRecv::Empty`] instead of waiting.
    ///
    /// # Errors
    /// Same as [`recv`](Self::recv), except for the timeout.
    pub fn try_recv(&mut self) -> Result<TryRecv> {
        halves::try_recv(self.shared())
    }

    /// Returns the next completed request that the application posted with a tag other than 0,
    /// waiting at most for `timeout`.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if no request completed in time. [`ErrorKind::Disconnected`] if the
    /// connection ended first. A failed request is not an error here: see [`Retired::check`].
    pub fn completed(&mut self, timeout: Duration) -> Result<Retired> {
        self.shared()
            .block(Side::Requests, timeout, State::try_completed)
    }

    /// Divides the messenger into a half that sends and one that receives, for two threads. The
    /// connection ends when both are dropped.
    ///
    /// # Example
    /// ```no_run
    /// use messenger::Messenger;
    /// use std::time::Duration;
    /// # fn f(messenger: Messenger) -> ibverbs::Result<()> {
    /// const LIMIT: Duration = Duration::from_secs(5);
    /// let (mut sender, mut receiver) = messenger.split();
    /// std::thread::spawn(move || {
    ///     for number in 0..1000_u32 {
    ///         sender.send(&number.to_be_bytes(), LIMIT)?;
    ///     }
    ///     sender.shutdown(LIMIT)
    /// });
    /// while let Some(message) = receiver.recv(LIMIT)? {
    ///     println!("{} bytes", message.len());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn split(self) -> (SendHalf, RecvHalf) {
        (
            SendHalf::new(Arc::clone(&self.owner)),
            RecvHalf::new(self.owner),
        )
    }
}

impl AsFd for Messenger {
    /// Becomes readable if [`try_recv`](Self::try_recv) may return a message, or
    /// [`try_send`](Self::try_send) may succeed, after they could not. Call them again then.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared().driver.as_fd()
    }
}

/// Result of [`Messenger::try_recv`].
///
/// # Example
/// ```no_run
/// use messenger::{Messenger, TryRecv};
/// # fn f(messenger: &mut Messenger) -> ibverbs::Result<()> {
/// match messenger.try_recv()? {
///     TryRecv::Message(message) => println!("{} bytes", message.len()),
///     TryRecv::Empty => println!("nothing yet"),
///     TryRecv::End => println!("the peer has ended its stream"),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub enum TryRecv {
    /// The next message.
    Message(Message),
    /// No message has arrived.
    Empty,
    /// The peer has ended its stream, and all its messages were returned.
    End,
}
