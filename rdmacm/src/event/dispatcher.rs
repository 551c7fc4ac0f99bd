//! Distribution of the events of one channel to its identifiers.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::event::Event;

/// Unique key of an identifier. A process never uses the same key twice.
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

/// Unread events of a channel, in one queue per identifier.
#[derive(Debug, Default)]
pub(crate) struct EventDispatcher {
    /// Event queues by the address of the identifier.
    queues: BTreeMap<usize, EventQueue>,
    /// Identifiers that may have unread events, in the order in which [`next`](Self::next) returns
    /// them.
    ready: VecDeque<usize>,
}

#[derive(Debug)]
struct EventQueue {
    key: IdKey,
    events: VecDeque<Event>,
    /// Maximum number of connect requests in the queue.
    max_requests: usize,
    /// `true` if the queue is listed in [`EventDispatcher::ready`], or if its key is not known to
    /// the application yet.
    is_listed: bool,
}

impl EventDispatcher {
    /// Creates an event queue for the identifier at this address.
    pub(crate) fn register(&mut self, id_addr: usize, key: IdKey) {
        self.queues.insert(
            id_addr,
            EventQueue {
                key,
                events: VecDeque::new(),
                max_requests: usize::MAX,
                is_listed: false,
            },
        );
    }

    /// Limits the number of unread connect requests of a listener.
    pub(crate) fn limit_requests(&mut self, id_addr: usize, max_requests: usize) {
        if let Some(queue) = self.queues.get_mut(&id_addr) {
            queue.max_requests = max_requests;
        }
    }

    /// Returns the key of the identifier at this address.
    pub(crate) fn key(&self, id_addr: usize) -> Option<IdKey> {
        self.queues.get(&id_addr).map(|queue| queue.key)
    }

    /// Removes a queue and returns its events. Also removes the queues of the new identifiers that
    /// its connect requests carry.
    pub(crate) fn unregister(&mut self, id_addr: usize) -> VecDeque<Event> {
        let Some(queue) = self.queues.remove(&id_addr) else {
            return VecDeque::new();
        };
        if queue.is_listed {
            self.ready.retain(|&other| other != id_addr);
        }
        for new in queue.events.iter().filter_map(Event::new_id_addr) {
            self.unregister(new);
        }
        queue.events
    }

    /// Appends an event to the queue of its identifier. Drops the event if the identifier is no
    /// longer registered, and a connect request if the listener's queue is full. Dropping a request
    /// rejects it.
    pub(crate) fn deliver(&mut self, event: Event) {
        let Some(queue) = self.queues.get(&event.id_addr()) else {
            return;
        };
        if let Some(new) = event.new_id_addr() {
            let requests = queue.events.iter().filter_map(Event::new_id_addr).count();
            if requests >= queue.max_requests {
                return;
            }
            // Events of the new identifier may arrive before its connect request is taken. The
            // application cannot know its key yet, so the queue is marked as listed without being
            // in the list.
            self.queues.insert(
                new,
                EventQueue {
                    key: IdKey::new(),
                    events: VecDeque::new(),
                    max_requests: usize::MAX,
                    is_listed: true,
                },
            );
        }
        if let Some(queue) = self.list_queue(event.id_addr()) {
            queue.events.push_back(event);
        }
    }

    /// Inserts events before those already in a queue.
    pub(crate) fn prepend(&mut self, id_addr: usize, mut earlier: VecDeque<Event>) {
        if earlier.is_empty() {
            return;
        }
        if let Some(queue) = self.list_queue(id_addr) {
            earlier.append(&mut queue.events);
            queue.events = earlier;
        }
    }

    /// Returns the next event of an identifier.
    pub(crate) fn take(&mut self, id_addr: usize) -> Option<Event> {
        self.queues.get_mut(&id_addr)?.events.pop_front()
    }

    /// Returns the key of an identifier that has unread events, each in turn.
    pub(crate) fn next(&mut self) -> Option<IdKey> {
        while let Some(id_addr) = self.ready.pop_front() {
            let Some(queue) = self.queues.get_mut(&id_addr) else {
                continue;
            };
            queue.is_listed = !queue.events.is_empty();
            if queue.is_listed {
                self.ready.push_back(id_addr);
                return Some(queue.key);
            }
        }
        None
    }

    /// Returns the queue of an identifier after adding it to the list of ready queues.
    fn list_queue(&mut self, id_addr: usize) -> Option<&mut EventQueue> {
        let queue = self.queues.get_mut(&id_addr)?;
        if !std::mem::replace(&mut queue.is_listed, true) {
            self.ready.push_back(id_addr);
        }
        Some(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CmEventType;

    fn dispatcher(id_addrs: &[usize]) -> (EventDispatcher, Vec<IdKey>) {
        let mut dispatcher = EventDispatcher::default();
        let keys: Vec<IdKey> = id_addrs.iter().map(|_| IdKey::new()).collect();
        for (&id_addr, &key) in id_addrs.iter().zip(&keys) {
            dispatcher.register(id_addr, key);
        }
        (dispatcher, keys)
    }

    fn event(id_addr: usize, status: i32) -> Event {
        Event::for_test(CmEventType::DISCONNECTED, id_addr, status)
    }

    #[test]
    fn events_are_taken_per_identifier_in_order() {
        let (mut dispatcher, keys) = dispatcher(&[8, 16]);
        for (id_addr, status) in [(8, 1), (16, 2), (8, 3)] {
            dispatcher.deliver(event(id_addr, status));
        }
        // A key is repeated, in turn with others, until its events are taken.
        assert_eq!(
            [dispatcher.next(), dispatcher.next(), dispatcher.next()],
            [Some(keys[0]), Some(keys[1]), Some(keys[0])]
        );
        assert_eq!(dispatcher.take(16).map(|event| event.status()), Some(2));
        assert_eq!(
            [dispatcher.next(), dispatcher.next()],
            [Some(keys[0]), Some(keys[0])]
        );
        assert_eq!(
            [1, 2].map(|_| dispatcher.take(8).map(|event| event.status())),
            [Some(1), Some(3)]
        );
        assert_eq!((dispatcher.next(), dispatcher.ready.len()), (None, 0));
        assert!(dispatcher.take(8).is_none() && dispatcher.take(24).is_none());
    }

    #[test]
    fn unread_events_of_the_old_channel_come_first() {
        let (mut old, _) = dispatcher(&[8]);
        let (mut new, keys) = dispatcher(&[8]);
        old.deliver(event(8, 1));
        new.deliver(event(8, 2));
        new.prepend(8, old.unregister(8));
        assert_eq!(new.next(), Some(keys[0]));
        assert_eq!(
            [1, 2].map(|_| new.take(8).map(|event| event.status())),
            [Some(1), Some(2)]
        );
        assert_eq!(
            (old.next(), old.queues.len(), old.ready.len()),
            (None, 0, 0)
        );
    }

    #[test]
    fn events_of_unregistered_identifiers_are_dropped() {
        let (mut dispatcher, keys) = dispatcher(&[8, 16]);
        dispatcher.deliver(event(8, 1));
        assert_eq!(dispatcher.unregister(8).len(), 1);
        dispatcher.deliver(event(8, 2));
        assert_eq!(
            (dispatcher.next(), dispatcher.key(8), dispatcher.key(16)),
            (None, None, Some(keys[1]))
        );
        // A new identifier can have the same address as a destroyed one.
        let key = IdKey::new();
        dispatcher.register(8, key);
        assert!(dispatcher.take(8).is_none());
        dispatcher.deliver(event(8, 3));
        assert_eq!(dispatcher.next(), Some(key));
    }
}
