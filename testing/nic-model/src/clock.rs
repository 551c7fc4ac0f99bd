//! The clock of the adapter.

use std::time::Instant;

/// Nanoseconds that one step advances the clock in step mode.
const STEP: u64 = 1_000;

/// Nanoseconds since the start of the model: real time, or a count of steps.
pub(crate) struct Clock {
    start: Instant,
    steps: Option<u64>,
}

impl Clock {
    pub(crate) fn new(step_mode: bool) -> Self {
        Self {
            start: Instant::now(),
            steps: step_mode.then_some(0),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        // From 1 s, so that no time is 0.
        let since = match self.steps {
            Some(nanoseconds) => nanoseconds,
            None => u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        };
        1_000_000_000 + since
    }

    /// Advances the clock in step mode.
    pub(crate) fn step(&mut self) {
        if let Some(nanoseconds) = &mut self.steps {
            *nanoseconds += STEP;
        }
    }
}
