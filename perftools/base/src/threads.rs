//! Threads that a process may be refused.

use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::error::{Error, Result};
use crate::memory::check_room;

/// Stack size in bytes of the thread that serves a client.
pub const SESSION_STACK: usize = 512 << 10;
/// Stack size in bytes of a thread that sets none.
const DEFAULT_STACK: usize = 2 << 20;

/// Starts a thread. `Scope::spawn` would panic if the limits of the process or of its control group
/// (`ulimit -u`, `TasksMax`) allow no further thread.
///
/// # Errors
/// Returns an error if the thread cannot be created, or if its stack would leave too little memory.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    spawn(scope, Builder::new().name(name.into()), DEFAULT_STACK, body)
}

/// Starts a thread with a stack of `stack` bytes, like [`spawn_scoped`].
pub fn spawn_scoped_with_stack<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    stack: usize,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let builder = Builder::new().name(name.into()).stack_size(stack);
    spawn(scope, builder, stack, body)
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    builder: Builder,
    stack: usize,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    check_room("the stack of a thread", stack as u64)?;
    builder.spawn_scoped(scope, body).map_err(|e| {
        Error::system("cannot create a thread", &e)
            .with_help("raise the limits of processes (`ulimit -u`, TasksMax) and of memory")
    })
}
