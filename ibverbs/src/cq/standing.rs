//! What must not happen while this thread stands in a poll.
//!
//! Between `ibv_start_poll` and `ibv_end_poll` a provider may hold the lock of the completion queue
//! (mlx5 does), and destroying a queue pair on it takes that lock: on the same thread it would wait
//! for itself. So whatever takes it asks here first, and is done when the poll is over, or refused.

use std::cell::{Cell, RefCell};

use crate::error::{Error, Result};
use crate::kind::ErrorKind;

/// Added to the count of polls when there is something to do after them: makes it negative, which
/// costs nothing to look for.
const LATER: i32 = i32::MIN;

thread_local! {
    /// How many polls this thread stands in, one within the other.
    static POLLS: Cell<i32> = const { Cell::new(0) };
    static TASKS: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

/// The thread enters a poll.
#[inline]
pub(crate) fn enter() {
    POLLS.with(|polls| polls.set(polls.get() + 1));
}

/// It has left the one that it entered last.
#[inline]
pub(crate) fn leave() {
    POLLS.with(|polls| polls.set(polls.get() - 1));
    if POLLS.with(Cell::get) < 0 {
        left();
    }
}

#[cold]
#[inline(never)]
fn left() {
    if POLLS.with(Cell::get) != LATER {
        return; // not out of all of them
    }
    POLLS.with(|polls| polls.set(0));
    for task in TASKS.with(RefCell::take) {
        task();
    }
}

/// Whether this thread stands in a poll.
pub(crate) fn inside() -> bool {
    POLLS.with(Cell::get) != 0
}

/// Refuses what takes the lock that a poll may hold.
pub(crate) fn refuse_inside(verb: &'static str, what: impl FnOnce() -> String) -> Result<()> {
    if !inside() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, verb, what())
        .with_hint("not within poll_each, while the provider may hold a lock: do it after"))
}

/// Does this when the thread stands in no poll any more, which it does now.
pub(crate) fn later(task: impl FnOnce() + 'static) {
    debug_assert!(inside());
    let mut task = Some(Box::new(task));
    // A thread that ends has no list any more.
    let listed = TASKS.try_with(|tasks| {
        tasks
            .borrow_mut()
            .extend(task.take().map(|task| task as Box<dyn FnOnce()>));
    });
    if listed.is_err() {
        crate::leak::count();
        std::mem::forget(task);
        return;
    }
    POLLS.with(|polls| polls.set(polls.get() | LATER));
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn what_is_put_off_is_done_once_when_the_outermost_poll_is_over() {
        let done = Rc::new(Cell::new(0));
        for round in 0..2 {
            enter();
            enter();
            let counter = Rc::clone(&done);
            later(move || {
                assert!(!inside());
                counter.set(counter.get() + 1);
            });
            assert!(refuse_inside("verb", || "it".into()).is_err());
            leave();
            assert_eq!((done.get(), inside()), (round, true));
            leave();
            assert_eq!((done.get(), inside()), (round + 1, false));
        }
        assert!(refuse_inside("verb", || "it".into()).is_ok());
    }

    #[test]
    fn what_is_put_off_by_a_task_waits_for_the_poll_that_the_task_stands_in() {
        let done = Rc::new(Cell::new(false));
        let inner = Rc::clone(&done);
        enter();
        later(move || {
            enter();
            later(move || inner.set(true));
            leave();
        });
        leave();
        assert!(done.get() && !inside());
    }
}
