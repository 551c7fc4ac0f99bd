//! Numbers that nobody foresees, for sequence numbers and tokens.

use std::hash::{BuildHasher, RandomState};

/// Such a number.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}
