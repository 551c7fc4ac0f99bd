//! Every interleaving of the threads that share a messenger, with loom: the modules whose
//! correctness depends on the order of their steps are compiled again with its locks and atomics.

mod sync {
    pub(crate) use std::sync::{PoisonError, TryLockError};

    use std::ops::{Deref, DerefMut};
    use std::sync::{LockResult, TryLockResult};

    use loom::sync::atomic::AtomicBool;
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};

    /// A lock of an atomic, because loom does not explore when a `try_lock` of its own lock fails.
    #[derive(Default)]
    pub(crate) struct Mutex<T> {
        is_locked: AtomicBool,
        value: std::sync::Mutex<T>,
    }

    pub(crate) struct MutexGuard<'m, T> {
        is_locked: &'m AtomicBool,
        value: Option<std::sync::MutexGuard<'m, T>>,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self {
                is_locked: AtomicBool::new(false),
                value: std::sync::Mutex::new(value),
            }
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            loop {
                if let Ok(guard) = self.try_lock() {
                    return Ok(guard);
                }
                loom::thread::yield_now();
            }
        }

        pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
            self.is_locked
                .compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire)
                .map_err(|_| TryLockError::WouldBlock)?;
            Ok(MutexGuard {
                is_locked: &self.is_locked,
                value: Some(self.value.lock().expect("not poisoned")),
            })
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.value.as_ref().expect("held until it is dropped")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.value.as_mut().expect("held until it is dropped")
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            self.value = None;
            self.is_locked.store(false, Ordering::Release);
        }
    }
}

#[allow(dead_code, reason = "a part is tested")]
#[path = "deferred.rs"]
mod deferred;
#[allow(dead_code, reason = "a part is tested")]
#[path = "lease.rs"]
mod lease;
#[allow(dead_code, reason = "a part is tested")]
#[path = "waiters.rs"]
mod waiters;

use std::task::{Wake, Waker};

use loom::sync::atomic::Ordering;
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

use self::deferred::{Apply, Deferred};
use self::lease::Leases;
use self::waiters::Waiters;

/// Counts the work that was done. Not a part of the model.
struct Count(std::sync::Arc<std::sync::atomic::AtomicU32>);

impl Apply for Count {
    fn apply(&mut self, count: u32) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

/// A credit that is never reported would leave the peer waiting forever.
#[test]
fn no_deferred_work_is_left() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let done = std::sync::Arc::default();
        let value = Arc::new(Deferred::new(Count(std::sync::Arc::clone(&done))));
        let others = [(); 2].map(|()| {
            let value = Arc::clone(&value);
            thread::spawn(move || value.defer())
        });
        value.with(|_| ());
        for other in others {
            other.join().expect("thread");
        }
        assert_eq!(done.load(Ordering::Relaxed), 2);
    });
}

/// One of two connections gets the place of one that ends, at whatever time each asks for it.
#[test]
fn a_lease_that_ends_is_given_to_one_of_two() {
    loom::model(|| {
        let leases = std::sync::Arc::new(Leases::default());
        let first = leases.take(1).expect("free");
        let other = {
            let leases = std::sync::Arc::clone(&leases);
            thread::spawn(move || leases.take(1))
        };
        drop(first);
        let own = leases.take(1);
        let other = other.join().expect("thread");
        assert_ne!(own.is_some(), other.is_some());
        assert_eq!(leases.count(), 1);
    });
}

/// A completion queue with its descriptor, and two threads that wait for completions.
#[derive(Default)]
struct Queue {
    waiters: Waiters,
    /// `true` from arming the queue until its event is read.
    is_armed: Mutex<bool>,
    device: Mutex<Device>,
    is_readable: Mutex<bool>,
    became_readable: Condvar,
    endpoints: [Mutex<Endpoint>; 2],
}

#[derive(Default)]
struct Device {
    is_armed: bool,
    /// The threads that wait for them.
    completions: Vec<usize>,
}

#[derive(Default)]
struct Endpoint {
    is_complete: bool,
    waker: Option<Waker>,
}

impl Queue {
    fn complete(&self, thread: usize) {
        let mut device = self.device.lock().expect("lock");
        device.completions.push(thread);
        if std::mem::take(&mut device.is_armed) {
            *self.is_readable.lock().expect("lock") = true;
            self.became_readable.notify_all();
        }
    }

    /// Gives each completion to its thread, as `Polled::poll` does.
    fn poll(&self, _polled: &MutexGuard<'_, bool>) {
        let completions = std::mem::take(&mut self.device.lock().expect("lock").completions);
        for thread in completions {
            let mut endpoint = self.endpoints[thread].lock().expect("lock");
            endpoint.is_complete = true;
            if let Some(waker) = endpoint.waker.take() {
                waker.wake();
            }
        }
    }

