//! The entries that one poll copied out of a queue.

/// Maximum number of entries that one poll copies.
pub(crate) const POLL_BATCH: usize = 32;

/// Entries copied by the last poll.
///
/// The caller can drop the iterator before its end: the remaining entries are returned by the next
/// poll.
pub(crate) struct PollState<E> {
    entries: Box<[E; POLL_BATCH]>,
    /// Number of entries copied by the last poll.
    filled: usize,
    /// Number of entries not returned yet: the last ones of `filled`.
    pending: usize,
}

impl<E: Copy + Default> PollState<E> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Box::new([E::default(); POLL_BATCH]),
            filled: 0,
            pending: 0,
        }
    }

    /// Returns `true` if all entries of the last poll were returned.
    #[inline]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.pending == 0
    }

    /// Returns the entries of the last poll that were not returned yet.
    #[inline]
    pub(crate) fn pending(&mut self) -> PendingEntries<'_, E> {
        PendingEntries {
            entries: &self.entries[self.filled - self.pending..self.filled],
            pending: &mut self.pending,
        }
    }

    /// Returns the entries of a new poll, after the provider has copied `filled` of them to
    /// [`entries`](Self::entries).
    #[inline]
    pub(crate) fn filled(&mut self, filled: usize) -> PendingEntries<'_, E> {
        (self.filled, self.pending) = (filled, filled);
        PendingEntries {
            entries: &self.entries[..filled],
            pending: &mut self.pending,
        }
    }

    /// Entries to copy into. Entries that are pending must not be overwritten.
    #[inline]
    pub(crate) fn entries(&mut self) -> &mut [E; POLL_BATCH] {
        &mut self.entries
    }
}

/// Iterator over the entries of a [`PollState`] that were not returned yet.
pub(crate) struct PendingEntries<'cq, E> {
    entries: &'cq [E],
    /// Number of entries left, up to date even if the iterator is forgotten.
    pending: &'cq mut usize,
}

impl<'cq, E> Iterator for PendingEntries<'cq, E> {
    type Item = &'cq E;

    #[inline]
    fn next(&mut self) -> Option<&'cq E> {
        let (entry, entries) = self.entries.split_first()?;
        self.entries = entries;
        *self.pending = entries.len();
        Some(entry)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.entries.len(), Some(self.entries.len()))
    }
}

impl<E> ExactSizeIterator for PendingEntries<'_, E> {}
