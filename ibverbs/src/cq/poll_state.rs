//! Entries that one poll copied out of the provider's queue.

use std::slice::Iter;

/// Maximum number of entries that one poll copies.
pub(crate) const POLL_BATCH: usize = 32;

/// Entries copied by the last poll, and the error that ended it.
///
/// The caller can drop the iterator before its end: the remaining entries are returned by the next
/// poll, and then the error.
pub(crate) struct PollState<E> {
    entries: Box<[E; POLL_BATCH]>,
    /// Number of entries copied by the last poll.
    filled: usize,
    /// Number of entries not returned yet: the last ones of `filled`.
    pending: usize,
    /// Value returned by the provider after the last entry; 0 for no error.
    error: i32,
}

impl<E: Copy + Default> PollState<E> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Box::new([E::default(); POLL_BATCH]),
            filled: 0,
            pending: 0,
            error: 0,
        }
    }

    /// Returns the entries that are left of the last poll, or those that `copy` copies.
    ///
    /// `copy` returns the number of entries, and the value with which the provider reported an
    /// error, or 0.
    ///
    /// # Errors
    /// The value with which the provider reported an error.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        copy: impl FnOnce(&mut [E; POLL_BATCH]) -> (usize, i32),
    ) -> Result<PendingEntries<'_, E>, i32> {
        if self.pending == 0 {
            match std::mem::take(&mut self.error) {
                0 => {}
                error => return Err(error),
            }
            let (filled, error) = copy(&mut self.entries);
            if filled == 0 && error != 0 {
                return Err(error);
            }
            (self.filled, self.pending, self.error) = (filled, filled, error);
        }
        Ok(PendingEntries {
            entries: self.entries[self.filled - self.pending..self.filled].iter(),
            pending: &mut self.pending,
        })
    }
}

/// Iterator over the entries of a [`PollState`] that were not returned yet.
pub(crate) struct PendingEntries<'cq, E> {
    entries: Iter<'cq, E>,
    /// [`PollState::pending`], up to date even if the iterator is forgotten.
    pending: &'cq mut usize,
}

impl<'cq, E> Iterator for PendingEntries<'cq, E> {
    type Item = &'cq E;

    #[inline]
    fn next(&mut self) -> Option<&'cq E> {
        let entry = self.entries.next()?;
        *self.pending -= 1;
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl<E> ExactSizeIterator for PendingEntries<'_, E> {}
