//! What was sent, and what came of it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Pings whose late or second answers are still known.
const REMEMBERED: usize = 1024;

/// What an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The first one, after this time.
    First(Duration),
    /// The first one, after this time, to a ping given up already.
    Late(Duration),
    /// Another one to a ping that was answered.
    Duplicate,
    /// To a ping that this program did not send, or long ago.
    Stranger,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
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

impl Counts {
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
pub struct Ledger {
    recent: VecDeque<Sent>,
    counts: Counts,
}

impl Ledger {
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
    pub fn answered(&mut self, seq: u32, now: Instant) -> Answer {
        let answer = match self.find(seq) {
            None => Answer::Stranger,
            Some(sent) if sent.is_answered => Answer::Duplicate,
            Some(sent) => {
                sent.is_answered = true;
                let time = now.saturating_duration_since(sent.at);
                if sent.is_given_up {
                    Answer::Late(time)
                } else {
                    Answer::First(time)
                }
            }
        };
        match answer {
            Answer::First(_) => self.counts.received += 1,
            Answer::Late(_) => {
                self.counts.received += 1;
                self.counts.late += 1;
            }
            Answer::Duplicate => self.counts.duplicates += 1,
            Answer::Stranger => {}
        }
        answer
    }

    /// The counts.
    pub fn counts(&self) -> Counts {
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
        let mut ledger = Ledger::default();
        let start = Instant::now();
        let later = start + Duration::from_millis(3);
        ledger.sent(7, start);
        assert_eq!(
            ledger.answered(7, later),
            Answer::First(Duration::from_millis(3))
        );
        assert_eq!(ledger.answered(7, later), Answer::Duplicate);
        assert_eq!(ledger.answered(8, later), Answer::Stranger);
        let counts = ledger.counts();
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
        let mut ledger = Ledger::default();
        let start = Instant::now();
        ledger.sent(1, start);
        ledger.given_up(1);
        ledger.sent(2, start);
        assert_eq!(ledger.counts().lost(), 2);
        assert_eq!(ledger.answered(1, start), Answer::Late(Duration::ZERO));
        let counts = ledger.counts();
        assert_eq!((counts.late, counts.lost()), (1, 1));
    }

    #[test]
    fn memory_is_bounded() {
        let mut ledger = Ledger::default();
        let now = Instant::now();
        for seq in 0..100_000 {
            ledger.sent(seq, now);
        }
        assert_eq!(ledger.recent.len(), REMEMBERED);
        assert_eq!(ledger.answered(5, now), Answer::Stranger);
        assert_eq!(ledger.answered(99_999, now), Answer::First(Duration::ZERO));
    }
}
