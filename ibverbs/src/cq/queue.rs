//! Completion queues: creation, polling and arming.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use rdma_sys::{ibv_cq, ibv_create_cq, ibv_poll_cq, ibv_req_notify_cq, ibv_wc};

use super::channel::CompletionChannel;
use super::completion::Completion;
use super::completions::Completions;
use super::extended;
use super::id::CqId;
use super::options::CqOptions;
use super::poll_state::{POLL_BATCH, PollState};
use super::shared::SharedCq;
use super::strict;
use crate::convert::{non_null, zero_or_errno};
use crate::device::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::pd::ParentDomain;
use crate::raw::AsRaw;

/// [`POLL_BATCH`] in the type that `ibv_poll_cq` takes.
#[allow(clippy::cast_possible_truncation, reason = "32 fits")]
const MAX_ENTRIES: i32 = POLL_BATCH as i32;

/// Remedy for a failed poll.
pub(super) const POLL_FAILED: &str = "the queue may have overflowed: make it as deep as the number of requests that can be outstanding";

/// A completion queue. Polling needs `&mut`, so only one thread polls at a time. The queue can be
/// sent to another thread.
///
/// # Devices with strict rules
/// This library relies on a property of a device only if there is evidence for it, for each
/// provider of rdma-core (`docs/drivers.md` has the table). An unknown provider has no property.
/// mlx4, mlx5, mthca, hns, rxe and siw have all that an application notices. Without a property, an
/// application loses this:
///
/// - **A queue pair cannot be destroyed before all of its requests have retired** (cxgb4, erdma,
///   mana, qedr, unknown). [`destroy`](crate::QueuePair::destroy) fails, and the queue pair is
///   leaked with its buffers. Dropping it does the same. Call [`drain`](crate::QueuePair::drain)
///   first.
/// - **The buffer of a failed request is returned when the queue pair is destroyed**, not with its
///   completion (bnxt_re, cxgb4, hfi1verbs, ionic, ipathverbs, irdma, mana, ocrdma, vmw_pvrdma,
///   unknown). A shared receive queue keeps it until it is destroyed itself. On cxgb4, mana and
///   unknown providers, a queue pair with a failed request is never destroyed.
/// - **Shared receive queues** cannot be created (cxgb4, erdma, irdma, mana, qedr, unknown).
/// - **Numbers of queue pairs run out** (efa) if many are destroyed with requests in flight while
///   the completion queue exists: creating one then fails. Create another completion queue.
/// - **Inline data** is not supported (hfi1verbs, ipathverbs, mana, vmw_pvrdma, unknown):
///   [`max_inline_data`](crate::QpCaps::max_inline_data) is 0.
/// - **Sends are always signaled**, also [unsignaled](crate::wr::SendRequest::signaled) ones
///   (cxgb4, efa, erdma, unknown, and iWARP except siw).
///
/// # Example
/// ```no_run
/// # use ibverbs::{CompletionQueue, Error, QueuePair, Rc};
/// fn retire_all(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> Result<usize, Error> {
///     let mut retired = 0;
///     for completion in cq.poll()? {
///         qp.retire(completion)?.check()?;
///         retired += 1;
///     }
///     Ok(retired)
/// }
/// ```
#[doc(alias = "ibv_create_cq")]
#[doc(alias = "ibv_poll_cq")]
pub struct CompletionQueue {
    inner: Arc<SharedCq>,
    /// The handle of `inner`, copied so that polling needs one pointer less, or that of an empty
    /// queue, if polling follows strict rules.
    polled: NonNull<ibv_cq>,
    state: PollState<ibv_wc>,
}

// SAFETY: polling needs `&mut self`, so one thread at a time polls; providers do not bind a queue
// to a thread.
unsafe impl Send for CompletionQueue {}
// SAFETY: `&self` only reads the identity and the depth.
unsafe impl Sync for CompletionQueue {}

impl Context {
    /// Creates a completion queue.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if `depth` exceeds the device's `max_cqe`.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::CqOptions;
    /// let cq = context.create_cq(CqOptions::new().depth(1024))?;
    /// println!("the queue holds {} completions", cq.depth()); // at least 1024
    ///
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_create_cq")]
    pub fn create_cq(&self, options: CqOptions<'_>) -> Result<CompletionQueue> {
        CompletionQueue::create_with(self, options, |id| create_classic(self, options, id))
    }
}

