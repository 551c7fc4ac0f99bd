//! The warm-up: what is moved before its end counts for nothing.

use std::time::Instant;

use crate::rperf::spec::Shape;
use crate::rperf::stats::Count;
use crate::rperf::stats::cpu::ClockReading;

/// Counts at the end of the warm-up, when the clock begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    pub(super) sent: u64,
    pub(super) received: Count,
    pub(super) begin: ClockReading,
}

/// A warm-up that goes on, is over, or is none.
#[derive(Debug)]
pub(super) struct WarmUp {
    until: Option<Instant>,
    base: Option<Base>,
}

impl WarmUp {
    /// Of a test that began at `start`.
    pub(super) fn new(shape: &Shape, start: Instant) -> Self {
        let wanted = !shape.tuning.warm_up.is_zero();
        Self {
            until: wanted.then(|| start + shape.tuning.warm_up),
            base: None,
        }
    }

    /// Whether it still goes on.
    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Ends it if it is time, with what was counted up to `now`; true that once.
    #[inline]
    pub(super) fn ends(
        &mut self,
        now: impl FnOnce() -> Instant,
        sent: u64,
        received: Count,
    ) -> bool {
        let over = self.until.is_some_and(|until| now() >= until);
        if over {
            self.until = None;
            self.base = Some(Base {
                sent,
                received,
                begin: ClockReading::of_counts(),
            });
        }
        over
    }

    /// What was counted when it ended.
    pub(super) fn base(&self) -> Option<Base> {
        self.base
    }
}
