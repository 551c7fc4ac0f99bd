//! The rate limit of a sender.

use std::time::{Duration, Instant};

/// Spreads messages, or bursts of messages, evenly over time.
pub(crate) struct Pacer {
    /// Time from one burst to the next.
    gap: Duration,
    /// Messages of a burst.
    burst: u64,
    start: Instant,
    /// Number of messages that may have been sent by the latest update.
    allowed: u64,
}

impl Pacer {
    /// Creates a pacer for bursts of `burst` messages. The first burst is due at `start`. `gap` is
    /// the time per message.
    pub(crate) fn new(gap: Duration, burst: Option<u32>, start: Instant) -> Self {
        let burst = burst.unwrap_or(1).max(1);
        Self {
            gap: gap.saturating_mul(burst),
            burst: burst.into(),
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
        let bursts = u64::try_from(gaps).unwrap_or(u64::MAX).saturating_add(1);
        self.allowed = bursts.saturating_mul(self.burst);
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
        let bursts = posted / self.burst;
        let nanos = self.gap.as_nanos().saturating_mul(u128::from(bursts));
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
        let mut pacer = Pacer::new(gap, None, start);
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
    fn bursts_become_due_together() {
        let (gap, start) = (Duration::from_millis(10), Instant::now());
        let mut pacer = Pacer::new(gap, Some(4), start);
        pacer.update_at(start);
        assert_eq!((pacer.allowed(0), pacer.allowed(3)), (4, 1));
        assert_eq!(pacer.next_send(3), None);
        assert_eq!(pacer.next_send(4), Some(start + gap * 4));
        pacer.update_at(start + Duration::from_nanos(39_999_999));
        assert_eq!(pacer.allowed(4), 0);
        pacer.update_at(start + gap * 4);
        assert_eq!(
            (pacer.allowed(4), pacer.next_send(8)),
            (4, Some(start + gap * 8))
        );
    }

    #[test]
    fn a_gap_of_zero_does_not_limit_the_rate() {
        let start = Instant::now();
        let mut pacer = Pacer::new(Duration::ZERO, None, start);
        pacer.update_at(start + Duration::from_secs(1));
        assert!(pacer.allowed(0) > 1_000_000_000);
    }
}
