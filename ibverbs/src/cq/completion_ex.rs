//! Completions of a queue with additional fields.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use super::completion::Completion;
use super::entry_ex::EntryEx;
use super::fields::{CqFields, Enabled, Field, FieldSet};
use super::poll_state::PendingEntries;

/// Iterator over the completions returned by
/// [`CompletionQueueEx::poll`](crate::cq_ex::CompletionQueueEx::poll).
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, cq_ex::{CompletionQueueEx, CqFields, Enabled}};
/// # fn f(cq: &mut CompletionQueueEx<CqFields<Enabled>>, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// let mut completions = cq.poll()?;
/// if let Some(first) = completions.next() {
///     println!("first of {}: {} cycles", completions.len() + 1, first.timestamp());
///     qp.retire(first.into())?.check()?;
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_create_cq_ex")]
pub struct CompletionsEx<'cq, F: FieldSet> {
    entries: PendingEntries<'cq, EntryEx>,
    fields: PhantomData<F>,
}

impl<'cq, F: FieldSet> CompletionsEx<'cq, F> {
    pub(crate) fn new(entries: PendingEntries<'cq, EntryEx>) -> Self {
        Self {
            entries,
            fields: PhantomData,
        }
    }

    /// Returns `true` if no completions are left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'cq, F: FieldSet> Iterator for CompletionsEx<'cq, F> {
    type Item = CompletionEx<'cq, F>;

    fn next(&mut self) -> Option<CompletionEx<'cq, F>> {
        let entry = self.entries.next()?;
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
            .field("len", &self.len())
            .finish()
    }
}

/// A [`Completion`] with the additional fields `F`. To retire it, pass `completion.into()` to
/// [`QueuePair::retire`](crate::QueuePair::retire).
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, cq_ex::{CompletionEx, CqFields, Enabled, Disabled}};
/// # fn f(qp: &mut QueuePair<Rc>, completion: CompletionEx<'_, CqFields<Disabled, Enabled>>) -> ibverbs::Result<()> {
/// let completed = completion.wallclock(); // since the epoch
/// let retired = qp.retire(completion.into())?;
/// println!("{} bytes at {completed:?}", retired.received_len());
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_create_cq_ex")]
#[must_use = "a completion that is not retired keeps the slot of its request"]
pub struct CompletionEx<'cq, F: FieldSet> {
    completion: Completion<'cq>,
    pub(crate) entry: &'cq EntryEx,
    fields: PhantomData<F>,
}

impl<W: Field, V: Field, F: Field> CompletionEx<'_, CqFields<Enabled, W, V, F>> {
    /// Returns the time of completion in cycles of the device's clock.
    ///
    /// [`DeviceAttrEx`](crate::caps::DeviceAttrEx) has the frequency in kHz (`hca_core_clock`) and
    /// the largest value before the clock wraps (`completion_timestamp_mask`).
    pub fn timestamp(&self) -> u64 {
        self.entry.timestamp
    }
}

impl<T: Field, V: Field, F: Field> CompletionEx<'_, CqFields<T, Enabled, V, F>> {
    /// Returns the time of completion since the epoch.
    pub fn wallclock(&self) -> Duration {
        Duration::from_nanos(self.entry.wallclock_ns)
    }
}

impl<T: Field, W: Field, F: Field> CompletionEx<'_, CqFields<T, W, Enabled, F>> {
    /// Returns the VLAN tag of the received packet. It is valid for a successful receive only.
    pub fn cvlan(&self) -> u16 {
        self.entry.cvlan
    }
}

impl<T: Field, W: Field, V: Field> CompletionEx<'_, CqFields<T, W, V, Enabled>> {
    /// Returns the tag of the flow rule that matched the received packet. It is valid for a
    /// successful receive only.
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
