//! What a queue knows of the entries that were copied out of the provider's.

pub(crate) const OVERFLOWED: &str =
    "the queue may have overflowed: make it as deep as all requests that can be outstanding";

/// How many entries one call of the provider returns at most.
pub(crate) const BURST: u16 = 32;

/// Two halves of a word, so that one look says whether there is nothing to do but to ask the
/// provider, and by which verbs.
#[repr(C, align(8))]
pub(crate) struct Rest {
    pub(crate) mode: Mode,
    /// How many entries were not taken yet.
    pub(crate) left: u32,
}

/// What an earlier poll left behind: in one word, so that one look says whether there is anything.
/// The lower half counts the entries that were not taken yet; the upper one is what the provider
/// returned after them, 0 for no error, which is told when they are taken.
#[derive(Clone, Copy, Default)]
pub(crate) struct Behind(u64);

impl Behind {
    #[allow(clippy::cast_sign_loss, reason = "the bits of it")]
    pub(crate) fn new(left: u32, error: i32) -> Self {
        Self(u64::from(left) | u64::from(error as u32) << 32)
    }

    #[inline]
    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0
    }

    /// How many entries are left.
    #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
    pub(crate) fn left(self) -> u32 {
        self.0 as u32
    }

    /// An entry is taken, of which there is one.
    pub(crate) fn take(&mut self) {
        debug_assert!(self.left() > 0);
        self.0 -= 1;
    }

    /// The error, which is told once; no entries are left.
    #[allow(clippy::cast_possible_truncation, reason = "the upper half")]
    #[allow(clippy::cast_possible_wrap, reason = "the bits of it")]
    pub(crate) fn take_error(&mut self) -> i32 {
        debug_assert!(self.left() == 0);
        (std::mem::take(self).0 >> 32) as i32
    }
}

/// How the queue is asked for entries.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Mode {
    /// By the classic verb.
    Classic = 0,
    /// By the extended verbs.
    Extended = 1,
    /// By the extended verbs, with a look first at whether it needs each entry alone, or an error
    /// is to be told.
    Otherwise = 2,
}

impl Rest {
    /// Whether no entries are left and the next ones are got in this way.
    #[inline]
    pub(crate) fn is_only(&self, mode: Mode) -> bool {
        u64::from(self.left) << 32 | u64::from(self.mode as u32) == u64::from(mode as u32)
    }
}

impl Mode {
    /// How a queue is asked that has no error to tell.
    pub(crate) fn of(extended: bool, one_by_one: bool) -> Self {
        match (extended, one_by_one) {
            (false, _) => Self::Classic,
            (true, false) => Self::Extended,
            (true, true) => Self::Otherwise,
        }
    }
}
