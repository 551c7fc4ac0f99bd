//! Counts the messages and credits that have completed, and checks received payload.

use std::ops::Range;

use base::error::{Error, Result};
use ibverbs::{Buf, Completion, CompletionQueue, Direction, Qpn, Retired, WcOpcode};

use super::QpGroup;
use super::memory::Content;
use super::qp::{AnyQp, QpState};
use super::verbs::DataPathTransport;
use crate::engine::payload;
use crate::spec::ARRIVALS_WINDOW;

/// Number of times that all messages in flight may be lost before one arrives. A sender without
/// credit sends them every 100 ms.
const MAX_LOST_WINDOWS: u64 = 1024;

/// A message or credit that was received.
struct Received {
    /// Length of the payload in bytes.
    len: usize,
    opcode: WcOpcode,
    imm: Option<u32>,
    /// Sender of a datagram.
    source: Qpn,
    buf: Option<Buf>,
}

/// Polls for completions, and returns their number.
pub(super) type PollFn = fn(&mut CompletionQueue, &mut QpGroup) -> Result<u32>;

/// Polls the completion queue.
pub(super) fn poll<T: DataPathTransport>(
    cq: &mut CompletionQueue,
    group: &mut QpGroup,
) -> Result<u32> {
    let mut completions = 0;
    if group.polls_one {
        if let Some(completion) = cq.poll_one()? {
            completions += u32::from(group.handle_completion::<T>(completion)?);
        }
    } else {
        for completion in cq.poll()? {
            completions += u32::from(group.handle_completion::<T>(completion)?);
        }
    }
    if let Some(turns) = &mut group.turns {
        turns.advance(&group.qps, group.memory.shape.batch, &mut group.counts);
    }
    Ok(completions)
}

/// Polls memory for messages, and from time to time the completion queue.
pub(super) fn poll_with_memory<T: DataPathTransport>(
    cq: &mut CompletionQueue,
    group: &mut QpGroup,
) -> Result<u32> {
    if group.poll_memory_repeatedly()? {
        return Ok(1);
    }
    group.unpolled = 0;
    Ok(poll::<T>(cq, group)? + u32::from(group.poll_memory()?))
}

