//! The loops that are timed. They see a connected [`Wire`], a [`Shape`] and the [`Peer`]'s words, and nothing of how
//! these came about; a fake wire runs them in tests.
//!
//! No receiver is ever without a posted receive: a sender has a window of [`Shape::depth`] messages, and the receiver
//! returns a credit, a message of no bytes, for each [`Shape::batch`] messages that it has taken and posted receives for
//! again. (iWARP drops a connection whose message meets no receive; RoCE stalls for as long as the RNR timer says.)

pub mod bandwidth;
pub mod pingpong;
pub mod wait;
mod window;

#[cfg(test)]
pub(crate) mod fake;

use std::time::{Duration, Instant};

use crate::config::{Shape, Side};
use crate::error::{Error, Kind, Result};
use crate::stats::cpu::Reading;
use crate::stats::histogram::Latencies;
use crate::stats::{Count, SideStats};
use crate::test::Test;
use wait::Waiter;

/// What one poll brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Data messages whose sends are known to be complete, from the start of the test; 0 when nothing new is known.
    pub sent: u64,
    /// Data messages that arrived.
    pub data: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Credit messages that arrived.
    pub credits: u32,
    /// Completions of any kind.
    pub completions: u32,
}

/// A connected end. Data messages carry [`Shape::msg_size`] bytes, credits none.
pub trait Wire {
    /// Posts `count` data messages, the first of them number `first`; number `n` (from 0) asks for a completion when
    /// `n + 1` divides by `signal_every` or `n + 1 == last`.
    ///
    /// # Errors
    /// The queue pair refuses: it is in error, or its queue is full.
    fn send(&mut self, first: u64, count: u32, signal_every: u32, last: u64) -> Result<()>;

    /// Posts a credit message; `sent` data messages were posted before it.
    ///
    /// # Errors
    /// As [`Wire::send`].
    fn send_credit(&mut self, sent: u64) -> Result<()>;

    /// Posts `count` receives.
    ///
    /// # Errors
    /// As [`Wire::send`].
    fn post_receives(&mut self, count: u32) -> Result<()>;

    /// Takes the completions that are there; checks payload if that was asked for.
    ///
    /// # Errors
    /// A request failed, or what arrived is wrong.
    fn poll(&mut self) -> Result<Progress>;

    /// Asks for a wake-up at the next completion.
    ///
    /// # Errors
    /// The device is gone.
    fn arm(&mut self) -> Result<()>;

    /// Sleeps until a completion after [`Wire::arm`], at most for `limit`.
    ///
    /// # Errors
    /// The device is gone.
    fn sleep(&mut self, limit: Duration) -> Result<()>;

    /// Looks whether the connection still stands, as far as that shows outside the completions.
    ///
    /// # Errors
    /// The connection is over.
    fn check(&mut self) -> Result<()>;

    /// Bytes checked so far.
    fn verified(&self) -> u64;
}

/// What the peer says beside the data, while the test runs.
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

    /// Waits briefly for [`Peer::failure`], which explains a broken connection better than a completion status does.
    fn explain(&self, error: Error) -> Error;
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
pub struct Outcome {
    /// Its counts.
    pub stats: SideStats,
    /// Latencies, at the client of a latency test.
    pub latency: Option<Latencies>,
}

/// A finished loop: what it counted while its clock ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) sent: u64,
    pub(crate) received: Count,
    pub(crate) end: Reading,
}

/// Runs `test` over `wire`, whose receives are posted on both ends.
///
/// # Errors
/// The connection broke, the peer went away or reported an error, nothing moved for the timeout, or payload was wrong.
pub fn run<W: Wire, P: Peer>(
    test: Test,
    role: Role,
    shape: &Shape,
    side: &Side,
    wire: &mut W,
    peer: &P,
) -> Result<Outcome> {
    let mut waiter = Waiter::new(side, test.is_latency());
    let mut latency = (test.is_latency() && role == Role::Client).then(Latencies::new);
    let start = Reading::now();
    let counted = match (test.is_latency(), &mut latency) {
        (true, Some(latency)) => pingpong::ping(shape, wire, peer, &mut waiter, &start, latency),
        (true, None) => pingpong::pong(shape, wire, peer, &mut waiter),
        (false, _) => {
            let both = test == Test::RcBiBw;
            let flow = bandwidth::Flow {
                sends: both || role == Role::Client,
                receives: both || role == Role::Server,
                // An accepting iWARP end may not send before the connecting one has.
                waits_first: both && role == Role::Server,
            };
            bandwidth::run(flow, shape, wire, peer, &mut waiter, &start)
        }
    }
    // What the peer says explains more than what a completion says; what was found wrong here needs no explanation.
    .map_err(|error| if error.kind() == Kind::Device { peer.explain(error) } else { error })?;
    let size = u64::from(shape.msg_size);
    let stats = SideStats {
        sent: Count { msgs: counted.sent, bytes: counted.sent * size },
        received: counted.received,
        nanos: u64::try_from(counted.end.wall().duration_since(start.wall()).as_nanos()).unwrap_or(u64::MAX),
        max_cqe: waiter.max_completions(),
        cpu: counted.end.since(&start),
        verified: wire.verified(),
    };
    Ok(Outcome { stats, latency })
}

/// The error of a receiver that got another number of messages than were sent.
fn lost(received: u64, sent: u64) -> Error {
    Error::test(format!("{received} messages arrived, but the peer sent {sent}"))
}

/// When the clock stops in a test by time.
fn deadline(shape: &Shape, start: Instant) -> Option<Instant> {
    match shape.limit {
        crate::config::Limit::Time(time) => start.checked_add(time),
        crate::config::Limit::Messages(_) => None,
    }
}
