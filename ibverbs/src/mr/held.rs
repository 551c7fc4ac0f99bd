//! Memory that a queue pair keeps alive, so that requests can use it without reference counting.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use rdma_sys::ibv_sge;

use super::device_region::DeviceRegion;
use super::frozen::Frozen;
use super::shared::SharedRegion;
use super::sink::Sink;
use crate::identity::QueueId;
use crate::pd::ProtectionDomain;

/// The right to use what a queue holds. The queue never uses the number again.
///
/// Public only because hidden items mention it. Other crates cannot name it.
///
/// The queue is in the low 32 bits and the number in the others, so that a copy is one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant(u64);

impl Grant {
    /// Number of bits for the index of the entry. The others count its earlier uses.
    pub(crate) const INDEX_BITS: u32 = 20;

    pub(crate) fn new(queue: QueueId, number: u32) -> Self {
        Self(u64::from(number) << 32 | u64::from(queue.get()))
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the low 32 bits")]
    pub(crate) fn queue(self) -> QueueId {
        QueueId::from_raw(self.0 as u32)
    }

    #[allow(clippy::cast_possible_truncation, reason = "the high 32 bits")]
    pub(crate) fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the index of the entry in the table of the queue.
    pub(crate) fn index(self) -> u32 {
        self.number() & ((1 << Self::INDEX_BITS) - 1)
    }
}

/// A token for memory that a queue pair holds ([`QueuePair::hold`](crate::QueuePair::hold)), until
/// the memory is [released](crate::QueuePair::release) or the queue pair is destroyed.
///
/// A `Held<Frozen>` can be sent, a `Held<Sink>` can be received into, a `Held<SharedRegion>` can do
/// both. The token is `Copy` and only valid on the queue pair that returned it.
///
/// # Example
/// ```no_run
/// use ibverbs::{Frozen, Held, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, page: &Frozen) -> ibverbs::Result<()> {
/// let held: Held<Frozen> = qp.hold(page)?; // once
/// for _ in 0..3 {
///     qp.post_send(wr::send(held))?; // the token can be posted repeatedly
/// }
/// # Ok(()) }
/// ```
pub struct Held<K> {
    sge: ibv_sge,
    token: Grant,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Held<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Held<K> {}

impl<K: Hold> Held<K> {
    /// Creates a token for memory that a queue holds.
    pub(crate) fn new(memory: &K, token: Grant) -> Self {
        Self {
            sge: memory.sge(),
            token,
            kind: PhantomData,
        }
    }
}

impl<K> Held<K> {
    /// Returns a token for this range of bytes, or `None` if the range is out of bounds.
    pub fn slice(self, range: Range<usize>) -> Option<Self> {
        let start = u32::try_from(range.start).ok()?;
        let end = u32::try_from(range.end).ok()?;
        if start > end || end > self.sge.length {
            return None;
        }
        let sge = ibv_sge {
            addr: self.sge.addr + u64::from(start),
            length: end - start,
            lkey: self.sge.lkey,
        };
        Some(Self { sge, ..self })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.sge.length as usize
    }

    /// Returns `true` if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.sge.length == 0
    }

    /// Returns the memory as an entry of a scatter/gather list, for code that writes requests
    /// itself. The memory must not be [released](crate::QueuePair::release) while they use it.
    pub fn sge(&self) -> ibv_sge {
        self.sge
    }

    #[inline]
    pub(crate) fn token(&self) -> Grant {
        self.token
    }
}

/// A token for several blocks of held memory that form one message
/// ([`QueuePair::hold_list`](crate::QueuePair::hold_list)). It is `Copy`, like [`Held`].
///
/// # Example
/// This example sends a header and a body as one message:
/// ```no_run
/// use ibverbs::{Frozen, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, header: &Frozen, body: &Frozen) -> ibverbs::Result<()> {
/// let parts = [qp.hold(header)?, qp.hold(body)?];
/// let message = qp.hold_list(&parts)?;
/// qp.post_send(wr::send(message))?;
/// # Ok(()) }
/// ```
pub struct HeldList<K> {
    sges: *const ibv_sge,
    count: usize,
    len: u64,
    token: Grant,
    kind: PhantomData<fn() -> K>,
}

// SAFETY: only the verbs library dereferences the pointer, on behalf of the queue pair, which
// checks that the token is valid. It keeps the entries alive and unchanged while requests can use
// them.
#[allow(unsafe_code)]
unsafe impl<K> Send for HeldList<K> {}
// SAFETY: as for Send.
#[allow(unsafe_code)]
unsafe impl<K> Sync for HeldList<K> {}

impl<K> Clone for HeldList<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for HeldList<K> {}

impl<K> HeldList<K> {
    /// Creates a token for entries that a queue keeps; `len` is their total length.
    pub(crate) fn new(sges: &[ibv_sge], len: u64, token: Grant) -> Self {
        Self {
            sges: sges.as_ptr(),
            count: sges.len(),
            len,
            token,
            kind: PhantomData,
        }
    }

