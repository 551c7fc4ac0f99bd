//! Completion queues that read more of a completion than the usual fields.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::time::Duration;

use rdma_sys::{
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, IBV_WC_EX_WITH_CVLAN,
    IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_SUCCESS, ibv_cq_ex, ibv_wc, ibv_wc_read_completion_ts,
    ibv_wc_read_completion_wallclock_ns, ibv_wc_read_cvlan, ibv_wc_read_flow_tag,
};

use super::completion::Completion;
use super::extended;
use super::fields::{Asked, CqFields, FieldSet, With};
use super::options::CqOptions;
use super::queue::{BURST, CompletionQueue, OVERFLOWED};
use crate::context::Context;
use crate::errno::Errno;
use crate::error::{Error, Result};

/// A completion queue whose completions have the fields `F` too: what was not asked for when it was made cannot be read, which is a matter of types.
///
/// It is a [`CompletionQueue`] in all but polling, and goes wherever a reference to one does.
///
/// # Example
/// ```no_run
/// use ibverbs::{CqFields, CqOptions, QpOptions, Rc};
/// # let context = ibverbs::Device::by_name("mlx5_0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// let mut cq = context.create_cq_ex(CqOptions::default(), CqFields::new().timestamp())?;
/// let mut qp = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
/// // post, and then
/// for completion in cq.poll()? {
///     println!("completed at {} of the device's clock", completion.timestamp());
///     qp.retire(completion.into())?.ok()?;
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_cq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
pub struct CompletionQueueEx<F: FieldSet = CqFields> {
    queue: CompletionQueue,
    raw: NonNull<ibv_cq_ex>,
    /// Entries copied out of the provider's queue; those from `next` to `filled` were not taken yet.
    entries: Box<[Entry; BURST as usize]>,
    next: usize,
    filled: usize,
    /// An error that came after entries: reported by the next poll.
    deferred: Option<Errno>,
    fields: PhantomData<F>,
}

// SAFETY: as of CompletionQueue, which has the same handle: polling needs `&mut self`, and no provider binds a queue to a thread.
unsafe impl<F: FieldSet> Send for CompletionQueueEx<F> {}
// SAFETY: through `&self` only the identity and the size are read.
unsafe impl<F: FieldSet> Sync for CompletionQueueEx<F> {}

/// A completion's usual fields and the others, as far as they were asked for.
#[derive(Clone, Copy, Default)]
struct Entry {
    wc: ibv_wc,
    timestamp: u64,
    wallclock_ns: u64,
    flow_tag: u32,
    cvlan: u16,
}

impl Context {
    /// Creates a completion queue that reads these fields of its completions too. [`CqOptions::extended`] means nothing here.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when the device has no extended queues, or not these fields: no software device has
    /// them.
    ///
    /// # References
    /// [`ibv_create_cq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    pub fn create_cq_ex<F: FieldSet>(&self, options: CqOptions<'_>, _fields: F) -> Result<CompletionQueueEx<F>> {
        let mut made = None;
        let queue =
            CompletionQueue::create_by(self, options, |id| match extended::create(self, options, id, F::FLAGS) {
                Some((raw, extended)) => {
                    made = Some(extended);
                    Ok((raw, Some(extended)))
                }
                None => Err(self.refused_fields::<F>(options)),
            })?;
        let Some(raw) = made else { return Err(self.refused_fields::<F>(options)) };
        Ok(CompletionQueueEx {
            queue,
            raw,
            entries: Box::new([Entry::default(); BURST as usize]),
            next: 0,
            filled: 0,
            deferred: None,
            fields: PhantomData,
        })
    }

    /// Why the provider made no queue: what it left in `errno`.
    #[cold]
    fn refused_fields<F: FieldSet>(&self, options: CqOptions<'_>) -> Error {
        let names: Vec<&str> = F::NAMES.into_iter().flatten().collect();
        let names = if names.is_empty() { "no more fields".to_owned() } else { names.join(", ") };
        let what = format!("{} entries with {names} on {}", options.depth, self.device_name());
        Error::of_verb("ibv_create_cq_ex", Errno::last(), what)
    }
}

