//! A queue pair: what it owns, what it holds, how it retires and ends.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use rdma_sys::{ibv_destroy_qp, ibv_qp, ibv_qp_ex};

use super::builder::{CreatedQp, Parts, QpCaps};
use super::control::Control;
use super::tables::Tables;
use crate::convert::zero_or_errno;
use crate::device::TransportType;
use crate::error::Result;
use crate::identity::QueueId;
use crate::in_flight::Reclaimed;
use crate::numbers::Qpn;
use crate::pd::{ParentDomain, ProtectionDomain};
use crate::raw::AsRaw;
use crate::transport::SendTransport;
use crate::wr::{Owner, SendScratch};

/// A queue pair of transport `T`. It owns the buffers of its requests in flight.
///
/// One thread at a time uses it (`&mut`); it may be sent to another. Dropping it destroys it first
/// and gives back what it owned after.
///
/// # Example
/// Two queue pairs of one process, connected to each other:
/// ```no_run
/// use ibverbs::{CqOptions, Device, QpOptions, Rc, RcPath, wr};
///
/// let context = Device::by_name("rxe0")?.open()?;
/// let port = context.query_port(1)?;
/// let gid = context.gids(1)?[1];
/// let pd = context.alloc_pd()?;
/// let mut cq = context.create_cq(CqOptions::default())?;
/// let mut a = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
/// let mut b = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
/// let path = RcPath::new(1, gid.index, port.active_mtu);
/// for qp in [&mut a, &mut b] {
///     qp.init(&path)?;
/// }
/// a.connect(&path, &b.endpoint(&path)?)?;
/// b.connect(&path, &a.endpoint(&path)?)?;
///
/// let mut message = pd.buf(5)?;
/// message.copy_from_slice(b"hello");
/// b.post_recv(wr::recv(pd.buf(64)?))?;
/// a.post_send(wr::send(message))?;
/// loop {
///     for completion in cq.poll()? {
///         if completion.queue() == a.id() {
///             a.retire(completion)?.ok()?;
///         } else {
///             let received = b.retire(completion)?;
///             received.ok()?;
///             assert_eq!(&received.into_buf().expect("posted with one")[..], b"hello");
///             return Ok(());
///         }
///     }
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html); IBA 10.3.1
pub struct QueuePair<T: SendTransport> {
    pub(crate) raw: NonNull<ibv_qp>,
    pub(crate) extended: Option<NonNull<ibv_qp_ex>>,
    caps: QpCaps,
    /// On iWARP the peer answers a read by writing.
    pub(crate) fetches_as_writes: bool,
    /// Whether what not all extended verbs have can be posted.
    pub(crate) has_extra_ops: bool,
    /// What the device may touch, and what must outlive the queue pair: leaked whole if it cannot
    /// be destroyed.
    pub(crate) tables: ManuallyDrop<Tables>,
    pub(crate) scratch: SendScratch,
    /// Maximum number of requests in a batch.
    pub(crate) max_batch: usize,
    transport: PhantomData<T>,
}

// SAFETY: using a queue pair needs `&mut self`, so one thread at a time; the provider's queue is
// not bound to a thread.
unsafe impl<T: SendTransport> Send for QueuePair<T> {}
// SAFETY: through `&self` only numbers are read and the library's thread-safe ibv_query_qp is
// called.
unsafe impl<T: SendTransport> Sync for QueuePair<T> {}

impl<T: SendTransport> QueuePair<T> {
    /// A queue pair of what the library made, in state RESET.
    pub(crate) fn of(made: &CreatedQp, owner: Owner, of: &Parts<'_>, max_batch: u32) -> Self {
        let max_batch = max_batch
            .max(1)
            .min(made.caps.max_send_wr.max(made.caps.max_recv_wr).max(1))
            as usize;
        // The extended verbs need no list of requests.
        let scratch = match made.extended {
            Some(_) => SendScratch::new(0, 0),
            None => SendScratch::new(max_batch, made.caps.max_inline_data),
        };
        Self {
            raw: made.raw,
            extended: made.extended,
            caps: made.caps,
            has_extra_ops: made.has_extra_ops,
            fetches_as_writes: of.pd.context().device().transport() == TransportType::IWARP,
            tables: ManuallyDrop::new(Tables::new(made, owner, T::QP_TYPE, of, max_batch)),
            scratch,
            max_batch,
            transport: PhantomData,
        }
    }

