//! A completion queue: made and armed.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::{ibv_cq, ibv_create_cq, ibv_req_notify_cq, ibv_wc};

use super::burst::{BURST, Mode, Rest};
use super::extended;
use super::id::CqId;
use super::options::CqOptions;
use super::shared::Shared;
use crate::convert::{non_null, zero_or_errno};
use crate::device::Context;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::fixed::Fixed;
use crate::kind::ErrorKind;
use crate::raw::AsRaw;

/// A completion queue. One thread at a time polls it (`&mut`); it may be sent to another.
///
/// # Example
/// ```no_run
/// # use ibverbs::{CompletionQueue, Error, QueuePair, Rc};
/// fn retire_all(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> Result<usize, Error> {
///     let mut done = 0;
///     for completion in cq.poll()? {
///         qp.retire(completion)?.ok()?;
///         done += 1;
///     }
///     Ok(done)
/// }
/// ```
///
/// # References
/// [`ibv_create_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq.3.html),
/// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
pub struct CompletionQueue {
    pub(crate) shared: Arc<Shared>,
    pub(crate) raw: NonNull<ibv_cq>,
    /// Entries copied out of the provider's queue: `filled` of them, of which the last ones were
    /// not taken yet.
    pub(crate) entries: Fixed<ibv_wc>,
    pub(crate) filled: u32,
    pub(crate) rest: Rest,
    /// See [`extended::one_by_one`].
    pub(crate) one_by_one: bool,
    /// An error that came after entries: reported by the next poll.
    pub(crate) deferred: Option<Errno>,
}

// SAFETY: polling needs `&mut self`, so one thread at a time; the provider's queue is not bound to
// a thread.
unsafe impl Send for CompletionQueue {}
// SAFETY: through `&self` only its identity and size are read.
unsafe impl Sync for CompletionQueue {}

impl Context {
    /// Creates a completion queue.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when it is deeper than the device's `max_cqe`.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::CqOptions;
    /// let cq = context.create_cq(CqOptions {
    ///     depth: 1024,
    ///     ..CqOptions::default()
    /// })?;
    /// println!("{} completions fit", cq.depth()); // at least 1024
    ///
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_create_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq.3.html),
    /// [`ibv_create_cq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    pub fn create_cq(&self, options: CqOptions<'_>) -> Result<CompletionQueue> {
        CompletionQueue::create(self, options)
    }
}

impl CompletionQueue {
    fn create(context: &Context, options: CqOptions<'_>) -> Result<Self> {
        Self::create_by(context, options, |id| {
            match options
                .extended
                .then(|| extended::create(context, options, id, 0))
                .flatten()
            {
                Some(raw) => Ok((raw.cast(), true)),
                None => Ok((Self::create_classic(context, options, id)?, false)),
            }
        })
    }

    /// By a function that says too whether it made an extended one: an `ibv_cq_ex`, which begins
    /// with the fields of an `ibv_cq`.
    pub(crate) fn create_by(
        context: &Context,
        options: CqOptions<'_>,
        make: impl FnOnce(CqId) -> Result<(NonNull<ibv_cq>, bool)>,
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
                .with_hint("make both on the same opening of the device"));
            }
        }
        let id = CqId::next();
        let (raw, extended) = make(id)?;
        let shared = Arc::new(Shared {
            raw,
            id,
            context: context.clone(),
            channel: options.channel.cloned(),
        });
        let one_by_one = extended && extended::one_by_one(context)?;
        Ok(Self {
            shared,
            raw,
            entries: Fixed::new(BURST.into()),
            filled: 0,
            rest: Rest {
                mode: Mode::of(extended, one_by_one),
                left: 0,
            },
            one_by_one,
            deferred: None,
        })
    }

    fn create_classic(
        context: &Context,
        options: CqOptions<'_>,
        id: CqId,
    ) -> Result<NonNull<ibv_cq>> {
        let channel = options.channel.map_or(ptr::null_mut(), AsRaw::as_raw);
        let depth = i32::try_from(options.depth).unwrap_or(i32::MAX);
        let vector = i32::try_from(options.comp_vector).unwrap_or(i32::MAX);
        let what = || format!("{} entries on {}", options.depth, context.device_name());
        non_null("ibv_create_cq", what, || {
            // SAFETY: context and channel are alive; the queue's context pointer is a number that
            // is never followed.
            unsafe { ibv_create_cq(context.as_raw(), depth, id.as_context(), channel, vector) }
        })
    }

    /// Which queue this is, as [`CompletionChannel::wait`](crate::CompletionChannel::wait) reports
    /// it.
    pub fn id(&self) -> CqId {
        self.shared.id
    }

    /// How many entries it holds, as the device rounded it.
    pub fn depth(&self) -> usize {
        // SAFETY: the queue is alive; its size is set at creation.
        let cqe = unsafe { (*self.shared.as_ptr()).cqe };
        usize::try_from(cqe).unwrap_or(0)
    }

    /// Whether it is polled by the extended verbs.
    pub fn is_extended(&self) -> bool {
        self.rest.mode != Mode::Classic
    }

    /// Asks for one event on the channel at the next completion, or at the next solicited (or
    /// failed) one.
    ///
    /// Poll once more before waiting: entries that are there already give no event.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{CompletionChannel, CompletionQueue};
    /// # fn f(channel: &CompletionChannel, cq: &mut CompletionQueue) -> ibverbs::Result<()> {
    /// cq.arm(false)?; // first arm, then look
    /// if cq.poll()?.is_empty() {
    ///     channel.wait(None)?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_req_notify_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_req_notify_cq.3.html)
    pub fn arm(&mut self, solicited_only: bool) -> Result<()> {
        // SAFETY: the queue is alive.
        let returned =
            unsafe { ibv_req_notify_cq(self.shared.as_ptr(), i32::from(solicited_only)) };
        zero_or_errno(
            "ibv_req_notify_cq",
            || self.shared.context.device_name().into(),
            returned,
        )
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl AsRaw for CompletionQueue {
    type Raw = ibv_cq;

    fn as_raw(&self) -> *mut ibv_cq {
        self.shared.as_ptr()
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("device", &self.shared.context.device_name())
            .field("depth", &self.depth())
            .field("extended", &self.is_extended())
            .finish_non_exhaustive()
    }
}
