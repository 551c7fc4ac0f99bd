//! Random numbers, the name of this host and limits of the process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Returns a random number for sequence numbers and nonces.
///
/// # Panics
/// Panics if the system has no random numbers, as `HashMap::new` does.
pub fn random() -> u64 {
    getrandom::u64().expect("random numbers of the system")
}

/// Returns the name of this host; `?` if `gethostname` fails.
pub fn host_name() -> String {
    nix::unistd::gethostname().map_or_else(
        |_| "?".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// Raises the limit of open files of this process to its maximum. A server needs several for each
/// client, and the usual limit is 1024.
pub fn raise_open_files_limit() {
    if let Ok((_, max)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // A lower limit only means fewer clients.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, max, max);
    }
}
