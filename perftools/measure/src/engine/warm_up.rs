//! The warm-up: data that moves before its end is not counted.

use std::time::Instant;

use crate::spec::Shape;
use crate::stats::Count;
use crate::stats::cpu::ClockReading;

/// Counts at the end of the warm-up, when the clock starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct WarmUpBase {
    pub(super) sent: u64,
    pub(super) received: Count,
    pub(super) begin: ClockReading,
}

/// The warm-up of a test, which may have none.
#[derive(Debug)]
pub(super) struct WarmUp {
    /// End of a warm-up that is not over.
    until: Option<Instant>,
    base: Option<WarmUpBase>,
}

impl WarmUp {
    /// Creates the warm-up of a test that began at `start`.
    pub(super) fn new(shape: &Shape, start: Instant) -> Self {
        let length = shape.tuning.warm_up;
        Self {
            until: (!length.is_zero()).then(|| start + length),
            base: None,
        }
    }

    /// Returns the end of a warm-up that is not over.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Returns `true` until the warm-up is over.
    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Ends the warm-up with the given counts if its time is over. Returns `true` if it ended in
    /// this call.
    #[inline]
    pub(super) fn ends(
        &mut self,
        now: impl FnOnce() -> Instant,
        sent: u64,
        received: Count,
    ) -> bool {
        let is_over = self.until.is_some_and(|until| now() >= until);
        if is_over {
            self.until = None;
            self.base = Some(WarmUpBase {
                sent,
                received,
                begin: ClockReading::now_wall_first(),
            });
        }
        is_over
    }

    /// Returns the counts at the end of the warm-up.
    pub(super) fn base(&self) -> Option<WarmUpBase> {
        self.base
    }
}
