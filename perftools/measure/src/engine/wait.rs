//! Waiting for completions of a [`DataPath`]: its source for the [`WaitLoop`], and the statistics of
//! polling.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::units::show_time;

use super::wait_loop::{PollSource, WaitLoop};
use super::{DataPath, DataPathCounts, Peer};
use crate::spec::Side;
use crate::stats::thread_counters::ThreadCounters;

/// Waits for completions, and returns an error if none arrive within the timeout.
#[derive(Debug)]
pub struct Waiter {
    wait_loop: WaitLoop,
    /// Only a message sent with the solicited-event flag wakes a sleeping wait.
    solicited: bool,
    timeout: Duration,
    waits: u32,
    stats: PollStats,
}

/// Waits between checks of the peer. A peer that sends without a pause must not keep this end from
/// noticing that the control connection ended.
const WAITS_PER_CHECK: u32 = 64;

/// Statistics of the polls of a thread.
#[derive(Debug, Default)]
struct PollStats {
    /// Longest observed time without a completion after the first completion.
    silence: Option<Range<Instant>>,
    max_completions: u32,
    counters: Option<Arc<ThreadCounters>>,
}

impl Waiter {
    /// Creates a waiter with the mode and timeout of `side`, for a latency test or for a bandwidth
    /// test.
    pub(crate) fn new(side: &Side, latency: bool) -> Self {
        Self {
            wait_loop: WaitLoop::new(side.wait, latency),
            solicited: false,
            timeout: side.timeout,
            waits: 0,
            stats: PollStats::default(),
        }
    }

    /// Sets the counters that are updated while the test runs.
    #[must_use]
    pub(crate) fn with_counters(mut self, counters: Option<Arc<ThreadCounters>>) -> Self {
        self.stats.counters = counters;
        self
    }

    /// Sets if only messages sent with the solicited-event flag wake a sleeping wait.
    #[must_use]
    pub(crate) fn solicited(self, solicited: bool) -> Self {
        Self { solicited, ..self }
    }

    /// Returns the largest number of completions that one poll returned.
    pub(crate) fn max_completions(&self) -> u32 {
        self.stats.max_completions
    }

    /// Returns the longest observed time without a completion after the first completion.
    pub(crate) fn silence(&self) -> Option<Range<Instant>> {
        self.stats.silence.clone()
    }

    /// Polls once without waiting, and returns the number of completions.
    #[inline]
    pub(crate) fn poll<W: DataPath>(&mut self, data_path: &mut W) -> Result<u32> {
        let completions = self.stats.poll(data_path)?;
        if completions > 0 {
            self.wait_loop.reset();
        }
        Ok(completions)
    }

    /// Waits until something completes, the peer has finished, or `until` has passed. Returns the
    /// number of completions, which may be 0.
    #[inline]
    pub(crate) fn wait<W: DataPath, P: Peer>(
        &mut self,
        data_path: &mut W,
        peer: &P,
        until: Option<Instant>,
    ) -> Result<u32> {
        let completions = self.poll(data_path)?;
        self.waits = self.waits.wrapping_add(1);
        if completions > 0 && self.waits % WAITS_PER_CHECK > 0 {
            return Ok(completions);
        }
        self.wait_longer(data_path, peer, until, completions)
    }

    /// Continues a wait whose first poll returned `completions`.
    #[cold]
    #[inline(never)]
    fn wait_longer<W: DataPath, P: Peer>(
        &mut self,
        data_path: &mut W,
        peer: &P,
        until: Option<Instant>,
        completions: u32,
    ) -> Result<u32> {
        let mut source = DataPathSource {
            data_path,
            peer,
            solicited: self.solicited,
            timeout: self.timeout,
            stats: &mut self.stats,
        };
        if completions > 0 {
            let now = Instant::now();
            source.check(now..now)?;
            return Ok(completions);
        }
        let completions = self.wait_loop.wait(&mut source, until)?;
        if completions.is_some() {
            self.wait_loop.reset();
        }
        Ok(completions.unwrap_or(0))
    }
}

impl PollStats {
    #[inline]
    fn poll<W: DataPath>(&mut self, data_path: &mut W) -> Result<u32> {
        let completions = data_path.poll()?;
        if completions > 0 {
            self.max_completions = self.max_completions.max(completions);
            if let Some(counters) = &self.counters {
                let DataPathCounts { sent, arrived, .. } = *data_path.counts();
                counters.set_sent(sent);
                counters.set_received(arrived);
            }
        }
        Ok(completions)
    }
}

/// A data path as the source of a wait loop.
struct DataPathSource<'a, W, P> {
    data_path: &'a mut W,
    peer: &'a P,
    solicited: bool,
    timeout: Duration,
    stats: &'a mut PollStats,
}

impl<W: DataPath, P: Peer> PollSource for DataPathSource<'_, W, P> {
    type Event = u32;

    #[inline]
    fn poll(&mut self) -> Result<Option<u32>> {
        let completions = self.stats.poll(self.data_path)?;
        Ok((completions > 0).then_some(completions))
    }

    fn block(&mut self, limit: Duration) -> Result<Option<u32>> {
        self.data_path.arm(self.solicited)?;
        // A completion that arrived before `arm` does not cause an event.
        if let Some(completions) = self.poll()? {
            return Ok(Some(completions));
        }
        self.data_path.sleep(limit)?;
        self.poll()
    }

    #[cold]
    fn check(&mut self, idle: Range<Instant>) -> Result<()> {
        if let Some(failure) = self.peer.failure() {
            return Err(failure);
        }
        self.data_path.check(idle.end)?;
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
