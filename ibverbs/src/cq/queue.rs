//! A completion queue: made, armed and polled.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::{ibv_cq, ibv_cq_ex, ibv_create_cq, ibv_poll_cq, ibv_req_notify_cq, ibv_wc};

use super::completions::Completions;
use super::extended;
use super::id::CqId;
use super::options::CqOptions;
use super::shared::Shared;
use crate::context::Context;
use crate::convert::{non_null, zero_or_errno};
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::fixed::Fixed;
use crate::kind::ErrorKind;
use crate::raw::AsRaw;

pub(super) const OVERFLOWED: &str =
    "the queue may have overflowed: make it as deep as all requests that can be outstanding";

/// How many entries one call of the provider returns at most.
pub(super) const BURST: u16 = 32;

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
    shared: Arc<Shared>,
    extended: Option<NonNull<ibv_cq_ex>>,
    raw: NonNull<ibv_cq>,
    /// Entries copied out of the provider's queue: `filled` of them, of which the last ones were not taken yet.
    entries: Fixed<ibv_wc>,
    filled: u32,
    rest: Rest,
    /// See [`extended::one_by_one`].
    one_by_one: bool,
    /// An error that came after entries: reported by the next poll.
    deferred: Option<Errno>,
}

/// Two halves of a word, so that one look says whether there is nothing but to ask the classic verb.
#[repr(C, align(8))]
struct Rest {
    /// How many entries were not taken yet.
    left: u32,
    /// 1 if the queue is polled by the extended verbs.
    extended: u32,
}

impl Rest {
    #[inline]
    fn is_zero(&self) -> bool {
        u64::from(self.left) | u64::from(self.extended) << 32 == 0
    }
}

// SAFETY: polling needs `&mut self`, so one thread at a time; the provider's queue is not bound to a thread.
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
    /// let cq = context.create_cq(CqOptions { depth: 1024, ..CqOptions::default() })?;
    /// println!("{} completions fit", cq.depth()); // at least 1024
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
            match options.extended.then(|| extended::create(context, options, id, 0)).flatten() {
                Some((raw, extended)) => Ok((raw, Some(extended))),
                None => Ok((Self::create_classic(context, options, id)?, None)),
            }
        })
    }

    pub(super) fn create_by(
        context: &Context,
        options: CqOptions<'_>,
        make: impl FnOnce(CqId) -> Result<(NonNull<ibv_cq>, Option<NonNull<ibv_cq_ex>>)>,
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
        let entries = Fixed::<ibv_wc>::new(BURST.into());
        Ok(Self {
            shared: Arc::new(Shared { raw, id, context: context.clone(), channel: options.channel.cloned() }),
            extended,
            raw,
            entries,
            filled: 0,
            rest: Rest { left: 0, extended: extended.is_some().into() },
            one_by_one: extended.is_some() && extended::one_by_one(context)?,
            deferred: None,
        })
    }

    fn create_classic(context: &Context, options: CqOptions<'_>, id: CqId) -> Result<NonNull<ibv_cq>> {
        let channel = options.channel.map_or(ptr::null_mut(), AsRaw::as_raw);
        let depth = i32::try_from(options.depth).unwrap_or(i32::MAX);
        let vector = i32::try_from(options.comp_vector).unwrap_or(i32::MAX);
        let what = || format!("{} entries on {}", options.depth, context.device_name());
        non_null("ibv_create_cq", what, || {
            // SAFETY: context and channel are alive; the queue's context pointer is a number that is never followed.
            unsafe { ibv_create_cq(context.as_raw(), depth, id.as_context(), channel, vector) }
        })
    }

    /// Which queue this is, as [`CompletionChannel::wait`](crate::CompletionChannel::wait) reports it.
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
        self.extended.is_some()
    }

    /// Asks for one event on the channel at the next completion, or at the next solicited (or failed) one.
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
    /// if cq.poll()?.len() == 0 {
    ///     channel.wait(None)?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_req_notify_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_req_notify_cq.3.html)
    pub fn arm(&mut self, solicited_only: bool) -> Result<()> {
        // SAFETY: the queue is alive.
        let returned = unsafe { ibv_req_notify_cq(self.shared.as_ptr(), i32::from(solicited_only)) };
        zero_or_errno("ibv_req_notify_cq", || self.shared.context.device_name().into(), returned)
    }

    /// Takes what has completed, without waiting.
    ///
    /// The completions live until the next poll. Those that the iterator was not asked for come first at the next poll: none is lost.
    ///
    /// # Errors
    /// An error is not a completion: requests in flight stay in flight.
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
    ///
    /// # References
    /// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html),
    /// [`ibv_start_poll(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn poll(&mut self) -> Result<Completions<'_>> {
        if self.rest.is_zero() {
            // SAFETY: the queue is alive, and there are as many entries as the call is told.
            let returned = unsafe { ibv_poll_cq(self.raw.as_ptr(), BURST.into(), self.entries.as_ptr()) };
            let next = self.entries.as_ptr().cast_const();
            if returned <= 0 {
                return match returned {
                    0 => Ok(Completions { next, left: 0, stays: &mut self.rest.left, entries: PhantomData }),
                    _ => Err(poll_failed(&self.shared, returned)),
                };
            }
            // More than it was told would have been written beyond the end.
            debug_assert!(returned <= BURST.into());
            let filled = returned.unsigned_abs();
            (self.filled, self.rest.left) = (filled, filled);
            return Ok(Completions { next, left: filled, stays: &mut self.rest.left, entries: PhantomData });
        }
        self.refill()?;
        let left = self.rest.left;
        // SAFETY: of the `filled` entries, `left` are left.
        let next = unsafe { self.entries.as_ptr().cast_const().add((self.filled - left) as usize) };
        Ok(Completions { next, left, stays: &mut self.rest.left, entries: PhantomData })
    }

    /// Sees to it that there are entries not taken, if the queue has any: polls by the extended verbs, entry by entry, so that an error may come after entries: it is kept for the next poll.
    fn refill(&mut self) -> Result<()> {
        let extended = match self.extended {
            Some(extended) if self.rest.left == 0 => extended,
            _ => return Ok(()),
        };
        if self.deferred.is_some() {
            return self.deferred.take().map_or(Ok(()), |errno| Err(self.poll_error(errno)));
        }
        // SAFETY: there are `BURST` entries, and no completion refers to one: they end with the next poll.
        let entries = unsafe { std::slice::from_raw_parts_mut(self.entries.as_ptr(), BURST.into()) };
        let (filled, error) = extended::poll(extended, self.one_by_one, entries);
        (self.filled, self.rest.left) = (filled, filled);
        if error != 0 {
            let errno = Errno::from_return(error);
            if filled == 0 {
                return Err(self.poll_error(errno));
            }
            self.deferred = Some(errno);
        }
        Ok(())
    }

    #[cold]
    fn poll_error(&self, errno: Errno) -> Error {
        Error::of_verb("ibv_start_poll", errno, self.shared.context.device_name().to_owned()).with_hint(OVERFLOWED)
    }

    pub(super) fn one_by_one(&self) -> bool {
        self.one_by_one
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// The classic verb reports a failure by some negative number, which is no error number (-1 and -2 among providers).
#[cold]
#[inline(never)]
fn poll_failed(queue: &Shared, returned: i32) -> Error {
    let what = format!("{}: the provider returned {returned}", queue.context.device_name());
    Error::new(ErrorKind::Os, "ibv_poll_cq", what).with_hint(OVERFLOWED)
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