    /// Keeps the domain that it was made in.
    pub(crate) fn keep(&mut self, parent: ParentDomain) {
        self.tables.parent = Some(parent);
    }

    /// Which queue pair of this process this is, as its completions say.
    #[inline]
    pub fn id(&self) -> QueueId {
        self.tables.owner.id
    }

    /// Its number on the device, for the peer.
    pub fn qp_num(&self) -> Qpn {
        self.control().qp_num()
    }

    /// What the device gave.
    #[inline]
    pub fn caps(&self) -> QpCaps {
        self.caps
    }

    pub(crate) fn set_lengths(&mut self, sends: u32, recvs: u32) {
        (self.caps.max_send_wr, self.caps.max_recv_wr) = (sends, recvs);
    }

    /// The domain it belongs to.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.tables.owner.pd
    }

    /// Whether it posts by the extended verbs.
    pub fn is_extended(&self) -> bool {
        self.extended.is_some()
    }

    /// How many more sends it takes now.
    #[inline]
    pub fn send_slots_free(&self) -> usize {
        self.tables.sends.slots_free()
    }

    /// How many more receives it takes now.
    #[inline]
    pub fn recv_slots_free(&self) -> usize {
        self.tables.recvs.table.slots_free()
    }

    /// Destroys the queue pair and gives back the buffers of requests that never completed.
    ///
    /// Destroying is the barrier: after it the device touches none of them.
    ///
    /// # Errors
    /// If the driver refuses, what the queue pair owned is leaked and counted
    /// ([`leaked_objects`](crate::leaked_objects)).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QueuePair, Rc};
    /// # fn f(qp: QueuePair<Rc>) -> ibverbs::Result<()> {
    /// for (tag, buf) in qp.destroy()?.sends {
    ///     println!("request {tag} with {} bytes never completed", buf.len());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_destroy_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_destroy_qp.3.html)
    pub fn destroy(self) -> Result<Reclaimed> {
        let mut this = ManuallyDrop::new(self);
        this.destroy_raw()?;
        let reclaimed = Reclaimed::new(this.tables.sends.drain(), this.tables.recvs.table.drain());
        // SAFETY: the queue pair is destroyed, and `this` is not used or dropped after.
        unsafe {
            ManuallyDrop::drop(&mut this.tables);
            std::ptr::drop_in_place(&raw mut this.scratch);
        }
        Ok(reclaimed)
    }

    /// Destroys the queue pair. On failure everything that it guards must be leaked.
    fn destroy_raw(&mut self) -> Result<()> {
        self.detach_all();
        self.tables.flows.destroy_all();
        // SAFETY: it is destroyed next.
        unsafe { self.tables.windows.free_all() };
        // SAFETY: made in `create`, destroyed once: both callers are the last to use it.
        let returned = unsafe { ibv_destroy_qp(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::count_leaked_object();
        }
        zero_or_errno("ibv_destroy_qp", || self.describe(), returned)
    }

    pub(crate) fn control(&self) -> Control<'_> {
        // SAFETY: the queue pair is alive while it is borrowed, and of its domain's context.
        unsafe { Control::new(self.raw, T::QP_TYPE, self.tables.owner.pd.context()) }
    }

    pub(crate) fn describe(&self) -> String {
        self.control().describe()
    }
}

impl<T: SendTransport> Drop for QueuePair<T> {
    fn drop(&mut self) {
        if self.destroy_raw().is_ok() {
            // SAFETY: not used after; the device touches nothing of it any more.
            unsafe { ManuallyDrop::drop(&mut self.tables) }
        }
    }
}

impl<T: SendTransport> AsRaw for QueuePair<T> {
    type Raw = ibv_qp;

    fn as_raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }
}

impl<T: SendTransport> fmt::Debug for QueuePair<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("type", &T::QP_TYPE)
            .field("qp_num", &self.qp_num())
            .field("device", &self.tables.owner.pd.context().device_name())
            .field("caps", &self.caps)
            .finish_non_exhaustive()
    }
}
