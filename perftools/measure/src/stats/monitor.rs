//! Monitors a running test from a thread of its own: intervals, stalls and progress.
//!
//! Monitoring adds neither system calls nor clock reads to the measured loops. They only update
//! [`ThreadCounters`], one per thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use base::error::Result;
use base::threads::spawn_scoped;

use super::interval::{Dip, Interval};
use super::sampler::{Sampler, SamplerConfig};
use super::thread_counters::{self, CounterSnapshot, ThreadCounters};

/// Time between two samples of the counters.
const SAMPLE_PERIOD: Duration = Duration::from_millis(20);
/// Number of samples between two progress reports.
const SAMPLES_PER_REPORT: u32 = 10;

/// Progress of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Completed share of the test, from 0 to 1.
    pub done: f64,
    /// Bandwidth since the previous report in bytes per second. `None` in a latency test, and
    /// before the first completion.
    pub bandwidth: Option<f64>,
    /// Mean latency since the previous report in nanoseconds. `None` if no latency was recorded.
    pub latency: Option<f64>,
}

/// Receives intervals and progress of a running test, on the thread of the monitor.
pub trait Observer: Sync {
    /// Called at the end of each interval.
    fn interval(&self, interval: &Interval);

    /// Called several times per second.
    fn progress(&self, progress: &Progress);
}

/// Options of a [`Monitor`]. The default monitors nothing.
#[derive(Clone, Copy, Default)]
pub struct MonitorOptions<'a> {
    /// Length of an interval. `None` records no intervals.
    pub interval: Option<Duration>,
    /// Observer of the test.
    pub observer: Option<&'a dyn Observer>,
}

impl std::fmt::Debug for MonitorOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MonitorOptions")
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

/// Properties of the test that is monitored.
#[derive(Clone, Copy, Debug)]
pub struct TestInfo {
    /// `true` for a latency test, `false` for a bandwidth test.
    pub latency: bool,
    /// The client counts the messages of both directions.
    pub both_ways: bool,
    /// Size of a sent message in bytes.
    pub size: u64,
    /// Length of the warm-up, which is not measured.
    pub warm_up: Duration,
    /// Length of the measurement, if the test is limited by time.
    pub time: Option<Duration>,
    /// Number of messages, if the test is limited by their number. A bidirectional test counts
    /// both directions.
    pub messages: Option<u64>,
    /// Number of threads that run the test.
    pub threads: u32,
    /// Time between two completions that the rate limit of the user causes.
    pub usual_gap: Duration,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    sampler: Option<Sampler>,
}

/// Monitor of one test.
#[derive(Debug)]
pub struct Monitor<'a> {
    options: MonitorOptions<'a>,
    info: TestInfo,
    counters: Vec<Arc<ThreadCounters>>,
    /// Start of the measurement: the end of the warm-up.
    start: OnceLock<Instant>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Intervals of a test, and the outliers among them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MonitorResult {
    /// All intervals.
    pub intervals: Vec<Interval>,
    /// Dips and stalls.
    pub dips: Vec<Dip>,
}

impl<'a> Monitor<'a> {
    /// Creates a monitor for one test.
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

    /// Returns the counters for the threads of the test. The list is empty if nothing is monitored.
    pub fn counters(&self) -> Vec<Arc<ThreadCounters>> {
        if self.is_enabled() {
            self.counters.clone()
        } else {
            Vec::new()
        }
    }

    fn is_enabled(&self) -> bool {
        self.options.interval.is_some() || self.options.observer.is_some()
    }

    /// Marks the start of the test's warm-up.
    pub fn start(&self) {
        let _ = self.start.set(Instant::now() + self.info.warm_up);
        self.changed.notify_all();
    }

    /// Runs a test and monitors it. The test must call [`Monitor::start`].
    pub fn run<T>(&self, test: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.is_enabled() {
            return test();
        }
        std::thread::scope(|scope| {
            spawn_scoped(scope, "monitor", || self.sample())?;
            let _stop = StopOnDrop(self);
            test()
        })
    }

    /// Closes the last interval of a test that was measured for `nanos` nanoseconds, and returns
    /// all intervals.
    pub fn finish(&self, nanos: u64) -> MonitorResult {
        let Some(sampler) = self
            .state()
            .sampler
            .take()
            .filter(|_| self.options.interval.is_some())
        else {
            return MonitorResult::default();
        };
        let (last, intervals, dips) = sampler.finish(
            nanos,
            thread_counters::snapshot(&self.counters),
            thread_counters::take_max_latency(&self.counters),
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
            both_ways: self.info.both_ways,
            size: self.info.size,
            interval: self.options.interval.map_or(u64::MAX, nanos).max(1),
            end: self.info.time.map_or(u64::MAX, nanos),
            messages: self.info.messages.unwrap_or(u64::MAX),
            usual_gap: nanos(self.info.usual_gap),
        }
    }

