//! State of the peer during a test, and the thread that updates it from the control connection.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use measure::spec::MAX_THREADS;

use super::message::{Message, READY_TURN};
use crate::protocol::control_stream::ControlReader;

/// Value of a thread that has not finished.
const NOT_FINISHED: u64 = u64::MAX;

/// State of the peer, as far as it is known from received messages.
#[derive(Debug)]
pub(super) struct PeerState {
    /// Number of messages sent by each thread of the peer, or [`NOT_FINISHED`].
    finished: Vec<AtomicU64>,
    /// Time of the latest heartbeat, in milliseconds since `start`.
    heartbeat_millis: AtomicU64,
    start: Instant,
    /// The peer requested the early end of the test.
    stopped: AtomicBool,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl PeerState {
    pub(super) fn new() -> Self {
        Self {
            finished: (0..MAX_THREADS)
                .map(|_| AtomicU64::new(NOT_FINISHED))
                .collect(),
            heartbeat_millis: AtomicU64::new(0),
            start: Instant::now(),
            stopped: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Returns the number of messages that a thread of the peer has sent, once it has finished.
    #[inline]
    pub(super) fn finished(&self, thread: u32) -> Option<u64> {
        let sent = self.finished.get(thread as usize)?.load(Ordering::Acquire);
        (sent != NOT_FINISHED).then_some(sent)
    }

    /// Returns the time since the latest heartbeat.
    pub(super) fn silence(&self) -> Duration {
        let heartbeat = Duration::from_millis(self.heartbeat_millis.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(heartbeat)
    }

    /// Returns `true` if the peer requested the early end of the test.
    #[inline]
    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Returns `true` if the peer failed or the connection ended.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns the error of the peer or of the connection.
    pub(super) fn failure(&self) -> Option<Error> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Stores the number of messages sent by a thread. Returns `false` if there is no such thread
    /// or it has already finished.
    fn set_finished(&self, thread: u32, sent: u64) -> bool {
        let Some(finished) = self.finished.get(thread as usize) else {
            return false;
        };
        // Only the reader stores a value.
        let is_first = finished.load(Ordering::Relaxed) == NOT_FINISHED;
        if is_first {
            finished.store(sent, Ordering::Release);
        }
        is_first
    }

    fn set_heartbeat(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heartbeat_millis.store(millis, Ordering::Relaxed);
    }

    fn set_failure(&self, error: Error) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.failed.store(true, Ordering::Release);
    }
}

/// Reads the control connection until it ends, in a thread of its own.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) stream: ControlReader,
    pub(super) peer_name: &'static str,
    pub(super) state: Arc<PeerState>,
    /// Destination of all messages that do not only update the state.
    pub(super) messages: SyncSender<Message>,
    /// Turn of the next message for `messages`.
    pub(super) turn: u8,
    /// Maximum length of a message in bytes.
    pub(super) max_len: usize,
}

impl Reader {
    /// Reads messages until the peer fails, the connection ends or the receiver of the messages is
    /// dropped.
    pub(super) fn run(mut self) {
        // The failure is stored before `messages` is dropped. A receiver that is woken by the drop
        // therefore finds it.
        if let Err(error) = self.read_messages() {
            self.state.set_failure(error);
        }
    }

    /// Accepts messages only in their turn, so a peer cannot fill the memory of this host: between
    /// two messages that are queued, it can send only messages that update the state.
    fn read_messages(&mut self) -> Result<()> {
        loop {
            let message = self.read_message()?;
            match (&message, message.turn()) {
                (Message::Finished { sent, thread }, _) if *sent != NOT_FINISHED => {
                    if self.turn <= READY_TURN || !self.state.set_finished(*thread, *sent) {
                        return Err(Error::protocol(format!(
                            "{} sent an unexpected message: the end of thread {thread}",
                            self.peer_name
                        )));
                    }
                }
                (Message::Heartbeat, _) if self.turn > READY_TURN => self.state.set_heartbeat(),
                (Message::Stop, _) if self.turn > READY_TURN => {
                    self.state.stopped.store(true, Ordering::Relaxed);
                }
                (_, Some(turn)) if turn == self.turn => {
                    self.turn += 1;
                    match self.messages.try_send(message) {
                        Ok(()) => {}
                        Err(TrySendError::Disconnected(_)) => return Ok(()),
                        Err(TrySendError::Full(message)) => {
                            return Err(message.unexpected(self.peer_name));
                        }
                    }
                }
                _ => return Err(message.unexpected(self.peer_name)),
            }
        }
    }

    fn read_message(&mut self) -> Result<Message> {
        let message = self
            .stream
            .receive_up_to::<Message>(None, self.max_len)
            .and_then(|message| message.or_error(self.peer_name));
        message.map_err(|error| match error.kind() {
            Kind::Gone => Error::new(
                Kind::Gone,
                format!(
                    "{} closed the connection in the middle of the test",
                    self.peer_name
                ),
            ),
            _ => error,
        })
    }
}