    /// Does what the function of `Driver` does.
    fn prepare_wait(&self) {
        let mut is_armed = self.is_armed.lock().expect("lock");
        if !self.waiters.has_leader()
            && std::mem::take(&mut *self.is_readable.lock().expect("lock"))
        {
            *is_armed = false;
        }
        if !std::mem::replace(&mut *is_armed, true) {
            self.device.lock().expect("lock").is_armed = true;
        }
        self.poll(&is_armed);
    }

    /// Sleeps on the descriptor.
    fn sleep(&self) {
        let mut is_readable = self.is_readable.lock().expect("lock");
        while !*is_readable {
            is_readable = self.became_readable.wait(is_readable).expect("lock");
        }
    }

    fn attempt(&self, own: usize) -> bool {
        self.poll(&self.is_armed.lock().expect("lock"));
        self.endpoints[own].lock().expect("lock").is_complete
    }

    /// Waits as `Shared::block` does.
    fn wait(&self, own: usize) {
        let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
        let ticket = self.waiters.enter(&waker, true);
        loop {
            self.endpoints[own].lock().expect("lock").waker = Some(waker.clone());
            self.prepare_wait();
            if self.endpoints[own].lock().expect("lock").is_complete {
                break;
            }
            let attempt = || Ok::<_, ()>(self.attempt(own).then_some(()));
            let sleep = || {
                self.sleep();
                Ok(())
            };
            if self.waiters.sleep(attempt, sleep, thread::park) == Ok(Some(())) {
                break;
            }
        }
        self.waiters.leave(ticket);
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn no_thread_sleeps_on_after_its_completion() {
    // More preemptions take minutes.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let queue = Arc::new(Queue::default());
        let threads = [0, 1].map(|own| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.wait(own))
        });
        queue.complete(0);
        queue.complete(1);
        for thread in threads {
            thread.join().expect("thread");
        }
    });
}

/// The registration of the descriptor with tokio.
#[derive(Default)]
struct Readiness {
    is_ready: bool,
    /// A task has registered the waker of the driver.
    has_waker: bool,
}

/// A queue whose waiters are tasks of a runtime.
#[derive(Default)]
struct Runtime {
    queue: Queue,
    readiness: Mutex<Readiness>,
}

impl Runtime {
    /// The device completes a request, and the runtime sees the event.
    fn complete(&self, task: usize) {
        self.queue.complete(task);
        if !*self.queue.is_readable.lock().expect("lock") {
            return;
        }
        let mut readiness = self.readiness.lock().expect("lock");
        readiness.is_ready = true;
        let has_waker = std::mem::take(&mut readiness.has_waker);
        drop(readiness);
        if has_waker {
            self.queue.waiters.wake_one();
        }
    }

    /// Does what `Readable::poll_clear` does.
    fn poll_clear(&self) -> bool {
        let mut readiness = self.readiness.lock().expect("lock");
        let was_ready = std::mem::take(&mut readiness.is_ready);
        readiness.has_waker |= !was_ready;
        was_ready
    }

    /// Polls a task until it is pending or its request is complete, as `Reactor::poll` does.
    fn poll(&self, own: usize, waker: &Waker) -> bool {
        loop {
            self.queue.endpoints[own].lock().expect("lock").waker = Some(waker.clone());
            self.queue.prepare_wait();
            if self.queue.endpoints[own].lock().expect("lock").is_complete {
                return true;
            }
            if !self.poll_clear() {
                return false;
            }
        }
    }

    /// Runs a task, which is polled `polls` times at most.
    fn run(&self, own: usize, polls: usize) {
        let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
        let ticket = self.queue.waiters.enter(&waker, true);
        for poll in 0..polls {
            if poll > 0 {
                thread::park();
            }
            if self.poll(own, &waker) {
                break;
            }
        }
        self.queue.waiters.leave(ticket);
    }
}

/// Two tasks wait. The first one may be dropped after its first poll.
fn tasks_end(polls_of_first: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let runtime = Arc::new(Runtime::default());
        let tasks = [(0, polls_of_first), (1, usize::MAX)].map(|(own, polls)| {
            let runtime = Arc::clone(&runtime);
            thread::spawn(move || runtime.run(own, polls))
        });
        runtime.complete(0);
        runtime.complete(1);
        for task in tasks {
            task.join().expect("task");
        }
    });
}

#[test]
fn no_task_sleeps_on_after_its_completion() {
    tasks_end(usize::MAX);
}

/// The event may have woken the task that is dropped.
#[test]
fn a_dropped_task_leaves_no_other_asleep() {
    tasks_end(1);
}
