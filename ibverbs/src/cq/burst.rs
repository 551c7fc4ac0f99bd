//! What a queue knows of the entries that were copied out of the provider's.

pub(super) const OVERFLOWED: &str =
    "the queue may have overflowed: make it as deep as all requests that can be outstanding";

/// How many entries one call of the provider returns at most.
pub(super) const BURST: u16 = 32;

/// Two halves of a word, so that one look says whether there is nothing to do but to ask the provider, and by which verbs.
#[repr(C, align(8))]
pub(super) struct Rest {
    pub(super) mode: Mode,
    /// How many entries were not taken yet.
    pub(super) left: u32,
}

/// How the queue is asked for entries.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Mode {
    /// By the classic verb.
    Classic = 0,
    /// By the extended verbs.
    Extended = 1,
    /// By the extended verbs, with a look first at whether it needs each entry alone, or an error is to be told.
    Otherwise = 2,
}

impl Rest {
    /// Whether no entries are left and the next ones are got in this way.
    #[inline]
    pub(super) fn is_only(&self, mode: Mode) -> bool {
        u64::from(self.left) << 32 | u64::from(self.mode as u32) == u64::from(mode as u32)
    }
}

impl Mode {
    /// How a queue is asked that has no error to tell.
    pub(super) fn of(extended: bool, one_by_one: bool) -> Self {
        match (extended, one_by_one) {
            (false, _) => Self::Classic,
            (true, false) => Self::Extended,
            (true, true) => Self::Otherwise,
        }
    }
}
