//! Connections for messages that include their queues and buffers. Nothing else in the crate uses
//! this module.

mod resources;
#[cfg(feature = "tokio")]
mod tokio;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::task::Poll;
use std::time::Duration;

use ibverbs::{Buf, Direction, Error, ErrorKind, Result, Retired, device::TransportType, wr};

pub use self::resources::MessengerOptions;
use self::resources::Resources;
#[cfg(feature = "tokio")]
pub use self::tokio::AsyncMessenger;
use crate::active::Resolver;
use crate::connection::Connection;
use crate::convert::timed_out;
use crate::error::ConnectError;
use crate::passive::ConnectRequest;
use crate::progress::InProgress;
use crate::wait::Deadline;

/// A connection for messages. It creates the queue pair, the completion queue and the buffers, and
/// posts receives before the peer's first message can arrive.
///
/// For one-sided operations use [`connection_mut`](Self::connection_mut).
///
/// # Example
/// ```no_run
/// use rdmacm::{Listener, Messenger, MessengerOptions};
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
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// });
/// let request = listener.accept(Some(LIMIT))?.ok_or("no client connected")?;
/// let mut server = Messenger::accept(request, &MessengerOptions::default(), LIMIT)?;
/// while let Some(message) = server.recv(LIMIT)? {
///     server.send(&message, LIMIT)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Messenger {
    // Drop order: the connection before its queues and buffers.
    connection: Connection,
    pub(crate) resources: Resources,
    received: VecDeque<Buf>,
    /// Completed requests that the application posted itself.
    completed_requests: VecDeque<Retired>,
    /// Number of messages sent but not completed.
    sends_in_flight: usize,
    /// `false` on the passive side of iWARP until the peer's first message has arrived.
    may_send: bool,
    /// Error of a failed send, reported by the next call that sends.
    send_error: Option<Error>,
}

impl Messenger {
    /// Connects to `peer`, at most for `timeout`.
    ///
    /// # Errors
    /// Same as [`Resolver::resolve`] and [`ReadyRoute::connect`](crate::ReadyRoute::connect).
    pub fn connect(
        peer: SocketAddr,
        options: &MessengerOptions<'_>,
        timeout: Duration,
    ) -> std::result::Result<Self, ConnectError> {
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
    ) -> std::result::Result<Self, ConnectError> {
        let deadline = Deadline::after(timeout);
        let route = resolver.start()?.wait(deadline.remaining())?;
        let (resources, qp) = Resources::new(&route.context()?, options)?;
        let mut ready = route.access(options.access).with_qp(qp)?;
        resources.refill(ready.qp_mut())?;
        let connection = ready.start(&options.params)?.wait(deadline.remaining())?;
        Ok(Self::new(connection, resources, true))
    }

    /// Accepts a connect request, at most for `timeout`.
    ///
    /// # Errors
    /// Same as [`ReadyRequest::accept`](crate::ReadyRequest::accept).
    pub fn accept(
        request: ConnectRequest,
        options: &MessengerOptions<'_>,
        timeout: Duration,
    ) -> std::result::Result<Self, ConnectError> {
        let (resources, qp) = Resources::new(&request.context()?, options)?;
        let mut ready = request.access(options.access).with_qp(qp)?;
        resources.refill(ready.qp_mut())?;
        let connection = ready.start(&options.params)?.wait(Some(timeout))?;
        let may_send = connection.transport() != TransportType::IWARP;
        Ok(Self::new(connection, resources, may_send))
    }

    pub(crate) fn new(connection: Connection, resources: Resources, may_send: bool) -> Self {
        Self {
            connection,
            resources,
            received: VecDeque::new(),
            completed_requests: VecDeque::new(),
            sends_in_flight: 0,
            may_send,
            send_error: None,
        }
    }

    /// Returns the connection, for its addresses, private data and queue pair.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns the connection, for READ, WRITE and atomic operations. Give these requests a
    /// [tag](wr::SendRequest::tag) other than 0, and get their completions from
    /// [`completed`](Self::completed).
    pub fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Sends a copy of `message`. Waits at most for `timeout` until a send buffer is free, but not
    /// for the delivery. Use [`flush`](Self::flush) to wait for that.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`]: the message is longer than `max_len`. On iWARP also if the
    ///   accepting side sends before the first message of the connecting side has arrived.
    /// - [`ErrorKind::Disconnected`]: the connection has ended.
    /// - [`ErrorKind::TimedOut`]: no send buffer became free in time.
    pub fn send(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        let deadline = Deadline::after(timeout);
        while !self.try_send(message)? {
            self.sleep(deadline)?;
        }
        Ok(())
    }

