//! Ranges of a transfer, and their distribution over queue pairs.

use std::collections::VecDeque;

/// A range of bytes to write: from an offset of the local region to an offset of the remote one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte in the local region.
    pub source: usize,
    /// Offset of the first byte in the remote region.
    pub target: u64,
    /// Number of bytes.
    pub len: usize,
}

impl Span {
    /// Returns a range of `len` bytes.
    pub const fn new(source: usize, target: u64, len: usize) -> Self {
        Self {
            source,
            target,
            len,
        }
    }

    /// Returns `true` if the range is within both regions.
    pub(crate) fn is_within(&self, source: usize, target: u64) -> bool {
        let end = self.source.checked_add(self.len);
        let target_end = self.target.checked_add(self.len as u64);
        end.is_some_and(|end| end <= source) && target_end.is_some_and(|end| end <= target)
    }
}

/// Divides ranges into pieces of at most `stripe` bytes, and distributes them over `queues` queues
/// in turn, beginning with the queue `first`. Ranges without bytes are omitted.
pub(crate) fn distribute(
    spans: &[Span],
    stripe: usize,
    queues: usize,
    first: usize,
) -> Vec<VecDeque<Span>> {
    let mut shares = vec![VecDeque::new(); queues];
    let mut next = first % queues;
    for span in spans {
        let mut done = 0;
        while done < span.len {
            let len = stripe.min(span.len - done);
            shares[next].push_back(Span::new(
                span.source + done,
                span.target + done as u64,
                len,
            ));
            done += len;
            next = (next + 1) % queues;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_go_to_the_queues_in_turn() {
        let spans = [
            Span::new(0, 100, 25),
            Span::new(50, 0, 0),
            Span::new(60, 9, 4),
        ];
        let shares = distribute(&spans, 10, 2, 3);
        assert_eq!(
            shares[1],
            [Span::new(0, 100, 10), Span::new(20, 120, 5)],
            "the queue 3 % 2 is the first"
        );
        assert_eq!(shares[0], [Span::new(10, 110, 10), Span::new(60, 9, 4)]);
    }

    #[test]
    fn every_byte_is_in_one_piece() {
        for (stripe, queues) in [(1, 1), (3, 2), (7, 5), (64, 3), (1000, 4)] {
            let spans = [Span::new(5, 5, 100), Span::new(200, 200, 37)];
            let mut times = [0; 300];
            for piece in distribute(&spans, stripe, queues, 1).iter().flatten() {
                assert!(piece.len <= stripe && piece.source as u64 == piece.target);
                times[piece.source..piece.source + piece.len]
                    .iter_mut()
                    .for_each(|count| *count += 1);
            }
            for (at, count) in times.into_iter().enumerate() {
                let wanted = (5..105).contains(&at) || (200..237).contains(&at);
                assert_eq!(count, i32::from(wanted), "byte {at}, stripe {stripe}");
            }
        }
    }

    #[test]
    fn bounds_are_checked_without_overflow() {
        assert!(Span::new(4, 8, 4).is_within(8, 12));
        assert!(!Span::new(5, 8, 4).is_within(8, 12));
        assert!(!Span::new(4, 9, 4).is_within(8, 12));
        assert!(!Span::new(usize::MAX, 0, 2).is_within(8, 12));
        assert!(!Span::new(0, u64::MAX, 2).is_within(8, 12));
    }
}
