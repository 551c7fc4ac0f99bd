//! How far a test by time is.

use std::time::Instant;

/// The clock of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// The time goes on.
    Runs,
    /// The time is over: the clock stops with what completes next.
    Over,
    /// The clock has stopped: no more is posted.
    Stopped,
}

impl Clock {
    /// The clock now, where the time is over at `deadline`.
    #[inline]
    pub(super) fn at(self, deadline: Instant) -> Self {
        match self {
            Self::Runs if Instant::now() >= deadline => Self::Over,
            as_before => as_before,
        }
    }
}
