//! Posting the messages of a test, verb by verb.

use ibverbs::{
    ConnectedDuplexTransport, QueuePair, Rc, RemoteMemory, Ud,
    wr::{self, Destination},
};

use super::memory::{Content, Memory};
use super::qp::{AnyQp, QpState, SendSource};
use crate::common::error::Result;
use crate::rperf::engine::payload;
use crate::rperf::spec::plan::Verb;
use crate::rperf::transport::xrc::XrcConnection;

/// Which of the messages to post: those on one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct PostJob {
    /// The first, and the one after the last.
    pub(super) first: u64,
    pub(super) end: u64,
    /// From one to the next.
    pub(super) step: u64,
    pub(super) signal_every: u64,
    /// The last of the test.
    pub(super) last: u64,
    /// Whether numbers travel with the messages.
    pub(super) numbered: bool,
    /// Every so many wake a receiver that sleeps until it has to return credit.
    pub(super) solicits: Option<u64>,
}

/// What a message's request says beside where its content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestFlags {
    /// How many were posted on its queue pair up to it.
    tag: u64,
    signalled: bool,
    solicited: bool,
}

impl PostJob {
    /// Whether it is a single message.
    #[inline]
    fn is_one(&self) -> bool {
        self.first + self.step >= self.end
    }

    #[inline]
    fn mark(&self, n: u64, tag: u64) -> RequestFlags {
        let last = n + self.step >= self.last;
        RequestFlags {
            tag,
            signalled: last || tag % self.signal_every == 0,
            solicited: self.solicits.is_some_and(|batch| last || tag % batch == 0),
        }
    }

    /// The only message.
    #[inline]
    fn one(&self, posted: u64) -> (u64, RequestFlags) {
        (self.first, self.mark(self.first, posted + 1))
    }

    /// The messages by number.
    #[inline]
    fn each(&self, posted: u64) -> impl Iterator<Item = (u64, RequestFlags)> {
        let numbers = (self.first..self.end).step_by(usize::try_from(self.step).unwrap_or(1));
        numbers
            .zip(posted + 1..)
            .map(|(n, tag)| (n, self.mark(n, tag)))
    }
}

impl RequestFlags {
    #[inline]
    fn on<O, P>(self, request: wr::SendRequest<O, P>) -> wr::SendRequest<O, P> {
        let request = request.tag(self.tag);
        let request = if self.signalled {
            request
        } else {
            request.unsignaled()
        };
        if self.solicited {
            request.solicited()
        } else {
            request
        }
    }
}

/// Gives one request to `$put`, with what the content gives message `$n` as payload.
macro_rules! put {
    ($put:expr, $mark:expr, $source:expr, $memory:expr, |$n:ident, $payload:ident| $request:expr) => {
        match &$memory.content {
            Content::Same { bytes } if bytes.len() <= $source.max_inline as usize => {
                let $payload = wr::Inline(bytes);
                $put($mark.on($request))?;
            }
            Content::Same { .. } => {
                let $payload = $source.frozen.ok_or_else(|| missing("source"))?;
                $put($mark.on($request))?;
            }
            Content::Distinct { sends, .. } => {
                let mut $payload = sends.take().ok_or_else(|| missing("free buffer"))?;
                if $memory.shape.verify {
                    payload::fill(&mut $payload, $n);
                }
                $put($mark.on($request))?;
            }
            Content::Marked { bytes, .. } if bytes.len() <= $source.max_inline as usize => {
                let $payload = wr::Inline(bytes);
                $put($mark.on($request))?;
            }
            Content::Marked { bytes, .. } => {
                let $payload = $source.shared.and_then(|held| held.slice(0..bytes.len()));
                let $payload = $payload.ok_or_else(|| missing("source"))?;
                $put($mark.on($request))?;
            }
            Content::Fetched { .. } => return Err(missing("message to send")),
        }
    };
}

