//! Posts the messages of a test, and polls for their completions.
//!
//! A test posts all its messages in the same way: over one transport, with one verb, from one kind
//! of memory. [`Calls::new`] chooses the functions for it when the wire is created, so that posting
//! a message makes no choices. They are instances of generic functions for one [`WireTransport`],
//! one [`SendVerb`] or [`FetchVerb`], and one [`Source`].

use ibverbs::{
    DeviceRegion, Frozen, Held, Rc, SharedRegion, Uc, Ud,
    wr::{ReadPayload, SendRequest},
    xrc::XrcSend,
};

use super::completions::{PollFn, poll, poll_with_memory};
use super::memory::{Content, Memory};
use super::qp::QpState;
use super::verbs::{
    CompareSwap, FetchAdd, FetchVerb, Holdable, Inline, Marked, OwnBuffer, Read, Send,
    SendNumbered, SendVerb, Source, WireTransport, Write, WriteNumbered, fetch_target, missing,
};
use crate::common::error::Result;
use crate::rperf::spec::Shape;
use crate::rperf::spec::plan::{Pattern, Service, Verb};

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
    fn numbers(self, rules: &FlagRules) -> impl Iterator<Item = u64> {
        (self.first..self.end).step_by(usize::try_from(rules.step).unwrap_or(1))
    }
}

/// The tag and flags of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestFlags {
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
    fn next(&mut self, n: u64, last: u64, rules: &FlagRules) -> RequestFlags {
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
    fn set_on<O, P>(self, mut request: SendRequest<O, P>) -> SendRequest<O, P> {
        request = request.tag(self.tag);
        if !self.signaled {
            request = request.unsignaled();
        }
        if self.solicited {
            request = request.solicited();
        }
        request
    }
}

/// Posts message `n` of a test with `last` messages.
type PostOne = fn(&mut QpState, &mut Memory, &FlagRules, n: u64, last: u64) -> Result<()>;
/// Posts several messages of a queue pair as a list.
type PostList = fn(&mut QpState, &mut Memory, &FlagRules, &PostJob) -> Result<()>;

/// The functions for the messages of a test.
#[derive(Clone, Copy)]
pub(super) struct Calls {
    /// Posts a single message, which costs less than a list.
    pub(super) post_one: PostOne,
    pub(super) post_list: PostList,
    pub(super) poll: PollFn,
}

impl Calls {
    /// Returns the functions for the messages of `memory`.
    pub(super) fn new(memory: &Memory) -> Self {
        let plan = memory.shape.plan;
        let source = SourceKind::new(memory);
        match (plan.service, plan.verb) {
            (Service::Rc, Verb::Read) => Self::fetch_with::<Read>(source),
            (Service::Rc, Verb::CompareSwap) => Self::fetch_with::<CompareSwap>(source),
            (Service::Rc, Verb::FetchAdd) => Self::fetch_with::<FetchAdd>(source),
            (Service::Rc, Verb::Write) if plan.pattern == Pattern::Polled => {
                Self::write_marked::<Rc>(source)
            }
            (Service::Rc, Verb::Write) => Self::send_with::<Rc, Write>(source),
            (Service::Rc, Verb::WriteImm) => Self::send_with::<Rc, WriteNumbered>(source),
            (Service::Rc, Verb::Send) => Self::send_with::<Rc, Send>(source),
            (Service::Uc, Verb::Write) if plan.pattern == Pattern::Polled => {
                Self::write_marked::<Uc>(source)
            }
            (Service::Uc, Verb::Write) => Self::send_with::<Uc, Write>(source),
            (Service::Uc, Verb::WriteImm) => Self::send_with::<Uc, WriteNumbered>(source),
            (Service::Uc, _) => Self::send_with::<Uc, SendNumbered>(source),
            (Service::Ud, _) => Self::send_with::<Ud, SendNumbered>(source),
            (Service::Xrc, _) => Self::send_with::<XrcSend, Send>(source),
        }
    }

    fn send_with<T: WireTransport, V: SendVerb<T>>(source: SourceKind) -> Self {
        match source {
            SourceKind::Inline => Self::send::<T, V, Inline>(),
            SourceKind::Frozen | SourceKind::Shared => Self::send::<T, V, Frozen>(),
            SourceKind::Gpu => Self::send::<T, V, DeviceRegion>(),
            SourceKind::OwnBuffer => Self::send::<T, V, OwnBuffer>(),
        }
    }

