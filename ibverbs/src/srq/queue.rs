//! The type `SharedReceiveQueue`: its parts, posting, retiring and destruction.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_create_srq, ibv_destroy_srq, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};

use super::members::Members;
use super::options::{Basic, SrqOptions, SrqType};
use crate::convert::non_null;
use crate::cq::{Completion, SharedCq, WcFields};
use crate::device::Avoided;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::QueueId;
use crate::in_flight::{ForeignCompletion, RecvSlab, Retired};
use crate::mr::{Grant, Held, HeldList, Hold};
use crate::pd::XrcDomain;
use crate::pd::{AttachedQueuePair, ProtectionDomain};
use crate::raw::AsRaw;
use crate::wr::{BatchError, Owner, RecvPayload, RecvRequest, Rejected};
use crate::wr::{Receives, RecvBatch, RecvHandle};
use crate::wr_id::RequestKind;

/// A shared receive queue: receives for any number of queue pairs of its protection domain.
///
/// One thread at a time posts receives and retires their completions. [`Completion::queue`] returns
/// the identity of the shared receive queue, and [`queue_pair`](Self::queue_pair) that of the queue
/// pair that received the message. Queue pairs keep the shared receive queue alive. Its buffers are
/// released when it and they are dropped.
///
/// Poll the completions of a queue pair before it is destroyed. The providers of several adapters,
/// such as mlx5, remove its completions that were not polled. A receive whose completion was
/// removed keeps its slot and its buffer until the shared receive queue is destroyed. To lose none,
/// move the queue pair to the error state, wait for the event
/// [`QP_LAST_WQE_REACHED`](crate::event::EventType::QP_LAST_WQE_REACHED), retire the completions,
/// and then destroy it.
///
/// `K` is the type of the queue: [`Basic`], or [`Xrc`](crate::xrc::Xrc) for a queue that senders
/// select by number.
///
/// # Example
/// ```no_run
/// # use ibverbs::{CqOptions, QpOptions, Rc, SrqOptions, wr};
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(CqOptions::default())?);
/// let mut srq = pd.create_srq(SrqOptions::default())?;
/// let a = pd.create_qp_with_srq::<Rc>(&cq, &cq, &srq, QpOptions::default())?;
/// let b = pd.create_qp_with_srq::<Rc>(&cq, &cq, &srq, QpOptions::default())?;
/// srq.post_recv(wr::recv(pd.buf(4096)?))?; // for a message to `a` or `b`
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_create_srq")]
pub struct SharedReceiveQueue<K: SrqType = Basic>(Arc<SrqInner>, PhantomData<K>);

/// The queue and its receives in flight, which must outlive it.
pub(crate) struct SrqInner {
    raw: NonNull<ibv_srq>,
    pd: ProtectionDomain,
    /// `Some` for a queue of an XRC domain.
    xrc: Option<XrcParts>,
    members: Members,
    /// `true` if queue pairs on it must not copy (`SrqOptions::device_addresses`).
    device_addresses: bool,
    /// Accessed only by the one `SharedReceiveQueue`, which is not `Clone`.
    receiving: UnsafeCell<ManuallyDrop<Receiving>>,
}

struct Receiving {
    receives: Receives<RecvSlab>,
    owner: Owner,
}

/// The objects that a queue of an XRC domain keeps alive besides its protection domain.
pub(crate) struct XrcParts {
    pub(crate) xrcd: XrcDomain,
    /// Completion queue of its receives.
    pub(crate) _cq: Arc<SharedCq>,
    /// Counts as a queue pair of the protection domain, because peers can access its memory
    /// through this queue.
    pub(crate) attached: AttachedQueuePair,
}

// SAFETY: only the one `SharedReceiveQueue` accesses `receiving`. Queue pairs only keep the queue
// alive.
unsafe impl Send for SrqInner {}
// SAFETY: `&SrqInner` of a queue pair does not access `receiving`.
unsafe impl Sync for SrqInner {}

impl SrqInner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_srq {
        self.raw.as_ptr()
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    pub(crate) fn has_device_addresses(&self) -> bool {
        self.device_addresses
    }

    pub(crate) fn members(&self) -> &Members {
        &self.members
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // SAFETY: this is the last owner. Every queue pair that receives from the queue held an
        // `Arc`.
        let returned = unsafe { ibv_destroy_srq(self.raw.as_ptr()) };
        let xrc = self.xrc.take();
        if returned != 0 {
            crate::leak::with_parent(&self.pd);
            std::mem::forget(xrc);
            return;
        }
        // SAFETY: `receiving` is taken once and not used after this.
        let mut receiving = unsafe { ManuallyDrop::take(self.receiving.get_mut()) };
        // No queue pair of this process receives from the queue, so the device no longer accesses
        // the buffers. A receiving half of an XRC domain may still be in the middle of a
        // message. If all of them are known, the buffers stay until the last one is destroyed.
        // Otherwise the buffers are never used again, and deregistration ends the access.
        match xrc {
            None => {}
            Some(XrcParts { xrcd, attached, .. }) if !xrcd.is_shared() => {
                xrcd.defer_drop((receiving, attached));
            }
            Some(_) => receiving.receives.table.discard_buffers(),
        }
    }
}