/// Posts a request for each message of a job: one alone where there is but one, which takes less
/// than a list of one.
macro_rules! post_each {
    ($qp:expr, $job:expr, $posted:expr, $source:expr, $memory:expr, |$n:ident, $payload:ident| $request:expr) => {
        if $job.is_one() {
            let ($n, mark) = $job.one($posted);
            put!(
                |request| $qp.post_send(request),
                mark,
                $source,
                $memory,
                |$n, $payload| $request
            );
            Ok(())
        } else {
            $qp.batch(|batch| {
                for ($n, mark) in $job.each($posted) {
                    put!(
                        |request| batch.send(request),
                        mark,
                        $source,
                        $memory,
                        |$n, $payload| $request
                    );
                }
                Ok(())
            })
        }
    };
}

/// Posts the messages of a job on a lane.
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
    let outcome = match qp {
        AnyQp::Rc(qp) => reliable(qp, source, memory, remote, job, *posted),
        AnyQp::Cm(connection) => {
            reliable(connection.qp_mut(), source, memory, remote, job, *posted)
        }
        AnyQp::Uc(qp) => connected(qp, source, memory, remote, job, *posted),
        AnyQp::Ud(qp, to) => datagrams(qp, *to, source, memory, job, *posted),
        AnyQp::Xrc(connection) => extended(connection, source, memory, job, *posted),
    };
    outcome?;
    *posted += if job.is_one() {
        1
    } else {
        (job.end - job.first).div_ceil(job.step)
    };
    Ok(())
}

/// What every connection has.
fn connected<T: ConnectedDuplexTransport>(
    qp: &mut QueuePair<T>,
    source: &SendSource,
    memory: &Memory,
    remote: Option<&RemoteMemory>,
    job: &PostJob,
    posted: u64,
) -> ibverbs::Result<()> {
    let size = u64::from(memory.shape.msg_size);
    let place = |n: u64| {
        let offset = memory.slot(n) as u64;
        remote
            .and_then(|r| r.slice(offset, size))
            .ok_or_else(|| missing("memory of the peer's"))
    };
    match memory.shape.plan.verb {
        Verb::Write => post_each!(qp, job, posted, source, memory, |n, payload| wr::write(
            payload,
            place(n)?
        )),
        Verb::WriteImm => {
            post_each!(qp, job, posted, source, memory, |n, payload| {
                wr::write_with_imm(payload, place(n)?, low(n))
            })
        }
        _ if job.numbered => {
            post_each!(qp, job, posted, source, memory, |n, payload| {
                wr::send_with_imm(payload, low(n))
            })
        }
        _ => post_each!(qp, job, posted, source, memory, |_n, payload| wr::send(
            payload
        )),
    }
}

/// What only reliable connections have, and what every connection has.
fn reliable(
    qp: &mut QueuePair<Rc>,
    source: &SendSource,
    memory: &Memory,
    remote: Option<&RemoteMemory>,
    job: &PostJob,
    posted: u64,
) -> ibverbs::Result<()> {
    let Content::Fetched { .. } = &memory.content else {
        return connected(qp, source, memory, remote, job, posted);
    };
    let (stride, size) = (memory.shape.stride(), memory.shape.msg_size as usize);
    let held = source
        .shared
        .ok_or_else(|| missing("memory to fetch into"))?;
    let remote = remote.ok_or_else(|| missing("memory of the peer's"))?;
    let fetch_slots = (held.len() / stride) as u64;
    let place = |n: u64| {
        let start = usize::try_from(n % fetch_slots).unwrap_or(0) * stride;
        held.slice(start..start + size)
            .ok_or_else(|| missing("memory to fetch into"))
    };
    let slot = |n: u64| {
        remote
            .slice(memory.slot(n) as u64, size as u64)
            .ok_or_else(|| missing("memory of the peer's"))
    };
    let verb = memory.shape.plan.verb;
    let turn = |n: u64| n / u64::from(memory.shape.qps);
    qp.batch(|batch| {
        for (n, mark) in job.each(posted) {
            match verb {
                Verb::CompareSwap => {
                    batch.send(mark.on(wr::compare_swap(
                        place(n)?,
                        slot(n)?,
                        turn(n),
                        turn(n) + 1,
                    )))?;
                }
                Verb::FetchAdd => batch.send(mark.on(wr::fetch_add(place(n)?, slot(n)?, 1)))?,
                _ => batch.send(mark.on(wr::read(place(n)?, slot(n)?)))?,
            }
        }
        Ok(())
    })
}

