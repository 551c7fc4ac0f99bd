//! A test over several devices: one session for each device, which start together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::threads::spawn_scoped;
use measure::result::{DeviceRun, TestResult};
use measure::spec::Spec;
use measure::stats::monitor::{Monitor, MonitorOptions};
use measure::transport::Backend;

use super::client::{self, ClientHooks};
use crate::answer::Answer;
use crate::connect::ServerAddr;
use crate::diagnosis::Diagnosis;

/// Interval at which a connected session checks that the others have not failed.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Runs a test over several devices: a session for each specification, all at the same time.
pub fn run<B: Backend>(
    server_addr: &ServerAddr,
    specs: &[Spec],
    backend: &B,
    diagnosis: &dyn Diagnosis,
    monitor_options: MonitorOptions<'_>,
) -> Result<Answer> {
    let Some(first) = specs.first() else {
        return Err(Error::usage("no device to measure"));
    };
    let sessions = u32::try_from(specs.len()).unwrap_or(u32::MAX);
    let monitor = Monitor::new(monitor_options, client::test_info(first, sessions));
    let counters = monitor.counters();
    let start = CommonStart::new(specs.len());
    let run_session = |number: usize, spec: &Spec| -> Result<(TestResult, Instant)> {
        let begun = OnceLock::new();
        let threads = spec.threads as usize;
        let control = ClientHooks {
            stop: Arc::clone(&start.stop),
            before_start: &|| start.wait(),
            on_begin: &|| {
                let _ = begun.set(Instant::now());
                monitor.start();
            },
            counters: counters
                .chunks(threads)
                .nth(number)
                .unwrap_or_default()
                .to_vec(),
            has_intervals: monitor_options.interval.is_some(),
            diagnosis,
            admit_target: &|_, _| Ok(()),
        };
        let result = client::run_controlled(server_addr, spec, backend, &control)?;
        Ok((result, begun.get().copied().unwrap_or_else(Instant::now)))
    };
    let name = |spec: &Spec| {
        spec.client
            .id
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    let run_all = || {
        std::thread::scope(|scope| {
            let (start, run_session) = (&start, &run_session);
            let mut threads = Vec::new();
            for (number, spec) in specs.iter().enumerate() {
                let body = move || {
                    // The other sessions would wait for one that panicked.
                    let result = catch_unwind(AssertUnwindSafe(|| run_session(number, spec)));
                    let result =
                        result.unwrap_or_else(|_| Err(Error::test("the session panicked")));
                    let failed = |error: Error| start.fail(error.context(name(spec)));
                    result.map_err(failed).ok()
                };
                match spawn_scoped(scope, "session", body) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => start.fail(error),
                }
            }
            let results = threads
                .into_iter()
                .map(|thread| thread.join().ok().flatten());
            let results: Option<Vec<_>> = results.collect();
            let unknown = || Error::test("the session of a device failed");
            results.ok_or_else(|| start.error().unwrap_or_else(unknown))
        })
    };
    let results = monitor.run(run_all)?;
    let first_start = results.iter().map(|result| result.1).min();
    let devices = specs.iter().zip(results).map(|(spec, (result, begun))| {
        let offset = first_start.map_or(Duration::ZERO, |first| begun - first);
        DeviceRun {
            device: name(spec),
            start_offset: u64::try_from(offset.as_nanos()).unwrap_or(u64::MAX),
            result,
        }
    });
    Ok(client::monitored(devices.collect(), &monitor))
}

/// The common start of the sessions.
struct CommonStart {
    sessions: usize,
    state: Mutex<StartState>,
    changed: Condvar,
    /// Ends all sessions.
    stop: Arc<AtomicBool>,
}

#[derive(Default)]
struct StartState {
    /// Number of sessions that are connected.
    connected: usize,
    /// Error of the session that failed first.
    error: Option<Error>,
}

impl CommonStart {
    fn new(sessions: usize) -> Self {
        Self {
            sessions,
            state: Mutex::default(),
            changed: Condvar::new(),
            stop: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, StartState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all sessions are connected.
    fn wait(&self) -> Result<()> {
        let mut state = self.state();
        state.connected += 1;
        self.changed.notify_all();
        while state.connected < self.sessions {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::test("the session of another device failed"));
            }
            let waited = self.changed.wait_timeout(state, STOP_CHECK_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Ends all sessions because of an error. Only the first error counts: it causes the others.
    fn fail(&self, error: Error) {
        self.state().error.get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }

    fn error(&self) -> Option<Error> {
        self.state().error.take()
    }
}
