//! Ranges of a transfer, and their distribution over paths.

use std::collections::VecDeque;

/// Maximum number of pieces of a job. Long transfers have several jobs on each path, so that a
/// failed path leaves jobs to several others.
const JOB_PIECES: usize = 64;

/// A range of bytes to transfer, in the local and in the remote region.
///
/// # Example
/// ```
/// use rdma_transfer::Span;
/// let page = Span::new(0, 8192, 4096);
/// assert_eq!((page.local, page.remote, page.len), (0, 8192, 4096));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte in the local region.
    pub local: usize,
    /// Offset of the first byte in the remote region.
    pub remote: u64,
    /// Number of bytes.
    pub len: usize,
}

impl Span {
    /// Returns a range of `len` bytes.
    pub const fn new(local: usize, remote: u64, len: usize) -> Self {
        Self { local, remote, len }
    }

    /// Returns `true` if the range is within both regions.
    pub(crate) fn is_within(&self, local: usize, remote: u64) -> bool {
        let end = self.local.checked_add(self.len);
        let remote_end = self.remote.checked_add(self.len as u64);
        end.is_some_and(|end| end <= local) && remote_end.is_some_and(|end| end <= remote)
    }
}

/// Divides ranges into pieces of at most `stripe` bytes, and distributes them over `shares` shares
/// in turn, beginning with the share `first`. Returns jobs of at most [`JOB_PIECES`] pieces with
/// their share. Ranges without bytes are omitted.
pub(crate) fn distribute(
    spans: &[Span],
    stripe: usize,
    shares: usize,
    first: usize,
) -> Vec<(usize, VecDeque<Span>)> {
    let mut jobs: Vec<(usize, VecDeque<Span>)> = Vec::new();
    // The last job of each share.
    let mut open: Vec<Option<usize>> = vec![None; shares];
    let mut next = first % shares;
    for span in spans {
        let mut done = 0;
        while done < span.len {
            let len = stripe.min(span.len - done);
            let piece = Span::new(span.local + done, span.remote + done as u64, len);
            let job = match open[next] {
                Some(job) if jobs[job].1.len() < JOB_PIECES => job,
                _ => {
                    jobs.push((next, VecDeque::new()));
                    jobs.len() - 1
                }
            };
            open[next] = Some(job);
            jobs[job].1.push_back(piece);
            done += len;
            next = (next + 1) % shares;
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_go_to_the_shares_in_turn() {
        let spans = [
            Span::new(0, 100, 25),
            Span::new(50, 0, 0),
            Span::new(60, 9, 4),
        ];
        let jobs = distribute(&spans, 10, 2, 3);
        let first = [Span::new(0, 100, 10), Span::new(20, 120, 5)];
        let second = [Span::new(10, 110, 10), Span::new(60, 9, 4)];
        assert_eq!(
            jobs,
            [(1, first.into()), (0, second.into())],
            "share 3 % 2 first"
        );
    }

    #[test]
    fn every_byte_is_in_one_piece() {
        for (stripe, shares) in [(1, 1), (3, 2), (7, 5), (64, 3), (1000, 4)] {
            let spans = [Span::new(5, 5, 100), Span::new(200, 200, 37)];
            let mut times = [0; 300];
            let jobs = distribute(&spans, stripe, shares, 1);
            assert!(jobs.iter().all(|(_, job)| job.len() <= JOB_PIECES));
            for piece in jobs.iter().flat_map(|(_, job)| job) {
                assert!(piece.len <= stripe && piece.local as u64 == piece.remote);
                times[piece.local..piece.local + piece.len]
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
