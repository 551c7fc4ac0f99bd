//! Lending of the queues of mlx5 to code that posts requests by writing to memory, such as a GPU.
//!
//! This module needs the feature `mlx5`, which loads libmlx5. An mlx5 adapter takes requests from
//! memory: an entry in the queue, the doorbell record with the number of entries, and a register
//! that is written last. [`QueuePair::expose_queues`] and [`SharedReceiveQueue::expose_queue`] give
//! their addresses to a closure. While it runs, the queues are borrowed, so that nothing else posts
//! or polls.
//!
//! libmlx5 counts requests itself, and does not see those of the closure. Therefore this crate
//! posts requests in their place when the closure has ended:
//!
//! - For each block of 64 bytes that the closure has added to a send queue, an empty send. libmlx5
//!   writes it over the request of the closure, which has completed, and sets the doorbell record
//!   to the number that it already has. So the adapter executes none of them, and the queue pair
//!   goes on after the requests of the closure. Their completions are those of the empty sends.
//! - For receives, the same receives. libmlx5 writes the same bytes to the same entries.
//!
//! `testing/gpu` of the repository has a CUDA kernel that posts in this way, and the program that
//! registers the queues with CUDA and starts it.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use rdma_sys::{
    MLX5DV_OBJ_CQ, MLX5DV_OBJ_QP, MLX5DV_OBJ_SRQ, mlx5dv_cq, mlx5dv_init_obj, mlx5dv_obj,
    mlx5dv_qp, mlx5dv_srq,
};

use crate::convert::zero_or_errno;
use crate::cq::CompletionQueue;
use crate::error::{Error, ErrorKind, Result};
use crate::qp::QueuePair;
use crate::raw::AsRaw;
use crate::srq::SharedReceiveQueue;
use crate::transport::ConnectedDuplexTransport;
use crate::wr::{self, BatchError, RecvBatch};

const VERB: &str = "mlx5dv_init_obj";

/// The doorbell record of the send queue. The one before it is that of the receive queue.
const SEND_RECORD: usize = 1;

/// Offset of the number of the next entry in an entry of a shared receive queue.
const LINK: usize = 2;

/// The queues that [`QueuePair::expose_queues`] exposes.
///
/// # Example
/// ```no_run
/// use ibverbs::exposed::ExposedQueues;
/// /// Returns the address of the first request.
/// fn first(queues: &ExposedQueues<'_>) -> *mut u8 {
///     let queue = queues.queue_pair().sq;
///     let index = u32::from(queues.next_block()) % queue.wqe_cnt;
///     queue.buf.cast::<u8>().wrapping_add((index * queue.stride) as usize)
/// }
/// ```
#[doc(alias = "mlx5dv_init_obj")]
pub struct ExposedQueues<'a> {
    qp: mlx5dv_qp,
    next_block: u16,
    free_blocks: usize,
    cq: &'a CompletionQueue,
    /// Number of references to the completion queue if only this queue pair uses it. `None` if it
    /// also receives from a shared receive queue with it.
    cq_references: Option<usize>,
}

impl ExposedQueues<'_> {
    /// Returns the addresses and sizes of the send queue, the doorbell records and the register.
    /// The send queue consists of blocks of 64 bytes. The receive queue must not be changed.
    pub fn queue_pair(&self) -> &mlx5dv_qp {
        &self.qp
    }

    /// Returns the number of the next block: the number of blocks posted so far, modulo 2^16, which
    /// is also in the doorbell record.
    pub fn next_block(&self) -> u16 {
        self.next_block
    }

    /// Returns the number of blocks that the closure may add.
    pub fn free_blocks(&self) -> usize {
        self.free_blocks
    }

    /// Returns the addresses and sizes of the completion queue. Its doorbell record has the number
    /// of the next entry. The closure may read entries, and must not change anything, because the
    /// completions are polled later.
    ///
    /// From now on, libmlx5 leaves the completions of a queue pair in the completion queue when the
    /// queue pair is destroyed. Therefore a queue pair that has requests in flight is leaked
    /// instead, with their memory: [drain](QueuePair::drain) it first. No other queue pair can be
    /// created with the completion queue.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if other queue pairs use the completion queue, or receives of a
    /// shared receive queue complete there.
    #[doc(alias = "mlx5dv_init_obj")]
    pub fn completion_queue(&self) -> Result<mlx5dv_cq> {
        let inner = self.cq.inner();
        if self.cq_references != Some(Arc::strong_count(inner)) {
            let device = inner.context().device_name();
            let what = format!("a completion queue on {device} that others use too");
            return Err(Error::new(ErrorKind::InvalidInput, VERB, what)
                .with_help("create a completion queue for the sends of this queue pair only"));
        }
        inner.set_lent();
        let mut out = mlx5dv_cq::default();
        let mut object = mlx5dv_obj::default();
        object.cq.in_ = self.cq.as_raw();
        object.cq.out = &raw mut out;
        let device = || inner.context().device_name().into();
        // SAFETY: the queue is alive, and `out` is writable.
        unsafe { export(&mut object, MLX5DV_OBJ_CQ, device)? };
        Ok(out)
    }
}

