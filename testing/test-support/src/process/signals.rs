//! Signals that child processes inherit.

#![allow(unsafe_code, reason = "a system call")]

use std::sync::Once;

static SET: Once = Once::new();

/// Gives this process the default action of each signal that tests send. A child inherits what is
/// ignored, and `nohup` and the `&` of a shell ignore SIGHUP, SIGINT and SIGQUIT.
pub(super) fn set_defaults() {
    SET.call_once(|| {
        for signal in [
            libc::SIGHUP,
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGCHLD,
            libc::SIGUSR1,
            libc::SIGUSR2,
        ] {
            // SAFETY: SIG_DFL is no function of this program, so nothing runs in a handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    });
}
