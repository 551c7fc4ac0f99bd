//! Derives intervals and stalls from periodic samples of the counters. Times are in nanoseconds
//! since the start of the measurement.

use super::interval::{Dip, DipKind, Interval, find_dips, is_stall};
use super::thread_counters::CounterSnapshot;

/// Properties of the test that is sampled.
#[derive(Clone, Copy, Debug)]
pub(super) struct SamplerConfig {
    /// `true` for a latency test, `false` for a bandwidth test.
    pub(super) latency: bool,
    /// The client counts the messages of both directions.
    pub(super) both_ways: bool,
    /// Size of a sent message in bytes.
    pub(super) size: u64,
    /// Length of an interval.
    pub(super) interval: u64,
    /// End of the measurement; `u64::MAX` if unknown.
    pub(super) end: u64,
    /// Number of messages that ends the test; `u64::MAX` if unlimited. A bidirectional test counts
    /// both directions.
    pub(super) messages: u64,
    /// Time between two completions that the rate limit of the user causes.
    pub(super) usual_gap: u64,
}

impl SamplerConfig {
    /// Returns the number of messages: latency samples, or messages of both directions.
    pub(super) fn count_messages(&self, counters: CounterSnapshot) -> u64 {
        if self.latency {
            counters.samples
        } else {
            counters.sent.saturating_add(counters.received)
        }
    }
}

/// Intervals and stalls found so far.
#[derive(Debug)]
pub(super) struct Sampler {
    config: SamplerConfig,
    /// Start of the open interval.
    from: u64,
    /// Counters at the start of the open interval.
    base: CounterSnapshot,
    /// Start of the previous interval, and the counters at that time.
    previous: (u64, CounterSnapshot),
    next_end: u64,
    /// Number of messages at the last sample in which it changed.
    last_messages: u64,
    /// Time of that sample.
    last_change: u64,
    /// Number of samples in which the number of messages changed.
    changes: u64,
    intervals: Vec<Interval>,
    stalls: Vec<Dip>,
}

impl Sampler {
    /// Creates a sampler from the counters at the start of the measurement.
    pub(super) fn new(config: SamplerConfig, base: CounterSnapshot) -> Self {
        Self {
            config,
            from: 0,
            base,
            previous: (0, base),
            next_end: config.interval,
            last_messages: config.count_messages(base),
            last_change: 0,
            changes: 0,
            intervals: Vec::new(),
            stalls: Vec::new(),
        }
    }

    /// Returns the time at which the open interval ends.
    pub(super) fn next_end(&self) -> u64 {
        self.next_end
    }

    /// Adds a sample. Returns the interval that it closes, if any. Only then `take_max_latency` is
    /// called.
    pub(super) fn sample(
        &mut self,
        now: u64,
        counters: CounterSnapshot,
        take_max_latency: impl FnOnce() -> u64,
    ) -> Option<Interval> {
        let now = now.min(self.config.end);
        let messages = self.config.count_messages(counters);
        self.note_messages(now, messages);
        let finished = messages >= self.config.messages;
        if finished {
            self.config.end = now;
        }
        if (now < self.next_end && !finished) || now <= self.from {
            return None;
        }
        // A sample that is late by several intervals closes one long interval.
        self.next_end = (now / self.config.interval + 1).saturating_mul(self.config.interval);
        Some(self.close(now, counters, take_max_latency()))
    }

    /// Ends the measurement at `now`. Returns the interval that this closes, if any; all intervals;
    /// and the dips and stalls among them.
    pub(super) fn finish(
        mut self,
        now: u64,
        counters: CounterSnapshot,
        max_latency: u64,
    ) -> (Option<Interval>, Vec<Interval>, Vec<Dip>) {
        let now = now.min(self.config.end);
        let messages = self.config.count_messages(counters);
        self.note_messages(now, messages);
        self.end_gap(now);
        let has_messages = messages > self.config.count_messages(self.base);
        let is_short = now.saturating_sub(self.from) <= self.config.interval / 20;
        let last = if has_messages && !is_short {
            Some(self.close(now, counters, max_latency))
        } else {
            None
        };
        if has_messages && is_short {
            // Figures of so short an interval would be meaningless. Its messages are added to the
            // previous interval, although the observer has already received that one.
            let extended = self.intervals.pop().unwrap_or_default();
            if extended.to > 0 {
                (self.from, self.base) = self.previous;
            }
            let max_latency = max_latency.max(extended.latency_max.unwrap_or(0));
            self.close(
                now.max(extended.to).max(self.from + 1),
                counters,
                max_latency,
            );
        }
        self.stalls.retain(|stall| stall.from < now);
        // The monitor may notice the end late and close empty intervals after it. Intervals with
        // messages stay: each thread has its own clock and may end a little later.
        while self
            .intervals
            .last()
            .is_some_and(|interval| interval.from >= now && interval.msgs == 0)
        {
            self.intervals.pop();
        }
        let mut dips = find_dips(&self.intervals);
        dips.extend(self.stalls);
        dips.sort_by_key(|dip| dip.from);
        (last, self.intervals, dips)
    }