impl fmt::Debug for ExposedQueues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExposedQueues")
            .field("next_block", &self.next_block)
            .field("free_blocks", &self.free_blocks)
            .finish_non_exhaustive()
    }
}

/// The queue that [`SharedReceiveQueue::expose_queue`] exposes.
///
/// # Example
/// ```no_run
/// use ibverbs::exposed::ExposedReceives;
/// /// Returns the address of the first entry.
/// fn first(exposed: &ExposedReceives) -> Option<*mut u8> {
///     let queue = exposed.queue();
///     let offset = (queue.head * queue.stride) as usize;
///     (exposed.free_entries() > 0).then(|| queue.buf.cast::<u8>().wrapping_add(offset))
/// }
/// ```
#[doc(alias = "mlx5dv_init_obj")]
#[derive(Debug)]
pub struct ExposedReceives {
    queue: mlx5dv_srq,
    free_entries: usize,
}

impl ExposedReceives {
    /// Returns the address and sizes of the queue, its next entry `head`, and its last one, `tail`.
    pub fn queue(&self) -> &mlx5dv_srq {
        &self.queue
    }

    /// Returns the number of receives that the closure may write: that of the entries from `head`
    /// to the one before `tail`.
    ///
    /// Since rdma-core 48, libmlx5 links the entries of retired receives only when it posts. After
    /// one turn of the queue there may be none, although receives can be posted.
    pub fn free_entries(&self) -> usize {
        self.free_entries
    }

    /// Wraps a queue that no other thread posts to.
    ///
    /// # Safety
    /// libmlx5 has just returned `queue`.
    unsafe fn new(queue: mlx5dv_srq) -> Self {
        let (mut index, mut free_entries) = (queue.head, 0);
        while index != queue.tail && free_entries < usize::from(u16::MAX) {
            let offset = index as usize * queue.stride as usize + LINK;
            // SAFETY: the entries from `head` to `tail` are linked, and this thread owns them.
            let link = unsafe { queue.buf.cast::<u8>().add(offset).cast::<[u8; 2]>().read() };
            (index, free_entries) = (u16::from_be_bytes(link).into(), free_entries + 1);
        }
        Self {
            queue,
            free_entries,
        }
    }
}

/// Calls `mlx5dv_init_obj`.
///
/// # Safety
/// The objects of `kind` are alive, and their outputs writable.
unsafe fn export(object: &mut mlx5dv_obj, kind: u32, what: impl FnOnce() -> String) -> Result<()> {
    // SAFETY: guaranteed by the caller; libmlx5 accepts objects of all providers.
    zero_or_errno(VERB, what, unsafe { mlx5dv_init_obj(object, kind.into()) })
}

/// Posts in the place of the closure when it has ended, also by a panic.
struct Exposed<'qp, T: ConnectedDuplexTransport> {
    qp: &'qp mut QueuePair<T>,
    raw: mlx5dv_qp,
    next_block: u16,
    free_blocks: usize,
    tag: u64,
}

