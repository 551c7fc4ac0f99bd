//! The control connection while a test runs: one thread reads it, so that the engine need not.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::message::Message;
use crate::common::error::{Error, Kind, Result};
use crate::common::protocol::frame;
use crate::common::units::show_time;
use crate::rperf::engine::Peer;
use crate::rperf::spec::MAX_THREADS;
use crate::rperf::stats::thread_counters::ThreadCounters;

/// How long a broken data connection waits for the peer's words.
const EXPLANATION: Duration = Duration::from_secs(3);
/// Bytes that a busy host registers, fills or checks in a second at least.
const SEEN_TO_A_SECOND: u64 = 16 << 20;
/// How often a wait for a message looks whether this end shall stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// No `Finished` yet.
const NOT_YET: u64 = u64::MAX;

#[derive(Debug)]
struct Heard {
    /// What each thread of the peer's said that it sent.
    finished: Vec<AtomicU64>,
    /// When the peer was heard to be at work, in milliseconds from the beginning.
    beat: AtomicU64,
    begin: Instant,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

/// What the threads of a test share of the control connection.
#[derive(Debug)]
struct Shared {
    stream: TcpStream,
    /// Keeps what several threads say apart.
    writing: Mutex<()>,
    heard: Arc<Heard>,
    stop: Arc<AtomicBool>,
}

/// The control connection, with a reader.
#[derive(Debug)]
pub struct ControlLink {
    shared: Shared,
    messages: Receiver<Message>,
    who: &'static str,
    timeout: Duration,
    counters: Vec<Arc<ThreadCounters>>,
}

/// What one thread of a test says to its like at the other end, and hears of it.
#[derive(Clone, Copy, Debug)]
pub struct ThreadLink<'a> {
    shared: &'a Shared,
    thread: u32,
    counters: Option<&'a Arc<ThreadCounters>>,
}

