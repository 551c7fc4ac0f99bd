//! What a queue pair keeps alive so that requests can name it without counting references.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use rdma_sys::ibv_sge;

use super::device_region::DeviceRegion;
use super::frozen::Frozen;
use super::shared::SharedRegion;
use super::sink::Sink;
use crate::fixed::Fixed;
use crate::identity::QueueId;
use crate::pd::ProtectionDomain;

/// A token for memory that a queue pair holds until it is destroyed
/// ([`QueuePair::hold`](crate::QueuePair::hold)).
///
/// `Held<Frozen>` can be sent, `Held<Sink>` can be received into, `Held<SharedRegion>` both. The
/// token is `Copy` and works on the queue pair that gave it.
///
/// # Example
/// ```no_run
/// use ibverbs::{Frozen, Held, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, page: &Frozen) -> ibverbs::Result<()> {
/// let held: Held<Frozen> = qp.hold(page)?; // once
/// for _ in 0..3 {
///     qp.post_send(wr::send(held))?; // as often as wanted, at no cost
/// }
/// # Ok(()) }
/// ```
pub struct Held<K> {
    sge: ibv_sge,
    queue: QueueId,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Held<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Held<K> {}

impl<K: Hold> Held<K> {
    /// A token for memory that the queue pair `queue` has begun to hold.
    pub(crate) fn new(memory: &K, queue: QueueId) -> Self {
        Self {
            sge: memory.sge(),
            queue,
            kind: PhantomData,
        }
    }
}

impl<K> Held<K> {
    /// The same memory, cut to this range of bytes; `None` when the range does not lie within.
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

    /// How many bytes it covers.
    pub fn len(&self) -> usize {
        self.sge.length as usize
    }

    /// Whether it covers none.
    pub fn is_empty(&self) -> bool {
        self.sge.length == 0
    }

    pub(crate) fn sge(&self) -> ibv_sge {
        self.sge
    }

    pub(crate) fn queue(&self) -> QueueId {
        self.queue
    }
}

/// A token for several pieces of held memory, in order, as one message
/// ([`QueuePair::hold_list`](crate::QueuePair::hold_list)). `Copy`, as [`Held`] is.
///
/// # Example
/// A header and a body as one message:
/// ```no_run
/// use ibverbs::{Frozen, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, header: &Frozen, body: &Frozen) -> ibverbs::Result<()> {
/// let pieces = [qp.hold(header)?, qp.hold(body)?];
/// let message = qp.hold_list(&pieces)?;
/// qp.post_send(wr::send(message))?;
/// # Ok(()) }
/// ```
pub struct HeldList<K> {
    sges: *const ibv_sge,
    count: usize,
    len: u64,
    queue: QueueId,
    kind: PhantomData<fn() -> K>,
}

// SAFETY: the pointer is followed by the device library only, on the queue pair that keeps the
// entries alive and unchanged.
#[allow(unsafe_code)]
unsafe impl<K> Send for HeldList<K> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<K> Sync for HeldList<K> {}

impl<K> Clone for HeldList<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for HeldList<K> {}

impl<K> HeldList<K> {
    /// A token for entries of `len` bytes together that the queue pair `queue` keeps.
    pub(crate) fn new(sges: &Fixed<ibv_sge>, len: u64, queue: QueueId) -> Self {
        Self {
            sges: sges.as_ptr(),
            count: sges.len(),
            len,
            queue,
            kind: PhantomData,
        }
    }

    /// How many bytes all pieces have together.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether that is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn queue(&self) -> QueueId {
        self.queue
    }

    /// Where the entries are and how many.
    pub(crate) fn sges(&self) -> (*const ibv_sge, usize) {
        (self.sges, self.count)
    }
}

impl<K> fmt::Debug for HeldList<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldList")
            .field("pieces", &self.count)
            .field("len", &self.len)
            .field("queue", &self.queue)
            .finish()
    }
}

impl<K> fmt::Debug for Held<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("len", &self.len())
            .field("queue", &self.queue)
            .finish()
    }
}

/// Something that a queue pair keeps alive. Public only because [`Hold`] names it; it cannot be
/// named from outside.
#[derive(Debug)]
pub enum Keep {
    /// Read by sends.
    Frozen(Frozen),
    /// Written by receives.
    Sink(Sink),
    /// Open to peers.
    Shared(SharedRegion),
    /// Not addressed by the processor.
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
/// Sealed: what many requests may share is this crate's to say.
///
/// # Example
/// ```no_run
/// use ibverbs::{Held, Hold, QueuePair, Rc};
/// fn first_page<M: Hold>(qp: &mut QueuePair<Rc>, memory: &M) -> ibverbs::Result<Option<Held<M>>> {
///     Ok(qp.hold(memory)?.slice(0..4096))
/// }
/// ```
pub trait Hold: private::Sealed + Sized {
    /// Whether peers may write to it.
    #[doc(hidden)]
    const OPEN_TO_PEER: bool = false;
    #[doc(hidden)]
    fn domain(&self) -> &ProtectionDomain;
    #[doc(hidden)]
    fn sge(&self) -> ibv_sge;
    #[doc(hidden)]
    fn is(&self, kept: &Keep) -> bool;
    #[doc(hidden)]
    fn keep(&self) -> Keep;
}

impl Hold for Frozen {
    fn domain(&self) -> &ProtectionDomain {
        self.pd()
    }

    fn sge(&self) -> ibv_sge {
        self.shown()
    }

    fn is(&self, kept: &Keep) -> bool {
        matches!(kept, Keep::Frozen(other) if self.same(other))
    }

    fn keep(&self) -> Keep {
        Keep::Frozen(self.clone())
    }
}

impl Hold for Sink {
    fn domain(&self) -> &ProtectionDomain {
        self.pd()
    }

    fn sge(&self) -> ibv_sge {
        self.whole()
    }

    fn is(&self, kept: &Keep) -> bool {
        matches!(kept, Keep::Sink(other) if self.same(other))
    }

    fn keep(&self) -> Keep {
        Keep::Sink(self.clone())
    }
}

impl Hold for SharedRegion {
    const OPEN_TO_PEER: bool = true;

    fn domain(&self) -> &ProtectionDomain {
        self.pd()
    }

    fn sge(&self) -> ibv_sge {
        self.whole()
    }

    fn is(&self, kept: &Keep) -> bool {
        matches!(kept, Keep::Shared(other) if self.same(other))
    }

    fn keep(&self) -> Keep {
        Keep::Shared(self.clone())
    }
}

impl Hold for DeviceRegion {
    const OPEN_TO_PEER: bool = true;

    fn domain(&self) -> &ProtectionDomain {
        self.pd()
    }

    fn sge(&self) -> ibv_sge {
        self.whole()
    }

    fn is(&self, kept: &Keep) -> bool {
        matches!(kept, Keep::Device(other) if self.same(other))
    }

    fn keep(&self) -> Keep {
        Keep::Device(self.clone())
    }
}