impl<T: ConnectedDuplexTransport> Exposed<'_, T> {
    /// Reads the number of blocks from the doorbell record.
    fn next_block(raw: &mlx5dv_qp) -> u16 {
        // SAFETY: the queue pair is alive, and its doorbell records are two words.
        let record = unsafe { ptr::read_volatile(raw.dbrec.add(SEND_RECORD)) };
        let [.., high, low] = u32::from_be(record).to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// Makes libmlx5 count the blocks that the closure has added.
    fn catch_up(&mut self) -> Result<()> {
        let end = Self::next_block(&self.raw);
        let count = usize::from(end.wrapping_sub(self.next_block));
        if count > self.free_blocks {
            let what = format!("{count} blocks, at most {} expected", self.free_blocks);
            return Err(Error::new(ErrorKind::InvalidInput, VERB, what)
                .with_help("destroy the queue pair: its doorbell record is wrong"));
        }
        // One block each, and a doorbell of 8 bytes even if it is only one.
        let tag = self.tag;
        self.qp.batch(|batch| {
            for _ in 0..count {
                batch.send(wr::send(wr::Empty).signaled(false).tag(tag))?;
            }
            Ok::<_, Error>(())
        })?;
        debug_assert_eq!(Self::next_block(&self.raw), end);
        Ok(())
    }
}

impl<T: ConnectedDuplexTransport> Drop for Exposed<'_, T> {
    fn drop(&mut self) {
        // The closure has panicked.
        let _ = self.catch_up();
    }
}

impl<T: ConnectedDuplexTransport> QueuePair<T> {
    /// Lends the send queue, and the completion queue `send_cq` of its requests, to a closure that
    /// posts by writing to memory, such as a GPU does.
    ///
    /// The completions of its requests can be polled after this call. They have the tag `tag`, and
    /// are retired like those of other sends.
    ///
    /// # Safety
    /// The closure, and all that it starts, obey these rules, also if it panics:
    ///
    /// - Requests are written in the format of the adapter, each from a block to the next, first
    ///   into [`next_block`](ExposedQueues::next_block), around the end of the queue, and at most
    ///   [`free_blocks`](ExposedQueues::free_blocks) blocks. The doorbell record of the send queue is
    ///   then set to the number of the block after the last one.
    /// - When the closure ends, every request has completed. The last one is signaled, and its
    ///   completion is in the completion queue. Nothing writes to the addresses afterwards.
    /// - The memory of a request is registered, and obeys the rules of this crate: no reference to
    ///   memory exists while the adapter may write to it, and a peer grants access to its memory.
    /// - Nothing else is written, except the register of the doorbell: 8 bytes at once. More bytes
    ///   (BlueFlame) only if the queue pair is in a [`ThreadDomain`](crate::pd::ThreadDomain),
    ///   because other queue pairs share the register.
    /// - After an invalidation or a binding of a memory window, the first request has the flag for
    ///   the fence that libmlx5 would set (`fm_cache`).
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`] if the device is not mlx5, or the queue pair was created with
    ///   [`classic_only`](crate::QpOptions::classic_only).
    /// - [`ErrorKind::Mismatch`] if its sends complete on another queue.
    /// - [`ErrorKind::InvalidInput`] if the doorbell record has an invalid number afterwards.
    ///
    /// # Example
    /// ```no_run
    /// # fn run_kernel(_: &rdma_sys::mlx5dv_qp, _: &rdma_sys::mlx5dv_cq, _: u16) {}
    /// # use ibverbs::{CompletionQueue, QueuePair, Rc};
    /// # fn f(qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue) -> ibverbs::Result<()> {
    /// // SAFETY: the kernel posts as described, and ends after its last completion.
    /// unsafe {
    ///     qp.expose_queues(cq, 7, |queues| {
    ///         let completions = queues.completion_queue()?;
    ///         run_kernel(queues.queue_pair(), &completions, queues.next_block());
    ///         Ok::<(), ibverbs::Error>(())
    ///     })??;
    /// }
    /// for completion in cq.poll()? {
    ///     assert_eq!(qp.retire(completion)?.tag(), 7);
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "mlx5dv_init_obj")]
    pub unsafe fn expose_queues<R>(
        &mut self,
        send_cq: &mut CompletionQueue,
        tag: u64,
        closure: impl FnOnce(&ExposedQueues<'_>) -> R,
    ) -> Result<R> {
        let fail = |kind, what: &str, help: &'static str| {
            let what = format!("{} {what}", self.describe());
            Err(Error::new(kind, VERB, what).with_help(help))
        };
        if !self.tables.sends_complete_on(send_cq) {
            let what = "whose sends complete on another queue";
            return fail(ErrorKind::Mismatch, what, "expose both queues");
        }
        if !self.is_extended() {
            let what = "without extended verbs";
            return fail(
                ErrorKind::Unsupported,
                what,
                "create it on mlx5, without classic_only",
            );
        }
        let mut raw = mlx5dv_qp::default();
        let mut object = mlx5dv_obj::default();
        object.qp.in_ = self.live(VERB)?.as_ptr();
        object.qp.out = &raw mut raw;
        // SAFETY: the queue pair is alive, and `raw` is writable.
        unsafe { export(&mut object, MLX5DV_OBJ_QP, || self.describe())? };
        let next_block = Exposed::<T>::next_block(&raw);
        // libmlx5 counts blocks with 16 bits.
        let free_blocks = self.send_slots_free().min(u16::MAX.into());
        let queues = ExposedQueues {
            qp: raw,
            next_block,
            free_blocks,
            cq: send_cq,
            cq_references: self.tables.references_to_send_cq().map(|count| count + 1),
        };
        let mut exposed = Exposed {
            qp: self,
            raw,
            next_block,
            free_blocks,
            tag,
        };
        let returned = closure(&queues);
        let result = exposed.catch_up();
        // It has nothing else to do.
        let _ = ManuallyDrop::new(exposed);
        result.map(|()| returned)
    }
}

