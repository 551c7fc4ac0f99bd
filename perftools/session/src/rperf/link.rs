//! The control connection during a test. A separate thread reads it, so the timed loops make no
//! system calls for it.

use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use base::interrupt::Interrupt;
use base::memory::check_room;
use base::units::show_time;
use measure::engine::{Peer, Role};
use measure::spec::footprint::CONTROL_STACK;
use measure::stats::thread_counters::ThreadCounters;

use super::message::{Message, TURNS};
use super::peer_state::{PeerState, Reader};
use crate::protocol::control_stream::{ControlStream, ControlWriter};
use crate::protocol::frame;

/// Time to wait for an error message of the peer after the data connection broke.
const EXPLAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// Rate in bytes per second at which even a busy host registers, fills or checks memory.
const MEMORY_BYTES_PER_SECOND: u64 = 16 << 20;
/// Number of queue pairs that even a busy host creates or connects in a second.
const QPS_PER_SECOND: u32 = 100;
/// Interval at which the stop flag is checked during a wait for a message.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The part of the control connection that the threads of a test share.
#[derive(Debug)]
struct SharedConnection {
    /// Locked while a message is written, so that messages of several threads do not mix.
    writer: Mutex<ControlWriter>,
    peer_state: Arc<PeerState>,
    stop: Arc<AtomicBool>,
    /// Signals at the client.
    interrupt: Interrupt,
    /// This end has requested the early end of the test.
    stop_sent: AtomicBool,
    /// The timed loops have begun.
    begun: AtomicBool,
    /// Maximum length of a message in bytes.
    max_len: usize,
}

/// Length in bytes of the description of a queue pair, with a margin.
const QP_LEN: usize = 256;

/// Returns the maximum length in bytes of a message of a test with this number of queue pairs.
fn max_message_len(qps: u32) -> usize {
    frame::MAX_LEN + QP_LEN * qps as usize
}

/// The control connection, with the thread that reads it.
#[derive(Debug)]
pub struct ControlLink {
    shared: SharedConnection,
    messages: Receiver<Message>,
    role: Role,
    timeout: Duration,
    /// Time that the peer may take to set up its queue pairs, in addition to `timeout`.
    set_up_time: Duration,
    counters: Vec<Arc<ThreadCounters>>,
}

/// The control connection as used by one thread of a test, for messages to and from its counterpart
/// at the peer.
#[derive(Clone, Copy, Debug)]
pub struct ThreadLink<'a> {
    shared: &'a SharedConnection,
    thread: u32,
    counters: Option<&'a Arc<ThreadCounters>>,
}

/// Returns the time in which even a busy host registers, fills or checks memory.
fn memory_time(bytes: u64) -> Duration {
    Duration::from_secs(bytes / MEMORY_BYTES_PER_SECOND)
}

impl ControlLink {
    /// Starts the thread that reads the connection. The hello messages must have been exchanged.
    ///
    /// `role` is the one of this end. Setting `stop` ends all waits. The messages
    /// that describe the queue pairs have room for `qps` of them, and the peer has more time to set
    /// up more of them.
    pub(crate) fn new(
        stream: ControlStream,
        role: Role,
        timeout: Duration,
        qps: u32,
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        let system = |e| Error::system("cannot set up the control connection", &e);
        // The reader waits without a time limit, because `receive` applies the timeout.
        let socket = stream.socket();
        socket.set_read_timeout(None).map_err(system)?;
        socket
            .set_write_timeout(Some(timeout.max(Duration::from_secs(1))))
            .map_err(system)?;
        let (reader, writer) = stream.split();
        let peer_state = Arc::new(PeerState::new());
        let (sender, messages) = sync_channel(TURNS.into());
        let reader = Reader {
            stream: reader,
            peer_name: role.peer_name(),
            state: Arc::clone(&peer_state),
            messages: sender,
            turn: 0,
            max_len: max_message_len(qps),
        };
        let shared = SharedConnection {
            writer: Mutex::new(writer),
            peer_state,
            stop,
            interrupt: Interrupt::default(),
            stop_sent: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            max_len: max_message_len(qps),
        };
        let start = || {
            check_room("the stack of a thread", CONTROL_STACK as u64)?;
            std::thread::Builder::new()
                .name("control".into())
                .stack_size(CONTROL_STACK)
                .spawn(move || reader.run())
                .map_err(system)
        };
        start().inspect_err(|error| shared.send_error(error))?;
        Ok(Self {
            shared,
            messages,
            role,
            timeout,
            set_up_time: Duration::from_secs((qps / QPS_PER_SECOND).into()),
            counters: Vec::new(),
        })
    }

