//! Every interleaving of threads that take events from a shared channel, with loom.

mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use loom::sync::{Mutex, MutexGuard};
}

#[allow(dead_code, reason = "a part is tested")]
#[path = "announcing.rs"]
mod announcing;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use self::announcing::{Announce, AnnouncingLock, HasNext};

/// Numbers of events that were read from the kernel, by their identifiers.
#[derive(Default)]
struct Events([u32; 2]);

impl Events {
    fn take(&mut self, id: usize) -> bool {
        let was_there = self.0[id] > 0;
        self.0[id] -= u32::from(was_there);
        was_there
    }
}

impl HasNext for Events {
    fn has_next(&self) -> bool {
        self.0 != [0; 2]
    }
}

/// The descriptors that `Waker` has in one epoll instance: the kernel's channel, readable while it
/// has events, and the eventfd.
#[derive(Default)]
struct Descriptors {
    state: Mutex<Readable>,
    changed: Condvar,
}

#[derive(Default)]
struct Readable {
    /// Identifiers of the events in the kernel.
    kernel: Vec<usize>,
    eventfd: bool,
}

impl Announce for Arc<Descriptors> {
    fn announce(&self, has_next: bool) {
        self.state.lock().expect("lock").eventfd = has_next;
        self.changed.notify_all();
    }
}

struct Channel {
    events: AnnouncingLock<Events, Arc<Descriptors>>,
    descriptors: Arc<Descriptors>,
}

impl Channel {
    /// The kernel adds an event.
    fn raise(&self, id: usize) {
        self.descriptors.state.lock().expect("lock").kernel.push(id);
        self.descriptors.changed.notify_all();
    }

    /// Reads events from the kernel until `is_done` returns `true`, as `Inner::read_events` does.
    fn read_events(&self, events: &mut Events, mut is_done: impl FnMut(&mut Events) -> bool) {
        loop {
            let next = self.descriptors.state.lock().expect("lock").kernel.pop();
            let Some(id) = next else { return };
            events.0[id] += 1;
            if is_done(events) {
                return;
            }
        }
    }

    /// Does what `EventChannel::try_take` does.
    fn try_take(&self, id: usize) -> bool {
        let mut events = self.events.lock();
        let mut was_taken = events.take(id);
        if !was_taken {
            self.read_events(&mut events, |events| {
                was_taken = events.take(id);
                was_taken
            });
        }
        was_taken
    }

    /// Does what `EventChannel::wait` does, and takes the event.
    fn wait(&self) -> usize {
        loop {
            let mut events = self.events.lock();
            self.read_events(&mut events, |_| false);
            if let Some(id) = [0, 1].into_iter().find(|&id| events.take(id)) {
                return id;
            }
            drop(events);
            let mut state = self.descriptors.state.lock().expect("lock");
            while state.kernel.is_empty() && !state.eventfd {
                state = self.descriptors.changed.wait(state).expect("lock");
            }
        }
    }
}

#[test]
fn no_thread_sleeps_on_while_an_event_is_unread() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let descriptors = Arc::new(Descriptors::default());
        let channel = Arc::new(Channel {
            events: AnnouncingLock::new(Events::default(), Arc::clone(&descriptors)),
            descriptors,
        });
        let waiting = {
            let channel = Arc::clone(&channel);
            thread::spawn(move || {
                let mut others = 0;
                while channel.wait() != 1 {
                    others += 1;
                }
                others
            })
        };
        let reading = {
            let channel = Arc::clone(&channel);
            thread::spawn(move || channel.try_take(0))
        };
        channel.raise(0);
        channel.raise(1);
        let taken = waiting.join().expect("thread") + u32::from(reading.join().expect("thread"));
        let left = u32::from(channel.try_take(0));
        assert_eq!(taken + left, 1);
        assert!(!channel.events.lock().has_next());
        let descriptors = &channel.descriptors.state;
        assert!(!descriptors.lock().expect("lock").eventfd);
    });
}
