//! A completion queue: made, armed and polled.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::{ibv_cq, ibv_create_cq, ibv_poll_cq, ibv_req_notify_cq, ibv_wc};

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
    pub(super) raw: NonNull<ibv_cq>,
    /// Entries copied out of the provider's queue: `filled` of them, of which the last ones were not taken yet.
    entries: Fixed<ibv_wc>,
    filled: u32,
    rest: Rest,
    /// See [`extended::one_by_one`].
    one_by_one: bool,
    /// An error that came after entries: reported by the next poll.
    deferred: Option<Errno>,
}

/// Two halves of a word, so that one look says whether there is nothing to do but to ask the provider, and by which verbs.
#[repr(C, align(8))]
struct Rest {
    mode: Mode,
    /// How many entries were not taken yet.
    left: u32,
}

/// How the queue is asked for entries.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Mode {
    /// By the classic verb.
    Classic = 0,
    /// By the extended verbs.
    Extended = 1,
    /// By the extended verbs, with a look at `one_by_one` and `deferred` first.
    Otherwise = 2,
}

impl Rest {
    /// Whether no entries are left and the next ones are got in this way.
    #[inline]
    fn is_only(&self, mode: Mode) -> bool {
        u64::from(self.left) << 32 | u64::from(self.mode as u32) == u64::from(mode as u32)
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
                Some(raw) => Ok((raw.cast(), true)),
                None => Ok((Self::create_classic(context, options, id)?, false)),
            }
        })
    }

    /// By a function that says too whether it made an extended one: an `ibv_cq_ex`, which begins with the fields of an `ibv_cq`.
    pub(super) fn create_by(
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
        let shared = Arc::new(Shared { raw, id, context: context.clone(), channel: options.channel.cloned() });
        let one_by_one = extended && extended::one_by_one(context)?;
        Ok(Self {
            shared,
            raw,
            entries: Fixed::new(BURST.into()),
            filled: 0,
            rest: Rest { mode: mode(extended, one_by_one), left: 0 },
            one_by_one,
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
        self.rest.mode != Mode::Classic
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
        if self.rest.is_only(Mode::Classic) {
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
        match self.more() {
            (Some(next), left) => {
                Ok(Completions { next: next.as_ptr(), left, stays: &mut self.rest.left, entries: PhantomData })
            }
            (None, _) => Err(self.poll_error()),
        }
    }

    /// The entries that were not taken, where there are any; otherwise what the extended verbs give. None for an error, which is in `deferred`.
    fn more(&mut self) -> (Option<NonNull<ibv_wc>>, u32) {
        if !self.rest.is_only(Mode::Extended) {
            return self.more_otherwise();
        }
        // SAFETY: it is polled by the extended verbs, by one thread; there are `BURST` entries, and no completion refers to one: they end with this poll.
        let (filled, error) = unsafe {
            extended::poll::<_, false>(self.raw.cast(), self.entries.as_ptr(), BURST.into(), |cq, entry| {
                extended::read(cq, entry);
            })
        };
        self.took(filled, error)
    }

    #[cold]
    #[inline(never)]
    fn more_otherwise(&mut self) -> (Option<NonNull<ibv_wc>>, u32) {
        let left = self.rest.left;
        if left > 0 {
            // SAFETY: of the `filled` entries, `left` are left.
            return (NonNull::new(unsafe { self.entries.as_ptr().add((self.filled - left) as usize) }), left);
        }
        if self.deferred.is_some() {
            return (None, 0);
        }
        // SAFETY: as in `more`.
        let (filled, error) = unsafe {
            extended::poll::<_, true>(self.raw.cast(), self.entries.as_ptr(), BURST.into(), |cq, entry| {
                extended::read(cq, entry);
            })
        };
        self.took(filled, error)
    }

    /// Entries, and the error that came after them. That is kept for the next poll, if there are any.
    #[inline]
    fn took(&mut self, filled: u32, error: i32) -> (Option<NonNull<ibv_wc>>, u32) {
        (self.filled, self.rest.left) = (filled, filled);
        if error != 0 {
            (self.deferred, self.rest.mode) = (Some(Errno::from_return(error)), Mode::Otherwise);
            if filled == 0 {
                return (None, 0);
            }
        }
        (NonNull::new(self.entries.as_ptr()), filled)
    }

    /// The error that is to be told now.
    #[cold]
    fn poll_error(&mut self) -> Error {
        self.rest.mode = mode(true, self.one_by_one);
        let errno = self.deferred.take().unwrap_or(Errno(0));
        Error::of_verb("ibv_start_poll", errno, self.shared.context.device_name().to_owned()).with_hint(OVERFLOWED)
    }

    pub(super) fn one_by_one(&self) -> bool {
        self.one_by_one
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// How a queue is asked that has no error to tell.
fn mode(extended: bool, one_by_one: bool) -> Mode {
    match (extended, one_by_one) {
        (false, _) => Mode::Classic,
        (true, false) => Mode::Extended,
        (true, true) => Mode::Otherwise,
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