    /// Returns the functions for writes to memory that the peer polls.
    fn write_marked<T: WireTransport>(source: SourceKind) -> Self
    where
        Write: SendVerb<T>,
    {
        let calls = match source {
            SourceKind::Inline => Self::send::<T, Write, Marked<Inline>>(),
            _ => Self::send::<T, Write, Marked<SharedRegion>>(),
        };
        Self {
            poll: poll_with_memory::<T>,
            ..calls
        }
    }

    fn send<T: WireTransport, V: SendVerb<T>, S: Source>() -> Self {
        Self {
            post_one: send_one::<T, V, S>,
            post_list: send_list::<T, V, S>,
            poll: poll::<T>,
        }
    }

    fn fetch_with<V: FetchVerb>(target: SourceKind) -> Self {
        match target {
            SourceKind::Gpu => Self::fetch::<V, DeviceRegion>(),
            _ => Self::fetch::<V, SharedRegion>(),
        }
    }

    fn fetch<V: FetchVerb, M: Holdable>() -> Self
    where
        Held<M>: ReadPayload,
    {
        Self {
            post_one: fetch_one::<V, M>,
            post_list: fetch_list::<V, M>,
            poll: poll::<Rc>,
        }
    }
}

/// The kind of memory that messages are sent from or fetched into.
#[derive(Clone, Copy)]
enum SourceKind {
    Inline,
    Frozen,
    Shared,
    Gpu,
    OwnBuffer,
}

impl SourceKind {
    fn new(memory: &Memory) -> Self {
        match &memory.content {
            Content::Same { source: None } | Content::Marked { copy: None } => Self::Inline,
            Content::Same { source: Some(_) } => Self::Frozen,
            Content::Marked { copy: Some(_) } | Content::Fetched { .. } => Self::Shared,
            Content::Distinct { .. } => Self::OwnBuffer,
            Content::Gpu => Self::Gpu,
        }
    }
}

fn send_one<T: WireTransport, V: SendVerb<T>, S: Source>(
    state: &mut QpState,
    memory: &mut Memory,
    rules: &FlagRules,
    n: u64,
    last: u64,
) -> Result<()> {
    let flags = state.sends.next(n, last, rules);
    S::prepare(memory, n)?;
    let (qp, to) = T::sender(&mut state.qp).ok_or_else(|| missing("queue pair"))?;
    let payload = S::payload(&state.held, memory, n)?;
    qp.post_send(flags.set_on(V::request(to, memory, n, payload)?))?;
    Ok(())
}

fn send_list<T: WireTransport, V: SendVerb<T>, S: Source>(
    state: &mut QpState,
    memory: &mut Memory,
    rules: &FlagRules,
    job: &PostJob,
) -> Result<()> {
    let (qp, to) = T::sender(&mut state.qp).ok_or_else(|| missing("queue pair"))?;
    let (held, sends) = (&state.held, &mut state.sends);
    qp.batch(|batch| -> ibverbs::Result<()> {
        for n in job.numbers(rules) {
            S::prepare(memory, n)?;
            let payload = S::payload(held, memory, n)?;
            let request = V::request(to, memory, n, payload)?;
            batch.send(sends.next(n, job.last, rules).set_on(request))?;
        }
        Ok(())
    })?;
    Ok(())
}

fn fetch_one<V: FetchVerb, M: Holdable>(
    state: &mut QpState,
    memory: &mut Memory,
    rules: &FlagRules,
    n: u64,
    last: u64,
) -> Result<()>
where
    Held<M>: ReadPayload,
{
    let flags = state.sends.next(n, last, rules);
    let (qp, ()) = Rc::sender(&mut state.qp).ok_or_else(|| missing("queue pair"))?;
    let target = fetch_target::<M>(&state.held, memory, n)?;
    qp.post_send(flags.set_on(V::request(memory, n, target)?))?;
    Ok(())
}

fn fetch_list<V: FetchVerb, M: Holdable>(
    state: &mut QpState,
    memory: &mut Memory,
    rules: &FlagRules,
    job: &PostJob,
) -> Result<()>
where
    Held<M>: ReadPayload,
{
    let (qp, ()) = Rc::sender(&mut state.qp).ok_or_else(|| missing("queue pair"))?;
    let (held, sends) = (&state.held, &mut state.sends);
    qp.batch(|batch| -> ibverbs::Result<()> {
        for n in job.numbers(rules) {
            let target = fetch_target::<M>(held, memory, n)?;
            let request = V::request(memory, n, target)?;
            batch.send(sends.next(n, job.last, rules).set_on(request))?;
        }
        Ok(())
    })?;
    Ok(())
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
