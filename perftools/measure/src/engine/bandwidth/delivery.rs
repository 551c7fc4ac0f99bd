//! Policies for messages that do not arrive.

use std::time::{Duration, Instant};

/// Time without a completion after which a sender treats messages in flight as lost, and a receiver
/// whose peer has finished stops waiting for more.
pub(super) const LOST_AFTER: Duration = Duration::from_millis(100);

/// The treatment of messages that do not arrive.
pub(super) trait Delivery {
    /// Every message and every credit arrives, or the connection breaks.
    const EVERYTHING_ARRIVES: bool;

    /// Records that data arrived.
    fn on_arrival(&mut self);

    /// Returns the time when a wait must end so that [`Delivery::assumes_lost`] is called.
    fn wait_limit(&self) -> Option<Instant>;

    /// Returns `true` if the messages in flight must be treated as lost. `is_blocked` is `true` if
    /// a sender has no credit and the latest poll returned nothing.
    fn assumes_lost(&mut self, is_blocked: bool) -> bool;

    /// Returns the number up to which the next credit acknowledges messages. Credit was `returned`
    /// up to one number, and the number of the next expected message is at least `batch` higher.
    fn next_credit(&self, returned: u64, next_expected: u64, batch: u64) -> u64;

    /// Returns the time of the latest arrival if no more messages will arrive from a peer that has
    /// finished.
    fn quiet_since(&self) -> Option<Instant>;
}

/// The policy of reliable services.
pub(super) struct Reliable;

impl Delivery for Reliable {
    const EVERYTHING_ARRIVES: bool = true;

    #[inline]
    fn on_arrival(&mut self) {}

    #[inline]
    fn wait_limit(&self) -> Option<Instant> {
        None
    }

    #[inline]
    fn assumes_lost(&mut self, _: bool) -> bool {
        false
    }

    /// Acknowledges one batch, because the sender counts credits.
    #[inline]
    fn next_credit(&self, returned: u64, _: u64, batch: u64) -> u64 {
        returned + batch
    }

    #[inline]
    fn quiet_since(&self) -> Option<Instant> {
        None
    }
}

/// The policy of services that may lose messages.
pub(super) struct Lossy {
    latest_arrival: Instant,
    blocked_since: Option<Instant>,
}

impl Lossy {
    /// Creates the policy of a test that began at `start`.
    pub(super) fn new(start: Instant) -> Self {
        Self {
            latest_arrival: start,
            blocked_since: None,
        }
    }
}

impl Delivery for Lossy {
    const EVERYTHING_ARRIVES: bool = false;

    fn on_arrival(&mut self) {
        self.latest_arrival = Instant::now();
    }

    fn wait_limit(&self) -> Option<Instant> {
        Some(Instant::now() + LOST_AFTER)
    }

    fn assumes_lost(&mut self, is_blocked: bool) -> bool {
        if !is_blocked {
            self.blocked_since = None;
            return false;
        }
        let since = self.blocked_since.get_or_insert_with(Instant::now);
        since.elapsed() >= LOST_AFTER
    }

    /// Acknowledges everything up to the latest arrival: credits carry numbers, and each replaces
    /// those that were lost.
    fn next_credit(&self, _: u64, next_expected: u64, _: u64) -> u64 {
        next_expected
    }

    fn quiet_since(&self) -> Option<Instant> {
        (self.latest_arrival.elapsed() >= LOST_AFTER).then_some(self.latest_arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long_ago() -> Instant {
        Instant::now().checked_sub(LOST_AFTER * 2).unwrap()
    }

    #[test]
    fn a_reliable_service_never_assumes_loss() {
        let mut reliable = Reliable;
        assert!(!reliable.assumes_lost(true) && reliable.quiet_since().is_none());
        assert!(reliable.wait_limit().is_none());
        assert_eq!(reliable.next_credit(8, 21, 4), 12);
    }

    #[test]
    fn a_blocked_sender_assumes_loss_after_a_while() {
        let mut lossy = Lossy::new(Instant::now());
        assert!(!lossy.assumes_lost(true));
        lossy.blocked_since = Some(long_ago());
        assert!(lossy.assumes_lost(true));
        assert!(!lossy.assumes_lost(false));
        assert!(!lossy.assumes_lost(true), "the time starts again");
    }

    #[test]
    fn a_receiver_is_quiet_after_a_while_without_arrivals() {
        let start = long_ago();
        let mut lossy = Lossy::new(start);
        assert_eq!(lossy.quiet_since(), Some(start));
        lossy.on_arrival();
        assert_eq!(lossy.quiet_since(), None);
    }

    #[test]
    fn a_lossy_credit_acknowledges_up_to_the_latest_arrival() {
        assert_eq!(Lossy::new(Instant::now()).next_credit(8, 21, 4), 21);
    }
}