impl<F: FieldSet> CompletionQueueEx<F> {
    /// Takes what has completed, without waiting: as [`CompletionQueue::poll`].
    ///
    /// # Errors
    /// An error is not a completion: requests in flight stay in flight.
    ///
    /// # References
    /// [`ibv_start_poll(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    pub fn poll(&mut self) -> Result<CompletionsEx<'_, F>> {
        if self.next == self.filled {
            self.refill()?;
        }
        let fresh = &self.entries[self.next..self.filled];
        Ok(CompletionsEx { entries: fresh.iter(), next: &mut self.next, fields: PhantomData })
    }

    /// Asks for one event on the channel: as [`CompletionQueue::arm`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_req_notify_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_req_notify_cq.3.html)
    pub fn arm(&mut self, solicited_only: bool) -> Result<()> {
        self.queue.arm(solicited_only)
    }

    /// Delays its events: as [`CompletionQueue::moderate`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_modify_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_cq.3.html)
    pub fn moderate(&mut self, count: u16, period: Duration) -> Result<()> {
        self.queue.moderate(count, period)
    }

    fn refill(&mut self) -> Result<()> {
        (self.next, self.filled) = (0, 0);
        if let Some(errno) = self.deferred.take() {
            return Err(self.failed(errno));
        }
        let cq = self.raw;
        let (filled, error) = extended::poll_each(cq, self.queue.one_by_one(), &mut self.entries[..], |entry| {
            // SAFETY: an entry of the queue is current, which was made with the fields `F`.
            unsafe { read::<F>(cq.as_ptr(), entry) }
        });
        self.filled = filled as usize;
        if error != 0 {
            let errno = Errno::from_return(error);
            if filled == 0 {
                return Err(self.failed(errno));
            }
            self.deferred = Some(errno);
        }
        Ok(())
    }

    #[cold]
    fn failed(&self, errno: Errno) -> Error {
        let device = self.queue.shared().context().device_name().to_owned();
        Error::of_verb("ibv_start_poll", errno, device).with_hint(OVERFLOWED)
    }
}

/// Copies the current entry, as far as its fields are valid and were asked for.
///
/// # Safety
/// An entry of `cq`, which was made with the fields `F`, must be current.
unsafe fn read<F: FieldSet>(cq: *mut ibv_cq_ex, entry: &mut Entry) {
    let asked = |flag: u32| F::FLAGS & flag != 0;
    // SAFETY: the caller's promise: each reader is there if its field was asked for.
    unsafe {
        extended::read(cq, &mut entry.wc);
        if asked(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) {
            entry.timestamp = ibv_wc_read_completion_ts(cq);
        }
        if asked(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) {
            entry.wallclock_ns = ibv_wc_read_completion_wallclock_ns(cq);
        }
        if entry.wc.status != IBV_WC_SUCCESS {
            (entry.cvlan, entry.flow_tag) = (0, 0);
            return;
        }
        if asked(IBV_WC_EX_WITH_CVLAN) {
            entry.cvlan = ibv_wc_read_cvlan(cq);
        }
        if asked(IBV_WC_EX_WITH_FLOW_TAG) {
            entry.flow_tag = ibv_wc_read_flow_tag(cq);
        }
    }
}

impl<F: FieldSet> Deref for CompletionQueueEx<F> {
    type Target = CompletionQueue;

    fn deref(&self) -> &CompletionQueue {
        &self.queue
    }
}

impl<F: FieldSet> fmt::Debug for CompletionQueueEx<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueueEx")
            .field("queue", &self.queue)
            .field("fields", &F::NAMES)
            .finish_non_exhaustive()
    }
}