    /// Waits until all messages sent have reached the peer's memory, at most for `timeout`. On
    /// iWARP it waits until they have reached the peer's end of the TCP connection.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    pub fn flush(&mut self, timeout: Duration) -> Result<()> {
        let deadline = Deadline::after(timeout);
        while !self.try_flush()? {
            self.sleep(deadline)?;
        }
        Ok(())
    }

    /// Returns the next message, waiting at most for `timeout`. Returns `None` after the connection
    /// has ended and all its messages were returned.
    ///
    /// The buffer is posted again after it is dropped. A program that keeps all buffers receives no
    /// more messages.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if no message arrived in time. [`ErrorKind::NotFound`] if the
    /// device was removed.
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<Buf>> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Poll::Ready(message) = self.try_recv()? {
                return Ok(message);
            }
            self.sleep(deadline)?;
        }
    }

    /// Returns the next completed request that the application posted with a tag other than 0,
    /// waiting at most for `timeout`.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if no request completed in time. [`ErrorKind::Disconnected`] if the
    /// connection ended first. A failed request is not an error here: see [`Retired::ok`].
    pub fn completed(&mut self, timeout: Duration) -> Result<Retired> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(retired) = self.try_completed()? {
                return Ok(retired);
            }
            self.sleep(deadline)?;
        }
    }

    pub(crate) fn try_completed(&mut self) -> Result<Option<Retired>> {
        self.progress()?;
        match self.completed_requests.pop_front() {
            None if self.connection.is_disconnected() => Err(self.disconnected_error()),
            request => Ok(request),
        }
    }

    /// Sends if a send slot and a buffer are free. Returns `false` otherwise.
    pub(crate) fn try_send(&mut self, message: &[u8]) -> Result<bool> {
        self.progress_and_check()?;
        if self.connection.is_disconnected() {
            return Err(self.disconnected_error());
        }
        if !self.may_send {
            return Err(
                Error::new(ErrorKind::InvalidInput, "ibv_post_send", self.describe()).with_help(
                    "on iWARP the connecting side must send first; receive a message before sending",
                ),
            );
        }
        if message.len() > self.resources.send_pool.buf_size() {
            let detail = format!(
                "{}: the message is {} bytes long",
                self.describe(),
                message.len()
            );
            return Err(
                Error::new(ErrorKind::InvalidInput, "ibv_post_send", detail).with_help(format!(
                    "create the messenger with max_len larger than {} bytes",
                    self.resources.send_pool.buf_size()
                )),
            );
        }
        let qp = self.connection.qp_mut();
        if qp.send_slots_free() == 0 {
            return Ok(false);
        }
        let Some(mut buf) = self.resources.send_pool.take() else {
            return Ok(false);
        };
        buf.set_len(message.len());
        buf.copy_from_slice(message);
        qp.post_send(wr::send(buf)).map_err(Error::from)?;
        self.sends_in_flight += 1;
        Ok(true)
    }

    /// Returns `true` if all sends have completed.
    pub(crate) fn try_flush(&mut self) -> Result<bool> {
        self.progress_and_check()?;
        match (self.sends_in_flight, self.connection.is_disconnected()) {
            (0, _) => Ok(true),
            (_, true) => Err(self.disconnected_error()),
            (_, false) => Ok(false),
        }
    }

    /// Returns the next message, or `None` if the connection has ended.
    pub(crate) fn try_recv(&mut self) -> Result<Poll<Option<Buf>>> {
        self.progress()?;
        Ok(match self.received.pop_front() {
            None if !self.connection.is_disconnected() => Poll::Pending,
            message => Poll::Ready(message),
        })
    }

    fn progress_and_check(&mut self) -> Result<()> {
        self.progress()?;
        self.send_error.take().map_or(Ok(()), Err)
    }

    /// Processes completions and events, posts receives, and arms the completion queue.
    fn progress(&mut self) -> Result<()> {
        while self.resources.channel.try_get()?.is_some() {
            self.resources.cq.arm(false)?;
        }
        // Completions from before the arming cause no event, so the queue is polled after it.
        loop {
            let mut completions = self.resources.cq.poll()?;
            let Some(completion) = completions.next() else {
                break;
            };
            let Ok(retired) = self.connection.qp_mut().retire(completion) else {
                continue;
            };
            let outcome = retired.ok();
            match (retired.direction(), outcome) {
                (Direction::Recv, Ok(())) => {
                    self.may_send = true;
                    self.received.extend(retired.into_buf());
                }
                (Direction::Recv, Err(_)) => {} // flushed; the disconnect event has the reason
                (Direction::Send, _) if retired.tag() != 0 => {
                    self.completed_requests.push_back(retired);
                }
                (Direction::Send, outcome) => {
                    self.sends_in_flight = self.sends_in_flight.saturating_sub(1);
                    if let (Err(error), false) = (outcome, self.connection.is_disconnected()) {
                        self.send_error.get_or_insert(error);
                    }
                }
            }
        }
        if !self.connection.is_disconnected() {
            self.connection.check_event()?;
            self.resources.refill(self.connection.qp_mut())?;
        }
        Ok(())
    }

    fn sleep(&self, deadline: Deadline) -> Result<()> {
        if deadline.has_passed() {
            return Err(timed_out("ibv_get_cq_event", &self.describe()));
        }
        self.connection
            .channel()
            .sleep_or(self.resources.channel.as_fd(), deadline)
    }

    fn disconnected_error(&self) -> Error {
        Error::new(
            ErrorKind::Disconnected,
            "ibv_post_send",
            format!("{}: the connection has ended", self.describe()),
        )
    }

    fn describe(&self) -> String {
        format!(
            "{} over {}",
            self.connection.peer_addr(),
            self.connection.device_name()
        )
    }
}
