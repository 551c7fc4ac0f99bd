//! Makes intervals and stalls of what a lane says now and then. Times are in nanoseconds since the
//! clock started.

use super::interval::{Dip, DipKind, Interval, dips, is_stall};
use super::thread_counters::CounterSnapshot;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct SamplerConfig {
    /// Latencies count, else bytes.
    pub(super) latency: bool,
    /// Bytes of a message that was sent.
    pub(super) size: u64,
    /// How long an interval is.
    pub(super) interval: u64,
    /// When the clock stops, where that is known.
    pub(super) until: u64,
    /// With how many messages it stops, of both directions where both are data.
    pub(super) all: u64,
}

impl SamplerConfig {
    /// The messages that count.
    pub(super) fn moved(&self, counts: CounterSnapshot) -> u64 {
        if self.latency {
            counts.samples
        } else {
            counts.sent.saturating_add(counts.received)
        }
    }
}

/// Intervals and stalls so far.
#[derive(Debug)]
pub(super) struct Sampler {
    config: SamplerConfig,
    from: u64,
    at: CounterSnapshot,
    /// The same of the interval before.
    before: (u64, CounterSnapshot),
    next: u64,
    /// Messages when they last changed, when that was seen, and how often they did.
    seen: u64,
    since: u64,
    changes: u64,
    /// All so far.
    intervals: Vec<Interval>,
    stalls: Vec<Dip>,
}

impl Sampler {
    /// Begins with what the lane says when the clock starts.
    pub(super) fn new(config: SamplerConfig, at: CounterSnapshot) -> Self {
        let seen = config.moved(at);
        let (intervals, stalls) = (Vec::new(), Vec::new());
        Self {
            config,
            from: 0,
            at,
            before: (0, at),
            next: config.interval,
            seen,
            since: 0,
            changes: 0,
            intervals,
            stalls,
        }
    }

    /// When the running interval ends.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Takes a look; returns the interval that has ended by now, if one has. `longest` is asked
    /// only then.
    pub(super) fn sample(
        &mut self,
        now: u64,
        counts: CounterSnapshot,
        longest: impl FnOnce() -> u64,
    ) -> Option<Interval> {
        let now = now.min(self.config.until);
        self.listen(now, self.config.moved(counts));
        let through = self.config.moved(counts) >= self.config.all;
        if through {
            self.config.until = now;
        }
        if (now < self.next && !through) || now <= self.from {
            return None;
        }
        // Whoever was kept from looking for long goes on with the interval that runs now.
        self.next = (now / self.config.interval + 1).saturating_mul(self.config.interval);
        Some(self.close(now, counts, longest()))
    }

    /// The clock stopped at `now`: the last interval, if anything is in it, and all of them.
    pub(super) fn end(
        mut self,
        now: u64,
        counts: CounterSnapshot,
        longest: u64,
    ) -> (Option<Interval>, Vec<Interval>, Vec<Dip>) {
        let now = now.min(self.config.until);
        self.listen(now, self.config.moved(counts));
        self.silence(now);
        let more = self.config.moved(counts) > self.config.moved(self.at);
        let short = now.saturating_sub(self.from) <= self.config.interval / 20;
        let last = if more && !short {
            Some(self.close(now, counts, longest))
        } else {
            None
        };
        if more && short {
            // A moment is no interval: it belongs to the one before, which was told already.
            let before = self.intervals.pop().unwrap_or_default();
            if before.to > 0 {
                (self.from, self.at) = self.before;
            }
            let longest = longest.max(before.latency_max.unwrap_or(0));
            self.close(now.max(before.to).max(self.from + 1), counts, longest);
        }
        self.stalls.retain(|stall| stall.from < now);
        // Where the end was seen late: nothing is beyond it. (What several threads moved may be, as
        // each starts its own clock.)
        while self
            .intervals
            .last()
            .is_some_and(|interval| interval.from >= now && interval.msgs == 0)
        {
            self.intervals.pop();
        }
        let mut all = dips(&self.intervals);
        all.extend(self.stalls);
        all.sort_by_key(|dip| dip.from);
        (last, self.intervals, all)
    }

    fn close(&mut self, now: u64, counts: CounterSnapshot, longest: u64) -> Interval {
        let before = std::mem::replace(&mut self.at, counts);
        self.before = (self.from, before);
        let msgs = self
            .config
            .moved(counts)
            .saturating_sub(self.config.moved(before));
        let sent = counts
            .sent
            .saturating_sub(before.sent)
            .saturating_mul(self.config.size);
        let bytes = sent.saturating_add(counts.bytes.saturating_sub(before.bytes));
        let mut interval = Interval {
            from: self.from,
            to: now,
            msgs,
            bytes,
            ..Interval::default()
        };
        #[allow(clippy::cast_precision_loss)] // Counts and nanoseconds below 2^53.
        if !self.config.latency {
            interval.bandwidth = Some(bytes as f64 * 1e9 / interval.nanos().max(1) as f64);
        } else if msgs > 0 {
            interval.latency_mean =
                Some(counts.nanos.saturating_sub(before.nanos) as f64 / msgs as f64);
            interval.latency_max = Some(longest);
        }
        self.from = now;
        self.intervals.push(interval);
        interval
    }