impl SharedReceiveQueue {
    /// Lends the queue to a closure that posts receives by writing to memory. The closure also adds
    /// the same receives to a batch, which is posted when it returns. Completions are retired as
    /// usual.
    ///
    /// # Safety
    /// The closure, and all that it starts, obey these rules, also if it panics:
    ///
    /// - If it returns an error or panics, it has written nothing.
    /// - Receives are written into the entry `head` of the queue and those that follow it by their
    ///   links, at most [`free_entries`](ExposedReceives::free_entries). An entry has 16 bytes with
    ///   the link, which is not changed, and an element for each piece of memory. If there is room
    ///   after them, an element of length 0 with the key 0x100 and the address 0 follows.
    /// - The batch has the same receives in the same order, and no others before them.
    /// - The doorbell record is increased by the number of receives, modulo 2^16. Nothing else is
    ///   written.
    /// - Until this call returns, no other thread polls a completion queue on which receives of
    ///   this queue complete.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device is not mlx5, the error of the closure, or a
    /// [`BatchError`] converted into its type.
    ///
    /// # Example
    /// ```no_run
    /// # fn write_receive(_: &rdma_sys::mlx5dv_srq, _: rdma_sys::ibv_sge) {}
    /// # use ibverbs::{Held, SharedReceiveQueue, SharedRegion, wr};
    /// # fn f(srq: &mut SharedReceiveQueue, memory: Held<SharedRegion>) -> ibverbs::Result<()> {
    /// // SAFETY: the function writes one receive as described.
    /// unsafe {
    ///     srq.expose_queue(|exposed, batch| {
    ///         batch.recv(wr::recv(memory))?;
    ///         if exposed.free_entries() > 0 {
    ///             write_receive(exposed.queue(), memory.sge());
    ///         }
    ///         Ok::<(), ibverbs::Error>(())
    ///     })
    /// }
    /// # }
    /// ```
    #[doc(alias = "mlx5dv_init_obj")]
    pub unsafe fn expose_queue<R, E: From<BatchError> + From<Error>>(
        &mut self,
        closure: impl FnOnce(&ExposedReceives, &mut RecvBatch<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut raw = mlx5dv_srq::default();
        let mut object = mlx5dv_obj::default();
        object.srq.in_ = self.as_raw();
        object.srq.out = &raw mut raw;
        let device = || self.pd().context().device_name().into();
        // SAFETY: the queue is alive, and `raw` is writable.
        unsafe { export(&mut object, MLX5DV_OBJ_SRQ, device)? };
        // SAFETY: libmlx5 has returned it, and `&mut` keeps other threads from posting.
        let exposed = unsafe { ExposedReceives::new(raw) };
        self.recv_batch(|batch| closure(&exposed, batch))
    }
}
