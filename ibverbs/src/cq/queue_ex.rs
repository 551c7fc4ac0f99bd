//! Completion queues with additional completion fields.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::time::Duration;

use rdma_sys::{ibv_cq_ex, ibv_destroy_cq};

use super::completion_ex::CompletionsEx;
use super::entry_ex::EntryEx;
use super::extended;
use super::fields::FieldSet;
use super::options::CqOptions;
use super::poll_state::PollState;
use super::queue::{CompletionQueue, POLL_FAILED};
use super::strict;
use crate::device::Context;
use crate::error::{Errno, Error, ErrorKind, Result, call_failed};
use crate::forked::{self, Object};
use crate::raw::AsRaw;

/// A completion queue whose completions have the additional fields `F`. A field that the queue was
/// not created with cannot be read: the program does not compile.
///
/// It dereferences to a [`CompletionQueue`], so it is accepted wherever a reference to one is, and
/// its completions convert into [`Completion`](crate::Completion). A program that decides at run
/// time which fields it reads has an enum of both kinds of queues.
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
///     qp.retire(completion.into())?.check()?;
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_create_cq_ex")]
pub struct CompletionQueueEx<F: FieldSet> {
    queue: CompletionQueue,
    state: PollState<EntryEx>,
    /// Error that the provider reported after entries, or 0. A later poll returns it, when there
    /// are no more entries.
    error: i32,
    fields: PhantomData<F>,
}

impl Context {
    /// Creates a completion queue with additional fields. Its polls cost more instructions than
    /// those of [`create_cq`](Self::create_cq).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if no field is selected.
    ///
    /// [`ErrorKind::Unsupported`] if the device has no extended
    /// completion queues, or lacks one of the fields. The software devices have none of the fields.
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn create_cq_ex<F: FieldSet>(
        &self,
        options: CqOptions<'_>,
        _fields: F,
    ) -> Result<CompletionQueueEx<F>> {
        if F::NAMES.iter().all(Option::is_none) {
            let what = "no additional field is selected";
            return Err(
                Error::new(ErrorKind::InvalidInput, F::CREATE, what).with_help(
                    "select a field, for example with `CqFields::timestamp`, or call `create_cq`",
                ),
            );
        }
        if self.polls_take_turns() && !F::ONE_BY_ONE {
            // A poll of several completions that takes no turn would not be safe.
            return Err(self.create_cq_ex_error::<F>(options, Errno(libc::EOPNOTSUPP)));
        }
        let queue = CompletionQueue::create_with(self, options, |id| {
            let mut attr = extended::attributes(options, id);
            attr.wc_flags |= u64::from(F::FLAGS);
            // SAFETY: context and channel are alive, and the attributes are valid during the call.
            let raw = NonNull::new(unsafe { F::create(self.as_raw(), &mut attr) })
                .ok_or_else(|| self.create_cq_ex_error::<F>(options, Errno::last()))?;
            // SAFETY: the queue was just created, and nothing else refers to it.
            let queue = unsafe { raw.as_ref() };
            if !extended::has_readers(queue) || !F::has_readers(queue) {
                // SAFETY: as above. It is not used again.
                if unsafe { ibv_destroy_cq(raw.cast().as_ptr()) } != 0 {
                    crate::leak::with_parent(&(self.clone(), options.channel.cloned()));
                }
                return Err(self.create_cq_ex_error::<F>(options, Errno(libc::EOPNOTSUPP)));
            }
            Ok(raw.cast())
        })?;
        forked::add(Object::CompletionQueue(queue.inner().raw.cast()));
        Ok(CompletionQueueEx {
            queue,
            state: PollState::new(),
            error: 0,
            fields: PhantomData,
        })
    }

    #[cold]
    fn create_cq_ex_error<F: FieldSet>(&self, options: CqOptions<'_>, errno: Errno) -> Error {
        let names: Vec<&str> = F::NAMES.into_iter().flatten().collect();
        let what = format!(
            "{} entries with {} on {}",
            options.depth,
            names.join(", "),
            self.device_name()
        );
        call_failed(F::CREATE, errno, what)
    }
}

