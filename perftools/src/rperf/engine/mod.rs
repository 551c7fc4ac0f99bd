//! The loops that are timed. They see a connected [`Wire`], a [`Shape`] and the [`Peer`]'s words,
//! and nothing of how these came about; a fake wire runs them in tests.
//!
//! What a test does is data, its [`Plan`](crate::rperf::spec::plan::Plan); the wire knows verb and
//! service, the loops the pattern: [`bandwidth`] moves many messages, [`pingpong`] one, and
//! [`passive`] stays while the peer reads and writes memory here.
//!
//! No receiver is ever without a posted receive: a sender has a window of [`Shape::depth`]
//! messages, and the receiver returns a credit, a message of no bytes, for each [`Shape::batch`]
//! messages that it has taken and posted receives for again. (iWARP drops a connection whose
//! message meets no receive; RoCE stalls for as long as the RNR timer says.) Where messages can be
//! lost, so can credits: each says up to which message the receiver has come, and a sender that
//! hears nothing for a while takes what is under way for lost.

pub mod bandwidth;
mod clock;
mod heartbeat;
pub mod passive;
pub mod payload;
pub mod pin;
pub mod pingpong;
mod poll_window;
pub mod run;
pub mod threads;
pub mod wait;
pub mod wait_loop;
mod warm_up;

#[cfg(test)]
pub(crate) mod fake;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::common::error::{Error, Result};
use crate::rperf::spec::Shape;
use crate::rperf::stats::cpu::ClockReading;
use crate::rperf::stats::latency::LatencyRecorder;
use crate::rperf::stats::thread_counters::ThreadCounters;
use crate::rperf::stats::{Count, SideStats};

/// What one poll brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollCounts {
    /// Data messages whose sends are known to be complete, from the start of the test; 0 when
    /// nothing new is known.
    pub sent: u64,
    /// Data messages that arrived.
    pub data: u32,
    /// Their bytes.
    pub bytes: u64,
    /// How far the peer's numbering has come: the number after that of the latest arrival; 0 when
    /// nothing new is known.
    pub reached: u64,
    /// Data messages of this end that the peer has given credit for, from the start; 0 when
    /// nothing new is known.
    pub acked: u64,
    /// Credit messages that arrived.
    pub credits: u32,
    /// Completions of any kind.
    pub completions: u32,
}

/// Memory that is open to the peer, as the peer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposedMemory {
    /// Its address.
    pub addr: u64,
    /// Its length.
    pub len: u64,
    /// Its key.
    pub rkey: u32,
}

/// A connected end. Data messages carry [`Shape::msg_size`] bytes, credits none.
pub trait Wire {
    /// The memory here that the peer will read or write, for it to be told.
    fn exposed(&self) -> Option<ExposedMemory>;

    /// The memory there.
    fn peer_exposes(&mut self, memory: ExposedMemory);

    /// Posts `count` data messages, the first of them number `first`. Of those on one queue pair
    /// each `signal_every`-th asks for a completion, and so does the one before `last`.
    ///
    /// # Errors
    /// The queue pair refuses: it is in error, or its queue is full.
    fn send(&mut self, first: u64, count: u32, signal_every: u32, last: u64) -> Result<()>;

    /// Posts a credit message for the peer's messages up to number `reached`.
    ///
    /// # Errors
    /// As [`Wire::send`].
    fn send_credit(&mut self, reached: u64) -> Result<()>;

    /// Posts the receives that there have to be before the peer may start.
    ///
    /// # Errors
    /// As [`Wire::send`].
    fn post_receives(&mut self) -> Result<()>;

    /// Posts again what the last polls have used.
    ///
    /// # Errors
    /// As [`Wire::send`].
    fn repost(&mut self) -> Result<()>;

    /// Takes the completions that are there; checks payload if that was asked for.
    ///
    /// # Errors
    /// A request failed, or what arrived is wrong.
    fn poll(&mut self) -> Result<PollCounts>;

    /// Asks for a wake-up at the next completion, or at that of the next message whose sender
    /// solicits it.
    ///
    /// # Errors
    /// The device is gone.
    fn arm(&mut self, solicited: bool) -> Result<()>;

    /// Sleeps until a completion after [`Wire::arm`], at most for `limit`.
    ///
    /// # Errors
    /// The device is gone.
    fn sleep(&mut self, limit: Duration) -> Result<()>;

    /// Looks whether the connection still stands at `now`, as far as that shows outside the
    /// completions.
    ///
    /// # Errors
    /// The connection is over.
    fn check(&mut self, now: Instant) -> Result<()>;

    /// Checks what the peer, which has made `made` messages, left in memory here without a word.
    ///
    /// # Errors
    /// A byte is wrong.
    fn verify_final(&mut self, made: u64) -> Result<()>;

    /// Bytes checked so far.
    fn verified(&self) -> u64;
}

/// What goes on beside the data, while the test runs: what the peer says, and who watches here.
pub trait Peer {
    /// Tells the peer that this end will send no more than `sent` data messages.
    ///
    /// # Errors
    /// The control connection broke.
    fn finish(&self, sent: u64) -> Result<()>;

    /// How many data messages the peer says it sent, once it has finished.
    fn finished(&self) -> Option<u64>;

    /// Why the peer will not go on, if it said so or went away.
    fn failure(&self) -> Option<Error>;

    /// Where this end counts as it goes; none where nobody watches.
    fn counters(&self) -> Option<Arc<ThreadCounters>> {
        None
    }

    /// Waits briefly for [`Peer::failure`], which explains a broken connection better than a
    /// completion status does.
    fn explain(&self, error: Error) -> Error;

    /// Tells the peer that this end is at work, where the data does not.
    ///
    /// # Errors
    /// The control connection broke.
    fn send_heartbeat(&self) -> Result<()> {
        Ok(())
    }

    /// How long the peer has not said that it is at work; none where it never says so.
    fn silence(&self) -> Option<Duration> {
        None
    }

    /// Tells the peer why this end will not go on.
    fn give_up(&self, _: &Error) {}
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client: sends in one-way tests, starts the ping-pong.
    Client,
    /// The server.
    Server,
}

/// What an end measured.
#[derive(Debug)]
pub struct Measurement {
    /// Its counts.
    pub stats: SideStats,
    /// Latencies, at the client of a latency test.
    pub latency: Option<LatencyRecorder>,
}

/// A finished loop: what it counted while its clock ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// What was counted when the warm-up ended, and the clock began.
    base: Option<warm_up::Base>,
    /// Messages of this end that are done.
    pub(crate) sent: u64,
    /// What arrived from the peer.
    pub(crate) received: Count,
    pub(crate) end: ClockReading,
    /// When the clock stopped, where that was before `end` was read.
    pub(crate) until: Option<Instant>,
    /// Messages of the peer that never arrived.
    pub(crate) lost: u64,
}

impl Counted {
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
}

/// The error of a receiver that got another number of messages than were sent.
fn lost(received: u64, sent: u64) -> Error {
    Error::test(format!(
        "{received} messages arrived, but the peer sent {sent}"
    ))
}

/// When the clock stops in a test by time.
fn deadline(shape: &Shape, start: Instant) -> Option<Instant> {
    match shape.limit {
        super::spec::Limit::Time(time) => start.checked_add(time + shape.tuning.warm_up),
        super::spec::Limit::Messages(_) => None,
    }
}