/// Creates a queue with `ibv_create_cq`.
fn create_classic(context: &Context, options: CqOptions<'_>, id: CqId) -> Result<NonNull<ibv_cq>> {
    let channel = options.channel.map_or(ptr::null_mut(), AsRaw::as_raw);
    let depth = i32::try_from(options.depth).unwrap_or(i32::MAX);
    let vector = i32::try_from(options.comp_vector).unwrap_or(i32::MAX);
    let what = || format!("{} entries on {}", options.depth, context.device_name());
    non_null("ibv_create_cq", what, || {
        // SAFETY: context and channel are alive; the context pointer of the queue is a number that
        // is never dereferenced.
        unsafe { ibv_create_cq(context.as_raw(), depth, id.as_context(), channel, vector) }
    })
}

impl CompletionQueue {
    /// Creates a queue with `create`, which returns the handle.
    pub(crate) fn create_with(
        context: &Context,
        options: CqOptions<'_>,
        create: impl FnOnce(CqId) -> Result<NonNull<ibv_cq>>,
    ) -> Result<Self> {
        if let Some(channel) = options.channel {
            if channel.context().as_raw() != context.as_raw() {
                return Err(Error::new(
                    ErrorKind::Mismatch,
                    "ibv_create_cq",
                    format!(
                        "a queue on {} with a channel of {}",
                        context.device_name(),
                        channel.context().device_name()
                    ),
                )
                .with_help("create both on the same `Context`"));
            }
        }
        let id = CqId::next();
        let raw = create(id)?;
        let polled = if strict::is_strict(context) {
            strict::empty_queue()
        } else {
            raw
        };
        Ok(Self {
            inner: Arc::new(SharedCq {
                raw,
                id,
                context: context.clone(),
                channel: options.channel.cloned(),
                parent: None,
                empty_polls: AtomicU64::new(0),
                exposed: AtomicBool::new(false),
            }),
            polled,
            state: PollState::new(),
        })
    }

    /// Creates a queue that one thread uses, in the domain of a group.
    pub(crate) fn create_in_group(
        parent: &Arc<ParentDomain>,
        options: CqOptions<'_>,
    ) -> Result<Self> {
        let context = parent.pd().context();
        let mut queue = Self::create_with(context, options, |id| {
            extended::create_in_group(parent, options, id)
        })?;
        if let Some(inner) = Arc::get_mut(&mut queue.inner) {
            inner.parent = Some(Arc::clone(parent));
        }
        Ok(queue)
    }

