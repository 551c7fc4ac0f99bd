//! Values of the program are dropped after a thread has left the engine. Their destructors can use
//! the engine, and can own the last handle of a peer.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// The values to drop when the thread leaves the engine, if it is in it.
    static DEFERRED: RefCell<Option<Vec<Box<dyn Any + Send>>>> = const { RefCell::new(None) };
}

/// Runs a part of the engine, which takes locks. Values that are dropped in it are dropped after
/// it, or after the part in which it is.
pub(crate) fn run<R>(part: impl FnOnce() -> R) -> R {
    struct Outermost;

    impl Drop for Outermost {
        fn drop(&mut self) {
            let values = DEFERRED.try_with(RefCell::take).ok().flatten();
            for value in values.into_iter().flatten() {
                // A panic must not end a thread of the engine.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
                    // Dropping it can panic again.
                    std::mem::forget(panic);
                }
            }
        }
    }

    let is_outermost = DEFERRED.try_with(|deferred| {
        let mut deferred = deferred.borrow_mut();
        let is_outermost = deferred.is_none();
        deferred.get_or_insert_default();
        is_outermost
    });
    // While the thread ends, nothing can be deferred.
    let _outermost = is_outermost.unwrap_or_default().then_some(Outermost);
    part()
}

/// Drops a value of the program, after the engine if the thread is in it.
pub(crate) fn drop_value(value: Box<dyn Any + Send>) {
    let mut value = Some(value);
    let _ = DEFERRED.try_with(|deferred| {
        if let Some(values) = &mut *deferred.borrow_mut() {
            values.extend(value.take());
        }
    });
    drop(value);
}
