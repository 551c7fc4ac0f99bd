//! The timed loops. They use a connected [`DataPath`], a [`Shape`] and the control connection to
//! the [`Peer`], independent of how these were set up. Unit tests run them over a fake data path.
//!
//! A [`Plan`](crate::spec::plan::Plan) describes a test as data: the data path implements verb
//! and service, the loops the pattern. [`bandwidth`] keeps many messages in flight, `pingpong`
//! one, and [`passive`] waits while the peer accesses the memory of this end.
//!
//! A receiver always has a posted receive. A sender has a window of [`Shape::depth`] messages, and
//! the receiver returns a credit (an empty message) for each [`Shape::batch`] messages after it has
//! posted receives for them again. Without a receive, iWARP drops the connection, and RoCE stalls
//! for the time of the RNR timer.
//!
//! Unreliable services can lose messages and credits. Their credits carry the number of the latest
//! message that arrived, and a sender without credit treats messages in flight as lost after a
//! while.

pub mod arrivals;
pub mod bandwidth;
pub(crate) mod clock;
pub(crate) mod heartbeat;
pub(crate) mod pacing;
pub mod passive;
pub mod payload;
pub mod pin;
pub(crate) mod pingpong;
mod poll_window;
pub mod run;
pub mod threads;
pub mod wait;
pub mod wait_loop;
mod warm_up;

#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod fake;

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::spec::Shape;
use crate::stats::cpu::ClockReading;
use crate::stats::latency::LatencyRecorder;
use crate::stats::thread_counters::ThreadCounters;
use crate::stats::{Count, SideStats};

/// Counts of a data path from the start of the test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataPathCounts {
    /// Data messages whose sends are known to be complete.
    pub sent: u64,
    /// Data messages in `sent` with an earlier message that is not complete, if the queue pairs
    /// take turns.
    pub sent_out_of_order: u64,
    /// Data messages that arrived.
    pub arrived: Count,
    /// Number after that of the peer's latest message.
    pub next_expected: u64,
    /// Data messages of this end that the peer has returned credit for.
    pub acked: u64,
    /// Data messages that had arrived before. They are not counted otherwise.
    pub duplicates: u64,
    /// Messages and credits that are not those of the peer. They are counted only here.
    pub foreign: u64,
}

/// Memory that the peer may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposedMemory {
    /// Virtual address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Remote key.
    pub rkey: u32,
}

/// A connected end. Data messages carry [`Shape::msg_size`] bytes; credit messages are empty.
pub trait DataPath {
    /// Returns the memory of this end that the peer will access, if there is any.
    fn exposed(&self) -> Option<ExposedMemory>;

    /// Sets the memory of the peer that this end will access.
    fn peer_exposes(&mut self, memory: ExposedMemory);

    /// Posts data message `number`, like [`DataPath::send`] with one message.
    fn send_one(&mut self, number: u64, last: u64) -> Result<()> {
        self.send(number, 1, last)
    }

    /// Posts `count` data messages, starting with number `first`. On each queue pair, every
    /// [`Shape::signal_every`]-th message and the one before number `last` request a completion.
    fn send(&mut self, first: u64, count: u32, last: u64) -> Result<()>;

    /// Posts a credit message for the peer's messages before number `next_expected`. Returns
    /// `false` if data messages would lack its slot of the send queue. A completion frees one.
    fn send_credit(&mut self, next_expected: u64) -> Result<bool>;

    /// Posts the receives that must be posted before the peer starts.
    fn post_receives(&mut self) -> Result<()>;

    /// Posts receives again for those that completed, when there are enough of them for a batch.
    fn repost(&mut self) -> Result<()>;

    /// Polls for completions, and checks the payload if that is enabled. Returns the number of
    /// completions of all kinds.
    fn poll(&mut self) -> Result<u32>;

    /// Returns the counts up to the latest poll.
    fn counts(&self) -> &DataPathCounts;

    /// Requests an event for the next completion, or for the next solicited one.
    fn arm(&mut self, solicited: bool) -> Result<()>;

    /// Sleeps until the event requested with [`DataPath::arm`], at most for `limit`.
    fn sleep(&mut self, limit: Duration) -> Result<()>;

    /// Checks for a disconnection that causes no completion. `now` is the current time.
    fn check(&mut self, now: Instant) -> Result<()>;

