//! Threads for calls that block without a time limit. A thread that has finished its work waits for
//! more, because starting and ending one takes about 20 system calls.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

type Work = Box<dyn FnOnce() + Send>;

/// Number of times that a thread yields the processor before it sleeps. A program that starts many
/// handshakes adds the next one meanwhile, without a system call to wake the thread.
const YIELDS: u32 = 8;
/// Time for which a thread waits for more work.
const IDLE_TIME: Duration = Duration::from_secs(1);
/// Stack size in bytes of a thread.
const STACK_SIZE: usize = 256 << 10;
/// Maximum number of threads that wait for more work.
const MAX_IDLE: usize = 16;

/// Work for the waiting threads: never more than there are threads, so that no work waits for
/// other work to end.
struct Queue {
    works: VecDeque<Work>,
    idle: usize,
    /// Number of idle threads that sleep.
    asleep: usize,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    works: VecDeque::new(),
    idle: 0,
    asleep: 0,
});
static ADDED: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on a waiting thread, or on a new one if none waits.
///
/// # Errors
/// The error of starting a thread. `work` is dropped then.
pub(super) fn run(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work: Work = Box::new(work);
    let mut queue = queue();
    if queue.works.len() < queue.idle {
        queue.works.push_back(work);
        let must_wake = queue.works.len() > queue.idle - queue.asleep;
        drop(queue);
        if must_wake {
            ADDED.notify_one();
        }
        // Work that does not block is often done when this returns, and its thread waits again.
        thread::yield_now();
        return Ok(());
    }
    drop(queue);
    let thread = thread::Builder::new()
        .name(name.into())
        .stack_size(STACK_SIZE);
    thread.spawn(move || run_all(work)).map(drop)
}

/// Runs the first work, and then what is added while this thread waits.
fn run_all(first: Work) {
    let mut work = first;
    loop {
        work();
        let mut waiting = queue();
        if waiting.idle >= MAX_IDLE {
            return;
        }
        waiting.idle += 1;
        for _ in 0..YIELDS {
            if !waiting.works.is_empty() {
                break;
            }
            drop(waiting);
            thread::yield_now();
            waiting = queue();
        }
        if waiting.works.is_empty() {
            waiting.asleep += 1;
            let woken =
                ADDED.wait_timeout_while(waiting, IDLE_TIME, |queue| queue.works.is_empty());
            (waiting, _) = woken.unwrap_or_else(PoisonError::into_inner);
            waiting.asleep -= 1;
        }
        waiting.idle -= 1;
        match waiting.works.pop_front() {
            Some(next) => work = next,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn blocked_work_delays_no_other_work() {
        let (sender, results) = mpsc::channel();
        let blockers: Vec<mpsc::Sender<()>> = (0..40)
            .map(|number| {
                let (blocker, blocked) = mpsc::channel::<()>();
                let sender = sender.clone();
                run("test", move || {
                    assert!(blocked.recv().is_err(), "the blocker is only dropped");
                    sender.send(number).expect("the test waits");
                })
                .expect("a thread");
                blocker
            })
            .collect();
        // Everything so far is blocked. This is not.
        let unblocked = sender.clone();
        run("test", move || unblocked.send(40).expect("the test waits")).expect("a thread");
        assert_eq!(results.recv(), Ok(40));
        drop(blockers);
        let mut numbers: Vec<i32> = (0..40).map(|_| results.recv().expect("a result")).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..40));
    }

    #[test]
    fn threads_are_used_again() {
        let (sender, threads) = mpsc::channel();
        let mut seen = HashSet::new();
        for _ in 0..100 {
            let sender = sender.clone();
            run("test", move || {
                sender.send(thread::current().id()).expect("the test waits");
            })
            .expect("a thread");
            seen.insert(threads.recv().expect("a thread"));
            // The thread waits for work soon after it has sent.
            thread::sleep(Duration::from_millis(1));
        }
        // Threads of other tests wait for work too.
        assert!(seen.len() < 90, "{} threads", seen.len());
    }

    #[test]
    fn panics_end_only_their_thread() {
        run("test", || panic!("a panic of the test")).expect("a thread");
        let (sender, results) = mpsc::channel();
        run("test", move || sender.send(1).expect("the test waits")).expect("a thread");
        assert_eq!(results.recv(), Ok(1));
    }
}
