//! Latency tests: one message in flight, which the peer returns, or one one-sided operation in
//! flight, which the peer's device completes.
//!
//! Both ends do little between the arrival of a message and the next one. The client reads the
//! clock once per round. When the time of its next `Checks` has come, it does everything that is
//! not necessary in each round.

use std::time::{Duration, Instant};

use base::error::{Error, Result};

use super::clock::{Clock, Nanos};
use super::heartbeat::Heartbeat;
use super::wait::Waiter;
use super::warm_up::WarmUp;
use super::{DataPath, LoopResult, Peer, deadline, interrupted_in_warm_up, wrong_count};
use crate::spec::Shape;
use crate::stats::cpu::ClockReading;
use crate::stats::latency::LatencyRecorder;

/// Time without a reply after which a message counts as lost, on unreliable services.
const LOST_AFTER: Duration = Duration::from_millis(200);
/// Interval between checks of a client.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Messages between checks of a server that never waits in vain.
const ROUNDS_PER_CHECK: u64 = 64;

/// Runs the client of a ping-pong test: sends, waits for the reply, and records half of the time.
pub(crate) fn ping<W: DataPath, P: Peer>(
    shape: &Shape,
    data_path: &mut W,
    peer: &P,
    waiter: &mut Waiter,
    start: &ClockReading,
    latency: &mut LatencyRecorder,
) -> Result<LoopResult> {
    let last = shape.last();
    let result = run_rounds(shape, data_path, peer, start, |data_path, clock, round| {
        data_path.send_one(round.number, last)?;
        let is_answered = if shape.is_reliable() {
            while data_path.counts().next_expected <= round.number {
                await_message(data_path, peer, waiter, None)?;
            }
            true
        } else {
            await_reply(shape, data_path, peer, waiter, round.number)?
        };
        let next_expected = data_path.counts().next_expected;
        if next_expected > round.number + 1 {
            return Err(Error::test(format!(
                "{next_expected} replies arrived for {} messages",
                round.number + 1
            )));
        }
        let now = clock.now();
        // Without a reply in time, there is no latency.
        if is_answered && round.is_counted {
            latency.record(now.since(round.begin) / 2);
        }
        Ok(now)
    })?;
    if !shape.is_reliable() {
        check_replies(data_path, peer, waiter)?;
    }
    // A reply that arrived after the next message was sent is not lost.
    let lost = result.unanswered();
    Ok(LoopResult { lost, ..result })
}

/// Waits until the server has finished, and checks that it sent all replies that arrived.
fn check_replies<W: DataPath, P: Peer>(
    data_path: &mut W,
    peer: &P,
    waiter: &mut Waiter,
) -> Result<()> {
    let sent = loop {
        if let Some(sent) = peer.finished() {
            break sent;
        }
        let until = Instant::now() + CHECK_INTERVAL;
        await_message(data_path, peer, waiter, Some(until))?;
    };
    let arrived = data_path.counts().arrived.msgs;
    if arrived > sent {
        return Err(wrong_count(arrived, sent));
    }
    Ok(())
}

/// Runs the client of a one-sided test: posts one operation at a time, and records the whole round
/// trip.
pub(crate) fn one_sided<W: DataPath, P: Peer>(
    shape: &Shape,
    data_path: &mut W,
    peer: &P,
    waiter: &mut Waiter,
    start: &ClockReading,
    latency: &mut LatencyRecorder,
) -> Result<LoopResult> {
    let last = shape.last();
    run_rounds(shape, data_path, peer, start, |data_path, clock, round| {
        data_path.send_one(round.number, last)?;
        while data_path.counts().sent <= round.number {
            waiter.wait(data_path, peer, None)?;
        }
        let now = clock.now();
        if round.is_counted {
            latency.record(now.since(round.begin));
        }
        Ok(now)
    })
}

/// Runs the server of a ping-pong test: replies until the client has finished.
pub(crate) fn pong<W: DataPath, P: Peer>(
    shape: &Shape,
    data_path: &mut W,
    peer: &P,
    waiter: &mut Waiter,
) -> Result<LoopResult> {
    let mut warm_up = WarmUp::new(shape, Instant::now());
    let (mut replied, mut sent) = (0, 0);
    loop {
        let completions = await_message(data_path, peer, waiter, None)?;
        let next_expected = data_path.counts().next_expected;
        if replied < next_expected {
            // The number of a reply is that of the message.
            data_path.send_one(next_expected - 1, shape.last())?;
            replied = next_expected;
            sent += 1;
        }
        warm_up.ends(Instant::now, sent, data_path.counts().arrived);
        if completions > 0 && sent % ROUNDS_PER_CHECK > 0 {
            continue;
        }
        match peer.finished() {
            Some(pinged) if next_expected > pinged => {
                return Err(wrong_count(next_expected, pinged));
            }
            Some(pinged) if next_expected == pinged || !shape.is_reliable() => break,
            _ => {}
        }
    }
    let end = ClockReading::now_wall_first();
    peer.finish(sent)?;
    Ok(LoopResult::new(
        &warm_up,
        sent,
        data_path.counts().arrived,
        end,
    ))
}