    /// Sets the counters that the threads of the test update for live monitoring.
    #[must_use]
    pub(crate) fn with_counters(mut self, counters: Vec<Arc<ThreadCounters>>) -> Self {
        self.counters = counters;
        self
    }

    /// Sets the interrupt that ends the test early, with what has been measured.
    #[must_use]
    pub(crate) fn with_interrupt(mut self, interrupt: Interrupt) -> Self {
        self.shared.interrupt = interrupt;
        self
    }

    /// Returns `true` if the interrupt has ended the test early.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.shared.stop_sent.load(Ordering::Relaxed)
    }

    /// Returns the link for a thread of the test.
    pub(crate) fn thread(&self, thread: u32) -> ThreadLink<'_> {
        self.shared.begun.store(true, Ordering::Relaxed);
        ThreadLink {
            shared: &self.shared,
            thread,
            counters: self.counters.get(thread as usize),
        }
    }

    /// Sends a message.
    pub(crate) fn send(&self, message: &Message) -> Result<()> {
        self.shared.send(message)
    }

    /// Waits for the next message.
    pub(crate) fn receive(&self) -> Result<Message> {
        self.receive_within(self.timeout)
    }

    /// Waits for the next message, like [`ControlLink::receive`]. The timeout is longer, because
    /// the peer first waits up to `wait` for something else, and reports if it waited in vain.
    pub(crate) fn receive_after_wait(&self, wait: Duration) -> Result<Message> {
        self.receive_within(self.timeout + wait)
    }

    /// Waits for the next message, like [`ControlLink::receive`]. The timeout is longer, because
    /// the peer first sets up its queue pairs and registers, fills or checks `bytes` bytes of its
    /// memory.
    pub(crate) fn receive_after_set_up(&self, bytes: u64) -> Result<Message> {
        self.receive_within(self.timeout + self.set_up_time + memory_time(bytes))
    }

    /// Waits for the next message, like [`ControlLink::receive`]. The timeout is longer, because
    /// the peer checks `bytes` bytes of its memory before it sends the message.
    pub(crate) fn receive_after_memory_work(&self, bytes: u64) -> Result<Message> {
        self.receive_within(self.timeout + memory_time(bytes))
    }

    fn receive_within(&self, timeout: Duration) -> Result<Message> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.messages.recv_timeout(STOP_CHECK_INTERVAL) {
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self
                        .shared
                        .failure()
                        .unwrap_or_else(|| Error::protocol("the control connection ended")));
                }
            }
            if self.shared.stop.load(Ordering::Relaxed) {
                return Err(stopped_error());
            }
            // After the begin of a test, its loops end it.
            if let Some(error) = self.shared.interrupt_before_begin() {
                return Err(error);
            }
            if Instant::now() >= deadline {
                // The caller sends an error of `Kind::Test` to the peer, so that a peer that is
                // only slow can report it.
                return Err(Error::test(format!(
                    "{} sent nothing for {}",
                    self.role.peer_name(),
                    show_time(timeout)
                ))
                .with_help("check the load of its host, or set --timeout (-to) higher"));
            }
        }
    }

    /// Returns `true` if the peer failed or disconnected, or if this end was stopped.
    pub(crate) fn is_gone(&self) -> bool {
        self.shared.is_gone()
    }

    /// Waits briefly for an error message of the peer, which names the cause better than `error`.
    /// Returns `error` if none arrives, or if it is a limit of this host.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if error.kind() == Kind::Limit {
            return error;
        }
        // A peer with many queue pairs destroys them before it sends the error. The server waits
        // for the client's reason, too, and sends its own only after that.
        let mut timeout = EXPLAIN_TIMEOUT + self.set_up_time;
        if self.role == Role::Client {
            timeout += Duration::from_secs(1);
        }
        self.shared.explain_within(error, timeout)
    }

    /// Sends an error to the peer, unless the peer itself reported it or has disconnected.
    pub(crate) fn send_error(&self, error: &Error) {
        self.shared.send_error(error);
    }
}

