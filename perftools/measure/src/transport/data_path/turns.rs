//! The turns of messages that use the queue pairs one after the other.

use super::qp::QpState;
use crate::engine::DataPathCounts;

/// The turns of all kinds of messages.
#[derive(Debug, Default)]
pub(super) struct Turns {
    sends: Turn,
    arrivals: Turn,
    credits: Turn,
}

impl Turns {
    /// Updates the counts that limit what may be in flight. Each message counts only if all earlier
    /// ones do.
    pub(super) fn advance(&mut self, qps: &[QpState], batch: u32, counts: &mut DataPathCounts) {
        let advance = |turn: &mut Turn, count: fn(&QpState) -> u64| {
            turn.advance(qps.len(), |index| count(&qps[index]))
        };
        counts.sent_out_of_order = counts.sent - advance(&mut self.sends, |state| state.completed);
        counts.next_expected = advance(&mut self.arrivals, |state| state.arrived);
        counts.acked = advance(&mut self.credits, |state| state.credits) * u64::from(batch);
    }
}

/// The first message that is not counted yet.
#[derive(Debug, Default)]
struct Turn {
    number: u64,
    /// Index of its queue pair.
    index: usize,
    /// Earlier messages on its queue pair.
    round: u64,
}

impl Turn {
    /// Passes the messages that are counted, and returns their number. `count` returns those of a
    /// queue pair, given its index.
    fn advance(&mut self, qps: usize, count: impl Fn(usize) -> u64) -> u64 {
        while count(self.index) > self.round {
            self.number += 1;
            self.index += 1;
            if self.index == qps {
                (self.index, self.round) = (0, self.round + 1);
            }
        }
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_that_lags_behind_stops_the_count() {
        let mut turn = Turn::default();
        let mut reached = |counts: [u64; 3]| turn.advance(3, |index| counts[index]);
        assert_eq!(reached([0, 5, 5]), 0);
        assert_eq!(reached([1, 5, 5]), 3);
        assert_eq!(reached([4, 5, 3]), 11);
        assert_eq!(reached([4, 5, 3]), 11);
        assert_eq!(reached([4, 5, 4]), 12);
        assert_eq!(reached([6, 6, 6]), 18);
    }
}
