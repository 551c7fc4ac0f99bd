//! The type `QueuePair`: its parts, its properties and its destruction.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::{ibv_destroy_qp, ibv_qp, ibv_qp_ex};

use super::builder::{CreatedQp, Parts};
use super::handle::QpHandle;
use super::options::QpCaps;
use super::tables::Tables;
use crate::convert::zero_or_errno;
use crate::device::TransportType;
use crate::error::{Error, ErrorKind, Result};
use crate::forked::{self, Object};
use crate::identity::QueueId;
use crate::in_flight::Reclaimed;
use crate::numbers::Qpn;
use crate::pd::{ParentDomain, ProtectionDomain};
use crate::transport::SendTransport;
use crate::wr::{Owner, SendScratch};

/// A queue pair of transport `T`. It owns the buffers of its requests in flight.
///
/// One thread at a time uses it (`&mut`), and it can be sent to another thread. Dropping it
/// destroys the queue pair first, and then releases the buffers that it owned.
///
/// The library guide lists [common mistakes](https://github.com/rdma-rs/rdma-rs/blob/main/docs/library.md#queuepair).
///
/// # Example
/// Two queue pairs of one process are connected to each other:
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
///             a.retire(completion)?.check()?;
///         } else {
///             let received = b.retire(completion)?;
///             received.check()?;
///             assert_eq!(&received.into_buf().expect("the receive had a buffer")[..], b"hello");
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
#[doc(alias = "ibv_create_qp")]
pub struct QueuePair<T: SendTransport> {
    /// `None` after a scope has destroyed the queue pair. Its tables have no slots then, so nothing
    /// is posted.
    pub(super) raw: Option<NonNull<ibv_qp>>,
    pub(super) number: Qpn,
    pub(crate) extended: Option<NonNull<ibv_qp_ex>>,
    caps: QpCaps,
    /// `true` on iWARP, where the peer writes the data of an RDMA read.
    pub(crate) read_needs_remote_write: bool,
    /// Those operations of `T::EXTRA_OPS` that can be posted.
    pub(crate) extra_ops: u64,
    /// The memory that the device may access, and the objects that must outlive the queue pair.
    /// Leaked if the queue pair cannot be destroyed.
    pub(crate) tables: ManuallyDrop<Tables>,
    pub(crate) scratch: SendScratch,
    transport: PhantomData<T>,
}

// SAFETY: posting and retiring need `&mut self`, so one thread at a time uses the queue pair. The
// provider's queue is not bound to a thread, unless it is in a group, whose transport is not
// `Send`.
unsafe impl<T: SendTransport + Send> Send for QueuePair<T> {}
// SAFETY: `&self` only reads numbers and calls `ibv_query_qp`, which a lock excludes from itself.
unsafe impl<T: SendTransport + Sync> Sync for QueuePair<T> {}

impl<T: SendTransport> QueuePair<T> {
    /// Wraps a queue pair that was just created from `parts`.
    pub(crate) fn new(
        created: &CreatedQp,
        owner: Owner,
        parts: &Parts<'_>,
        max_batch: u32,
    ) -> Self {
        let max_batch = max_batch.max(1).min(
            created
                .caps
                .max_send_wr
                .max(created.caps.max_recv_wr)
                .max(1),
        ) as usize;
        let order = created.send_order;
        // The extended verbs need no list of requests.
        let scratch = match created.extended {
            Some(_) => SendScratch::new(order, 0, 0),
            None => SendScratch::new(order, max_batch, created.caps.max_inline_data),
        };
        // SAFETY: the queue pair was just created.
        let number = unsafe { QpHandle::number(created.raw) };
        Self {
            raw: Some(created.raw),
            number,
            extended: created.extended,
            caps: created.caps,
            extra_ops: created.extra_ops,
            read_needs_remote_write: parts.pd.context().device().transport()
                == TransportType::IWARP,
            tables: ManuallyDrop::new(Tables::new::<T>(created, owner, parts, max_batch)),
            scratch,
            transport: PhantomData,
        }
    }

