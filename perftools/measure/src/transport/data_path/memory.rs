//! The memory of a test: sources and targets of its messages.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::memory::{check_room, zeroed};
use ibverbs::{
    AccessFlags, Buf, DeviceRegion, Frozen, GRH_LEN, Held, Pool, ProtectionDomain, RemoteMemory,
    SharedRegion, Sink, device::TransportType,
};

use super::marks::{self, MAX_LOST, mark_byte};
use super::message_number::{from_low_bits, low_bits};
use super::qp::QpState;
use crate::engine::payload::{self, Payload};
use crate::spec::Shape;
use crate::spec::plan::{Pattern, Service, Verb};
use crate::transport::gpu::GpuMemory;

/// Time that the data of a write may take to become visible without an acknowledgment.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(1);

/// Sources and targets of messages.
pub(super) enum Content {
    /// One source for all sends, and one sink for all receives: [`Memory::message`] if it is posted
    /// inline, else memory that the queue pairs hold. The payload is not accessed.
    Same { source: Option<Frozen> },
    /// A buffer for each message, filled before the send and checked after the receive.
    Distinct { sends: Pool, idle: Vec<Buf> },
    /// One source whose last byte changes with each message: [`Memory::message`] if it is posted
    /// inline, else a copy of it. The peer polls for that byte.
    Marked { copy: Option<SharedRegion> },
    /// Messages with all values of that byte ([`marks::register`]), which are not written again.
    MarkedParts { source: Frozen },
    /// Target of RDMA reads and atomics. Nothing is sent.
    Fetched { region: SharedRegion },
    /// Memory of a GPU: one source for all sends, or the target of RDMA reads and atomics. The CPU
    /// does not access it.
    Gpu,
}

/// Memory that all messages are received into, if their payload is not accessed.
#[derive(Debug)]
pub(super) enum RecvTarget {
    Host(Sink),
    Gpu(DeviceRegion),
}

/// The memory of one thread.
pub(super) struct Memory {
    pub(super) content: Content,
    /// Bytes of a message that is posted inline or marked.
    pub(super) message: Vec<u8>,
    /// Memory that the peer may access, if the test is one-sided.
    pub(super) exposed: Option<SharedRegion>,
    /// The same in memory of a GPU.
    exposed_on_gpu: Option<DeviceRegion>,
    pub(super) shape: Shape,
    /// Memory of the peer that this end accesses.
    pub(super) peer: Option<RemoteMemory>,
    /// The part of it that all messages access, if they access the same.
    only_peer_slot: Option<RemoteMemory>,
    pub(super) payload: Payload,
    /// Bytes before the payload of a received message: the global routing header of datagrams.
    pub(super) header: usize,
    /// Immediate data of message 0.
    pub(super) first_imm: u32,
    /// Copy of a message in shared memory.
    scratch: Vec<u8>,
    /// Bytes checked so far.
    pub(super) verified: u64,
}

