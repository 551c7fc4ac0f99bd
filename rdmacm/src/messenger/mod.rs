//! Connections that send and receive messages, with queues and buffers included.

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

/// A connection for messages: queue pair, completion queue and buffers are made, and receives are
/// posted before the peer's first message can arrive.
///
/// Who wants more than messages takes [`connection_mut`](Self::connection_mut).
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
/// let request = listener.accept(Some(LIMIT))?.ok_or("nobody came")?;
/// let mut server = Messenger::accept(request, &MessengerOptions::default(), LIMIT)?;
/// while let Some(message) = server.recv(LIMIT)? {
///     server.send(&message, LIMIT)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Messenger {
    // Dropped in this order: the connection first.
    connection: Connection,
    pub(crate) parts: Resources,
    arrived: VecDeque<Buf>,
    /// Ended requests that were posted by hand.
    by_hand: VecDeque<Retired>,
    /// Sends that have not completed.
    on_their_way: usize,
    /// On iWARP the accepting side waits for the other's first message.
    may_speak: bool,
    /// Why no message can go any more.
    fault: Option<Error>,
}

impl Messenger {
    /// Connects to `peer`, at most for `timeout`.
    ///
    /// # Errors
    /// As [`Resolver::resolve`] and [`ReadyRoute::connect`](crate::ReadyRoute::connect).
    pub fn connect(
        peer: SocketAddr,
        options: &MessengerOptions<'_>,
        timeout: Duration,
    ) -> std::result::Result<Self, ConnectError> {
        Self::connect_with(Resolver::new(peer).timeout(timeout), options, timeout)
    }