    /// Keeps the parent domain alive in which the queue pair was created.
    pub(crate) fn keep(&mut self, parent: Arc<ParentDomain>) {
        self.tables.parent = Some(parent);
    }

    /// Returns the identity of the queue pair in this process, which its completions report.
    #[inline]
    pub fn id(&self) -> QueueId {
        self.tables.owner.id
    }

    /// Returns the number of the queue pair, which the peer needs.
    pub fn qp_num(&self) -> Qpn {
        self.number
    }

    /// Returns the capacities granted by the device.
    #[inline]
    pub fn caps(&self) -> QpCaps {
        self.caps
    }

    pub(crate) fn set_queue_sizes(&mut self, sends: u32, recvs: u32) {
        (self.caps.max_send_wr, self.caps.max_recv_wr) = (sends, recvs);
    }

    /// Returns the protection domain of the queue pair.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.tables.owner.pd
    }

    /// Returns `true` if requests are posted with the extended verbs (`ibv_wr_*`).
    pub fn is_extended(&self) -> bool {
        self.extended.is_some()
    }

    /// Returns the number of free send slots.
    #[inline]
    pub fn send_slots_free(&self) -> usize {
        self.tables.sends.slots_free()
    }

    /// Returns the number of free receive slots.
    #[inline]
    pub fn recv_slots_free(&self) -> usize {
        self.tables.recvs.table.slots_free()
    }

    /// Returns `true` if a [scope](Self::scope) has destroyed the queue pair, because requests with
    /// borrowed memory had not completed. Nothing can be posted to it anymore.
    pub fn is_destroyed(&self) -> bool {
        self.raw.is_none()
    }

    /// Returns the raw handle, for verbs that this crate does not wrap. What [`AsRaw`] says of its
    /// use applies, but that trait is for objects that live as long as their owner, which a scope
    /// can end for a queue pair.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`] if a [scope](Self::scope) has destroyed the queue pair.
    ///
    /// [`AsRaw`]: crate::AsRaw
    #[inline]
    pub fn as_raw(&self) -> Result<NonNull<ibv_qp>> {
        self.live("as_raw")
    }

    /// Returns the handle for a verb that is not on the data path.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`] if a scope has destroyed the queue pair.
    pub(crate) fn live(&self, verb: &'static str) -> Result<NonNull<ibv_qp>> {
        self.handle().live(verb)
    }

    /// Destroys the queue pair and returns the buffers of requests that never completed. The device
    /// no longer accesses them. If a [scope](Self::scope) has destroyed it, only the buffers are
    /// returned.
    ///
    /// # Errors
    /// If the driver fails, the queue pair and everything it owns are leaked and counted
    /// ([`leaked_objects`](crate::leaked_objects)). The same happens with
    /// [`ErrorKind::WrongState`] if a request has not retired, or has failed, on a device where
    /// this is [not safe](crate::CompletionQueue#devices-with-strict-rules).
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
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<Reclaimed> {
        let mut this = ManuallyDrop::new(self);
        this.destroy_in_place()?;
        let reclaimed = std::mem::take(&mut this.tables.reclaimed);
        // SAFETY: the queue pair is destroyed, and `this` is neither used nor dropped after this.
        unsafe {
            ManuallyDrop::drop(&mut this.tables);
            ptr::drop_in_place(&raw mut this.scratch);
        }
        Ok(reclaimed)
    }

    /// Destroys the queue pair, unless a scope has, and keeps the buffers of its requests for
    /// [`destroy`](Self::destroy). Nothing can be posted to it anymore.
    ///
    /// # Errors
    /// Same as [`destroy`](Self::destroy). The caller must leak the queue pair then.
    pub(crate) fn destroy_in_place(&mut self) -> Result<()> {
        self.destroy_raw()?;
        self.extended = None;
        self.tables.close();
        Ok(())
    }

    /// Destroys the queue pair, unless a scope has. On failure the caller leaks everything that it
    /// guards.
    fn destroy_raw(&mut self) -> Result<()> {
        let Some(raw) = self.raw else {
            return Ok(());
        };
        if let Err(error) = self.check_completions() {
            crate::leak::count_leaked_object();
            return Err(error);
        }
        self.detach_all();
        self.tables.flows.destroy_all();
        // SAFETY: the queue pair is destroyed next.
        unsafe { self.tables.windows.free_all() };
        self.forget_functions();
        let returned = {
            let mut numbers = self.tables.owner.pd.context().lock_numbers();
            // SAFETY: the queue pair is alive. If this succeeds, `self.raw` is cleared below;
            // otherwise the caller leaks the queue pair.
            let returned = unsafe { ibv_destroy_qp(raw.as_ptr()) };
            if let Some(numbers) = numbers.as_mut().filter(|_| returned == 0) {
                self.tables.leave_number(self.number, numbers);
            }
            returned
        };
        if returned == 0 {
            self.raw = None;
            self.tables.leave_srq(self.number);
        } else {
            crate::leak::count_leaked_object();
        }
        zero_or_errno("ibv_destroy_qp", || self.describe(), returned)
    }

    /// Destroys a queue pair that was just created and is not used. The caller has locked the
    /// numbers.
    pub(crate) fn discard(self) {
        let mut this = ManuallyDrop::new(self);
        this.forget_functions();
        // SAFETY: `this` is neither used nor dropped after this.
        let destroyed = |raw: NonNull<ibv_qp>| unsafe { ibv_destroy_qp(raw.as_ptr()) } == 0;
        if this.raw.is_none_or(destroyed) {
            // SAFETY: as above, and the queue pair is destroyed.
            unsafe {
                ManuallyDrop::drop(&mut this.tables);
                ptr::drop_in_place(&raw mut this.scratch);
            }
        } else {
            crate::leak::count_leaked_object();
        }
    }

    /// Keeps a forked child from changing the functions of the queue pair, which is destroyed next.
    fn forget_functions(&self) {
        if let Some(extended) = self.extended {
            forked::remove(Object::QueuePair(extended));
        }
    }

    /// Checks that no completion is left that must not be polled after the queue pair is destroyed.
    fn check_completions(&self) -> Result<()> {
        let (why, help) = if self.tables.leaves_lent_completions() {
            (
                "whose completion queue was exposed",
                "drain the queue pair before it is destroyed",
            )
        } else if self.tables.leaves_dangerous_completions() {
            (
                "with requests that have not retired or have failed, whose provider is not safe then",
                "drain the queue pair before it is destroyed (`CompletionQueue`, strict rules)",
            )
        } else {
            return Ok(());
        };
        let what = format!("{} {why}", self.describe());
        Err(Error::new(ErrorKind::WrongState, "ibv_destroy_qp", what).with_help(help))
    }

    pub(crate) fn handle(&self) -> QpHandle<'_> {
        let context = self.tables.owner.pd.context();
        // SAFETY: `self` keeps the queue pair alive, and it belongs to the context of its domain.
        unsafe { QpHandle::new(self.raw, self.number, T::TRANSPORT, context) }
    }

    pub(crate) fn describe(&self) -> String {
        self.handle().describe()
    }

    /// Describes the queue pair and its state.
    pub(crate) fn describe_state(&self) -> String {
        let state = self.handle().state();
        let state = state.map_or_else(|_| String::new(), |state| format!(" in state {state}"));
        self.describe() + &state
    }
}

impl<T: SendTransport> Drop for QueuePair<T> {
    fn drop(&mut self) {
        if self.destroy_raw().is_ok() {
            // SAFETY: `self.tables` is not used after this, and the device no longer accesses it.
            unsafe { ManuallyDrop::drop(&mut self.tables) }
        }
    }
}

impl<T: SendTransport> fmt::Debug for QueuePair<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("type", &format_args!("{}", T::TRANSPORT))
            .field("qp_num", &self.qp_num())
            .field("device", &self.tables.owner.pd.context().device_name())
            .field("caps", &self.caps)
            .finish_non_exhaustive()
    }
}