impl QpGroup {
    /// Retires a completion and counts its message or credit. Returns `false` if it belongs to no
    /// request in flight.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    fn handle_completion<T: DataPathTransport>(
        &mut self,
        completion: Completion<'_>,
    ) -> Result<bool> {
        let source = completion.source().qpn;
        let state = self.qps.get_mut(self.latest);
        let state = state.filter(|state| state.id == completion.queue());
        match state.and_then(|state| T::sender(&mut state.qp)) {
            Some((qp, _)) => match qp.retire(completion) {
                Ok(retired) => self.handle_retired(retired, source).map(|()| true),
                Err(_) => Ok(false),
            },
            None => self.handle_other(completion),
        }
    }

    /// Does the same for a completion of a shared receive queue, or of a queue pair that is not the
    /// latest one.
    #[inline(never)]
    fn handle_other(&mut self, completion: Completion<'_>) -> Result<bool> {
        let source = completion.source().qpn;
        match self.retire_other(completion) {
            Some(retired) => self.handle_retired(retired, source).map(|()| true),
            None => Ok(false),
        }
    }

    /// Retires a completion of a shared receive queue or of any queue pair, which becomes the
    /// latest one. Returns `None` if it belongs to no request in flight.
    fn retire_other(&mut self, completion: Completion<'_>) -> Option<Retired> {
        let (queue, qpn) = (completion.queue(), completion.qp_num());
        if self.recv_queues.shared_id() == Some(queue) {
            let retired = self.recv_queues.retire(completion);
            self.latest = self.find(|state| state.recv_qpns.contains(&qpn))?;
            return retired;
        }
        self.latest = self.find(|state| state.id == queue)?;
        self.qps[self.latest].qp.retire(completion)
    }

    /// Returns the index of a queue pair. Messages use the queue pairs in turn, so it is usually
    /// the one after the latest.
    fn find(&self, is_wanted: impl Fn(&QpState) -> bool) -> Option<usize> {
        let mut indices = (self.latest + 1..self.qps.len()).chain(0..=self.latest);
        indices.find(|&index| self.qps.get(index).is_some_and(&is_wanted))
    }

    /// Counts the message or credit of a completion of the latest queue pair.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    fn handle_retired(&mut self, retired: Retired, source: Qpn) -> Result<()> {
        retired.check()?;
        if retired.direction() == Direction::Send {
            return self.handle_send(retired.opcode(), retired.tag());
        }
        self.recv_queues.record_use(self.latest);
        if self.counted_len == Some(retired.received_len()) {
            self.counts.next_expected += 1;
            self.counts.arrived.msgs += 1;
            self.counts.arrived.bytes += u64::from(self.memory.shape.msg_size);
            return Ok(());
        }
        self.handle_recv(Received {
            len: retired.received_len().saturating_sub(self.memory.header),
            opcode: retired.opcode(),
            imm: retired.imm_data(),
            source,
            buf: retired.into_buf(),
        })
    }

    /// Counts a received message or credit, and checks the payload if the test requires it.
    #[inline(never)]
    fn handle_recv(&mut self, received: Received) -> Result<()> {
        let is_credit = if self.with_imm {
            received.opcode != WcOpcode::RECV_RDMA_WITH_IMM
        } else {
            received.len == 0
        };
        // An adapter hardly checks who sends on the services whose messages need numbers.
        let may_be_foreign = self.memory.shape.plan.service.numbers_messages();
        if may_be_foreign && !self.is_of_peer(&received, is_credit) {
            self.counts.foreign += 1;
            self.recycle(received);
            return Ok(());
        }
        if is_credit {
            self.handle_credit(received);
            return Ok(());
        }
        let (len, expected) = (received.len, self.memory.shape.msg_size);
        if len != expected as usize {
            return Err(Error::test(format!(
                "received a message of {len} bytes: expected {expected} bytes"
            )));
        }
        if self.handle_message(received)? {
            self.counts.arrived.msgs += 1;
            self.counts.arrived.bytes += len as u64;
        } else {
            self.counts.duplicates += 1;
        }
        Ok(())
    }

    /// Returns `false` if a message or credit cannot be one of the peer: another queue pair sent
    /// it, its length is not that of the test, or its number is far from the next one. The random
    /// number of the first message makes that of another sender wrong.
    fn is_of_peer(&self, received: &Received, is_credit: bool) -> bool {
        let (shape, state) = (&self.memory.shape, &self.qps[self.latest]);
        // Each receiver of a group answers from a queue pair of its own.
        let is_sender = match &state.qp {
            AnyQp::Ud(_, peer) => [received.source, Qpn::MULTICAST].contains(&peer.qpn),
            _ => true,
        };
        let (next, end) = if is_credit {
            // There is credit only for messages that this end has posted.
            let posted = (state.sends.posted + 1) * self.qps.len() as u64;
            (self.counts.acked, posted)
        } else {
            let window = u64::from(shape.depth) * MAX_LOST_WINDOWS;
            (state.next_expected, state.next_expected + window)
        };
        let number = received.imm.and_then(|imm| self.memory.number(imm, next));
        is_sender
            && (is_credit || received.len == shape.msg_size as usize)
            && number.is_some_and(|n| n + ARRIVALS_WINDOW >= next && n <= end)
    }

    /// Counts a credit.
    fn handle_credit(&mut self, received: Received) {
        self.qps[self.latest].credits += 1;
        let acked = self.counts.acked;
        self.counts.acked = match received.imm {
            Some(imm) if self.numbered => acked.max(self.memory.number(imm, acked).unwrap_or(0)),
            _ => acked + u64::from(self.memory.shape.batch),
        };
        self.recycle(received);
    }

    /// Handles a message that has a number, or whose payload is accessed. Returns `false` if it had
    /// arrived before.
    fn handle_message(&mut self, received: Received) -> Result<bool> {
        let (qps, index) = (self.qps.len() as u64, self.latest);
        let state = &mut self.qps[index];
        let next_expected = self.counts.next_expected;
        let number = match received.imm {
            Some(imm) if self.numbered || self.with_imm => self
                .memory
                .number(imm, next_expected)
                .unwrap_or(next_expected),
            _ => state.arrived * qps + index as u64,
        };
        let receivers = self.memory.shape.receivers;
        let may_lose = !self.memory.shape.is_reliable();
        if may_lose {
            let turn = if receivers > 1 { number } else { number / qps };
            if !state.arrivals.get_or_insert_default().record(turn) {
                self.recycle(received);
                return Ok(false);
            }
        }
        state.arrived += 1;
        state.next_expected = state.next_expected.max(number + 1);
        self.counts.next_expected = if receivers > 1 {
            // Every queue pair receives every message, so the slowest one limits the sender.
            let all = self.qps.iter().map(|state| state.next_expected);
            all.min().unwrap_or(0)
        } else if may_lose {
            next_expected.max(number + 1)
        } else {
            next_expected + 1
        };
        if self.memory.shape.touches_payload() {
            self.check_payload(received, number)?;
        }
        Ok(true)
    }

    /// Reads or checks the payload of a message.
    fn check_payload(&mut self, received: Received, number: u64) -> Result<()> {
        if self.with_imm {
            self.recycle(received);
            let offset = self.memory.slot_offset(number);
            return self.memory.check_slot(offset, number, 0);
        }
        if let (Content::Distinct { idle, .. }, Some(buf)) =
            (&mut self.memory.content, received.buf)
        {
            let bytes = &buf[self.memory.header..];
            if self.memory.shape.verify {
                self.memory.payload.check(bytes, number, 0)?;
                self.memory.verified += bytes.len() as u64;
            } else {
                payload::access(bytes);
            }
            idle.push(buf);
        }
        Ok(())
    }

    /// Keeps the buffer of a receive for a later receive.
    fn recycle(&mut self, received: Received) {
        if let (Content::Distinct { idle, .. }, Some(buf)) =
            (&mut self.memory.content, received.buf)
        {
            idle.push(buf);
        }
    }

    /// Counts completed sends of the latest queue pair, and checks fetched data. On an ordered
    /// service, a completion also completes all earlier requests on its queue pair.
    #[inline]
    fn handle_send(&mut self, opcode: WcOpcode, tag: u64) -> Result<()> {
        if let Some(placement) = &mut self.placement {
            if opcode == WcOpcode::RDMA_READ {
                placement.pending = placement.pending.saturating_sub(1);
                return Ok(());
            }
        }
        if !self.memory.shape.plan.service.is_ordered() {
            return self.handle_unordered_send(tag);
        }
        let state = &mut self.qps[self.latest];
        let done = state.completed;
        state.completed = done.max(tag);
        self.counts.sent += state.completed - done;
        if self.memory.shape.touches_payload() {
            self.check_fetched(done..tag)?;
        }
        Ok(())
    }

    /// Does the same on a service where requests complete in any order.
    #[inline(never)]
    fn handle_unordered_send(&mut self, tag: u64) -> Result<()> {
        let state = &mut self.qps[self.latest];
        let done = state.completed;
        state.completed = state.completed_in_order();
        self.counts.sent += state.completed - done;
        if self.memory.shape.touches_payload() {
            self.check_fetched(tag.saturating_sub(1)..tag)?;
        }
        Ok(())
    }

    /// Checks the data of completed RDMA reads and atomics of the latest queue pair.
    #[inline(never)]
    fn check_fetched(&mut self, completed: Range<u64>) -> Result<()> {
        if !matches!(self.memory.content, Content::Fetched { .. }) {
            return Ok(());
        }
        let (qps, index) = (self.qps.len() as u64, self.latest as u64);
        for k in completed {
            let n = k * qps + index;
            self.memory.check_fetched(self.memory.fetch_offset(n), n)?;
        }
        Ok(())
    }
}