    /// Returns `true` if all completed RDMA writes are in the memory of the peer. If their
    /// completions do not show that, the first call posts requests whose completions do.
    fn confirm_placement(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Checks the memory of this end after the peer's last of `made` messages.
    fn verify_final(&mut self, made: u64) -> Result<()>;

    /// Returns the number of bytes that were checked so far.
    fn verified(&self) -> u64;

    /// Returns the number of TCP segments that this end has retransmitted, if its connections are
    /// those of TCP and the kernel counts them.
    fn retransmitted(&self) -> Option<u64> {
        None
    }
}

/// The control connection to the peer while the test runs, and the counters that other threads
/// observe.
pub trait Peer {
    /// Notifies the peer that this end has sent `sent` data messages and will send no more.
    fn finish(&self, sent: u64) -> Result<()>;

    /// Returns how many data messages the peer sent, once it has finished.
    fn finished(&self) -> Option<u64>;

    /// Returns the error of a peer that failed or disconnected.
    fn failure(&self) -> Option<Error>;

    /// Returns the counters that the loop updates while it runs, if they are observed.
    fn counters(&self) -> Option<Arc<ThreadCounters>> {
        None
    }

    /// Waits briefly for [`Peer::failure`], which explains a broken connection better than `error`,
    /// a completion status. Returns `error` if there is no failure.
    fn explain(&self, error: Error) -> Error;

    /// Notifies the peer that this end is at work.
    fn send_heartbeat(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the time since the peer's latest heartbeat; `None` if it sends none.
    fn silence(&self) -> Option<Duration> {
        None
    }

    /// Returns `true` if the test must end early with what was measured up to now. Both ends are
    /// notified.
    fn is_interrupted(&self) -> bool {
        false
    }

    /// Notifies the peer of the error that ends the test here.
    fn give_up(&self, _: &Error) {}
}

/// The two ends of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client: sends in one-way tests, sends first in ping-pong tests.
    Client,
    /// The server.
    Server,
}

impl Role {
    /// Returns the name of the other end in messages.
    pub fn peer_name(self) -> &'static str {
        match self {
            Self::Client => "the server",
            Self::Server => "the client",
        }
    }
}

/// The measurement of one end.
#[derive(Debug)]
pub struct Measurement {
    /// Counts, times and processor use.
    pub stats: SideStats,
    /// Latencies, at the client of a latency test.
    pub latency: Option<LatencyRecorder>,
}

/// Counts of a finished loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopResult {
    /// Counts at the end of the warm-up, when the clock started.
    base: Option<warm_up::WarmUpBase>,
    /// Messages of this end that completed.
    pub(crate) sent: u64,
    /// Messages of the peer that arrived.
    pub(crate) received: Count,
    pub(crate) end: ClockReading,
    /// Time when the clock stopped, if that was before `end`.
    pub(crate) until: Option<Instant>,
    /// Messages that were lost.
    pub(crate) lost: u64,
}

impl LoopResult {
    fn new(warm_up: &warm_up::WarmUp, sent: u64, received: Count, end: ClockReading) -> Self {
        Self {
            base: warm_up.base(),
            sent,
            received,
            end,
            until: None,
            lost: 0,
        }
    }

    /// Returns the number of counted messages of this end without a message of the peer.
    fn unanswered(&self) -> u64 {
        let (sent, received) = self.base.map_or((0, 0), |b| (b.sent, b.received.msgs));
        (self.sent - sent).saturating_sub(self.received.msgs - received)
    }
}

/// Returns the error of a receiver that got a different number of messages than were sent.
fn wrong_count(received: u64, sent: u64) -> Error {
    Error::test(format!(
        "{received} messages arrived, but the peer sent {sent}"
    ))
}

/// Returns the error of a test that was interrupted before its measurement began.
fn interrupted_in_warm_up() -> Error {
    Error::test("interrupted during the warm-up")
}

/// Returns when the clock stops in a test with a time limit, if it started at `begin`.
fn deadline(shape: &Shape, begin: Instant) -> Option<Instant> {
    match shape.limit {
        crate::spec::Limit::Time(time) => begin.checked_add(time),
        crate::spec::Limit::Messages(_) => None,
    }
}