    /// Returns the total length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns `true` if the total length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn token(&self) -> Grant {
        self.token
    }

    /// Returns the address and number of the entries.
    pub(crate) fn sges(&self) -> (*const ibv_sge, usize) {
        (self.sges, self.count)
    }
}

impl<K> fmt::Debug for HeldList<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldList")
            .field("entries", &self.count)
            .field("len", &self.len)
            .field("queue", &self.token.queue())
            .finish()
    }
}

impl<K> fmt::Debug for Held<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("len", &self.len())
            .field("queue", &self.token.queue())
            .finish()
    }
}

/// Memory that a queue pair keeps alive. Public only because [`Hold`] mentions it; it cannot be
/// named outside this crate.
#[derive(Debug)]
pub enum HeldMemory {
    /// Memory that sends read.
    Frozen(Frozen),
    /// Memory that receives write.
    Sink(Sink),
    /// Memory that peers can access.
    Shared(SharedRegion),
    /// Memory without a CPU address.
    Device(DeviceRegion),
}

mod private {
    pub trait Sealed {}
    impl Sealed for crate::mr::Frozen {}
    impl Sealed for crate::mr::Sink {}
    impl Sealed for crate::mr::SharedRegion {}
    impl Sealed for crate::mr::DeviceRegion {}
}

/// Memory that a queue pair can hold: [`Frozen`], [`Sink`], [`SharedRegion`], [`DeviceRegion`].
///
/// The trait is sealed, because sharing other memory between requests would not be sound.
///
/// # Example
/// ```no_run
/// use ibverbs::{Held, Hold, QueuePair, Rc};
/// fn first_page<M: Hold>(qp: &mut QueuePair<Rc>, memory: &M) -> ibverbs::Result<Option<Held<M>>> {
///     Ok(qp.hold(memory)?.slice(0..4096))
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a queue cannot hold `{Self}`",
    label = "expected a `Frozen`, a `Sink`, a `SharedRegion` or a `DeviceRegion`",
    note = "a `Buf` has one owner and is posted as it is: `wr::send(buf)`; to send it many times, freeze it first: `qp.hold(&buf.freeze())`"
)]
pub trait Hold: private::Sealed + Sized + 'static {
    /// `true` if peers can write to the memory.
    #[doc(hidden)]
    const OPEN_TO_PEER: bool = false;
    #[doc(hidden)]
    fn domain(&self) -> &ProtectionDomain;
    #[doc(hidden)]
    fn sge(&self) -> ibv_sge;
    #[doc(hidden)]
    fn share(&self) -> HeldMemory;
    /// Returns `true` if the device may read the memory at any later time, even after the queue
    /// pair and the region are gone: the bytes never change, and peers can read them anyway.
    #[doc(hidden)]
    fn may_be_read_late(&self) -> bool {
        false
    }
    /// Returns `true` if this process has the memory at the address of its entry.
    #[doc(hidden)]
    fn has_process_address(&self) -> bool {
        true
    }
}

impl Hold for Frozen {
    fn domain(&self) -> &ProtectionDomain {
        self.pd()
    }

    fn sge(&self) -> ibv_sge {
        self.sge()
    }

    fn share(&self) -> HeldMemory {
        HeldMemory::Frozen(self.clone())
    }

    fn may_be_read_late(&self) -> bool {
        self.is_read_after_deregistration()
    }
}

impl Hold for Sink {
    fn domain(&self) -> &ProtectionDomain {
        self.pd()
    }

    fn sge(&self) -> ibv_sge {
        self.sge()
    }

    fn share(&self) -> HeldMemory {
        HeldMemory::Sink(self.clone())
    }
}

impl Hold for SharedRegion {
    const OPEN_TO_PEER: bool = true;

    fn domain(&self) -> &ProtectionDomain {
        self.pd()
    }

    fn sge(&self) -> ibv_sge {
        self.sge()
    }

    fn share(&self) -> HeldMemory {
        HeldMemory::Shared(self.clone())
    }

    fn has_process_address(&self) -> bool {
        !self.region().is_zero_based()
    }
}

impl Hold for DeviceRegion {
    const OPEN_TO_PEER: bool = true;

    fn domain(&self) -> &ProtectionDomain {
        self.pd()
    }

    fn sge(&self) -> ibv_sge {
        self.sge()
    }

    fn share(&self) -> HeldMemory {
        HeldMemory::Device(self.clone())
    }

    fn has_process_address(&self) -> bool {
        false
    }
}
