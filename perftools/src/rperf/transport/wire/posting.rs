//! Posts the messages of a test.
//!
//! [`SendVerb`] makes the request of a message from its payload, and `post_message` chooses the
//! payload.

use ibverbs::{
    Batch, ConnectedDuplexTransport, Held, Hold, QueuePair, Rc, RemoteMemory, SendTransport, Ud,
    wr::{self, Destination, Operation, ReadPayload, SendPayload, SendRequest},
    xrc::{SrqNum, XrcSend},
};

use super::memory::{Content, Memory};
use super::message_number::low_bits;
use super::qp::{AnyQp, QpState, SendSource};
use crate::common::error::Result;
use crate::rperf::spec::plan::Verb;

/// The messages to post on one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct PostJob {
    /// Number of the first message.
    pub(super) first: u64,
    /// End of the range of numbers, exclusive.
    pub(super) end: u64,
    /// Difference between the numbers of two messages on one queue pair: the number of queue
    /// pairs.
    pub(super) step: u64,
    /// Every `signal_every`-th message of the queue pair requests a completion.
    pub(super) signal_every: u64,
    /// Number of messages in the test. The last one on each queue pair requests a completion.
    pub(super) last: u64,
    /// Messages carry their numbers as immediate data.
    pub(super) numbered: bool,
    /// Number of messages after which one is solicited, if any. It wakes a receiver that sleeps
    /// until it must return credit.
    pub(super) solicit_every: Option<u64>,
}

/// The tag and flags of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestFlags {
    /// Messages posted on the queue pair up to and including this one.
    tag: u64,
    signaled: bool,
    solicited: bool,
}

impl PostJob {
    /// Returns `true` if the job is a single message.
    #[inline]
    fn is_single(&self) -> bool {
        self.first + self.step >= self.end
    }

    #[inline]
    fn flags(&self, n: u64, tag: u64) -> RequestFlags {
        let is_last = n + self.step >= self.last;
        RequestFlags {
            tag,
            signaled: is_last || tag % self.signal_every == 0,
            solicited: self
                .solicit_every
                .is_some_and(|batch| is_last || tag % batch == 0),
        }
    }

    /// Returns the number and flags of the single message, after `posted` messages.
    #[inline]
    fn single(&self, posted: u64) -> (u64, RequestFlags) {
        (self.first, self.flags(self.first, posted + 1))
    }

