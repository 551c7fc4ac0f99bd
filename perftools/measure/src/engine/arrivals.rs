//! The record of the messages that arrived, on services that may lose, repeat or reorder them.

use crate::spec::ARRIVALS_WINDOW;

/// Bits of one word of the record.
const WORD: u64 = u64::BITS as u64;

/// A record of the numbers that arrived, with one bit for each of the latest `ARRIVALS_WINDOW`
/// numbers. Without it, a repeated message would hide a lost one.
#[derive(Clone, Debug)]
pub struct Arrivals {
    bits: Vec<u64>,
    /// One more than the highest number that arrived.
    end: u64,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            bits: vec![0; usize::try_from(ARRIVALS_WINDOW / WORD).unwrap_or(1)],
            end: 0,
        }
    }
}

impl Arrivals {
    /// Records the arrival of a message. Returns `false` if it had arrived before, or if its number
    /// is below the window, so that this is not known.
    #[inline]
    pub(crate) fn record(&mut self, number: u64) -> bool {
        if number >= self.end {
            self.advance(number);
        } else if (self.end - 1) / WORD - number / WORD >= ARRIVALS_WINDOW / WORD {
            return false;
        }
        let bit = 1 << (number % WORD);
        let word = &mut self.bits[word_index(number)];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Moves the window so that it ends with `number`.
    #[inline]
    fn advance(&mut self, number: u64) {
        // The word of the previous number stays. All words after it are from an earlier turn of the
        // ring.
        let first = self.end.div_ceil(WORD);
        let last = number / WORD;
        if last.saturating_sub(first) >= ARRIVALS_WINDOW / WORD {
            self.bits.fill(0);
        } else {
            (first..=last).for_each(|word| self.bits[word_index(word * WORD)] = 0);
        }
        self.end = number.saturating_add(1);
    }
}

/// Returns the index of the word with the bit of `number`.
#[inline]
fn word_index(number: u64) -> usize {
    usize::try_from(number / WORD % (ARRIVALS_WINDOW / WORD)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn repeated_and_very_late_messages_are_not_new() {
        let mut arrivals = Arrivals::default();
        assert!(arrivals.record(1) && arrivals.record(0) && !arrivals.record(1));
        let far = 10 * ARRIVALS_WINDOW;
        assert!(arrivals.record(far) && arrivals.record(far - ARRIVALS_WINDOW + WORD));
        assert!(!arrivals.record(far - ARRIVALS_WINDOW - 1));
        assert!(arrivals.record(u64::MAX) && !arrivals.record(u64::MAX - 2 * ARRIVALS_WINDOW));
    }

    proptest::proptest! {
        #[test]
        fn arrivals_agree_with_a_set(steps in proptest::collection::vec((0_u64..5000, 0_u64..4000), 1..400)) {
            let (mut arrivals, mut seen, mut end) = (Arrivals::default(), HashSet::new(), 0);
            for (forward, back) in steps {
                end += forward;
                let number = end.saturating_sub(back);
                let is_recent = seen.iter().max().is_none_or(|max| max - number.min(*max) < ARRIVALS_WINDOW - WORD);
                let is_new = seen.insert(number);
                if is_recent {
                    proptest::prop_assert_eq!(arrivals.record(number), is_new, "{}", number);
                }
            }
        }
    }
}
