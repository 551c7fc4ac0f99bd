//! Posts the messages of a test, and polls for their completions.
//!
//! A test posts all its messages in the same way: over one transport, with one verb, from one kind
//! of memory. [`Calls::new`] chooses the functions for it when the data path is created, so that
//! posting a message makes no choices. They are instances of generic functions for one
//! [`DataPathTransport`], one [`SendVerb`] or [`FetchVerb`], and one [`Source`].

use base::error::Result;
use ibverbs::{
    DeviceRegion, Frozen, Held, Rc, SharedRegion, Uc, Ud, dc::Dc, efa::Srd, wr::ReadPayload,
    xrc::XrcSend,
};

use super::completions::{PollFn, poll, poll_with_memory};
use super::flags::{FlagRules, PostJob};
use super::memory::{Content, Memory};
use super::qp::QpState;
use super::verbs::{
    CompareSwap, DataPathTransport, FetchAdd, FetchVerb, Holdable, Inline, Marked, MarkedPart,
    OwnBuffer, Read, Send, SendNumbered, SendVerb, Source, Write, WriteNumbered, fetch_target,
    missing,
};
use crate::spec::plan::{Pattern, Service, Verb};

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
        let polled = plan.pattern == Pattern::Polled;
        match (plan.service, plan.verb) {
            (Service::Rc, verb) => Self::connected::<Rc>(verb, polled, source),
            (Service::Xrc, verb) => Self::connected::<XrcSend>(verb, polled, source),
            (Service::Dc, verb) => Self::connected::<Dc>(verb, polled, source),
            (Service::Uc, Verb::Write) if polled => Self::write_marked::<Uc>(source),
            (Service::Uc, Verb::Write) => Self::send_with::<Uc, Write>(source),
            (Service::Uc, Verb::WriteImm) => Self::send_with::<Uc, WriteNumbered>(source),
            (Service::Uc, _) => Self::send_with::<Uc, SendNumbered>(source),
            (Service::Ud, _) => Self::send_with::<Ud, SendNumbered>(source),
            (Service::Srd, Verb::Read) => Self::fetch_with::<Srd, Read>(source),
            (Service::Srd, Verb::Write) => Self::send_with::<Srd, Write>(source),
            (Service::Srd, Verb::WriteImm) => Self::send_with::<Srd, WriteNumbered>(source),
            (Service::Srd, _) => Self::send_with::<Srd, SendNumbered>(source),
        }
    }

    /// Returns the functions for a transport that has all verbs.
    fn connected<T: DataPathTransport>(verb: Verb, polled: bool, source: SourceKind) -> Self
    where
        Send: SendVerb<T>,
        SendNumbered: SendVerb<T>,
        Write: SendVerb<T>,
        WriteNumbered: SendVerb<T>,
        Read: FetchVerb<T>,
        CompareSwap: FetchVerb<T>,
        FetchAdd: FetchVerb<T>,
    {
        match verb {
            Verb::Read => Self::fetch_with::<T, Read>(source),
            Verb::CompareSwap => Self::fetch_with::<T, CompareSwap>(source),
            Verb::FetchAdd => Self::fetch_with::<T, FetchAdd>(source),
            Verb::Write if polled => Self::write_marked::<T>(source),
            Verb::Write => Self::send_with::<T, Write>(source),
            Verb::WriteImm => Self::send_with::<T, WriteNumbered>(source),
            Verb::Send => Self::send_with::<T, Send>(source),
            Verb::SendImm => Self::send_with::<T, SendNumbered>(source),
        }
    }

    fn send_with<T: DataPathTransport, V: SendVerb<T>>(source: SourceKind) -> Self {
        match source {
            SourceKind::Inline => Self::send::<T, V, Inline>(),
            SourceKind::Frozen | SourceKind::Shared => Self::send::<T, V, Frozen>(),
            SourceKind::Gpu => Self::send::<T, V, DeviceRegion>(),
            SourceKind::OwnBuffer => Self::send::<T, V, OwnBuffer>(),
        }
    }

    /// Returns the functions for writes to memory that the peer polls.
    fn write_marked<T: DataPathTransport>(source: SourceKind) -> Self
    where
        Write: SendVerb<T>,
    {
        let calls = match source {
            SourceKind::Inline => Self::send::<T, Write, Marked<Inline>>(),
            SourceKind::Frozen => Self::send::<T, Write, MarkedPart>(),
            _ => Self::send::<T, Write, Marked<SharedRegion>>(),
        };
        Self {
            poll: poll_with_memory::<T>,
            ..calls
        }
    }

    fn send<T: DataPathTransport, V: SendVerb<T>, S: Source>() -> Self {
        Self {
            post_one: send_one::<T, V, S>,
            post_list: send_list::<T, V, S>,
            poll: poll::<T>,
        }
    }

    fn fetch_with<T: DataPathTransport, V: FetchVerb<T>>(target: SourceKind) -> Self {
        match target {
            SourceKind::Gpu => Self::fetch::<T, V, DeviceRegion>(),
            _ => Self::fetch::<T, V, SharedRegion>(),
        }
    }

    fn fetch<T: DataPathTransport, V: FetchVerb<T>, M: Holdable>() -> Self
    where
        Held<M>: ReadPayload,
    {
        Self {
            post_one: fetch_one::<T, V, M>,
            post_list: fetch_list::<T, V, M>,
            poll: poll::<T>,
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
            Content::Same { source: Some(_) } | Content::MarkedParts { .. } => Self::Frozen,
            Content::Marked { copy: Some(_) } | Content::Fetched { .. } => Self::Shared,
            Content::Distinct { .. } => Self::OwnBuffer,
            Content::Gpu => Self::Gpu,
        }
    }
}

fn send_one<T: DataPathTransport, V: SendVerb<T>, S: Source>(
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
    T::advance(&mut state.qp);
    Ok(())
}

fn send_list<T: DataPathTransport, V: SendVerb<T>, S: Source>(
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
    T::advance(&mut state.qp);
    Ok(())
}

fn fetch_one<T: DataPathTransport, V: FetchVerb<T>, M: Holdable>(
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
    let (qp, to) = T::sender(&mut state.qp).ok_or_else(|| missing("queue pair"))?;
    let target = fetch_target::<M>(&state.held, memory, n)?;
    qp.post_send(flags.set_on(V::request(to, memory, n, target)?))?;
    T::advance(&mut state.qp);
    Ok(())
}

fn fetch_list<T: DataPathTransport, V: FetchVerb<T>, M: Holdable>(
    state: &mut QpState,
    memory: &mut Memory,
    rules: &FlagRules,
    job: &PostJob,
) -> Result<()>
where
    Held<M>: ReadPayload,
{
    let (qp, to) = T::sender(&mut state.qp).ok_or_else(|| missing("queue pair"))?;
    let (held, sends) = (&state.held, &mut state.sends);
    qp.batch(|batch| -> ibverbs::Result<()> {
        for n in job.numbers(rules) {
            let target = fetch_target::<M>(held, memory, n)?;
            let request = V::request(to, memory, n, target)?;
            batch.send(sends.next(n, job.last, rules).set_on(request))?;
        }
        Ok(())
    })?;
    T::advance(&mut state.qp);
    Ok(())
}