    /// Returns the numbers and flags of all messages, after `posted` messages.
    #[inline]
    fn each(&self, posted: u64) -> impl Iterator<Item = (u64, RequestFlags)> {
        let numbers = (self.first..self.end).step_by(usize::try_from(self.step).unwrap_or(1));
        numbers
            .zip(posted + 1..)
            .map(|(n, tag)| (n, self.flags(n, tag)))
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

/// A verb that sends or writes a payload over transport `T`.
trait SendVerb<T: SendTransport>: Copy {
    /// Makes the request of message `n`.
    fn request<P: SendPayload>(
        self,
        n: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<T, P>, P>>;
}

/// Send.
#[derive(Clone, Copy)]
struct Send;

impl<T: ConnectedDuplexTransport> SendVerb<T> for Send {
    #[inline]
    fn request<P: SendPayload>(
        self,
        _: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<T, P>, P>> {
        Ok(wr::send(payload))
    }
}

/// Send with the number of the message.
#[derive(Clone, Copy)]
struct SendNumbered;

impl<T: ConnectedDuplexTransport> SendVerb<T> for SendNumbered {
    #[inline]
    fn request<P: SendPayload>(
        self,
        n: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<T, P>, P>> {
        Ok(wr::send_with_imm(payload, low_bits(n)))
    }
}

/// Send to a shared receive queue of the peer.
#[derive(Clone, Copy)]
struct SendToSrq(SrqNum);

impl SendVerb<XrcSend> for SendToSrq {
    #[inline]
    fn request<P: SendPayload>(
        self,
        _: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<XrcSend, P>, P>> {
        Ok(wr::send(payload).for_srq(self.0))
    }
}

/// Send of a datagram.
#[derive(Clone, Copy)]
struct SendTo(Destination);

impl SendVerb<Ud> for SendTo {
    #[inline]
    fn request<P: SendPayload>(
        self,
        _: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<Ud, P>, P>> {
        Ok(wr::send_to(payload, self.0))
    }
}

/// Send of a datagram with the number of the message.
#[derive(Clone, Copy)]
struct SendToNumbered(Destination);

impl SendVerb<Ud> for SendToNumbered {
    #[inline]
    fn request<P: SendPayload>(
        self,
        n: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<Ud, P>, P>> {
        Ok(wr::send_to_with_imm(payload, self.0, low_bits(n)))
    }
}

/// The slots of the peer's memory that messages are written to or fetched from.
#[derive(Clone, Copy)]
struct RemoteSlots<'a> {
    memory: &'a Memory,
    remote: Option<&'a RemoteMemory>,
}

impl RemoteSlots<'_> {
    #[inline]
    fn slot(self, n: u64) -> ibverbs::Result<RemoteMemory> {
        let size = u64::from(self.memory.shape.msg_size);
        self.remote
            .and_then(|remote| remote.slice(self.memory.slot_offset(n) as u64, size))
            .ok_or_else(|| missing("memory of the peer"))
    }
}

/// RDMA write.
#[derive(Clone, Copy)]
struct Write<'a>(RemoteSlots<'a>);

impl<T: ConnectedDuplexTransport> SendVerb<T> for Write<'_> {
    #[inline]
    fn request<P: SendPayload>(
        self,
        n: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<T, P>, P>> {
        Ok(wr::write(payload, self.0.slot(n)?))
    }
}

/// RDMA write with the number of the message as immediate data.
#[derive(Clone, Copy)]
struct WriteNumbered<'a>(RemoteSlots<'a>);

impl<T: ConnectedDuplexTransport> SendVerb<T> for WriteNumbered<'_> {
    #[inline]
    fn request<P: SendPayload>(
        self,
        n: u64,
        payload: P,
    ) -> ibverbs::Result<SendRequest<impl Operation<T, P>, P>> {
        Ok(wr::write_with_imm(payload, self.0.slot(n)?, low_bits(n)))
    }
}

/// A send queue, or a batch of requests for it.
trait SendQueue<T: SendTransport> {
    fn post<O: Operation<T, P>, P: SendPayload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> ibverbs::Result<()>;
}

impl<T: SendTransport> SendQueue<T> for QueuePair<T> {
    #[inline]
    fn post<O: Operation<T, P>, P: SendPayload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> ibverbs::Result<()> {
        Ok(self.post_send(request)?)
    }
}

impl<T: SendTransport> SendQueue<T> for Batch<'_, T> {
    #[inline]
    fn post<O: Operation<T, P>, P: SendPayload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> ibverbs::Result<()> {
        Ok(self.send(request)?)
    }
}

/// Posts the request of message `n` with the payload from `memory`.
#[inline]
fn post_message<T: SendTransport>(
    queue: &mut impl SendQueue<T>,
    verb: impl SendVerb<T>,
    source: &SendSource,
    memory: &Memory,
    (n, flags): (u64, RequestFlags),
) -> ibverbs::Result<()> {
    let is_inline = |bytes: &[u8]| bytes.len() <= source.max_inline as usize;
    match &memory.content {
        Content::Same { bytes } if is_inline(bytes) => {
            queue.post(flags.set_on(verb.request(n, wr::Inline(bytes))?))
        }
        Content::Same { .. } => {
            let payload = source.frozen.ok_or_else(|| missing("source"))?;
            queue.post(flags.set_on(verb.request(n, payload)?))
        }
        Content::Distinct { sends, .. } => {
            let mut payload = sends.take().ok_or_else(|| missing("free buffer"))?;
            if memory.shape.verify {
                memory.payload.fill(&mut payload, n);
            }
            queue.post(flags.set_on(verb.request(n, payload)?))
        }
        Content::Marked { bytes, .. } if is_inline(bytes) => {
            queue.post(flags.set_on(verb.request(n, wr::Inline(bytes))?))
        }
        Content::Marked { bytes, .. } => {
            let payload = source.shared.and_then(|held| held.slice(0..bytes.len()));
            let payload = payload.ok_or_else(|| missing("source"))?;
            queue.post(flags.set_on(verb.request(n, payload)?))
        }
        Content::Gpu => {
            let payload = source.gpu.ok_or_else(|| missing("source"))?;
            queue.post(flags.set_on(verb.request(n, payload)?))
        }
        Content::Fetched { .. } => Err(missing("message to send")),
    }
}

/// Posts the messages of a job with one verb. A single message is posted without a batch, which
/// costs less.
#[inline]
fn post_all<T: SendTransport>(
    qp: &mut QueuePair<T>,
    verb: impl SendVerb<T>,
    source: &SendSource,
    memory: &Memory,
    job: &PostJob,
    posted: u64,
) -> ibverbs::Result<()> {
    if job.is_single() {
        return post_message(qp, verb, source, memory, job.single(posted));
    }
    qp.batch(|batch| {
        for message in job.each(posted) {
            post_message(batch, verb, source, memory, message)?;
        }
        Ok(())
    })
}

/// Posts the messages of a job on a queue pair.
#[inline]
pub(super) fn post(
    state: &mut QpState,
    memory: &Memory,
    remote: Option<&RemoteMemory>,
    job: &PostJob,
) -> Result<()> {
    let QpState {
        qp, source, posted, ..
    } = state;
    match qp {
        AnyQp::Rc(qp) => post_reliable(qp, source, memory, remote, job, *posted),
        AnyQp::Cm(connection) => {
            post_reliable(connection.qp_mut(), source, memory, remote, job, *posted)
        }
        AnyQp::Uc(qp) => post_connected(qp, source, memory, remote, job, *posted),
        AnyQp::Ud(qp, to) if job.numbered => {
            post_all(qp, SendToNumbered(*to), source, memory, job, *posted)
        }
        AnyQp::Ud(qp, to) => post_all(qp, SendTo(*to), source, memory, job, *posted),
        AnyQp::Xrc(connection) => {
            let verb = SendToSrq(connection.peer_srq);
            post_all(&mut connection.sender, verb, source, memory, job, *posted)
        }
    }?;
    *posted += if job.is_single() {
        1
    } else {
        (job.end - job.first).div_ceil(job.step)
    };
    Ok(())
}

/// Posts with the verbs that all connections have.
fn post_connected<T: ConnectedDuplexTransport>(
    qp: &mut QueuePair<T>,
    source: &SendSource,
    memory: &Memory,
    remote: Option<&RemoteMemory>,
    job: &PostJob,
    posted: u64,
) -> ibverbs::Result<()> {
    let slots = RemoteSlots { memory, remote };
    match memory.shape.plan.verb {
        Verb::Write => post_all(qp, Write(slots), source, memory, job, posted),
        Verb::WriteImm => post_all(qp, WriteNumbered(slots), source, memory, job, posted),
        _ if job.numbered => post_all(qp, SendNumbered, source, memory, job, posted),
        _ => post_all(qp, Send, source, memory, job, posted),
    }
}

/// Posts with the verbs of reliable connections: RDMA reads, atomics, and those of all connections.
fn post_reliable(
    qp: &mut QueuePair<Rc>,
    source: &SendSource,
    memory: &Memory,
    remote: Option<&RemoteMemory>,
    job: &PostJob,
    posted: u64,
) -> ibverbs::Result<()> {
    if !memory.shape.plan.verb.fetches() {
        return post_connected(qp, source, memory, remote, job, posted);
    }
    match (source.shared, source.gpu) {
        (Some(held), _) => post_fetches(qp, held, memory, remote, job, posted),
        (None, Some(held)) => post_fetches(qp, held, memory, remote, job, posted),
        (None, None) => Err(missing("memory to fetch into")),
    }
}

/// Posts RDMA reads or atomics into held memory.
fn post_fetches<M: Hold>(
    qp: &mut QueuePair<Rc>,
    held: Held<M>,
    memory: &Memory,
    remote: Option<&RemoteMemory>,
    job: &PostJob,
    posted: u64,
) -> ibverbs::Result<()>
where
    Held<M>: ReadPayload,
{
    let (stride, size) = (memory.shape.stride(), memory.shape.msg_size as usize);
    let fetch_slots = (held.len() / stride) as u64;
    let target = |n: u64| {
        let start = usize::try_from(n % fetch_slots).unwrap_or(0) * stride;
        held.slice(start..start + size)
            .ok_or_else(|| missing("memory to fetch into"))
    };
    let slots = RemoteSlots { memory, remote };
    let verb = memory.shape.plan.verb;
    // Each queue pair has a counter of its own in the peer's memory.
    let count = |n: u64| n / u64::from(memory.shape.qps);
    qp.batch(|batch| {
        for (n, flags) in job.each(posted) {
            let (target, slot) = (target(n)?, slots.slot(n)?);
            match verb {
                Verb::CompareSwap => {
                    let request = wr::compare_swap(target, slot, count(n), count(n) + 1);
                    batch.send(flags.set_on(request))?;
                }
                Verb::FetchAdd => batch.send(flags.set_on(wr::fetch_add(target, slot, 1)))?,
                _ => batch.send(flags.set_on(wr::read(target, slot)))?,
            }
        }
        Ok(())
    })
}

#[cold]
fn missing(what: &str) -> ibverbs::Error {
    ibverbs::Error::new(
        ibverbs::ErrorKind::InvalidInput,
        "post",
        format!("there is no {what}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_message_of_each_queue_pair_is_signaled() {
        let job = PostJob {
            first: 1,
            end: 10,
            step: 3,
            signal_every: 100,
            last: 10,
            numbered: false,
            solicit_every: None,
        };
        let two = PostJob {
            first: 4,
            end: 8,
            ..job
        };
        let single = PostJob { first: 7, ..job };
        assert!(!job.is_single() && !two.is_single() && single.is_single());
        let flags = |tag, signaled| RequestFlags {
            tag,
            signaled,
            solicited: false,
        };
        assert_eq!(single.single(7), (7, flags(8, true)));
        let not_last = PostJob { last: 11, ..single };
        assert_eq!(not_last.single(7), (7, flags(8, false)));
        let all: Vec<_> = job.each(5).collect();
        assert_eq!(
            all,
            [
                (1, flags(6, false)),
                (4, flags(7, false)),
                (7, flags(8, true))
            ]
        );
    }

    #[test]
    fn each_batch_and_the_last_message_are_solicited() {
        let job = PostJob {
            first: 0,
            end: 10,
            step: 1,
            signal_every: 100,
            last: 10,
            numbered: false,
            solicit_every: Some(4),
        };
        let solicited: Vec<_> = job
            .each(0)
            .filter(|(_, flags)| flags.solicited)
            .map(|(n, _)| n)
            .collect();
        assert_eq!(solicited, [3, 7, 9]);
        let quiet = PostJob {
            solicit_every: None,
            ..job
        };
        assert!(quiet.each(0).all(|(_, flags)| !flags.solicited));
    }
}