impl ControlLink {
    /// Starts a reader on a connection whose greetings are over. `who` is the peer, in errors;
    /// `stop` ends the conversation from this end.
    ///
    /// # Errors
    /// The operating system refuses a thread or a descriptor.
    pub fn new(
        stream: TcpStream,
        who: &'static str,
        timeout: Duration,
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        let heard = Arc::new(Heard {
            finished: (0..MAX_THREADS).map(|_| AtomicU64::new(NOT_YET)).collect(),
            beat: AtomicU64::new(0),
            begin: Instant::now(),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let system = |e| Error::system("cannot set the control connection up", &e);
        let mut reading = stream.try_clone().map_err(system)?;
        // The reader waits as long as the connection lives: timeouts are the waiting thread's.
        reading.set_read_timeout(None).map_err(system)?;
        stream
            .set_write_timeout(Some(timeout.max(Duration::from_secs(1))))
            .map_err(system)?;
        let (sender, messages) = channel();
        let inner = Arc::clone(&heard);
        let read = move || loop {
            let failure = match frame::read::<Message>(&mut reading).and_then(|m| m.or_error(who)) {
                Ok(Message::Finished { sent, thread }) if sent != NOT_YET => {
                    match inner.finished.get(thread as usize) {
                        Some(finished) => {
                            finished.store(sent, Ordering::Release);
                            continue;
                        }
                        None => Error::protocol(format!("{who} has a thread {thread}")),
                    }
                }
                Ok(Message::AtWork) => {
                    let millis = inner.begin.elapsed().as_millis();
                    inner
                        .beat
                        .store(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::Relaxed);
                    continue;
                }
                Ok(message) => match sender.send(message) {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                Err(error) if error.kind() == Kind::Gone => Error::new(
                    Kind::Gone,
                    format!(
                        "{who} closed the connection: it ended, or was ended, in the middle of the test"
                    ),
                ),
                Err(error) => error,
            };
            *inner.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            inner.failed.store(true, Ordering::Release);
            return;
        };
        std::thread::Builder::new()
            .name("control".into())
            .stack_size(256 << 10)
            .spawn(read)
            .map_err(system)?;
        let shared = Shared {
            stream,
            writing: Mutex::new(()),
            heard,
            stop,
        };
        Ok(Self {
            shared,
            messages,
            who,
            timeout,
            counters: Vec::new(),
        })
    }

    /// Each thread of the test counts on its lane; none: nobody watches.
    #[must_use]
    pub fn with_counters(mut self, counters: Vec<Arc<ThreadCounters>>) -> Self {
        self.counters = counters;
        self
    }

    /// The link of a thread.
    pub fn thread(&self, thread: u32) -> ThreadLink<'_> {
        ThreadLink {
            shared: &self.shared,
            thread,
            counters: self.counters.get(thread as usize),
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection broke; if the peer said why, that.
    pub fn send(&self, message: &Message) -> Result<()> {
        self.shared.send(message)
    }

    /// The next message, or why none came.
    ///
    /// # Errors
    /// The peer's error, its end, or silence for the timeout.
    pub fn receive(&self) -> Result<Message> {
        self.receive_after(0)
    }

    /// The same of a peer that has to see to so many bytes of its memory before it speaks.
    ///
    /// # Errors
    /// As [`ControlLink::receive`].
    pub fn receive_after(&self, bytes: u64) -> Result<Message> {
        let patience = self.timeout + Duration::from_secs(bytes / SEEN_TO_A_SECOND);
        let deadline = Instant::now() + patience;
        loop {
            match self.messages.recv_timeout(LOOK_EVERY) {
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
                return Err(stopped());
            }
            if Instant::now() >= deadline {
                // The peer is told: it may only be slow.
                let silence = format!("{} said nothing for {}", self.who, show_time(patience));
                return Err(Error::test(
                    silence + ": is its host busy? --timeout (-to) sets how long to wait",
                ));
            }
        }
    }

    /// Whether it is over: the peer is gone or has failed, or this end shall stop.
    pub fn is_gone(&self) -> bool {
        self.shared.is_gone()
    }

    /// Waits briefly for the peer's words, which explain more than this error does.
    pub fn explain(&self, error: Error) -> Error {
        self.shared.explain(error)
    }

    /// Tells the peer why this end gives up, unless the peer is what failed.
    pub fn report(&self, error: &Error) {
        self.shared.report(error);
    }
}

impl Shared {
    fn write(&self, message: &Message) -> Result<()> {
        let _whole = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        frame::write(&mut &self.stream, message)
    }

    fn send(&self, message: &Message) -> Result<()> {
        self.write(message).map_err(|error| self.explain(error))
    }

    fn report(&self, error: &Error) {
        if !matches!(error.kind(), Kind::Peer | Kind::Gone) {
            let _ = self.write(&Message::Error {
                text: error.to_string(),
            });
        }
    }

    fn is_gone(&self) -> bool {
        self.heard.failed.load(Ordering::Acquire) || self.stop.load(Ordering::Relaxed)
    }

    fn failure(&self) -> Option<Error> {
        if !self.is_gone() {
            return None;
        }
        let failure = self
            .heard
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        failure.or_else(|| self.stop.load(Ordering::Relaxed).then(stopped))
    }

    fn explain(&self, error: Error) -> Error {
        let end = Instant::now() + EXPLANATION;
        while Instant::now() < end {
            if let Some(failure) = self.failure() {
                return failure;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        error
    }
}

fn stopped() -> Error {
    Error::new(
        Kind::System,
        "the server was stopped in the middle of the test",
    )
}

impl Drop for ControlLink {
    fn drop(&mut self) {
        // Ends the reader too.
        let _ = self.shared.stream.shutdown(Shutdown::Both);
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
        match self
            .shared
            .heard
            .finished
            .get(self.thread as usize)?
            .load(Ordering::Acquire)
        {
            NOT_YET => None,
            sent => Some(sent),
        }
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

    fn send_heartbeat(&self) -> Result<()> {
        self.shared.send(&Message::AtWork)
    }

    fn silence(&self) -> Option<Duration> {
        let heard = &self.shared.heard;
        Some(
            heard
                .begin
                .elapsed()
                .saturating_sub(Duration::from_millis(heard.beat.load(Ordering::Relaxed))),
        )
    }

    fn give_up(&self, error: &Error) {
        self.shared.report(error);
    }
}
