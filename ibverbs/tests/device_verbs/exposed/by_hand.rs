//! Requests written to the memory of queues.

use std::ptr;
use std::sync::atomic::{Ordering, fence};

use ibverbs::{RemoteMemory, exposed::ExposedQueues};
use rdma_sys::{ibv_sge, mlx5dv_cq, mlx5dv_srq};

use test_support::lab::is_model;

use crate::lab::until;

const BLOCK: usize = 64;

/// Numbers of `mlx5dv.h`.
pub(crate) const RDMA_WRITE: u32 = 0x08;
pub(crate) const SEND: u32 = 0x0a;
pub(crate) const INLINE: u32 = 1 << 31;
pub(crate) const SIGNALED: u8 = 2 << 2;
pub(crate) const ENTRY_OF_SEND: u8 = 0;
pub(crate) const ENTRY_OF_FAILED_SEND: u8 = 13;
pub(crate) const INVALID_ENTRY: u8 = 15;

/// Writes requests to an exposed send queue.
pub(crate) struct Writer<'a> {
    queues: &'a ExposedQueues<'a>,
    number: u32,
    pub(crate) next: u16,
    /// First 8 bytes of the last request.
    last: [u8; 8],
}

impl<'a> Writer<'a> {
    pub(crate) fn new(queues: &'a ExposedQueues<'a>, number: u32) -> Self {
        assert_eq!(queues.queue_pair().sq.stride as usize, BLOCK);
        Self {
            queues,
            number,
            next: queues.next_block(),
            last: [0; 8],
        }
    }

    /// Writes a request of 16-byte segments after the control segment.
    pub(crate) fn put(&mut self, opcode: u32, flags: u8, segments: &[[u8; 16]]) {
        let count = segments.len() + 1;
        let mut control = [0; 16];
        control[..4].copy_from_slice(&(u32::from(self.next) << 8 | opcode).to_be_bytes());
        let size = u32::try_from(count).expect("small");
        control[4..8].copy_from_slice(&(self.number << 8 | size).to_be_bytes());
        control[11] = flags;
        self.last.copy_from_slice(&control[..8]);
        let queue = self.queues.queue_pair().sq;
        let start = usize::from(self.next) * BLOCK;
        let bytes = queue.wqe_cnt as usize * BLOCK;
        for (index, segment) in std::iter::once(&control).chain(segments).enumerate() {
            let offset = (start + index * 16) % bytes;
            // SAFETY: the offset is inside the queue, whose block is free.
            unsafe {
                let to = queue.buf.cast::<u8>().add(offset).cast::<[u8; 16]>();
                ptr::write_volatile(to, *segment);
            }
        }
        let blocks = u16::try_from((count * 16).div_ceil(BLOCK)).expect("small");
        self.next = self.next.wrapping_add(blocks);
    }

    /// Writes the doorbell record and the register.
    pub(crate) fn ring(&self) {
        let qp = self.queues.queue_pair();
        fence(Ordering::SeqCst);
        // SAFETY: the record has two words, and the register 8 bytes.
        unsafe {
            ptr::write_volatile(qp.dbrec.add(1), u32::from(self.next).to_be());
            fence(Ordering::SeqCst);
            ptr::write_volatile(qp.bf.reg.cast(), u64::from_ne_bytes(self.last));
            // The register of an adapter need not be readable.
            if is_model() {
                assert_eq!(ptr::read_volatile(qp.bf.reg.cast::<[u8; 8]>()), self.last);
            }
        }
    }

    pub(crate) fn blocks(&self) -> usize {
        self.next.wrapping_sub(self.queues.next_block()).into()
    }
}

/// Returns the segment that names memory of the peer.
pub(crate) fn remote_segment(memory: &RemoteMemory) -> [u8; 16] {
    let mut segment = [0; 16];
    segment[..8].copy_from_slice(&memory.addr.to_be_bytes());
    segment[8..12].copy_from_slice(&memory.rkey.to_be_bytes());
    segment
}

/// Returns the segment that names local memory.
pub(crate) fn data_segment(memory: ibv_sge) -> [u8; 16] {
    let mut segment = [0; 16];
    segment[..4].copy_from_slice(&memory.length.to_be_bytes());
    segment[4..8].copy_from_slice(&memory.lkey.to_be_bytes());
    segment[8..].copy_from_slice(&memory.addr.to_be_bytes());
    segment
}

/// Returns segments with the bytes themselves.
pub(crate) fn inline_segments(bytes: &[u8]) -> Vec<[u8; 16]> {
    let size = u32::try_from(bytes.len()).expect("small") | INLINE;
    let mut all = [&size.to_be_bytes(), bytes].concat();
    all.resize(all.len().next_multiple_of(16), 0);
    let segments = all.chunks_exact(16);
    segments
        .map(|one| one.try_into().expect("16 bytes"))
        .collect()
}

/// Waits for the entry `index` after the next one of an exposed completion queue, and returns its
/// kind and the block of its request.
pub(crate) fn wait_for_entry(queue: &mlx5dv_cq, index: u32) -> (u8, u16) {
    let mut found = None;
    until("the entry", || {
        // SAFETY: the queue has `cqe_cnt` entries and a doorbell record. The last byte of an entry
        // is written last.
        found = unsafe {
            let number = u32::from_be(ptr::read_volatile(queue.dbrec)) + index;
            let slot = (number % queue.cqe_cnt * queue.cqe_size) as usize;
            let end = queue.buf.cast::<u8>().add(slot + queue.cqe_size as usize);
            let last = ptr::read_volatile(end.sub(1));
            fence(Ordering::SeqCst);
            let block = ptr::read_volatile(end.sub(4).cast::<[u8; 2]>());
            let turn = (number / queue.cqe_cnt).to_le_bytes()[0] & 1;
            let is_new = last & 1 == turn && last >> 4 != INVALID_ENTRY;
            is_new.then_some((last >> 4, u16::from_be_bytes(block)))
        };
        found.is_some()
    });
    found.expect("set above")
}

/// Writes receives by hand into a shared receive queue.
pub(crate) fn write_receives(queue: &mlx5dv_srq, memory: &[ibv_sge]) {
    const INVALID_KEY: u32 = 0x100;
    let mut index = queue.head;
    for &piece in memory {
        assert_ne!(index, queue.tail, "full");
        // SAFETY: the entry is inside the queue and free.
        index = unsafe {
            let entry = queue.buf.cast::<u8>().add((index * queue.stride) as usize);
            let end = ibv_sge {
                lkey: INVALID_KEY,
                ..ibv_sge::default()
            };
            let room = (queue.stride as usize - 16) / 16;
            for (slot, piece) in [piece, end].into_iter().enumerate().take(room) {
                let to = entry.add(16 + slot * 16).cast::<[u8; 16]>();
                ptr::write_volatile(to, data_segment(piece));
            }
            let link = ptr::read_volatile(entry.add(2).cast::<[u8; 2]>());
            u16::from_be_bytes(link).into()
        };
    }
    fence(Ordering::SeqCst);
    let count = u32::try_from(memory.len()).expect("small");
    // SAFETY: the record is one word.
    unsafe {
        let record = u32::from_be(ptr::read_volatile(queue.dbrec)) + count;
        ptr::write_volatile(queue.dbrec, (record & 0xffff).to_be());
    }
}
