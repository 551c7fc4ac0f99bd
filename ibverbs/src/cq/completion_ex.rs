//! Completions that say more than the usual fields.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::slice::Iter;
use std::time::Duration;

use rdma_sys::ibv_wc;

use super::burst::Behind;
use super::completion::Completion;
use super::fields::{CqFields, Enabled, Field, FieldSet};

/// A completion's usual fields and the others, as far as they were asked for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Entry {
    pub(crate) wc: ibv_wc,
    pub(crate) timestamp: u64,
    pub(crate) wallclock_ns: u64,
    pub(crate) flow_tag: u32,
    pub(crate) cvlan: u16,
}

/// The completions of one poll, with more fields.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, cq_ex::{CompletionQueueEx, CqFields, Enabled}};
/// # fn f(cq: &mut CompletionQueueEx<CqFields<Enabled>>, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
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
    entries: Iter<'cq, Entry>,
    /// Where the queue reads how many are left, should this be forgotten.
    behind: &'cq mut Behind,
    fields: PhantomData<F>,
}

impl<'cq, F: FieldSet> CompletionsEx<'cq, F> {
    /// Of the entries that were not taken, as many as `behind` says.
    pub(crate) fn new(entries: Iter<'cq, Entry>, behind: &'cq mut Behind) -> Self {
        Self {
            entries,
            behind,
            fields: PhantomData,
        }
    }
}

impl<F: FieldSet> CompletionsEx<'_, F> {
    /// Whether nothing has completed, or all was taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'cq, F: FieldSet> Iterator for CompletionsEx<'cq, F> {
    type Item = CompletionEx<'cq, F>;

    fn next(&mut self) -> Option<CompletionEx<'cq, F>> {
        let entry = self.entries.next()?;
        self.behind.take();
        Some(CompletionEx {
            completion: Completion::new(&entry.wc),
            entry,
            fields: PhantomData,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl<F: FieldSet> ExactSizeIterator for CompletionsEx<'_, F> {}

impl<F: FieldSet> fmt::Debug for CompletionsEx<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionsEx")
            .field("left", &self.entries.len())
            .finish()
    }
}

/// A completion with the fields `F`: a [`Completion`] with more readers, which
/// [`QueuePair::retire`](crate::QueuePair::retire) takes by `into()`.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, cq_ex::{CompletionEx, CqFields, Enabled, Disabled}};
/// # fn f(qp: &mut QueuePair<Rc>, completion: CompletionEx<'_, CqFields<Disabled, Enabled>>) -> ibverbs::Result<()> {
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

impl<W: Field, V: Field, T: Field> CompletionEx<'_, CqFields<Enabled, W, V, T>> {
    /// When the request completed, in cycles of the device's clock
    /// ([`hca_core_clock`](crate::caps::DeviceAttrEx) kHz; it wraps as `completion_timestamp_mask`
    /// says).
    pub fn timestamp(&self) -> u64 {
        self.entry.timestamp
    }
}

impl<T: Field, V: Field, F: Field> CompletionEx<'_, CqFields<T, Enabled, V, F>> {
    /// When the request completed, since the epoch.
    pub fn wallclock(&self) -> Duration {
        Duration::from_nanos(self.entry.wallclock_ns)
    }
}

impl<T: Field, W: Field, F: Field> CompletionEx<'_, CqFields<T, W, Enabled, F>> {
    /// The VLAN tag of the received packet; valid for a successful receive.
    pub fn cvlan(&self) -> u16 {
        self.entry.cvlan
    }
}

impl<T: Field, W: Field, V: Field> CompletionEx<'_, CqFields<T, W, V, Enabled>> {
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