    /// Connects by a resolver that knows more than the peer's address, at most for `timeout`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_with(
        resolver: Resolver,
        options: &MessengerOptions<'_>,
        timeout: Duration,
    ) -> std::result::Result<Self, ConnectError> {
        let deadline = Deadline::after(timeout);
        let route = resolver.start()?.wait(deadline.remaining())?;
        let (parts, qp) = Resources::new(&route.context()?, options)?;
        let mut ready = route.access(options.access).with_qp(qp)?;
        parts.refill(ready.qp_mut())?;
        let connection = ready.start(&options.params)?.wait(deadline.remaining())?;
        Ok(Self::new(connection, parts, true))
    }

    /// Accepts a request, at most for `timeout`.
    ///
    /// # Errors
    /// As [`ReadyRequest::accept`](crate::ReadyRequest::accept).
    pub fn accept(
        request: ConnectRequest,
        options: &MessengerOptions<'_>,
        timeout: Duration,
    ) -> std::result::Result<Self, ConnectError> {
        let (parts, qp) = Resources::new(&request.context()?, options)?;
        let mut pending = request.access(options.access).with_qp(qp)?;
        parts.refill(pending.qp_mut())?;
        let connection = pending.start(&options.params)?.wait(Some(timeout))?;
        let may_speak = connection.transport() != TransportType::IWARP;
        Ok(Self::new(connection, parts, may_speak))
    }

    pub(crate) fn new(connection: Connection, parts: Resources, may_speak: bool) -> Self {
        Self {
            connection,
            parts,
            arrived: VecDeque::new(),
            by_hand: VecDeque::new(),
            on_their_way: 0,
            may_speak,
            fault: None,
        }
    }

    /// The connection: addresses, private data, events, and the queue pair.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The connection, for other operations than messages: reads, writes, atomics. Give them a
    /// [tag](wr::SendRequest::tag) other than 0, and take their ends from
    /// [`completed`](Self::completed).
    pub fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Sends a copy of `message`: waits until there is room for it, at most for `timeout`, and not
    /// until it has arrived ([`flush`](Self::flush) does).
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`]: longer than `max_len`; or over iWARP, by the side that
    ///   accepted, before the first message of the other has arrived: there the side that connects
    ///   speaks first;
    /// - [`ErrorKind::Disconnected`]: the peer is gone;
    /// - [`ErrorKind::TimedOut`]: no room in time.
    pub fn send(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        let deadline = Deadline::after(timeout);
        while !self.try_send(message)? {
            self.rest(deadline)?;
        }
        Ok(())
    }

    /// Waits until all messages sent have reached the peer's memory (on iWARP: the peer's side of
    /// the TCP connection), at most for `timeout`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn flush(&mut self, timeout: Duration) -> Result<()> {
        let deadline = Deadline::after(timeout);
        while !self.try_flush()? {
            self.rest(deadline)?;
        }
        Ok(())
    }

    /// The next message, waiting for it at most for `timeout`; `None` when the peer has ended the
    /// connection and all its messages were taken.
    ///
    /// The buffer is posted anew some time after it was dropped: who keeps them all receives no
    /// more.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`]: no message in time. [`ErrorKind::NotFound`]: the device is removed.
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<Buf>> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Poll::Ready(outcome) = self.try_recv()? {
                return Ok(outcome);
            }
            self.rest(deadline)?;
        }
    }

    /// The end of a request that was posted by hand with a tag other than 0, waiting for it at most
    /// for `timeout`.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`]: nothing ended in time. [`ErrorKind::Disconnected`]: the connection ended first. Whether the request
    /// succeeded is for [`Retired::ok`] to say.
    pub fn completed(&mut self, timeout: Duration) -> Result<Retired> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(retired) = self.try_completed()? {
                return Ok(retired);
            }
            self.rest(deadline)?;
        }
    }

    pub(crate) fn try_completed(&mut self) -> Result<Option<Retired>> {
        self.progress()?;
        match self.by_hand.pop_front() {
            None if self.connection.is_disconnected() => Err(self.gone()),
            ended => Ok(ended),
        }
    }

    /// Sends if there is room.
    pub(crate) fn try_send(&mut self, message: &[u8]) -> Result<bool> {
        self.progress_to_send()?;
        if self.connection.is_disconnected() {
            return Err(self.gone());
        }
        if !self.may_speak {
            return Err(
                Error::new(ErrorKind::InvalidInput, "ibv_post_send", self.describe()).with_hint(
                    "over iWARP the side that connected speaks first: receive a message before",
                ),
            );
        }
        if message.len() > self.parts.sends.buf_size() {
            let what = format!("{}: a message of {} bytes", self.describe(), message.len());
            return Err(
                Error::new(ErrorKind::InvalidInput, "ibv_post_send", what).with_hint(format!(
                    "make the messenger with a max_len above {}",
                    self.parts.sends.buf_size()
                )),
            );
        }
        let qp = self.connection.qp_mut();
        if qp.send_slots_free() == 0 {
            return Ok(false);
        }
        let Some(mut buf) = self.parts.sends.take() else {
            return Ok(false);
        };
        buf.set_len(message.len());
        buf.copy_from_slice(message);
        qp.post_send(wr::send(buf)).map_err(Error::from)?;
        self.on_their_way += 1;
        Ok(true)
    }

    /// Whether all are done.
    pub(crate) fn try_flush(&mut self) -> Result<bool> {
        self.progress_to_send()?;
        match (self.on_their_way, self.connection.is_disconnected()) {
            (0, _) => Ok(true),
            (_, true) => Err(self.gone()),
            (_, false) => Ok(false),
        }
    }

    /// The next message, or the end.
    pub(crate) fn try_recv(&mut self) -> Result<Poll<Option<Buf>>> {
        self.progress()?;
        Ok(match self.arrived.pop_front() {
            None if !self.connection.is_disconnected() => Poll::Pending,
            outcome => Poll::Ready(outcome),
        })
    }

    fn progress_to_send(&mut self) -> Result<()> {
        self.progress()?;
        self.fault.take().map_or(Ok(()), Err)
    }

    /// Takes completions and events, posts receives, and arms the completion queue for the next
    /// ones.
    fn progress(&mut self) -> Result<()> {
        while self.parts.channel.try_get()?.is_some() {
            self.parts.cq.arm(false)?;
        }
        // What came before it was armed gives no event: so it is polled after.
        loop {
            let mut completions = self.parts.cq.poll()?;
            let Some(completion) = completions.next() else {
                break;
            };
            let Ok(retired) = self.connection.qp_mut().retire(completion) else {
                continue;
            };
            let outcome = retired.ok();
            match (retired.direction(), outcome) {
                (Direction::Recv, Ok(())) => {
                    self.may_speak = true;
                    self.arrived.extend(retired.into_buf());
                }
                (Direction::Recv, Err(_)) => {} // flushed; the event says why
                (Direction::Send, _) if retired.tag() != 0 => self.by_hand.push_back(retired),
                (Direction::Send, outcome) => {
                    self.on_their_way = self.on_their_way.saturating_sub(1);
                    if let (Err(error), false) = (outcome, self.connection.is_disconnected()) {
                        self.fault.get_or_insert(error);
                    }
                }
            }
        }
        if !self.connection.is_disconnected() {
            self.connection.check_event()?;
            self.parts.refill(self.connection.qp_mut())?;
        }
        Ok(())
    }

    fn rest(&self, deadline: Deadline) -> Result<()> {
        if deadline.has_passed() {
            return Err(timed_out("ibv_get_cq_event", &self.describe()));
        }
        self.connection
            .channel()
            .sleep_or(self.parts.channel.as_fd(), deadline)
    }

    fn gone(&self) -> Error {
        Error::new(
            ErrorKind::Disconnected,
            "ibv_post_send",
            format!("{}: it is over", self.describe()),
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
