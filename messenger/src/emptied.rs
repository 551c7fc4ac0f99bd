//! The proof that a completion queue was found empty.

use ibverbs::Completions;

/// Proof that a poll has found the completion queue empty, so all earlier completions were taken.
pub(crate) struct Emptied(());

impl Emptied {
    /// Returns the proof, if a poll has returned nothing.
    pub(crate) fn new(completions: &Completions<'_>) -> Option<Self> {
        completions.is_empty().then_some(Self(()))
    }
}
