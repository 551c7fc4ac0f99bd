//! What a peer may do here.

use ibverbs::AccessFlags;

use crate::plan::Verb;

/// What the peer may do to memory here, for this verb.
pub(super) fn access(verb: Verb) -> AccessFlags {
    match verb {
        Verb::Send => AccessFlags::empty(),
        Verb::Write | Verb::WriteImm => AccessFlags::REMOTE_WRITE,
        Verb::Read => AccessFlags::REMOTE_READ,
        Verb::CompareSwap | Verb::FetchAdd => AccessFlags::REMOTE_ATOMIC,
    }
}