impl Memory {
    /// Allocates the memory for `shape` and adds it to the objects that the queue pairs keep alive.
    /// Also returns the target of all receives, if the payload is not accessed. `max_inline` is the
    /// largest payload in bytes that can be posted inline.
    pub(super) fn new(
        pd: &ProtectionDomain,
        shape: Shape,
        payload: Payload,
        qps: &mut [QpState],
        max_inline: u32,
    ) -> Result<(Self, Option<RecvTarget>)> {
        check_room("buffers", shape.thread_memory())?;
        let plan = shape.plan;
        let size = shape.msg_size as usize;
        let header = header(&shape);
        let exposed = if plan.verb.is_one_sided() {
            Some(register_exposed(pd, &shape, &payload)?)
        } else {
            None
        };
        let is_inline = shape.msg_size <= max_inline;
        let mut message = Vec::new();
        if plan.pattern == Pattern::Polled || is_inline {
            message = zeroed(size)?;
            payload.fill(&mut message, 0);
        }
        let content = match (plan.verb, plan.pattern) {
            (Verb::Read | Verb::CompareSwap | Verb::FetchAdd, _) => Content::Fetched {
                region: register_fetched(pd, &shape)?,
            },
            (Verb::Write, Pattern::Polled) if is_inline => Content::Marked { copy: None },
            (Verb::Write, Pattern::Polled) if is_iwarp(pd) && !shape.verify => {
                let source = marks::register(pd, size, shape.tuning.memory(), &payload)?;
                Content::MarkedParts { source }
            }
            (Verb::Write, Pattern::Polled) => {
                let (local, options) = (AccessFlags::LOCAL_WRITE, shape.tuning.memory());
                let copy = pd.shared_with(shape.stride(), local, options)?;
                copy.write(0, &message)?;
                Content::Marked { copy: Some(copy) }
            }
            _ if shape.touches_payload() => {
                let receives = pd.pool_with(
                    (shape.receive_buffers() as usize).max(1),
                    size + header,
                    shape.tuning.memory(),
                )?;
                let sends =
                    pd.pool_with(shape.send_queue_len() as usize, size, shape.tuning.memory())?;
                if !shape.verify {
                    fill_all(&sends, &payload);
                }
                Content::Distinct {
                    sends,
                    idle: std::iter::from_fn(|| receives.take()).collect(),
                }
            }
            _ if is_inline => Content::Same { source: None },
            _ => Content::Same {
                source: Some(frozen_message(pd, &shape, &payload)?),
            },
        };
        let sink = match &content {
            Content::Same { .. } if plan.receives_into_memory() => {
                let sink = pd.sink_with(size + header, shape.tuning.memory())?;
                Some(RecvTarget::Host(sink))
            }
            _ => None,
        };
        for state in qps {
            match &content {
                Content::Same {
                    source: Some(bytes),
                }
                | Content::MarkedParts { source: bytes } => {
                    state.held.frozen = Some(state.qp.hold(bytes)?);
                }
                Content::Marked { copy: Some(region) } => {
                    state.held.shared = state.qp.hold(region)?.slice(0..size);
                }
                Content::Fetched { region } => {
                    let held = state.qp.hold(region)?;
                    state.held.shared = match shape.fetch_slots() {
                        1 => held.slice(0..size),
                        _ => Some(held),
                    };
                }
                _ => {}
            }
        }
        Ok((
            Self {
                content,
                message,
                exposed,
                // Only received payload that is accessed is copied.
                scratch: zeroed(if shape.touches_payload() { size } else { 0 })?,
                ..Self::without_memory(shape, payload)
            },
            sink,
        ))
    }

    /// Allocates the memory for `shape` on a GPU, like [`new`](Self::new). The payload is not
    /// accessed (`Spec::check`).
    pub(super) fn on_gpu(
        pd: &ProtectionDomain,
        shape: Shape,
        payload: Payload,
        qps: &mut [QpState],
        gpu: &mut GpuMemory,
    ) -> Result<(Self, Option<RecvTarget>)> {
        let plan = shape.plan;
        let mut first = zeroed(shape.msg_size as usize)?;
        payload.fill(&mut first, 0);
        let exposed = if plan.verb.is_one_sided() {
            let len = shape.exposed_slots() as usize * shape.stride();
            let content: &[u8] = if plan.verb == Verb::Read { &first } else { &[] };
            Some(gpu.register(pd, len, shape.remote_access(), content)?)
        } else {
            None
        };
        let local = AccessFlags::LOCAL_WRITE;
        let region = if plan.verb.fetches() {
            let len = shape.fetch_slots() as usize * shape.stride();
            gpu.register(pd, len, local, &[])?
        } else {
            gpu.register(pd, first.len(), local, &first)?
        };
        for state in qps {
            state.held.gpu = Some(state.qp.hold(&region)?);
        }
        let header = header(&shape);
        let target = if plan.receives_into_memory() {
            Some(RecvTarget::Gpu(gpu.register(
                pd,
                first.len() + header,
                local,
                &[],
            )?))
        } else {
            None
        };
        Ok((
            Self {
                content: Content::Gpu,
                exposed_on_gpu: exposed,
                ..Self::without_memory(shape, payload)
            },
            target,
        ))
    }