/// What goes to the shared receive queue of the peer.
fn extended(
    connection: &mut XrcConnection,
    source: &SendSource,
    memory: &Memory,
    job: &PostJob,
    posted: u64,
) -> ibverbs::Result<()> {
    let to = connection.to;
    post_each!(
        connection.sender,
        job,
        posted,
        source,
        memory,
        |_n, payload| { wr::send(payload).for_srq(to) }
    )
}

fn datagrams(
    qp: &mut QueuePair<Ud>,
    to: Destination,
    source: &SendSource,
    memory: &Memory,
    job: &PostJob,
    posted: u64,
) -> ibverbs::Result<()> {
    if job.numbered {
        post_each!(qp, job, posted, source, memory, |n, payload| {
            wr::send_to_with_imm(payload, to, low(n))
        })
    } else {
        post_each!(qp, job, posted, source, memory, |_n, payload| wr::send_to(
            payload, to
        ))
    }
}

/// What travels of a number.
#[allow(clippy::cast_possible_truncation)] // 32 bits of it, see `widened`.
pub(super) fn low(n: u64) -> u32 {
    n as u32
}

/// The number near `expected` of which these bits travelled.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // The difference of the low bits, as a signed number.
pub(super) fn widened(low: u32, expected: u64) -> u64 {
    expected.wrapping_add_signed(i64::from(low.wrapping_sub(expected as u32) as i32))
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
    fn a_number_comes_back_from_its_low_bits_near_what_is_expected() {
        for n in [0_u64, 1, 1000, u64::from(u32::MAX), 1 << 32, (1 << 40) + 7] {
            for off in [-1000_i64, -1, 0, 1, 1000] {
                let Some(expected) = n.checked_add_signed(off) else {
                    continue;
                };
                assert_eq!(widened(low(n), expected), n);
            }
        }
    }

    #[test]
    fn each_queue_pair_asks_for_its_last_completion() {
        let job = PostJob {
            first: 1,
            end: 10,
            step: 3,
            signal_every: 100,
            last: 10,
            numbered: false,
            solicits: None,
        };
        let (nearly, alone) = (
            PostJob {
                first: 4,
                end: 8,
                ..job
            },
            PostJob { first: 7, ..job },
        );
        assert!(!job.is_one() && !nearly.is_one() && alone.is_one());
        let mark = |tag, signalled| RequestFlags {
            tag,
            signalled,
            solicited: false,
        };
        assert_eq!(alone.one(7), (7, mark(8, true)));
        assert_eq!(PostJob { last: 11, ..alone }.one(7), (7, mark(8, false)));
        let all: Vec<_> = job.each(5).collect();
        assert_eq!(
            all,
            [(1, mark(6, false)), (4, mark(7, false)), (7, mark(8, true))]
        );
    }

    #[test]
    fn who_returns_credit_is_woken_for_it_and_for_the_last_message() {
        let job = PostJob {
            first: 0,
            end: 10,
            step: 1,
            signal_every: 100,
            last: 10,
            numbered: false,
            solicits: Some(4),
        };
        let woken: Vec<_> = job
            .each(0)
            .filter(|(_, mark)| mark.solicited)
            .map(|(n, _)| n)
            .collect();
        assert_eq!(woken, [3, 7, 9]);
        assert!(
            PostJob {
                solicits: None,
                ..job
            }
            .each(0)
            .all(|(_, mark)| !mark.solicited)
        );
    }
}