    /// Closes the open interval and opens the next one.
    fn close(&mut self, now: u64, counters: CounterSnapshot, max_latency: u64) -> Interval {
        let base = std::mem::replace(&mut self.base, counters);
        self.previous = (self.from, base);
        let msgs = self
            .config
            .count_messages(counters)
            .saturating_sub(self.config.count_messages(base));
        let sent_bytes = counters
            .sent
            .saturating_sub(base.sent)
            .saturating_mul(self.config.size);
        let received_bytes = counters.bytes.saturating_sub(base.bytes);
        let bytes = sent_bytes.saturating_add(received_bytes);
        let mut interval = Interval {
            from: self.from,
            to: now,
            msgs,
            bytes,
            ..Interval::default()
        };
        #[allow(clippy::cast_precision_loss)] // Counts and nanoseconds below 2^53.
        if !self.config.latency {
            let nanos = interval.nanos().max(1) as f64;
            let rate = |bytes: u64| Some(bytes as f64 * 1e9 / nanos);
            interval.bandwidth = rate(bytes);
            if self.config.both_ways {
                interval.to_server = rate(sent_bytes);
                interval.to_client = rate(received_bytes);
            }
        } else if msgs > 0 {
            interval.latency_mean =
                Some(counters.nanos.saturating_sub(base.nanos) as f64 / msgs as f64);
            interval.latency_max = Some(max_latency);
        }
        self.from = now;
        self.intervals.push(interval);
        interval
    }

    /// Notes the number of messages. A change ends the gap between completions.
    fn note_messages(&mut self, now: u64, messages: u64) {
        if messages == self.last_messages {
            return;
        }
        self.end_gap(now);
        (self.last_messages, self.last_change) = (messages, now);
        self.changes += 1;
    }

    /// Ends a gap between completions. A gap much longer than the mean so far is a stall.
    fn end_gap(&mut self, now: u64) {
        // There is no mean before the first completion, so the first gap is never a stall.
        let mean_gap = self
            .last_change
            .checked_div(self.changes)
            .unwrap_or(u64::MAX)
            .max(self.config.usual_gap);
        if is_stall(now.saturating_sub(self.last_change), mean_gap) {
            self.stalls.push(Dip {
                kind: DipKind::Stall,
                from: self.last_change,
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
                both_ways: false,
                size: 10,
                interval: 1000 * MS,
                end: 4000 * MS,
                messages: u64::MAX,
                usual_gap: 0,
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
    fn bandwidth_counts_both_directions() {
        let mut s = sampler(false);
        s.config.both_ways = true;
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
        assert_eq!(
            (first.to_server, first.to_client),
            (Some(500.0), Some(200.0))
        );
    }

    #[test]
    fn a_late_sample_closes_one_long_interval() {
        let mut s = sampler(false);
        let first = s.sample(2300 * MS, sent(23), || 0).unwrap();
        assert_eq!((first.to, first.bandwidth), (2300 * MS, Some(100.0)));
        assert_eq!(s.next_end(), 3000 * MS);
        // The measurement ended at 4 s, although it is noticed only at 4.5 s.
        let (last, all, _) = {
            s.sample(3000 * MS, sent(30), || 0);
            s.finish(4500 * MS, sent(40), 0)
        };
        assert_eq!((last.unwrap().to, all.len()), (4000 * MS, 3));
    }

    #[test]
    fn no_interval_follows_the_last_message() {
        let mut s = sampler(false);
        s.config.messages = 30;
        s.sample(20 * MS, sent(10), || 0);
        assert_eq!(
            s.sample(40 * MS, sent(30), || 0)
                .map(|i| (i.from, i.to, i.msgs)),
            Some((0, 40 * MS, 30))
        );
        assert_eq!(s.sample(3000 * MS, sent(30), || 0), None);
        let (last, all, dips) = s.finish(39 * MS, sent(30), 0);
        assert_eq!((last, all.len(), dips), (None, 1, vec![]));
    }

    #[test]
    fn a_very_short_last_interval_extends_the_previous_one() {
        let mut s = sampler(false);
        s.sample(1000 * MS, sent(10), || 0);
        s.sample(2000 * MS, sent(20), || 0);
        // The clock of the test may stop slightly before the last sample.
        for end in [2000 * MS - 5, 2001 * MS] {
            let mut s = Sampler {
                intervals: s.intervals.clone(),
                stalls: Vec::new(),
                ..s
            };
            s.base = sent(20);
            let (last, all, _) = s.finish(end, sent(23), 0);
            assert_eq!(
                (last, all.len(), all[1].from, all[1].msgs),
                (None, 2, 1000 * MS, 13)
            );
            assert_eq!(all[1].to, end.max(2000 * MS));
        }
    }

    #[test]
    fn a_long_gap_between_completions_is_a_stall() {
        let mut s = sampler(false);
        for n in 1..=50 {
            s.sample(n * 20 * MS, sent(n), || 0);
        }
        s.sample(1500 * MS, sent(51), || 0);
        let (_, _, dips) = s.finish(1520 * MS, sent(52), 0);
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
    fn slow_messages_are_not_stalls() {
        let mut s = sampler(false);
        for n in 1..=9 {
            s.sample(n * 400 * MS, sent(n), || 0);
        }
        assert_eq!(s.finish(4000 * MS, sent(10), 0).2, []);
    }

    #[test]
    fn latency_intervals_have_a_mean_and_a_maximum() {
        let mut s = sampler(true);
        let counters = CounterSnapshot {
            samples: 4,
            nanos: 400,
            ..CounterSnapshot::default()
        };
        let first = s.sample(1000 * MS, counters, || 170).unwrap();
        assert_eq!(
            (
                first.msgs,
                first.latency_mean,
                first.latency_max,
                first.bandwidth
            ),
            (4, Some(100.0), Some(170), None)
        );
        let second = s.sample(2000 * MS, counters, || 0).unwrap();
        assert_eq!(
            (second.msgs, second.latency_mean, second.latency_max),
            (0, None, None)
        );
    }
}