    /// Returns the values that depend on the shape only.
    fn without_memory(shape: Shape, payload: Payload) -> Self {
        Self {
            content: Content::Gpu,
            message: Vec::new(),
            exposed: None,
            exposed_on_gpu: None,
            peer: None,
            only_peer_slot: None,
            header: header(&shape),
            shape,
            payload,
            first_imm: 0,
            scratch: Vec::new(),
            verified: 0,
        }
    }

    /// Returns the memory that the peer may access.
    pub(super) fn remote(&self) -> Option<RemoteMemory> {
        match (&self.exposed, &self.exposed_on_gpu) {
            (Some(region), _) => Some(region.remote()),
            (None, Some(region)) => region.remote(),
            (None, None) => None,
        }
    }

    /// Returns the immediate data of message `n`, or of the credit for all messages before it.
    #[inline]
    pub(super) fn imm(&self, n: u64) -> u32 {
        low_bits(n).wrapping_add(self.first_imm)
    }

    /// Returns the number with this immediate data that is closest to `expected`; `None` if it
    /// would be negative.
    #[inline]
    pub(super) fn number(&self, imm: u32, expected: u64) -> Option<u64> {
        from_low_bits(imm.wrapping_sub(self.first_imm), expected)
    }

    /// Returns the offset of message `n` in exposed memory.
    pub(super) fn slot_offset(&self, n: u64) -> usize {
        self.offset(n, self.shape.exposed_slots())
    }

    /// Returns the offset of the memory that message `n` is fetched into.
    pub(super) fn fetch_offset(&self, n: u64) -> usize {
        self.offset(n, self.shape.fetch_slots())
    }

    fn offset(&self, n: u64, slots: u32) -> usize {
        usize::try_from(n % u64::from(slots)).unwrap_or(0) * self.shape.stride()
    }

    /// Returns the part of `held` that message `n` is fetched into.
    #[inline]
    pub(super) fn fetch_slot<M>(&self, held: Held<M>, n: u64) -> Option<Held<M>> {
        let size = self.shape.msg_size as usize;
        if held.len() == size {
            return Some(held);
        }
        let start = self.fetch_offset(n);
        held.slice(start..start + size)
    }

    /// Sets the memory of the peer that this end accesses.
    pub(super) fn set_peer(&mut self, memory: RemoteMemory) {
        self.peer = Some(memory);
        if self.shape.exposed_slots() == 1 {
            self.only_peer_slot = memory.slice(0..self.shape.msg_size.into());
        }
    }

    /// Returns the memory of the peer that message `n` accesses, if it is known.
    #[inline]
    pub(super) fn peer_slot(&self, n: u64) -> Option<RemoteMemory> {
        self.only_peer_slot.or_else(|| {
            let offset = self.slot_offset(n) as u64;
            self.peer?
                .slice(offset..offset + u64::from(self.shape.msg_size))
        })
    }

    /// Writes message `n` with its mark in the last byte to the source, for a peer that polls for
    /// it.
    #[inline]
    pub(super) fn write_marked(&mut self, n: u64) -> ibverbs::Result<()> {
        if let Some(mark) = self.message.last_mut() {
            *mark = mark_byte(n);
        }
        match &self.content {
            Content::Marked { copy: None } if !self.shape.verify => Ok(()),
            _ => self.write_rest(n),
        }
    }

