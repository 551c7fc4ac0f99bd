//! Random numbers and the name of this host.

use std::hash::{BuildHasher, RandomState};

/// Returns a random number for sequence numbers and nonces. It is not cryptographically secure.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Returns the name of this host; `?` if `gethostname` fails.
pub(crate) fn host_name() -> String {
    nix::unistd::gethostname().map_or_else(
        |_| "?".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}
