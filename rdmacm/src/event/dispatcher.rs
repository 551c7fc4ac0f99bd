//! Events by whose they are.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::event::Event;

/// Which identifier: a number that is never used again in a process.
///
/// # Example
/// ```no_run
/// use std::collections::HashMap;
/// use rdmacm::{Connection, EventChannel, IdKey};
/// # fn f(channel: &EventChannel, clients: &mut HashMap<IdKey, Connection>) -> ibverbs::Result<()> {
/// if let Some(client) = channel.wait(None)?.and_then(|key| clients.get_mut(&key)) {
///     println!("{:?}", client.check_event()?);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdKey(u64);

impl IdKey {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for IdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Events that were taken off the channel, by whose they are.
#[derive(Debug, Default)]
pub(crate) struct EventDispatcher {
    /// By the addresses of the identifiers that are on this channel.
    queues: BTreeMap<usize, EventQueue>,
    /// Whose box got something since it was last found empty.
    filled: VecDeque<usize>,
}

#[derive(Debug)]
struct EventQueue {
    key: IdKey,
    events: VecDeque<Event>,
    /// Whether it is on the list of those that got something.
    is_listed: bool,
}

impl EventDispatcher {
    /// Makes a box for the identifier at this address.
    pub(crate) fn register(&mut self, subject: usize, key: IdKey) {
        self.queues.insert(
            subject,
            EventQueue {
                key,
                events: VecDeque::new(),
                is_listed: false,
            },
        );
    }

    /// The key of the box that the identifier at this address has.
    pub(crate) fn key(&self, subject: usize) -> Option<IdKey> {
        self.queues.get(&subject).map(|queue| queue.key)
    }

    /// Takes a box away, with those of the identifiers that requests in it bring, and gives what
    /// was in it.
    pub(crate) fn unregister(&mut self, subject: usize) -> VecDeque<Event> {
        let Some(queue) = self.queues.remove(&subject) else {
            return VecDeque::new();
        };
        if queue.is_listed {
            self.filled.retain(|&other| other != subject);
        }
        for new in queue.events.iter().filter_map(Event::new_subject) {
            self.unregister(new);
        }
        queue.events
    }

    /// Puts an event into the box of the identifier that it happened to; one of an identifier that
    /// has just gone is dropped.
    pub(crate) fn deliver(&mut self, event: Event) {
        // Events of the new identifier may follow before anybody has taken this one; nobody knows
        // its key yet, so it is not listed.
        if let Some(new) = event
            .new_subject()
            .filter(|_| self.queues.contains_key(&event.subject()))
        {
            self.queues.insert(
                new,
                EventQueue {
                    key: IdKey::new(),
                    events: VecDeque::new(),
                    is_listed: true,
                },
            );
        }
        if let Some(queue) = self.listed(event.subject()) {
            queue.events.push_back(event);
        }
    }

    /// Puts events into a box before those that are in it.
    pub(crate) fn forward(&mut self, subject: usize, mut earlier: VecDeque<Event>) {
        if earlier.is_empty() {
            return;
        }
        if let Some(queue) = self.listed(subject) {
            earlier.append(&mut queue.events);
            queue.events = earlier;
        }
    }

    /// The next event of an identifier.
    pub(crate) fn take(&mut self, subject: usize) -> Option<Event> {
        self.queues.get_mut(&subject)?.events.pop_front()
    }

    /// Whose box has something: each in turn.
    pub(crate) fn next(&mut self) -> Option<IdKey> {
        while let Some(subject) = self.filled.pop_front() {
            let Some(queue) = self.queues.get_mut(&subject) else {
                continue;
            };
            queue.is_listed = !queue.events.is_empty();
            if queue.is_listed {
                self.filled.push_back(subject);
                return Some(queue.key);
            }
        }
        None
    }

    /// A box that gets something now.
    fn listed(&mut self, subject: usize) -> Option<&mut EventQueue> {
        let queue = self.queues.get_mut(&subject)?;
        if !std::mem::replace(&mut queue.is_listed, true) {
            self.filled.push_back(subject);
        }
        Some(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CmEventType;

    fn desk(subjects: &[usize]) -> (EventDispatcher, Vec<IdKey>) {
        let mut desk = EventDispatcher::default();
        let keys: Vec<IdKey> = subjects.iter().map(|_| IdKey::new()).collect();
        for (&subject, &key) in subjects.iter().zip(&keys) {
            desk.register(subject, key);
        }
        (desk, keys)
    }

    fn event(subject: usize, status: i32) -> Event {
        Event::of(CmEventType::DISCONNECTED, subject, status)
    }

    #[test]
    fn each_takes_its_own_in_the_order_in_which_they_came() {
        let (mut desk, keys) = desk(&[8, 16]);
        for (subject, status) in [(8, 1), (16, 2), (8, 3)] {
            desk.deliver(event(subject, status));
        }
        // As long as somebody has events, he is told, and the others in between.
        assert_eq!(
            [desk.next(), desk.next(), desk.next()],
            [Some(keys[0]), Some(keys[1]), Some(keys[0])]
        );
        assert_eq!(desk.take(16).map(|event| event.status()), Some(2));
        assert_eq!([desk.next(), desk.next()], [Some(keys[0]), Some(keys[0])]);
        assert_eq!(
            [1, 2].map(|_| desk.take(8).map(|event| event.status())),
            [Some(1), Some(3)]
        );
        assert_eq!((desk.next(), desk.filled.len()), (None, 0));
        assert!(desk.take(8).is_none() && desk.take(24).is_none());
    }

    #[test]
    fn what_was_left_at_the_old_channel_comes_first_at_the_new_one() {
        let (mut old, _) = desk(&[8]);
        let (mut new, keys) = desk(&[8]);
        old.deliver(event(8, 1));
        new.deliver(event(8, 2));
        new.forward(8, old.unregister(8));
        assert_eq!(new.next(), Some(keys[0]));
        assert_eq!(
            [1, 2].map(|_| new.take(8).map(|event| event.status())),
            [Some(1), Some(2)]
        );
        assert_eq!(
            (old.next(), old.queues.len(), old.filled.len()),
            (None, 0, 0)
        );
    }

    #[test]
    fn what_happens_to_one_that_is_gone_is_dropped() {
        let (mut desk, keys) = desk(&[8, 16]);
        desk.deliver(event(8, 1));
        assert_eq!(desk.unregister(8).len(), 1);
        desk.deliver(event(8, 2));
        assert_eq!(
            (desk.next(), desk.key(8), desk.key(16)),
            (None, None, Some(keys[1]))
        );
        // Another one may have the address at once.
        let key = IdKey::new();
        desk.register(8, key);
        assert!(desk.take(8).is_none());
        desk.deliver(event(8, 3));
        assert_eq!(desk.next(), Some(key));
    }
}