    /// Writes the payload of message `n` if it is checked, and copies what has changed.
    #[inline(never)]
    fn write_rest(&mut self, n: u64) -> ibverbs::Result<()> {
        let (last, verify) = (self.message.len().saturating_sub(1), self.shape.verify);
        if verify {
            self.payload.fill(&mut self.message[..last], n);
        }
        match &self.content {
            Content::Marked { copy: Some(copy) } if verify => copy.write(0, &self.message),
            Content::Marked { copy: Some(copy) } => {
                let start = last - last % 8;
                let mut word = [0; 8];
                word[..=last - start].copy_from_slice(&self.message[start..]);
                copy.store(start, u64::from_ne_bytes(word), Ordering::Relaxed)
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of the peer's message in exposed memory if it is `next`, or a later one
    /// on services that may lose messages.
    #[inline]
    pub(super) fn message_from(&mut self, next: u64) -> Result<Option<u64>> {
        match self.marked_from(next)? {
            Some(n) if self.shape.touches_payload() => {
                let check = |memory: &mut Self, n| memory.check_slot(0, n, 1);
                await_payload(self, n, Self::marked_from, check).map(Some)
            }
            marked => Ok(marked),
        }
    }

    /// Returns the number of the message whose mark is in exposed memory, like
    /// [`Memory::message_from`].
    #[inline]
    fn marked_from(&self, next: u64) -> Result<Option<u64>> {
        let Some(exposed) = &self.exposed else {
            return Ok(None);
        };
        let last = self.shape.msg_size as usize - 1;
        let word = exposed.load(last - last % 8, Ordering::Acquire)?;
        let ahead = word.to_ne_bytes()[last % 8].wrapping_sub(mark_byte(next));
        if ahead > 0 && (self.shape.is_reliable() || ahead >= MAX_LOST) {
            return Ok(None);
        }
        Ok(Some(next + u64::from(ahead)))
    }

    /// Checks message `n` at an offset of exposed or fetched memory, except for its last `skipped`
    /// bytes. Without `--verify` its bytes are only read.
    pub(super) fn check_slot(&mut self, offset: usize, n: u64, skipped: usize) -> Result<()> {
        let ((_, Content::Fetched { region }) | (Some(region), _)) = (&self.exposed, &self.content)
        else {
            return Ok(());
        };
        region.read(offset, &mut self.scratch)?;
        if !self.shape.verify {
            payload::access(&self.scratch);
            return Ok(());
        }
        let checked = self.scratch.len() - skipped;
        self.payload.check(&self.scratch[..checked], n, 0)?;
        self.verified += self.scratch.len() as u64;
        Ok(())
    }

    /// Checks the result of an RDMA read or an atomic.
    pub(super) fn check_fetched(&mut self, offset: usize, n: u64) -> Result<()> {
        if self.shape.plan.verb == Verb::Read {
            return self.check_slot(offset, n % u64::from(self.shape.exposed_slots()), 0);
        }
        let Content::Fetched { region } = &self.content else {
            return Ok(());
        };
        if !self.shape.verify {
            return self.check_slot(offset, n, 0);
        }
        let value = region.load(offset, Ordering::Acquire)?;
        // Each queue pair increments a counter of its own.
        let expected = n / u64::from(self.shape.qps);
        if value != expected {
            return Err(Error::test(format!(
                "atomic {n} returned {value}: expected {expected}"
            )));
        }
        self.verified += 8;
        Ok(())
    }

    /// Checks the data of the peer's last RDMA writes.
    pub(super) fn verify_final(&mut self, made: u64) -> Result<()> {
        let plan = self.shape.plan;
        if !self.shape.verify || plan.verb != Verb::Write || plan.pattern == Pattern::Polled {
            return Ok(());
        }
        let slots = u64::from(self.shape.exposed_slots());
        for n in made.saturating_sub(slots)..made {
            let begin = Instant::now();
            let mut older = n;
            while let Err(error) = self.check_slot(self.slot_offset(n), older, 0) {
                // If writes can be lost, the slot may still have the data of an earlier one.
                match older
                    .checked_sub(slots)
                    .filter(|_| !self.shape.is_reliable())
                {
                    Some(earlier) => older = earlier,
                    None if self.shape.is_reliable() || begin.elapsed() > VISIBILITY_TIMEOUT => {
                        return Err(error);
                    }
                    None => older = n,
                }
            }
        }
        Ok(())
    }
}

/// Returns `true` on iWARP, where only frozen memory that peers can read is sent unsignaled.
fn is_iwarp(pd: &ProtectionDomain) -> bool {
    pd.context().device().transport() == TransportType::IWARP
}

/// Registers the message that every request sends.
fn frozen_message(pd: &ProtectionDomain, shape: &Shape, payload: &Payload) -> Result<Frozen> {
    let (size, options) = (shape.msg_size as usize, shape.tuning.memory());
    if is_iwarp(pd) {
        return Ok(pd.frozen_shared(size, options, |bytes| payload.fill(bytes, 0))?);
    }
    let mut buf = (pd.pool_with(1, size, options)?)
        .take()
        .ok_or_else(|| Error::device("a pool of one buffer is empty"))?;
    payload.fill(&mut buf, 0);
    Ok(buf.freeze())
}

/// Fills the free buffers of a pool, which keep their bytes when they return to it.
fn fill_all(pool: &Pool, payload: &Payload) {
    let mut all: Vec<Buf> = std::iter::from_fn(|| pool.take()).collect();
    for buf in &mut all {
        payload.fill(buf, 0);
    }
}

/// Waits until `check` finds all bytes of message `n`, whose mark may become visible before the
/// others. Returns the number of the message that was found: a peer that has waited too long for
/// the reply overwrites message `n` with a later one, whose number `marked_from` returns.
#[inline(never)]
fn await_payload<M>(
    memory: &mut M,
    mut n: u64,
    marked_from: impl Fn(&M, u64) -> Result<Option<u64>>,
    check: impl Fn(&mut M, u64) -> Result<()>,
) -> Result<u64> {
    let mut begin = Instant::now();
    while let Err(error) = check(memory, n) {
        if let Some(later) = marked_from(memory, n + 1)? {
            n = later;
            begin = Instant::now();
        } else if begin.elapsed() > VISIBILITY_TIMEOUT {
            return Err(error);
        }
    }
    Ok(n)
}

/// Returns the number of bytes before the payload of a received message.
fn header(shape: &Shape) -> usize {
    if shape.plan.service == Service::Ud {
        GRH_LEN
    } else {
        0
    }
}

/// Registers the memory that the peer accesses, and fills it if the peer reads it.
fn register_exposed(
    pd: &ProtectionDomain,
    shape: &Shape,
    payload: &Payload,
) -> Result<SharedRegion> {
    let slots = shape.exposed_slots() as usize;
    let region = pd.shared_with(
        slots * shape.stride(),
        shape.remote_access(),
        shape.tuning.memory(),
    )?;
    if shape.plan.verb == Verb::Read {
        let mut bytes = zeroed(shape.msg_size as usize)?;
        for n in 0..slots {
            payload.fill(&mut bytes, n as u64);
            region.write(n * shape.stride(), &bytes)?;
        }
    }
    Ok(region)
}

/// Registers the target of RDMA reads and atomics, with a slot for each that is in flight if the
/// payload is accessed. On iWARP a read response is a write of the peer, so the memory allows
/// those.
fn register_fetched(pd: &ProtectionDomain, shape: &Shape) -> Result<SharedRegion> {
    let access = if is_iwarp(pd) {
        AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE
    } else {
        AccessFlags::LOCAL_WRITE
    };
    let len = shape.fetch_slots() as usize * shape.stride();
    Ok(pd.shared_with(len, access, shape.tuning.memory())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory in which the messages of the list become visible one after the other.
    struct FakeMemory {
        numbers: Vec<u64>,
        checks: usize,
    }

    impl FakeMemory {
        fn latest(&self) -> u64 {
            self.numbers[self.checks.min(self.numbers.len() - 1)]
        }
    }

    fn await_fake(first: u64, numbers: Vec<u64>) -> Result<u64> {
        let mut memory = FakeMemory { numbers, checks: 0 };
        await_payload(
            &mut memory,
            first,
            |memory, next| Ok(Some(memory.latest()).filter(|n| *n >= next)),
            |memory, n| {
                memory.checks += 1;
                let latest = memory.latest();
                if latest == n {
                    return Ok(());
                }
                Err(Error::test(format!("message {latest} instead of {n}")))
            },
        )
    }

    #[test]
    fn bytes_that_become_visible_late_are_awaited() {
        assert_eq!(await_fake(30, vec![29, 29, 29, 30]).unwrap(), 30);
        let error = await_fake(30, vec![29]).unwrap_err().to_string();
        assert!(error.contains("message 29 instead of 30"), "{error}");
    }

    #[test]
    fn a_message_that_is_overwritten_is_not_damaged() {
        assert_eq!(await_fake(30, vec![30, 31]).unwrap(), 31);
        assert_eq!(await_fake(30, vec![30, 31, 33]).unwrap(), 33);
    }
}
