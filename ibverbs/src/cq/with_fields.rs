//! Completion queues that read more of a completion than the usual fields.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::time::Duration;

use rdma_sys::{
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_SUCCESS, ibv_cq_ex,
    ibv_wc_read_completion_ts, ibv_wc_read_completion_wallclock_ns, ibv_wc_read_cvlan,
    ibv_wc_read_flow_tag,
};

use super::burst::{BURST, Behind, OVERFLOWED};
use super::completion_ex::{CompletionsEx, Entry};
use super::extended;
use super::fields::{CqFields, FieldSet};
use super::options::CqOptions;
use super::queue::CompletionQueue;
use crate::device::Context;
use crate::errno::Errno;
use crate::error::{Error, Result};

/// A completion queue whose completions have the fields `F` too: what was not asked for when it was
/// made cannot be read, which is a matter of types.
///
/// It is a [`CompletionQueue`] in all but polling, and goes wherever a reference to one does.
/// [`poll`](Self::poll) copies what has completed, [`poll_each`](Self::poll_each) lets it be read
/// where the provider has it.
///
/// # Example
/// ```no_run
/// use ibverbs::{CqOptions, QpOptions, Rc, cq_ex::CqFields};
/// # let context = ibverbs::Device::by_name("mlx5_0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// let mut cq = context.create_cq_ex(CqOptions::default(), CqFields::new().timestamp())?;
/// let mut qp = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
/// // post, and then
/// for completion in cq.poll()? {
///     println!(
///         "completed at {} of the device's clock",
///         completion.timestamp()
///     );
///     qp.retire(completion.into())?.ok()?;
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_cq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
pub struct CompletionQueueEx<F: FieldSet = CqFields> {
    queue: CompletionQueue,
    pub(crate) raw: NonNull<ibv_cq_ex>,
    /// How many completions one poll in place can go through: one, where each needs a poll of its
    /// own.
    pub(crate) most: usize,
    /// Entries copied out of the provider's queue: `filled` of them, of which the last ones were
    /// not taken yet.
    entries: Box<[Entry; BURST as usize]>,
    filled: u32,
    pub(crate) behind: Behind,
    fields: PhantomData<F>,
}

// SAFETY: as of CompletionQueue, which has the same handle: polling needs `&mut self`, and no
// provider binds a queue to a thread.
unsafe impl<F: FieldSet> Send for CompletionQueueEx<F> {}
// SAFETY: through `&self` only the identity and the size are read.
unsafe impl<F: FieldSet> Sync for CompletionQueueEx<F> {}

impl Context {
    /// Creates a completion queue that reads these fields of its completions too.
    /// [`CqOptions::extended`] means nothing here.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when the device has no extended
    /// queues, or not these fields: no software device has them.
    ///
    /// # References
    /// [`ibv_create_cq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    pub fn create_cq_ex<F: FieldSet>(
        &self,
        options: CqOptions<'_>,
        _fields: F,
    ) -> Result<CompletionQueueEx<F>> {
        let queue = CompletionQueue::create_by(self, options, |id| {
            let made = extended::create(self, options, id, F::FLAGS)
                .ok_or_else(|| self.refused_fields::<F>(options))?;
            Ok((made.cast(), true))
        })?;
        Ok(CompletionQueueEx {
            raw: queue.raw.cast(),
            most: if queue.one_by_one { 1 } else { BURST.into() },
            queue,
            entries: Box::new([Entry::default(); BURST as usize]),
            filled: 0,
            behind: Behind::default(),
            fields: PhantomData,
        })
    }

    /// Why the provider made no queue: what it left in `errno`.
    #[cold]
    fn refused_fields<F: FieldSet>(&self, options: CqOptions<'_>) -> Error {
        let names: Vec<&str> = F::NAMES.into_iter().flatten().collect();
        let names = if names.is_empty() {
            "no more fields".to_owned()
        } else {
            names.join(", ")
        };
        let what = format!(
            "{} entries with {names} on {}",
            options.depth,
            self.device_name()
        );
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
        if self.behind.left() == 0 {
            self.refill()?;
        }
        let fresh =
            &self.entries[(self.filled - self.behind.left()) as usize..self.filled as usize];
        Ok(CompletionsEx::new(fresh.iter(), &mut self.behind))
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

    /// Makes it deeper, or less deep: as [`CompletionQueue::resize`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_resize_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_resize_cq.3.html)
    pub fn resize(&mut self, depth: u32) -> Result<()> {
        self.queue.resize(depth)
    }

    fn refill(&mut self) -> Result<()> {
        let error = self.behind.take_error();
        if error != 0 {
            return Err(self.failed(error));
        }
        let cq = self.raw;
        let entries = self.entries.as_mut_ptr();
        // SAFETY: the queue is alive, polled by one thread, and was made with the fields `F`; there
        // are `BURST` entries.
        let (filled, error) = unsafe {
            if self.queue.one_by_one {
                extended::poll::<_, true>(cq, entries, BURST.into(), |cq, entry| {
                    read::<F>(cq, &mut *entry);
                })
            } else {
                extended::poll::<_, false>(cq, entries, BURST.into(), |cq, entry| {
                    read::<F>(cq, &mut *entry);
                })
            }
        };
        if filled == 0 && error != 0 {
            return Err(self.failed(error));
        }
        self.filled = filled;
        self.behind = Behind::new(filled, error);
        Ok(())
    }

    #[cold]
    pub(crate) fn failed(&self, returned: i32) -> Error {
        let device = self.queue.shared().context().device_name().to_owned();
        Error::of_verb("ibv_start_poll", Errno::from_return(returned), device).with_hint(OVERFLOWED)
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
        extended::read(cq, &raw mut entry.wc);
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