impl SharedConnection {
    fn write(&self, message: &Message) -> Result<()> {
        let writer = self.writer.lock();
        let mut writer = writer.unwrap_or_else(PoisonError::into_inner);
        writer.send_up_to(message, self.max_len)
    }

    fn send(&self, message: &Message) -> Result<()> {
        self.write(message).map_err(|error| self.explain(error))
    }

    fn send_error(&self, error: &Error) {
        if !matches!(error.kind(), Kind::Peer | Kind::Gone) {
            let _ = self.write(&Message::error(error));
        }
    }

    /// Returns the error of an interrupt that arrived before the timed loops began.
    fn interrupt_before_begin(&self) -> Option<Error> {
        let begun = self.begun.load(Ordering::Relaxed);
        self.interrupt.error().filter(|_| !begun)
    }

    /// Returns `true` if the test must end early. The first call at an interrupted client notifies
    /// the server.
    fn is_interrupted(&self) -> bool {
        if self.interrupt.is_set() && !self.stop_sent.swap(true, Ordering::Relaxed) {
            // If the connection is broken, the reader reports it.
            let _ = self.write(&Message::Stop);
        }
        self.stop_sent.load(Ordering::Relaxed) || self.peer_state.has_stopped()
    }

    fn is_gone(&self) -> bool {
        self.peer_state.has_failed() || self.stop.load(Ordering::Relaxed)
    }

    fn failure(&self) -> Option<Error> {
        if !self.is_gone() {
            return None;
        }
        let failure = self.peer_state.failure();
        // When the server stops, it closes the connections that are left. That is not the peer's
        // doing.
        let is_peers = failure
            .as_ref()
            .is_some_and(|error| error.kind() != Kind::Gone);
        if self.stop.load(Ordering::Relaxed) && !is_peers {
            return Some(stopped_error());
        }
        failure
    }

    fn explain(&self, error: Error) -> Error {
        self.explain_within(error, EXPLAIN_TIMEOUT)
    }

    fn explain_within(&self, error: Error, timeout: Duration) -> Error {
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if let Some(failure) = self.failure() {
                return failure;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        error
    }
}

fn stopped_error() -> Error {
    Error::new(
        Kind::System,
        "the server was stopped in the middle of the test",
    )
}

impl Drop for ControlLink {
    fn drop(&mut self) {
        // This also ends the reader thread.
        let writer = self.shared.writer.get_mut();
        let writer = writer.unwrap_or_else(PoisonError::into_inner);
        let _ = writer.socket().shutdown(Shutdown::Both);
    }
}

impl Peer for ThreadLink<'_> {
    fn finish(&self, sent: u64) -> Result<()> {
        self.shared.send(&Message::Finished {
            sent,
            thread: self.thread,
        })
    }

    #[inline]
    fn finished(&self) -> Option<u64> {
        self.shared.peer_state.finished(self.thread)
    }

    #[inline]
    fn failure(&self) -> Option<Error> {
        self.shared.failure()
    }

    fn counters(&self) -> Option<Arc<ThreadCounters>> {
        self.counters.cloned()
    }

    fn explain(&self, error: Error) -> Error {
        self.shared.explain(error)
    }

    #[inline]
    fn is_interrupted(&self) -> bool {
        self.shared.is_interrupted()
    }

    fn send_heartbeat(&self) -> Result<()> {
        self.shared.send(&Message::Heartbeat)
    }

    fn silence(&self) -> Option<Duration> {
        Some(self.shared.peer_state.silence())
    }

    fn give_up(&self, error: &Error) {
        self.shared.send_error(error);
    }
}