impl ProtectionDomain {
    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if a size exceeds the device's
    /// limit (`max_srq_wr`), [`ErrorKind::Unsupported`] on devices with
    /// [strict rules](crate::CompletionQueue#devices-with-strict-rules).
    #[doc(alias = "ibv_create_srq")]
    pub fn create_srq(&self, options: SrqOptions) -> Result<SharedReceiveQueue> {
        let what = || {
            format!(
                "a shared receive queue with {} receives of {} scatter entries on {}",
                options.max_wr,
                options.max_sge,
                self.context().device_name()
            )
        };
        options.check("ibv_create_srq", what)?;
        check_provider("ibv_create_srq", self)?;
        if options.device_addresses {
            self.context()
                .check_device_addresses("ibv_create_srq", false)?;
        }
        let owner = Owner::new(self, options.device_addresses)?;
        let attr = ibv_srq_attr {
            max_wr: options.max_wr,
            max_sge: options.max_sge,
            srq_limit: 0,
        };
        let mut init = ibv_srq_init_attr {
            srq_context: owner.id.as_context(),
            attr,
        };
        let raw = non_null("ibv_create_srq", what, || {
            // SAFETY: the domain is alive and the attributes are valid during the call.
            unsafe { ibv_create_srq(self.as_raw(), &raw mut init) }
        })?;
        // SAFETY: the queue was just created in the owner's domain with the owner's identity.
        Ok(unsafe { SharedReceiveQueue::from_raw(raw, owner, &init.attr, options, None) })
    }
}

/// Checks that completions of a shared receive queue may be polled after their queue pair was
/// destroyed.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the provider does not allow it, or is unknown.
pub(crate) fn check_provider(verb: &'static str, pd: &ProtectionDomain) -> Result<()> {
    let context = pd.context();
    if !context.avoids(Avoided::SHARED_RECEIVES) {
        return Ok(());
    }
    let what = format!(
        "{}: its provider is not known to be safe when a queue pair of a shared receive queue is \
         destroyed",
        context.device_name()
    );
    Err(Error::new(ErrorKind::Unsupported, verb, what)
        .with_help("post receives to the queue pairs"))
}

impl SharedReceiveQueue {
    /// Returns the identity of the queue pair, or of the target of the dynamically connected
    /// transport, that received the message of a completion. Unlike
    /// [`Completion::qp_num`], it is never reused: it names the right queue pair even if that one
    /// was destroyed, and another one has its number.
    ///
    /// Returns `None` for a completion of another queue. The identity is looked up in a table,
    /// under a lock.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{CompletionQueue, QueueMap, QueuePair, Rc, SharedReceiveQueue, wr};
    /// # fn f(cq: &mut CompletionQueue, srq: &mut SharedReceiveQueue, clients: &mut QueueMap<QueuePair<Rc>>) -> ibverbs::Result<()> {
    /// for completion in cq.poll()? {
    ///     let client = srq.queue_pair(&completion);
    ///     let request = srq.retire(completion)?.into_buf();
    ///     if let Some(client) = client.and_then(|id| clients.get_mut(&id)) {
    ///         client.post_send(wr::send(wr::Inline(b"done")))?;
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn queue_pair(&self, completion: &Completion<'_>) -> Option<QueueId> {
        if completion.queue() != self.id() {
            return None;
        }
        self.0.members.find(completion.qp_num())
    }
}

impl<K: SrqType> SharedReceiveQueue<K> {
    /// Wraps a queue with the granted sizes.
    ///
    /// # Safety
    /// The queue is alive and has no other owner. It was created in the owner's domain and in
    /// `xrc`, with the owner's identity.
    pub(crate) unsafe fn from_raw(
        raw: NonNull<ibv_srq>,
        owner: Owner,
        sizes: &ibv_srq_attr,
        options: SrqOptions,
        xrc: Option<XrcParts>,
    ) -> Self {
        let slab = RecvSlab::new(owner.id, RequestKind::RecvDatagram, sizes.max_wr);
        let receives = Receives::new(
            slab,
            sizes.max_sge,
            options.max_batch.clamp(1, sizes.max_wr.max(1)) as usize,
        );
        let pd = owner.pd.clone();
        let receiving = UnsafeCell::new(ManuallyDrop::new(Receiving { receives, owner }));
        Self(
            Arc::new(SrqInner {
                raw,
                pd,
                xrc,
                members: Members::default(),
                device_addresses: options.device_addresses,
                receiving,
            }),
            PhantomData,
        )
    }

    #[inline]
    fn receiving_mut(&mut self) -> &mut Receiving {
        // SAFETY: this is the one `SharedReceiveQueue` of its `SrqInner`, borrowed exclusively.
        unsafe { &mut *self.0.receiving.get() }
    }

