//! The rate limit of a sender.

use std::time::{Duration, Instant};

/// Spreads messages evenly over time.
pub(crate) struct Pacer {
    /// Time from one message to the next.
    gap: Duration,
    start: Instant,
    /// Number of messages that may have been sent by the latest update.
    allowed: u64,
}

impl Pacer {
    /// Creates a pacer whose first message is due at `start`.
    pub(crate) fn new(gap: Duration, start: Instant) -> Self {
        Self {
            gap,
            start,
            allowed: 0,
        }
    }

    /// Allows the messages that are due by now.
    pub(crate) fn update(&mut self) {
        self.update_at(Instant::now());
    }

    fn update_at(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.start).as_nanos();
        let gaps = elapsed / self.gap.as_nanos().max(1);
        self.allowed = u64::try_from(gaps).unwrap_or(u64::MAX).saturating_add(1);
    }

    /// Returns how many messages may be sent now after `posted` messages.
    pub(crate) fn allowed(&self, posted: u64) -> u64 {
        self.allowed.saturating_sub(posted)
    }

    /// Returns when the next message is due, if that is in the future.
    pub(crate) fn next_send(&self, posted: u64) -> Option<Instant> {
        if self.allowed > posted {
            return None;
        }
        let nanos = self.gap.as_nanos().saturating_mul(u128::from(posted));
        let delay = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.start.checked_add(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_become_due_one_gap_after_the_other() {
        let (gap, start) = (Duration::from_millis(10), Instant::now());
        let mut pacer = Pacer::new(gap, start);
        pacer.update_at(start);
        assert_eq!((pacer.allowed(0), pacer.next_send(0)), (1, None));
        assert_eq!(
            (pacer.allowed(1), pacer.next_send(1)),
            (0, Some(start + gap))
        );
        pacer.update_at(start + gap * 3 + gap / 2);
        assert_eq!((pacer.allowed(1), pacer.allowed(9)), (3, 0));
        assert_eq!(pacer.next_send(4), Some(start + gap * 4));
    }

    #[test]
    fn a_gap_of_zero_does_not_limit_the_rate() {
        let start = Instant::now();
        let mut pacer = Pacer::new(Duration::ZERO, start);
        pacer.update_at(start + Duration::from_secs(1));
        assert!(pacer.allowed(0) > 1_000_000_000);
    }
}
