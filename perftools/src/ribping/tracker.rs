//! What was sent, and what came of it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Pings whose late or second answers are still known.
const REMEMBERED: usize = 1024;

/// What an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// The first one, after this time.
    First(Duration),
    /// The first one, after this time, to a ping given up already.
    Late(Duration),
    /// Another one to a ping that was answered.
    Duplicate,
    /// To a ping that this program did not send, or long ago.
    Unknown,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PingCounts {
    /// Pings sent.
    pub transmitted: u64,
    /// Pings answered, late ones included.
    pub received: u64,
    /// Answers to pings that had one.
    pub duplicates: u64,
    /// Answers to pings given up before.
    pub late: u64,
    /// Pings sent again.
    pub resent: u64,
}

impl PingCounts {
    /// Pings not answered.
    pub fn lost(&self) -> u64 {
        self.transmitted - self.received
    }
}

#[derive(Debug)]
struct Sent {
    seq: u32,
    at: Instant,
    is_answered: bool,
    is_given_up: bool,
}

/// What was sent, and what came of it.
#[derive(Debug, Default)]
pub struct PingTracker {
    recent: VecDeque<Sent>,
    counts: PingCounts,
}

impl PingTracker {
    /// A ping goes out now.
    pub fn sent(&mut self, seq: u32, now: Instant) {
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(Sent {
            seq,
            at: now,
            is_answered: false,
            is_given_up: false,
        });
        self.counts.transmitted += 1;
    }

    /// A ping goes out once more.
    pub fn resent(&mut self) {
        self.counts.resent += 1;
    }

    /// A ping is waited for no longer.
    pub fn given_up(&mut self, seq: u32) {
        if let Some(sent) = self.find(seq) {
            sent.is_given_up = true;
        }
    }

    /// An answer came.
    pub fn answered(&mut self, seq: u32, now: Instant) -> ReplyKind {
        let answer = match self.find(seq) {
            None => ReplyKind::Unknown,
            Some(sent) if sent.is_answered => ReplyKind::Duplicate,
            Some(sent) => {
                sent.is_answered = true;
                let time = now.saturating_duration_since(sent.at);
                if sent.is_given_up {
                    ReplyKind::Late(time)
                } else {
                    ReplyKind::First(time)
                }
            }
        };
        match answer {
            ReplyKind::First(_) => self.counts.received += 1,
            ReplyKind::Late(_) => {
                self.counts.received += 1;
                self.counts.late += 1;
            }
            ReplyKind::Duplicate => self.counts.duplicates += 1,
            ReplyKind::Unknown => {}
        }
        answer
    }

    /// The counts.
    pub fn counts(&self) -> PingCounts {
        self.counts
    }

    fn find(&mut self, seq: u32) -> Option<&mut Sent> {
        self.recent.iter_mut().rev().find(|sent| sent.seq == seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once() {
        let mut tracker = PingTracker::default();
        let start = Instant::now();
        let later = start + Duration::from_millis(3);
        tracker.sent(7, start);
        assert_eq!(
            tracker.answered(7, later),
            ReplyKind::First(Duration::from_millis(3))
        );
        assert_eq!(tracker.answered(7, later), ReplyKind::Duplicate);
        assert_eq!(tracker.answered(8, later), ReplyKind::Unknown);
        let counts = tracker.counts();
        assert_eq!(
            (
                counts.transmitted,
                counts.received,
                counts.duplicates,
                counts.lost()
            ),
            (1, 1, 1, 0)
        );
    }

    #[test]
    fn a_late_answer_is_no_loss() {
        let mut tracker = PingTracker::default();
        let start = Instant::now();
        tracker.sent(1, start);
        tracker.given_up(1);
        tracker.sent(2, start);
        assert_eq!(tracker.counts().lost(), 2);
        assert_eq!(tracker.answered(1, start), ReplyKind::Late(Duration::ZERO));
        let counts = tracker.counts();
        assert_eq!((counts.late, counts.lost()), (1, 1));
    }

    #[test]
    fn memory_is_bounded() {
        let mut tracker = PingTracker::default();
        let now = Instant::now();
        for seq in 0..100_000 {
            tracker.sent(seq, now);
        }
        assert_eq!(tracker.recent.len(), REMEMBERED);
        assert_eq!(tracker.answered(5, now), ReplyKind::Unknown);
        assert_eq!(
            tracker.answered(99_999, now),
            ReplyKind::First(Duration::ZERO)
        );
    }
}
