//! Small services of the operating system.

use std::hash::{BuildHasher, RandomState};

/// Returns a random number for sequence numbers and tokens. It is not fit for secrets.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Returns the name of this host; `?` if the kernel does not return one.
pub(crate) fn host_name() -> String {
    nix::unistd::gethostname().map_or_else(
        |_| "?".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}
