//! Watches a test from a thread of its own: intervals, stalls, and how far it has come.
//!
//! The loops that are timed only count, each on a [`ThreadCounters`] of its own; they make no
//! system call and read no clock for this.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::interval::{Dip, Interval};
use super::sampler::{Sampler, SamplerConfig};
use super::thread_counters::{self, CounterSnapshot, ThreadCounters};

/// How often the watcher looks for silence.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Every so many looks it tells how far the test is.
const TELL_EVERY: u32 = 10;

/// How far a test has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// The share that is done, from 0 to 1.
    pub done: f64,
    /// Bytes a second since the last word, in a test of bandwidth.
    pub bandwidth: Option<f64>,
    /// Mean latency since the last word, in nanoseconds.
    pub latency: Option<f64>,
}

/// Who is told how a test goes, from another thread than the one that is timed.
pub trait Observer: Sync {
    /// An interval has ended.
    fn interval(&self, interval: &Interval);

    /// The test goes on; several times a second.
    fn progress(&self, progress: &Progress);
}

/// How tests are watched.
#[derive(Clone, Copy, Default)]
pub struct MonitorOptions<'a> {
    /// How long an interval is; none: there are none.
    pub interval: Option<Duration>,
    /// Who is told.
    pub observer: Option<&'a dyn Observer>,
}

impl std::fmt::Debug for MonitorOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

/// What is watched.
#[derive(Clone, Copy, Debug)]
pub struct TestInfo {
    /// Latencies count, else bytes.
    pub latency: bool,
    /// Bytes of a message that is sent.
    pub size: u64,
    /// Time before anything counts.
    pub warm_up: Duration,
    /// How long it goes on from there, where that is by time.
    pub time: Option<Duration>,
    /// How many messages it goes on for, of both directions where both are data, where that is by
    /// count.
    pub messages: Option<u64>,
    /// How many threads run it.
    pub threads: u32,
}

#[derive(Debug, Default)]
struct State {
    over: bool,
    sampler: Option<Sampler>,
}

/// One test that is watched.
#[derive(Debug)]
pub struct Monitor<'a> {
    options: MonitorOptions<'a>,
    info: TestInfo,
    counters: Vec<Arc<ThreadCounters>>,
    /// When the clock starts: after the warm-up.
    start: OnceLock<Instant>,
    state: Mutex<State>,
    changed: Condvar,
}

/// What was seen of a test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MonitorResult {
    /// Its intervals.
    pub intervals: Vec<Interval>,
    /// What stands out.
    pub dips: Vec<Dip>,
}

impl<'a> Monitor<'a> {
    /// Will watch a test.
    pub fn new(options: MonitorOptions<'a>, info: TestInfo) -> Self {
        Self {
            options,
            info,
            counters: (0..info.threads).map(|_| Arc::default()).collect(),
            start: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Where each thread of the test counts; none where nobody wants to know.
    pub fn counters(&self) -> Vec<Arc<ThreadCounters>> {
        if self.is_on() {
            self.counters.clone()
        } else {
            Vec::new()
        }
    }

    fn is_on(&self) -> bool {
        self.options.interval.is_some() || self.options.observer.is_some()
    }

    /// The test begins now.
    pub fn begin(&self) {
        let _ = self.start.set(Instant::now() + self.info.warm_up);
        self.changed.notify_all();
    }

    /// Runs a test, which calls [`Monitor::begin`], and watches it.
    pub fn during<T>(&self, test: impl FnOnce() -> T) -> T {
        if !self.is_on() {
            return test();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| self.sample());
            let _over = StopOnDrop(self);
            test()
        })
    }