    /// Samples the counters until the test has ended. This is the body of the monitor's thread.
    fn sample(&self) {
        let mut samples = 0_u32;
        let mut reported = (0, CounterSnapshot::default());
        let mut state = self.state();
        while !state.stopped {
            let mut pause = SAMPLE_PERIOD;
            let started = self.start.get().map(|start| (*start, Instant::now()));
            if let Some((start, now)) = started.filter(|(start, now)| now < start) {
                // Take the first sample exactly at the end of the warm-up.
                pause = start - now;
            } else if let Some((start, now)) = started {
                let now = u64::try_from((now - start).as_nanos()).unwrap_or(u64::MAX);
                let counters = thread_counters::snapshot(&self.counters);
                // Without a warm-up, everything before the first sample belongs to the measurement.
                let base = if self.info.warm_up.is_zero() {
                    CounterSnapshot::default()
                } else {
                    counters
                };
                let sampler = state
                    .sampler
                    .get_or_insert_with(|| Sampler::new(self.config(), base));
                let closed = sampler.sample(now, counters, || {
                    thread_counters::take_max_latency(&self.counters)
                });
                let until_next = sampler.next_end().saturating_sub(now).max(1000);
                pause = pause.min(Duration::from_nanos(until_next));
                samples += 1;
                if let Some(observer) = self.options.observer {
                    // The observer may block on its output, so it runs without the lock.
                    drop(state);
                    if let Some(interval) = closed {
                        observer.interval(&interval);
                    }
                    if samples % SAMPLES_PER_REPORT == 0 {
                        observer.progress(&self.progress(now, counters, reported));
                        reported = (now, counters);
                    }
                    state = self.state();
                }
            }
            if !state.stopped {
                state = self
                    .changed
                    .wait_timeout(state, pause)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
    }

    /// Returns the progress at `now`, given the time and the counters of the previous report.
    #[allow(clippy::cast_precision_loss)] // Counts and nanoseconds below 2^53.
    fn progress(
        &self,
        now: u64,
        counters: CounterSnapshot,
        (previous_time, previous): (u64, CounterSnapshot),
    ) -> Progress {
        let share = |done: u64, total: u64| (done as f64 / total.max(1) as f64).clamp(0.0, 1.0);
        let config = self.config();
        let msgs = config.count_messages(counters);
        let done = match (self.info.time, self.info.messages) {
            (Some(_), _) => share(now, config.end),
            (None, Some(total)) => share(msgs, total),
            (None, None) => 0.0,
        };
        let samples = counters.samples.saturating_sub(previous.samples);
        let bytes = counters.sent.saturating_sub(previous.sent) as f64 * config.size as f64
            + counters.bytes.saturating_sub(previous.bytes) as f64;
        Progress {
            done,
            // Without any message the bandwidth is unknown rather than 0: a peer that writes to
            // this end's memory, or reads it, leaves no completions here.
            bandwidth: (!config.latency && msgs > 0)
                .then(|| bytes * 1e9 / now.saturating_sub(previous_time).max(1) as f64),
            latency: (samples > 0)
                .then(|| counters.nanos.saturating_sub(previous.nanos) as f64 / samples as f64),
        }
    }
}

/// Stops the monitor's thread when the test returns or panics.
struct StopOnDrop<'a, 'w>(&'a Monitor<'w>);

impl Drop for StopOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.state().stopped = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the intervals and counts the progress reports.
    struct RecordingObserver(Mutex<(Vec<Interval>, u32)>);

    impl Observer for RecordingObserver {
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
            both_ways: false,
            size: 100,
            warm_up: Duration::ZERO,
            time,
            messages: None,
            threads: 2,
            usual_gap: Duration::ZERO,
        }
    }

    #[test]
    fn every_message_belongs_to_an_interval() {
        let observer = RecordingObserver(Mutex::default());
        let options = MonitorOptions {
            interval: Some(Duration::from_millis(100)),
            observer: Some(&observer),
        };
        let monitor = Monitor::new(options, info());
        let counters = monitor.counters();
        let start = Instant::now();
        let sent = monitor.run(|| {
            monitor.start();
            let mut sent = 0_u64;
            while start.elapsed() < Duration::from_millis(550) {
                sent += 1;
                // Each message is counted by one of the two threads, in turn.
                counters[usize::from(sent % 2 == 0)].set_sent(sent.div_ceil(2));
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(sent)
        });
        let sent = sent.unwrap();
        let result = monitor.finish(u64::try_from(start.elapsed().as_nanos()).unwrap());
        assert_eq!(
            result.intervals.iter().map(|i| i.msgs).sum::<u64>(),
            sent,
            "{result:?}"
        );
        assert!(
            result
                .intervals
                .windows(2)
                .all(|pair| pair[0].to == pair[1].from),
            "{result:?}"
        );
        let observed = observer.0.lock().unwrap();
        assert_eq!(observed.0, result.intervals);
        assert!(observed.1 >= 1);
    }

    #[test]
    fn a_disabled_monitor_has_no_counters_and_no_result() {
        let monitor = Monitor::new(MonitorOptions::default(), info());
        assert!(monitor.counters().is_empty());
        assert_eq!(monitor.run(|| Ok(5)).unwrap(), 5);
        assert_eq!(monitor.finish(1), MonitorResult::default());
    }
}
