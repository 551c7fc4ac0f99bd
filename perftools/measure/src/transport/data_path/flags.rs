//! Tags and flags of the messages that are posted.

use ibverbs::wr::SendRequest;

use crate::spec::Shape;

/// Rules for the flags of all messages of a test.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlagRules {
    /// Difference between the numbers of two messages on one queue pair: the number of queue
    /// pairs.
    pub(super) step: u64,
    /// Every `signal_every`-th message of the queue pair requests a completion.
    signal_every: u32,
    /// Number of messages after which one is solicited, if any. It wakes a receiver that sleeps
    /// until it must return credit.
    solicit_every: Option<u32>,
}

impl FlagRules {
    pub(super) fn new(shape: &Shape, qps: usize) -> Self {
        Self {
            step: qps as u64,
            signal_every: shape.signal_every,
            solicit_every: shape.solicits().then_some(shape.batch),
        }
    }
}

/// The messages to post on one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct PostJob {
    /// Number of the first message.
    pub(super) first: u64,
    /// End of the range of numbers, exclusive.
    pub(super) end: u64,
    /// Number of messages in the test. The last one on each queue pair requests a completion.
    pub(super) last: u64,
}

impl PostJob {
    /// Returns the numbers of the messages.
    #[inline]
    pub(super) fn numbers(self, rules: &FlagRules) -> impl Iterator<Item = u64> {
        (self.first..self.end).step_by(usize::try_from(rules.step).unwrap_or(1))
    }
}

/// The tag and flags of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestFlags {
    /// Messages posted on the queue pair up to and including this one.
    tag: u64,
    signaled: bool,
    solicited: bool,
}

/// Counts of the messages of a queue pair, which determine the flags of the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PostCounts {
    /// Data messages posted.
    pub(super) posted: u64,
    /// Messages since the latest one that requested a completion.
    unsignaled: u32,
    /// Messages since the latest solicited one.
    unsolicited: u32,
}

impl PostCounts {
    /// Counts message `n` and returns its flags. The test has `last` messages.
    #[inline]
    pub(super) fn next(&mut self, n: u64, last: u64, rules: &FlagRules) -> RequestFlags {
        let is_last = n + rules.step >= last;
        self.posted += 1;
        self.unsignaled += 1;
        let signaled = is_last || self.unsignaled >= rules.signal_every;
        if signaled {
            self.unsignaled = 0;
        }
        let mut solicited = false;
        if let Some(batch) = rules.solicit_every {
            self.unsolicited += 1;
            solicited = is_last || self.unsolicited >= batch;
            if solicited {
                self.unsolicited = 0;
            }
        }
        RequestFlags {
            tag: self.posted,
            signaled,
            solicited,
        }
    }
}

impl RequestFlags {
    #[inline]
    pub(super) fn set_on<O, P>(self, request: SendRequest<O, P>) -> SendRequest<O, P> {
        let request = request.tag(self.tag).signaled(self.signaled);
        request.solicited(self.solicited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tags, and if the messages are signaled and solicited, of a job after `posted`
    /// messages.
    fn flags(job: PostJob, rules: FlagRules, posted: u64) -> Vec<(u64, bool, bool)> {
        let mut sends = PostCounts {
            posted,
            ..PostCounts::default()
        };
        job.numbers(&rules)
            .map(|n| sends.next(n, job.last, &rules))
            .map(|flags| (flags.tag, flags.signaled, flags.solicited))
            .collect()
    }

    const JOB: PostJob = PostJob {
        first: 1,
        end: 10,
        last: 10,
    };
    const RULES: FlagRules = FlagRules {
        step: 3,
        signal_every: 100,
        solicit_every: None,
    };

    #[test]
    fn last_message_of_each_queue_pair_is_signaled() {
        let all = [(6, false, false), (7, false, false), (8, true, false)];
        assert_eq!(flags(JOB, RULES, 5), all);
        let single = PostJob { first: 7, ..JOB };
        assert_eq!(flags(single, RULES, 7), [(8, true, false)]);
        let not_last = PostJob { last: 11, ..single };
        assert_eq!(flags(not_last, RULES, 7), [(8, false, false)]);
    }

    #[test]
    fn messages_are_signaled_at_the_given_interval() {
        let job = PostJob { last: 100, ..JOB };
        let rules = FlagRules {
            step: 1,
            signal_every: 3,
            ..RULES
        };
        let all = flags(job, rules, 0);
        let signaled: Vec<_> = all.iter().filter(|f| f.1).map(|f| f.0).collect();
        assert_eq!(signaled, [3, 6, 9]);
    }

    #[test]
    fn each_batch_and_the_last_message_are_solicited() {
        let job = PostJob { first: 0, ..JOB };
        let rules = FlagRules {
            step: 1,
            solicit_every: Some(4),
            ..RULES
        };
        let all = flags(job, rules, 0);
        let solicited: Vec<_> = all.iter().filter(|f| f.2).map(|f| f.0).collect();
        assert_eq!(solicited, [4, 8, 10]);
        let quiet = FlagRules {
            solicit_every: None,
            ..rules
        };
        assert!(flags(job, quiet, 0).iter().all(|flags| !flags.2));
    }
}