    /// Returns at most 32 completions, without waiting. The iterator is empty if there are none.
    ///
    /// A completion is valid until the next poll. Completions that the caller has not taken from
    /// the iterator are not lost: the next poll returns them.
    ///
    /// # Errors
    /// Fails if the provider reports an error of the queue. The requests in flight stay in flight.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{CompletionQueue, QueuePair, Rc};
    /// # fn f(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    /// for completion in cq.poll()? {
    ///     let retired = qp.retire(completion)?;
    ///     println!("request {}: {}", retired.tag(), retired.status());
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn poll(&mut self) -> Result<Completions<'_>> {
        self.poll_up_to(MAX_ENTRIES)
    }

    /// Returns one completion, or `None` if there is none.
    ///
    /// This costs less than [`poll`](Self::poll) if one request is in flight, because the provider
    /// does not look for a second completion.
    ///
    /// # Errors
    /// Those of [`poll`](Self::poll).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{CompletionQueue, QueuePair, Rc};
    /// # fn f(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    /// if let Some(completion) = cq.poll_one()? {
    ///     qp.retire(completion)?.check()?;
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn poll_one(&mut self) -> Result<Option<Completion<'_>>> {
        self.poll_up_to(1).map(|mut completions| completions.next())
    }

    /// Returns the completions that are left of an earlier poll, or else at most `max` new ones.
    /// `max` must be positive: a poll without entries means that the queue was empty.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    fn poll_up_to(&mut self, max: i32) -> Result<Completions<'_>> {
        if !self.state.is_exhausted() {
            return Ok(Completions(self.state.pending()));
        }
        let returned = self.poll_provider(max);
        // One comparison separates entries from their absence and errors.
        #[allow(clippy::cast_sign_loss, reason = "compared")]
        let filled = if (1..=MAX_ENTRIES).contains(&returned) {
            returned as usize
        } else {
            self.without_entries(max, returned)?
        };
        Ok(Completions(self.state.filled(filled)))
    }

    /// Copies at most `max` entries, and returns the value that the provider returned.
    #[inline]
    fn poll_provider(&mut self, max: i32) -> i32 {
        let entries = self.state.entries().as_mut_ptr();
        // SAFETY: the queue is alive, and there are `POLL_BATCH` entries, at least `max`.
        unsafe { ibv_poll_cq(self.polled.as_ptr(), max, entries) }
    }

    /// Handles a poll without entries. Returns the number of entries of a poll under strict rules,
    /// or 0 if the queue was empty.
    #[cold]
    #[inline(never)]
    fn without_entries(&mut self, max: i32, returned: i32) -> Result<usize> {
        if returned == 0 && self.polled == self.inner.raw {
            self.inner.count_empty_poll();
            return Ok(0);
        }
        self.poll_again(max, returned)
    }

    /// Handles a failed poll, and one under strict rules.
    #[inline(never)]
    fn poll_again(&mut self, max: i32, mut returned: i32) -> Result<usize> {
        let SharedCq { context, raw, .. } = &*self.inner;
        if self.polled != *raw {
            let entries = self.state.entries().as_mut_ptr();
            // SAFETY: the queue is alive, and `&mut self` keeps other threads from polling it.
            // There are `POLL_BATCH` entries, at least `max`.
            returned = unsafe { strict::poll(context, *raw, max, entries) };
        }
        if returned == 0 {
            self.inner.count_empty_poll();
        }
        match usize::try_from(returned) {
            Ok(filled @ ..=POLL_BATCH) => Ok(filled),
            _ => Err(self.poll_error(returned)),
        }
    }

    /// Converts the value that the provider returned from a failed poll, which is not an error
    /// number: providers return -1 or -2.
    #[cold]
    #[inline(never)]
    fn poll_error(&self, returned: i32) -> Error {
        let device = self.inner.context.device_name();
        let what = format!("{device}: the provider returned {returned}");
        Error::new(ErrorKind::Os, "ibv_poll_cq", what).with_help(POLL_FAILED)
    }

    /// Returns the identity of this queue, as reported by
    /// [`CompletionChannel::wait`](crate::CompletionChannel::wait).
    pub fn id(&self) -> CqId {
        self.inner.id
    }

    /// Returns the number of entries that the queue holds. The device may have rounded it up.
    pub fn depth(&self) -> usize {
        // SAFETY: the queue is alive. Only `resize` changes its size, which needs `&mut self`.
        let cqe = unsafe { (*self.inner.as_ptr()).cqe };
        usize::try_from(cqe).unwrap_or(0)
    }

    /// Requests one event on the completion channel, for the next completion. With
    /// `solicited_only`, only a solicited or failed completion causes the event.
    ///
    /// Poll once more before waiting, because entries that are already in the queue cause no event.
    ///
    /// # Errors
    /// Fails if the device was removed.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{CompletionChannel, CompletionQueue};
    /// # fn f(channel: &CompletionChannel, cq: &mut CompletionQueue) -> ibverbs::Result<()> {
    /// cq.arm(false)?; // arm first, then poll
    /// if cq.poll()?.is_empty() {
    ///     channel.wait(None)?;
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self, solicited_only: bool) -> Result<()> {
        let channel = self.inner.channel.as_ref();
        let _events = channel.map(CompletionChannel::lock_events);
        // SAFETY: the queue is alive, and no thread reads an event of it meanwhile.
        let returned = unsafe { ibv_req_notify_cq(self.inner.as_ptr(), i32::from(solicited_only)) };
        zero_or_errno(
            "ibv_req_notify_cq",
            || self.inner.context.device_name().into(),
            returned,
        )
    }

    /// Returns the handle of the queue that the fast path polls: an empty one, if polling follows
    /// strict rules.
    #[inline]
    pub(crate) fn polled(&self) -> NonNull<ibv_cq> {
        self.polled
    }

    pub(crate) fn inner(&self) -> &Arc<SharedCq> {
        &self.inner
    }

    /// Checks that the queue can be used by one more queue pair or shared receive queue.
    pub(crate) fn check_not_lent(&self, verb: &'static str) -> Result<()> {
        if !self.inner.was_exposed() {
            return Ok(());
        }
        let device = self.inner.context.device_name();
        let what = format!("a completion queue on {device} that was exposed");
        Err(Error::new(ErrorKind::InvalidInput, verb, what)
            .with_help("create another completion queue"))
    }
}

impl AsRaw for CompletionQueue {
    type Raw = ibv_cq;

    fn as_raw(&self) -> *mut ibv_cq {
        self.inner.as_ptr()
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("device", &self.inner.context.device_name())
            .field("depth", &self.depth())
            .finish_non_exhaustive()
    }
}