    #[inline]
    fn receiving(&self) -> &Receiving {
        // SAFETY: this is the one `SharedReceiveQueue` of its `SrqInner`, borrowed shared.
        unsafe { &*self.0.receiving.get() }
    }

    pub(crate) fn shared(&self) -> &Arc<SrqInner> {
        &self.0
    }

    /// Returns the identity of the queue in this process, which the completions of its receives
    /// report.
    pub fn id(&self) -> QueueId {
        self.receiving().owner.id
    }

    /// Returns the protection domain of the queue.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.0.pd
    }

    /// Returns the number of receives that fit into the queue, as granted by the device.
    pub fn recv_capacity(&self) -> u32 {
        self.receiving().receives.table.capacity()
    }

    /// Returns the number of free receive slots.
    pub fn recv_slots_free(&self) -> usize {
        self.receiving().receives.table.slots_free()
    }

    /// Keeps memory alive until it is released or the queue is destroyed. See
    /// [`QueuePair::hold`](crate::QueuePair::hold).
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if the memory belongs to another
    /// protection domain.
    pub fn hold<M: Hold>(&mut self, memory: &M) -> Result<Held<M>> {
        self.receiving_mut().owner.hold(memory)
    }

    /// Keeps a scatter/gather list of held memory. See
    /// [`QueuePair::hold_list`](crate::QueuePair::hold_list).
    ///
    /// # Errors
    /// Those of [`QueuePair::hold_list`](crate::QueuePair::hold_list).
    pub fn hold_list<M: Hold>(&mut self, pieces: &[Held<M>]) -> Result<HeldList<M>> {
        self.receiving_mut().owner.hold_list(pieces)
    }

    /// Releases held memory. See [`QueuePair::release`](crate::QueuePair::release).
    ///
    /// # Errors
    /// Those of [`QueuePair::release`](crate::QueuePair::release).
    pub fn release<M: Hold>(&mut self, memory: Held<M>) -> Result<bool> {
        self.release_token(memory.token())
    }

    /// Releases a list. See [`QueuePair::release_list`](crate::QueuePair::release_list).
    ///
    /// # Errors
    /// Those of [`QueuePair::release`](crate::QueuePair::release).
    pub fn release_list<M: Hold>(&mut self, list: HeldList<M>) -> Result<bool> {
        self.release_token(list.token())
    }

    fn release_token(&mut self, token: Grant) -> Result<bool> {
        let Receiving { receives, owner } = self.receiving_mut();
        owner.release(token, &[&receives.table])
    }

    /// Posts one receive. See [`QueuePair::post_recv`](crate::QueuePair::post_recv).
    ///
    /// # Errors
    /// Same as [`QueuePair::post_recv`](crate::QueuePair::post_recv).
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub fn post_recv<P: RecvPayload>(
        &mut self,
        request: RecvRequest<P>,
    ) -> Result<(), Rejected<P::Returned>> {
        let raw = self.0.raw;
        let Receiving {
            receives, owner, ..
        } = self.receiving_mut();
        receives.post(RecvHandle::Srq(raw), owner, request)
    }

    /// Posts the receives that the closure adds. See
    /// [`QueuePair::recv_batch`](crate::QueuePair::recv_batch).
    ///
    /// # Errors
    /// The error of the closure, or a [`BatchError`] converted into its type.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn recv_batch<R, E: From<BatchError>>(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let raw = self.0.raw;
        let Receiving {
            receives, owner, ..
        } = self.receiving_mut();
        // The state of a shared receive queue explains nothing: it always accepts receives.
        receives.batch(RecvHandle::Srq(raw), owner, fill, |_, _| None)
    }

    /// Retires the completion of a receive of this queue. See
    /// [`QueuePair::retire`](crate::QueuePair::retire).
    ///
    /// # Errors
    /// Those of [`QueuePair::retire`](crate::QueuePair::retire).
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn retire(&mut self, completion: Completion<'_>) -> Result<Retired, ForeignCompletion> {
        self.try_retire(completion)
            .map_err(|completion| ForeignCompletion {
                queue: completion.queue(),
            })
    }

    /// Like [`retire`](Self::retire), but returns a completion that belongs to another queue. See
    /// [`QueuePair::try_retire`](crate::QueuePair::try_retire).
    ///
    /// # Errors
    /// The unchanged completion.
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn try_retire<'cq>(
        &mut self,
        completion: Completion<'cq>,
    ) -> Result<Retired, Completion<'cq>> {
        let wc = completion.wc();
        let request = self.receiving_mut().receives.table.retire(wc.wr_id());
        request
            .map(|request| Retired::received(request, wc))
            .ok_or(completion)
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "shared receive queue on {}",
            self.0.pd.context().device_name()
        )
    }
}

impl<K: SrqType> AsRaw for SharedReceiveQueue<K> {
    type Raw = ibv_srq;

    fn as_raw(&self) -> *mut ibv_srq {
        self.0.as_ptr()
    }
}

impl<K: SrqType> fmt::Debug for SharedReceiveQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("device", &self.0.pd.context().device_name())
            .finish_non_exhaustive()
    }
}
