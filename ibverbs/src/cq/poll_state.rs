//! The verbs that poll a queue, and the entries that one poll copied out of it.

/// The verbs that poll a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PollVerbs {
    /// `ibv_poll_cq`.
    Classic,
    /// `ibv_start_poll`, `ibv_next_poll` and `ibv_end_poll`: the handle is an `ibv_cq_ex`.
    Extended,
    /// The extended verbs, with one poll for each entry. See [`poll`](super::extended::poll).
    SingleExtended,
    /// Like `SingleExtended`, for a provider that fails for completions of queue pairs that were
    /// destroyed.
    SkippingExtended,
}

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

    /// Copies entries with `copy`, unless an error follows the last ones. `copy` returns the number
    /// of entries, and the value with which the provider reported an error after them, or 0.
    ///
    /// # Errors
    /// The value with which the provider reported an error.
    pub(crate) fn copy_until_error(
        &mut self,
        copy: impl FnOnce(&mut [E; POLL_BATCH]) -> (usize, i32),
    ) -> Result<usize, i32> {
        let (filled, error) = match std::mem::take(&mut self.error) {
            0 => copy(&mut self.entries),
            error => (0, error),
        };
        if filled == 0 && error != 0 {
            return Err(error);
        }
        self.error = error;
        Ok(filled)
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
