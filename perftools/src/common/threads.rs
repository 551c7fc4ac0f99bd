//! Threads that a process may be refused.

use std::thread::{Builder, Scope, ScopedJoinHandle};

use super::error::{Error, Result};

/// Starts a thread. `Scope::spawn` would panic if the limits of the process or of its control group
/// (`ulimit -u`, `TasksMax`) allow no further thread.
///
/// # Errors
/// Returns an error if the thread cannot be created.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let builder = Builder::new().name(name.into());
    builder.spawn_scoped(scope, body).map_err(|e| {
        Error::system("cannot create a thread", &e)
            .with_help("raise the limits of processes (`ulimit -u`, TasksMax) and of memory")
    })
}
