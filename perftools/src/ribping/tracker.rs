//! Tracking of sent pings and their replies.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Number of recent pings whose late and duplicate replies are recognized.
const RECENT_PINGS: usize = 1024;

/// The kind of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// First reply, with the round-trip time.
    First(Duration),
    /// First reply, with the round-trip time, to a ping that had timed out.
    Late(Duration),
    /// Another reply to an answered ping.
    Duplicate,
    /// Reply to a ping that is not among the recent ones.
    Unknown,
}

/// Counts of pings and replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PingCounts {
    /// Pings sent.
    pub transmitted: u64,
    /// Pings answered, late ones included.
    pub received: u64,
    /// Replies to pings that were already answered.
    pub duplicates: u64,
    /// First replies after the timeout.
    pub late: u64,
    /// Number of resends.
    pub resent: u64,
}

impl PingCounts {
    /// Returns the number of pings without a reply.
    pub(crate) fn lost(&self) -> u64 {
        self.transmitted - self.received
    }
}

#[derive(Debug)]
struct SentPing {
    seq: u32,
    time: Instant,
    has_started: bool,
    is_answered: bool,
    has_timed_out: bool,
}

/// Tracks sent pings and matches replies to them.
#[derive(Debug, Default)]
pub(crate) struct PingTracker {
    recent: VecDeque<SentPing>,
    counts: PingCounts,
}

impl PingTracker {
    /// Records a ping sent at `now`.
    pub(crate) fn record_sent(&mut self, seq: u32, now: Instant) {
        if self.recent.len() == RECENT_PINGS {
            self.recent.pop_front();
        }
        self.recent.push_back(SentPing {
            seq,
            time: now,
            has_started: false,
            is_answered: false,
            has_timed_out: false,
        });
        self.counts.transmitted += 1;
    }

    /// Sets the time at which a ping was first sent, if it is later than recorded, because the
    /// transport had to be opened.
    pub(crate) fn record_time(&mut self, seq: u32, now: Instant) {
        if let Some(sent) = self.find(seq).filter(|sent| !sent.has_started) {
            sent.has_started = true;
            sent.time = now;
        }
    }

    /// Records that a ping was sent again.
    pub(crate) fn record_resend(&mut self) {
        self.counts.resent += 1;
    }

    /// Records that the timeout of a ping has passed. A later reply to it is late.
    pub(crate) fn record_timeout(&mut self, seq: u32) {
        if let Some(sent) = self.find(seq) {
            sent.has_timed_out = true;
        }
    }

    /// Records a reply received at `now`.
    pub(crate) fn record_reply(&mut self, seq: u32, now: Instant) -> ReplyKind {
        let reply = match self.find(seq) {
            None => ReplyKind::Unknown,
            Some(sent) if sent.is_answered => ReplyKind::Duplicate,
            Some(sent) => {
                sent.is_answered = true;
                let time = now.saturating_duration_since(sent.time);
                if sent.has_timed_out {
                    ReplyKind::Late(time)
                } else {
                    ReplyKind::First(time)
                }
            }
        };
        match reply {
            ReplyKind::First(_) => self.counts.received += 1,
            ReplyKind::Late(_) => {
                self.counts.received += 1;
                self.counts.late += 1;
            }
            ReplyKind::Duplicate => self.counts.duplicates += 1,
            ReplyKind::Unknown => {}
        }
        reply
    }

    /// Returns the counts.
    pub(crate) fn counts(&self) -> PingCounts {
        self.counts
    }

    fn find(&mut self, seq: u32) -> Option<&mut SentPing> {
        self.recent.iter_mut().rev().find(|sent| sent.seq == seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_count_once() {
        let mut tracker = PingTracker::default();
        let start = Instant::now();
        let later = start + Duration::from_millis(3);
        tracker.record_sent(7, start);
        assert_eq!(
            tracker.record_reply(7, later),
            ReplyKind::First(Duration::from_millis(3))
        );
        assert_eq!(tracker.record_reply(7, later), ReplyKind::Duplicate);
        assert_eq!(tracker.record_reply(8, later), ReplyKind::Unknown);
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
    fn late_replies_are_no_loss() {
        let mut tracker = PingTracker::default();
        let start = Instant::now();
        tracker.record_sent(1, start);
        tracker.record_timeout(1);
        tracker.record_sent(2, start);
        assert_eq!(tracker.counts().lost(), 2);
        assert_eq!(
            tracker.record_reply(1, start),
            ReplyKind::Late(Duration::ZERO)
        );
        let counts = tracker.counts();
        assert_eq!((counts.late, counts.lost()), (1, 1));
    }

    #[test]
    fn memory_is_bounded() {
        let mut tracker = PingTracker::default();
        let now = Instant::now();
        for seq in 0..100_000 {
            tracker.record_sent(seq, now);
        }
        assert_eq!(tracker.recent.len(), RECENT_PINGS);
        assert_eq!(tracker.record_reply(5, now), ReplyKind::Unknown);
        assert_eq!(
            tracker.record_reply(99_999, now),
            ReplyKind::First(Duration::ZERO)
        );
    }
}