impl<F: FieldSet> CompletionQueueEx<F> {
    /// Returns completions without waiting. See [`CompletionQueue::poll`].
    ///
    /// # Errors
    /// An error is not a completion: requests in flight stay in flight.
    #[doc(alias = "ibv_start_poll")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn poll(&mut self) -> Result<CompletionsEx<'_, F>> {
        if !self.state.is_exhausted() {
            return Ok(CompletionsEx::new(self.state.pending()));
        }
        if F::ONE_BY_ONE {
            let filled = self.poll_one_by_one()?;
            return Ok(CompletionsEx::new(self.state.filled(filled)));
        }
        let cq = self.queue.polled();
        // SAFETY: the queue is alive and was created by `ibv_create_cq_ex`. `&mut self` keeps other
        // threads from polling it.
        let started = unsafe { extended::start_poll(cq) };
        let filled = if started == 0 {
            // SAFETY: the poll was started. `read` is called with a current completion of a queue
            // with the fields `F`.
            let (filled, returned) = unsafe {
                extended::copy_completions(cq, self.state.entries(), |cq, entry| {
                    read::<F>(cq, entry);
                })
            };
            self.keep_error(returned);
            filled
        } else {
            self.without_entries(started)?
        };
        Ok(CompletionsEx::new(self.state.filled(filled)))
    }

    /// Copies completions, each in a poll of its own. Returns their number, or 0 if the queue is
    /// empty and no error is left. An error after completions is kept for a later poll.
    fn poll_one_by_one(&mut self) -> Result<usize> {
        let inner = self.queue.inner();
        let (context, entries) = (inner.context(), self.state.entries());
        let numbers = context.numbers();
        let skip = context.polls_take_turns();
        // SAFETY: as in `poll`.
        let (filled, returned) = unsafe {
            extended::poll_one_by_one(inner.raw, entries, skip, |cq, entry| {
                read::<F>(cq, entry);
            })
        };
        drop(numbers);
        let filled_entries = entries[..filled].iter_mut();
        strict::mark_failures(context, filled_entries.map(|entry| &mut entry.wc));
        self.keep_error(returned);
        if filled > 0 {
            return Ok(filled);
        }
        self.take_error(returned)
    }

    /// Keeps the error that a poll ended with, for the poll after the last completion.
    #[inline]
    fn keep_error(&mut self, returned: i32) {
        if returned != 0 && returned != libc::ENOENT {
            self.error = returned;
        }
    }

    /// Handles a poll without entries. Returns the number of entries of a poll under strict rules,
    /// or 0 if the queue is empty and no error is left.
    #[cold]
    #[inline(never)]
    fn without_entries(&mut self, returned: i32) -> Result<usize> {
        if strict::is_strict(self.queue.inner().context()) {
            self.poll_one_by_one()
        } else {
            self.take_error(returned)
        }
    }

    /// Returns 0 if the queue was empty and no error is left.
    fn take_error(&mut self, returned: i32) -> Result<usize> {
        let error = match (std::mem::take(&mut self.error), returned) {
            (0, libc::ENOENT) => {
                self.queue.inner().count_empty_poll();
                return Ok(0);
            }
            (0, error) | (error, _) => error,
        };
        let device = self.queue.inner().context().device_name().to_owned();
        let error = call_failed("ibv_start_poll", Errno::from_return(error), device);
        Err(error.with_help(POLL_FAILED))
    }

    /// Requests one event on the channel. See [`CompletionQueue::arm`].
    ///
    /// # Errors
    /// Those of [`CompletionQueue::arm`].
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self, solicited_only: bool) -> Result<()> {
        self.queue.arm(solicited_only)
    }

    /// Moderates completion events. See [`CompletionQueue::moderate`].
    ///
    /// # Errors
    /// Those of [`CompletionQueue::moderate`].
    #[doc(alias = "ibv_modify_cq")]
    pub fn moderate(&mut self, count: u16, period: Duration) -> Result<()> {
        self.queue.moderate(count, period)
    }

    /// Changes the depth of the queue. See [`CompletionQueue::resize`].
    ///
    /// # Errors
    /// Those of [`CompletionQueue::resize`].
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, depth: u32) -> Result<()> {
        self.queue.resize(depth)
    }
}

/// Copies the valid fields of the current completion, with the additional ones.
///
/// # Safety
/// A poll of `cq`, which was created with the fields `F`, is in progress and has a current
/// completion.
#[inline]
unsafe fn read<F: FieldSet>(cq: *mut ibv_cq_ex, entry: &mut EntryEx) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        extended::read(cq, &mut entry.wc);
        F::read(cq, entry);
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