    /// What was seen, of a test whose clock ran for so long.
    pub fn seen(&self, nanos: u64) -> MonitorResult {
        let Some(sampler) = self
            .state()
            .sampler
            .take()
            .filter(|_| self.options.interval.is_some())
        else {
            return MonitorResult::default();
        };
        let (last, intervals, dips) = sampler.end(
            nanos,
            thread_counters::counts(&self.counters),
            thread_counters::longest(&self.counters),
        );
        if let (Some(last), Some(observer)) = (last, self.options.observer) {
            observer.interval(&last);
        }
        MonitorResult { intervals, dips }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config(&self) -> SamplerConfig {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        SamplerConfig {
            latency: self.info.latency,
            size: self.info.size,
            interval: self.options.interval.map_or(u64::MAX, nanos).max(1),
            until: self.info.time.map_or(u64::MAX, nanos),
            all: self.info.messages.unwrap_or(u64::MAX),
        }
    }

    /// The watcher's thread.
    fn sample(&self) {
        let mut looks = 0_u32;
        let mut told = (0, CounterSnapshot::default());
        let mut state = self.state();
        while !state.over {
            let mut nap = LOOK_EVERY;
            let begun = self.start.get().map(|start| (*start, Instant::now()));
            if let Some((start, now)) = begun.filter(|(start, now)| now < start) {
                // The clock starts exactly when the warm-up ends.
                nap = start - now;
            } else if let Some((start, now)) = begun {
                let now = u64::try_from((now - start).as_nanos()).unwrap_or(u64::MAX);
                let counts = thread_counters::counts(&self.counters);
                let base = if self.info.warm_up.is_zero() {
                    CounterSnapshot::default()
                } else {
                    counts
                };
                let sampler = state
                    .sampler
                    .get_or_insert_with(|| Sampler::new(self.config(), base));
                let ended =
                    sampler.sample(now, counts, || thread_counters::longest(&self.counters));
                nap = nap.min(Duration::from_nanos(
                    sampler.next().saturating_sub(now).max(1000),
                ));
                looks += 1;
                if let Some(observer) = self.options.observer {
                    drop(state);
                    if let Some(interval) = ended {
                        observer.interval(&interval);
                    }
                    if looks % TELL_EVERY == 0 {
                        observer.progress(&self.progress(now, counts, told));
                        told = (now, counts);
                    }
                    state = self.state();
                }
            }
            if !state.over {
                state = self
                    .changed
                    .wait_timeout(state, nap)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
    }

    #[allow(clippy::cast_precision_loss)] // Counts and nanoseconds below 2^53.
    fn progress(
        &self,
        now: u64,
        counts: CounterSnapshot,
        (before, told): (u64, CounterSnapshot),
    ) -> Progress {
        let share = |done: u64, all: u64| (done as f64 / all.max(1) as f64).clamp(0.0, 1.0);
        let config = self.config();
        let msgs = config.moved(counts);
        let done = match (self.info.time, self.info.messages) {
            (Some(_), _) => share(now, config.until),
            (None, Some(all)) => share(msgs, all),
            (None, None) => 0.0,
        };
        let samples = counts.samples.saturating_sub(told.samples);
        let bytes = counts.sent.saturating_sub(told.sent) as f64 * config.size as f64
            + counts.bytes.saturating_sub(told.bytes) as f64;
        Progress {
            done,
            // What moves may not be seen here: a peer that writes to memory, or reads it.
            bandwidth: (!config.latency && msgs > 0)
                .then(|| bytes * 1e9 / now.saturating_sub(before).max(1) as f64),
            latency: (samples > 0)
                .then(|| counts.nanos.saturating_sub(told.nanos) as f64 / samples as f64),
        }
    }
}

/// Ends the watcher, however the test ends.
struct StopOnDrop<'a, 'w>(&'a Monitor<'w>);

impl Drop for StopOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.state().over = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lines(Mutex<(Vec<Interval>, u32)>);

    impl Observer for Lines {
        fn interval(&self, interval: &Interval) {
            self.0.lock().unwrap().0.push(*interval);
        }

        fn progress(&self, progress: &Progress) {
            assert!(
                (0.0..=1.0).contains(&progress.done) && progress.bandwidth.is_some(),
                "{progress:?}"
            );
            self.0.lock().unwrap().1 += 1;
        }
    }

    fn info() -> TestInfo {
        let time = Some(Duration::from_millis(600));
        TestInfo {
            latency: false,
            size: 100,
            warm_up: Duration::ZERO,
            time,
            messages: None,
            threads: 2,
        }
    }

    #[test]
    fn all_that_was_counted_is_in_an_interval() {
        let lines = Lines(Mutex::default());
        let options = MonitorOptions {
            interval: Some(Duration::from_millis(100)),
            observer: Some(&lines),
        };
        let monitor = Monitor::new(options, info());
        let counters = monitor.counters();
        let start = Instant::now();
        let sent = monitor.during(|| {
            monitor.begin();
            let mut sent = 0_u64;
            while start.elapsed() < Duration::from_millis(550) {
                sent += 1;
                // One by one on the two lanes, each of which says its own total.
                counters[usize::from(sent % 2 == 0)].sent(sent.div_ceil(2));
                std::thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        let seen = monitor.seen(u64::try_from(start.elapsed().as_nanos()).unwrap());
        assert_eq!(
            seen.intervals.iter().map(|i| i.msgs).sum::<u64>(),
            sent,
            "{seen:?}"
        );
        assert!(
            seen.intervals
                .windows(2)
                .all(|pair| pair[0].to == pair[1].from),
            "{seen:?}"
        );
        let told = lines.0.lock().unwrap();
        assert_eq!(told.0, seen.intervals);
        assert!(told.1 >= 1);
    }

    #[test]
    fn unwatched_tests_have_no_thread_and_no_lane() {
        let monitor = Monitor::new(MonitorOptions::default(), info());
        assert!(monitor.counters().is_empty());
        assert_eq!(monitor.during(|| 5), 5);
        assert_eq!(monitor.seen(1), MonitorResult::default());
    }
}