/// The completions of one poll, with more fields.
///
/// # Example
/// ```no_run
/// use ibverbs::{CompletionQueueEx, CqFields, QueuePair, Rc, With};
/// # fn f(cq: &mut CompletionQueueEx<CqFields<With>>, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// let mut completions = cq.poll()?;
/// if let Some(first) = completions.next() {
///     println!("the first of {} at {} cycles", completions.len() + 1, first.timestamp());
///     qp.retire(first.into())?.ok()?;
/// }
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_create_cq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
pub struct CompletionsEx<'cq, F: FieldSet> {
    entries: std::slice::Iter<'cq, Entry>,
    next: &'cq mut usize,
    fields: PhantomData<F>,
}

impl<'cq, F: FieldSet> Iterator for CompletionsEx<'cq, F> {
    type Item = CompletionEx<'cq, F>;

    fn next(&mut self) -> Option<CompletionEx<'cq, F>> {
        let entry = self.entries.next()?;
        *self.next += 1;
        Some(CompletionEx { completion: Completion::new(&entry.wc), entry, fields: PhantomData })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl<F: FieldSet> ExactSizeIterator for CompletionsEx<'_, F> {}

impl<F: FieldSet> fmt::Debug for CompletionsEx<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionsEx").field("left", &self.entries.len()).finish()
    }
}

/// A completion with the fields `F`: a [`Completion`] with more readers, which [`QueuePair::retire`](crate::QueuePair::retire) takes by `into()`.
///
/// # Example
/// ```no_run
/// use ibverbs::{CompletionEx, CqFields, QueuePair, Rc, With, Without};
/// # fn f(qp: &mut QueuePair<Rc>, completion: CompletionEx<'_, CqFields<Without, With>>) -> ibverbs::Result<()> {
/// let at = completion.wallclock(); // nanoseconds since the epoch, as a Duration
/// let retired = qp.retire(completion.into())?;
/// println!("{} bytes at {at:?}", retired.byte_len());
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_create_cq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
#[must_use = "a completion that is not retired keeps its place in the queue"]
pub struct CompletionEx<'cq, F: FieldSet> {
    completion: Completion<'cq>,
    entry: &'cq Entry,
    fields: PhantomData<F>,
}

impl<W: Asked, V: Asked, T: Asked> CompletionEx<'_, CqFields<With, W, V, T>> {
    /// When the request completed, in cycles of the device's clock
    /// ([`hca_core_clock`](crate::DeviceAttrEx) kHz; it wraps as `completion_timestamp_mask` says).
    pub fn timestamp(&self) -> u64 {
        self.entry.timestamp
    }
}

impl<T: Asked, V: Asked, F: Asked> CompletionEx<'_, CqFields<T, With, V, F>> {
    /// When the request completed, since the epoch.
    pub fn wallclock(&self) -> Duration {
        Duration::from_nanos(self.entry.wallclock_ns)
    }
}

impl<T: Asked, W: Asked, F: Asked> CompletionEx<'_, CqFields<T, W, With, F>> {
    /// The VLAN tag of the received packet; valid for a successful receive.
    pub fn cvlan(&self) -> u16 {
        self.entry.cvlan
    }
}

impl<T: Asked, W: Asked, V: Asked> CompletionEx<'_, CqFields<T, W, V, With>> {
    /// The tag of the flow rule that the received packet matched; valid for a successful receive.
    pub fn flow_tag(&self) -> u32 {
        self.entry.flow_tag
    }
}

impl<'cq, F: FieldSet> Deref for CompletionEx<'cq, F> {
    type Target = Completion<'cq>;

    fn deref(&self) -> &Completion<'cq> {
        &self.completion
    }
}

impl<'cq, F: FieldSet> From<CompletionEx<'cq, F>> for Completion<'cq> {
    fn from(with_fields: CompletionEx<'cq, F>) -> Self {
        with_fields.completion
    }
}

impl<F: FieldSet> fmt::Debug for CompletionEx<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.completion, f)
    }
}
