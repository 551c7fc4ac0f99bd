//! Panics of the caller's code on paths that must not unwind.
//!
//! Dropping and destroying run code of the caller in two places: a `tracing` subscriber, and the
//! owner of memory that the caller provided. Both run in [`contain`]. The end of a scope runs in
//! [`abort_on_unwind`], because the caller uses the borrowed memory again after it.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the caller. A panic ends here; the panic hook has reported it.
pub(crate) fn contain(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // Dropping the payload also runs code of the caller, which can panic again.
        std::mem::forget(payload);
    }
}

/// Runs a function and aborts the process if it unwinds.
pub(crate) fn abort_on_unwind<R>(run: impl FnOnce() -> R) -> R {
    struct Guard;

    impl Drop for Guard {
        fn drop(&mut self) {
            abort("a panic");
        }
    }

    let guard = Guard;
    let value = run();
    std::mem::forget(guard);
    value
}

/// Aborts the process, because the device may still access memory whose borrow is about to end.
pub(crate) fn abort(reason: &str) -> ! {
    // `eprintln` panics if standard error is closed.
    let _ = writeln!(
        std::io::stderr(),
        "ibverbs: cannot end the device's access to borrowed memory: {reason}"
    );
    std::process::abort();
}