/// Posts receives again, then waits once and returns the number of completions. In this order a
/// message is answered before its receive is posted again. The peer always meets a posted receive,
/// because several are posted.
#[inline]
fn await_message<W: DataPath, P: Peer>(
    data_path: &mut W,
    peer: &P,
    waiter: &mut Waiter,
    until: Option<Instant>,
) -> Result<u32> {
    data_path.repost()?;
    waiter.wait(data_path, peer, until)
}

/// Waits for the reply to message `number` on a service that may lose it. Returns `false` if it has
/// not arrived in time. Payload that is verified is not overwritten before it has been sent.
fn await_reply<W: DataPath, P: Peer>(
    shape: &Shape,
    data_path: &mut W,
    peer: &P,
    waiter: &mut Waiter,
    number: u64,
) -> Result<bool> {
    let lost_at = Instant::now() + LOST_AFTER;
    while data_path.counts().next_expected <= number {
        let may_overwrite = !shape.verify || data_path.counts().sent > number;
        await_message(data_path, peer, waiter, may_overwrite.then_some(lost_at))?;
        let is_unanswered = data_path.counts().next_expected <= number;
        if is_unanswered && may_overwrite && Instant::now() >= lost_at {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A round of a client: a message and its reply, or a one-sided operation.
struct Round {
    /// Number of the message.
    number: u64,
    begin: Nanos,
    /// The warm-up is over.
    is_counted: bool,
}

/// Runs rounds until the test ends. `run` performs one and returns the time of its end, which is
/// the beginning of the next one.
#[inline(always)]
#[allow(clippy::inline_always, reason = "measured: benches/README.md")]
fn run_rounds<W: DataPath, P: Peer>(
    shape: &Shape,
    data_path: &mut W,
    peer: &P,
    start: &ClockReading,
    mut run: impl FnMut(&mut W, &mut Clock, &Round) -> Result<Nanos>,
) -> Result<LoopResult> {
    let last = shape.last();
    let mut clock = Clock::new();
    let mut checks = Checks::new(shape, start.wall(), clock.now());
    let mut round = Round {
        number: 0,
        begin: checks.next,
        is_counted: !checks.warm_up.is_on(),
    };
    while round.number < last {
        if round.begin >= checks.next {
            if checks.is_over(peer, &mut clock)? {
                break;
            }
            let arrived = data_path.counts().arrived;
            if checks.warm_up.ends(Instant::now, round.number, arrived) {
                checks.deadline = deadline(shape, Instant::now());
                round.is_counted = true;
                round.begin = clock.now();
            }
        }
        round.begin = run(data_path, &mut clock, &round)?;
        round.number += 1;
    }
    if checks.warm_up.is_on() {
        return Err(interrupted_in_warm_up());
    }
    let end = ClockReading::now_wall_first();
    peer.finish(round.number)?;
    let (sent, arrived) = (round.number, data_path.counts().arrived);
    Ok(LoopResult::new(&checks.warm_up, sent, arrived, end))
}

/// The work of a client that is not done in each round.
struct Checks {
    warm_up: WarmUp,
    heartbeat: Heartbeat,
    /// End of a test by time, once the warm-up is over. A thread that did not run for a while ends
    /// its warm-up late, and then still measures.
    deadline: Option<Instant>,
    /// Time of the next check.
    next: Nanos,
}

impl Checks {
    fn new(shape: &Shape, start: Instant, next: Nanos) -> Self {
        let warm_up = WarmUp::new(shape, start);
        Self {
            deadline: deadline(shape, start).filter(|_| !warm_up.is_on()),
            warm_up,
            heartbeat: Heartbeat::new(shape, start),
            next,
        }
    }

    /// Sends a heartbeat if one is due. Returns `true` if the test must end now.
    #[cold]
    fn is_over<P: Peer>(&mut self, peer: &P, clock: &mut Clock) -> Result<bool> {
        self.heartbeat.tick(peer)?;
        let now = Instant::now();
        let times = [self.deadline, self.warm_up.until()].into_iter().flatten();
        let next = times.fold(now + CHECK_INTERVAL, Instant::min);
        self.next = clock.now() + next.saturating_duration_since(now);
        Ok(self.deadline.is_some_and(|end| now >= end) || peer.is_interrupted())
    }
}
