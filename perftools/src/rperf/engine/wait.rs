//! Waiting for completions of a [`Wire`]: its source for the [`WaitLoop`], and the statistics that
//! come from polling.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::wait_loop::{PollSource, WaitLoop};
use super::{Peer, PollCounts, Wire};
use crate::common::error::{Error, Result};
use crate::common::units::show_time;
use crate::rperf::spec::Side;
use crate::rperf::stats::thread_counters::ThreadCounters;

/// Waits for completions, and returns an error if none arrive within the timeout.
#[derive(Debug)]
pub struct Waiter {
    wait_loop: WaitLoop,
    /// Only a message sent with the solicited-event flag wakes a sleeping wait.
    solicited: bool,
    timeout: Duration,
    stats: PollStats,
}

/// Statistics of the polls of a thread.
#[derive(Debug, Default)]
struct PollStats {
    /// Longest observed time without a completion after the first completion.
    silence: Option<Range<Instant>>,
    max_completions: u32,
    duplicates: u64,
    counters: Option<Arc<ThreadCounters>>,
}

impl Waiter {
    /// Creates a waiter with the mode and timeout of `side`, for a latency test or for a bandwidth
    /// test.
    pub fn new(side: &Side, latency: bool) -> Self {
        Self {
            wait_loop: WaitLoop::new(side.wait, latency),
            solicited: false,
            timeout: side.timeout,
            stats: PollStats::default(),
        }
    }

    /// Sets the counters that are updated while the test runs.
    #[must_use]
    pub fn with_counters(mut self, counters: Option<Arc<ThreadCounters>>) -> Self {
        self.stats.counters = counters;
        self
    }

    /// Sets if only messages sent with the solicited-event flag wake a sleeping wait.
    #[must_use]
    pub fn solicited(self, solicited: bool) -> Self {
        Self { solicited, ..self }
    }

    /// Returns the largest number of completions that one poll returned.
    pub fn max_completions(&self) -> u32 {
        self.stats.max_completions
    }

    /// Returns the number of messages that arrived again.
    pub fn duplicates(&self) -> u64 {
        self.stats.duplicates
    }

    /// Returns the longest observed time without a completion after the first completion.
    pub fn silence(&self) -> Option<Range<Instant>> {
        self.stats.silence.clone()
    }

    /// Polls once without waiting.
    ///
    /// # Errors
    /// Returns the error of [`Wire::poll`].
    #[inline]
    pub fn poll<W: Wire>(&mut self, wire: &mut W) -> Result<PollCounts> {
        let progress = self.stats.poll(wire)?;
        if progress.completions > 0 {
            self.wait_loop.reset();
        }
        Ok(progress)
    }

    /// Waits until something completes, the peer has finished, or `until` has passed. The returned
    /// counts may all be 0.
    ///
    /// # Errors
    /// Returns an error if the peer failed, the connection broke, or nothing completed within the
    /// timeout.
    pub fn wait<W: Wire, P: Peer>(
        &mut self,
        wire: &mut W,
        peer: &P,
        until: Option<Instant>,
    ) -> Result<PollCounts> {
        let mut source = WireSource {
            wire,
            peer,
            solicited: self.solicited,
            timeout: self.timeout,
            stats: &mut self.stats,
        };
        let progress = self.wait_loop.wait(&mut source, until)?;
        if progress.is_some() {
            self.wait_loop.reset();
        }
        Ok(progress.unwrap_or_default())
    }
}

impl PollStats {
    #[inline]
    fn poll<W: Wire>(&mut self, wire: &mut W) -> Result<PollCounts> {
        let progress = wire.poll()?;
        if progress.completions > 0 {
            self.max_completions = self.max_completions.max(progress.completions);
            self.duplicates += u64::from(progress.duplicates);
            if let Some(counters) = &self.counters {
                if progress.sent > 0 {
                    counters.set_sent(progress.sent);
                }
                if progress.data > 0 {
                    counters.add_received(progress.data.into(), progress.bytes);
                }
            }
        }
        Ok(progress)
    }
}

/// A wire as the source of a wait loop.
struct WireSource<'a, W, P> {
    wire: &'a mut W,
    peer: &'a P,
    solicited: bool,
    timeout: Duration,
    stats: &'a mut PollStats,
}

impl<W: Wire, P: Peer> PollSource for WireSource<'_, W, P> {
    type Event = PollCounts;

    #[inline]
    fn poll(&mut self) -> Result<Option<PollCounts>> {
        let progress = self.stats.poll(self.wire)?;
        Ok((progress.completions > 0).then_some(progress))
    }

    fn block(&mut self, limit: Duration) -> Result<Option<PollCounts>> {
        if let Some(progress) = self.poll()? {
            return Ok(Some(progress));
        }
        self.wire.arm(self.solicited)?;
        // A completion that arrived before `arm` does not cause an event.
        if let Some(progress) = self.poll()? {
            return Ok(Some(progress));
        }
        self.wire.sleep(limit)?;
        self.poll()
    }

    #[cold]
    fn check(&mut self, idle: Range<Instant>) -> Result<()> {
        if let Some(failure) = self.peer.failure() {
            return Err(failure);
        }
        self.wire.check(idle.end)?;
        let length = idle.end - idle.start;
        let longest = self.stats.silence.as_ref().map(|s| s.end - s.start);
        if self.stats.max_completions > 0 && length > longest.unwrap_or_default() {
            self.stats.silence = Some(idle);
        }
        // Heartbeats show that the peer is still at work if no data needs to arrive.
        let no_heartbeat = || self.peer.silence().is_none_or(|s| s >= self.timeout);
        if length >= self.timeout && no_heartbeat() {
            return Err(Error::test(format!(
                "nothing arrived from the peer for {}",
                show_time(self.timeout)
            ))
            .with_help(
                "check that the peer is still running and the link is up; --timeout (-to) sets this time",
            ));
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.peer.finished().is_some()
    }
}
