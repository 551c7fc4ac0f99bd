//! Two connected queue pairs.

use super::memory::{Effect, Id};
use super::queue_pair::End;

/// Two connected queue pairs.
pub(crate) struct Link {
    pub(crate) id: Id,
    /// `None` for a queue pair that was destroyed, or that a scope or another thread has.
    pub(crate) ends: [Option<End>; 2],
    /// A queue pair failed or was destroyed: requests can fail and messages can be lost.
    pub(crate) failed: bool,
    /// The transport can lose messages.
    pub(crate) lossy: bool,
    /// Transfers whose request has completed, but not their effect.
    pub(crate) landing: Vec<Effect>,
}