    /// Whether anything moved since the last look.
    fn listen(&mut self, now: u64, msgs: u64) {
        if msgs == self.seen {
            return;
        }
        self.silence(now);
        (self.seen, self.since) = (msgs, now);
        self.changes += 1;
    }

    /// A silence ended: it was a stall if it was long.
    fn silence(&mut self, now: u64) {
        // Before the first completion there is nothing to compare with.
        let usual = self.since.checked_div(self.changes).unwrap_or(u64::MAX);
        if is_stall(now.saturating_sub(self.since), usual) {
            self.stalls.push(Dip {
                kind: DipKind::Stall,
                from: self.since,
                to: now,
                share: 0.0,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn sampler(latency: bool) -> Sampler {
        Sampler::new(
            SamplerConfig {
                latency,
                size: 10,
                interval: 1000 * MS,
                until: 4000 * MS,
                all: u64::MAX,
            },
            CounterSnapshot::default(),
        )
    }

    fn sent(n: u64) -> CounterSnapshot {
        CounterSnapshot {
            sent: n,
            ..CounterSnapshot::default()
        }
    }

    #[test]
    fn bytes_of_both_directions_are_the_bandwidth() {
        let mut s = sampler(false);
        assert_eq!(s.sample(20 * MS, sent(5), || 0), None);
        let first = s
            .sample(
                1000 * MS,
                CounterSnapshot {
                    sent: 50,
                    received: 20,
                    bytes: 200,
                    ..CounterSnapshot::default()
                },
                || 0,
            )
            .unwrap();
        assert_eq!(
            (first.from, first.to, first.msgs, first.bytes),
            (0, 1000 * MS, 70, 700)
        );
        assert_eq!(first.bandwidth, Some(700.0));
    }

    #[test]
    fn a_late_look_makes_a_long_interval_and_no_empty_ones() {
        let mut s = sampler(false);
        let first = s.sample(2300 * MS, sent(23), || 0).unwrap();
        assert_eq!((first.to, first.bandwidth), (2300 * MS, Some(100.0)));
        assert_eq!(s.next(), 3000 * MS);
        // The clock stopped at 4 s, whenever that is seen.
        let (last, all, _) = {
            s.sample(3000 * MS, sent(30), || 0);
            s.end(4500 * MS, sent(40), 0)
        };
        assert_eq!((last.unwrap().to, all.len()), (4000 * MS, 3));
    }

    #[test]
    fn nothing_is_after_the_last_message() {
        let mut s = sampler(false);
        s.config.all = 30;
        s.sample(20 * MS, sent(10), || 0);
        assert_eq!(
            s.sample(40 * MS, sent(30), || 0)
                .map(|i| (i.from, i.to, i.msgs)),
            Some((0, 40 * MS, 30))
        );
        assert_eq!(s.sample(3000 * MS, sent(30), || 0), None);
        let (last, all, dips) = s.end(39 * MS, sent(30), 0);
        assert_eq!((last, all.len(), dips), (None, 1, vec![]));
    }

    #[test]
    fn a_moment_at_the_end_belongs_to_the_interval_before() {
        let mut s = sampler(false);
        s.sample(1000 * MS, sent(10), || 0);
        s.sample(2000 * MS, sent(20), || 0);
        // The test's own clock may even have stopped a little earlier than the watcher's look.
        for end in [2000 * MS - 5, 2001 * MS] {
            let mut s = Sampler {
                intervals: s.intervals.clone(),
                stalls: Vec::new(),
                ..s
            };
            s.at = sent(20);
            let (last, all, _) = s.end(end, sent(23), 0);
            assert_eq!(
                (last, all.len(), all[1].from, all[1].msgs),
                (None, 2, 1000 * MS, 13)
            );
            assert_eq!(all[1].to, end.max(2000 * MS));
        }
    }

    #[test]
    fn silence_is_a_stall() {
        let mut s = sampler(false);
        for n in 1..=50 {
            s.sample(n * 20 * MS, sent(n), || 0);
        }
        s.sample(1500 * MS, sent(51), || 0);
        let (_, _, dips) = s.end(1520 * MS, sent(52), 0);
        assert_eq!(
            dips,
            [Dip {
                kind: DipKind::Stall,
                from: 1000 * MS,
                to: 1500 * MS,
                share: 0.0
            }]
        );
    }

    #[test]
    fn messages_that_take_long_are_no_stalls() {
        let mut s = sampler(false);
        for n in 1..=9 {
            s.sample(n * 400 * MS, sent(n), || 0);
        }
        assert_eq!(s.end(4000 * MS, sent(10), 0).2, []);
    }

    #[test]
    fn latencies_have_a_mean_and_a_longest() {
        let mut s = sampler(true);
        let counts = CounterSnapshot {
            samples: 4,
            nanos: 400,
            ..CounterSnapshot::default()
        };
        let first = s.sample(1000 * MS, counts, || 170).unwrap();
        assert_eq!(
            (
                first.msgs,
                first.latency_mean,
                first.latency_max,
                first.bandwidth
            ),
            (4, Some(100.0), Some(170), None)
        );
        let second = s.sample(2000 * MS, counts, || 0).unwrap();
        assert_eq!(
            (second.msgs, second.latency_mean, second.latency_max),
            (0, None, None)
        );
    }
}
