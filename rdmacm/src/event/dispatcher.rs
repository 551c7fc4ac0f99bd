//! Distribution of the events of one channel to its identifiers.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::event::{Event, HasNext};

/// Unique key of an identifier. A process never uses the same key twice.
///
/// # Example
/// ```no_run
/// use std::collections::HashMap;
/// use rdmacm::{Connection, EventChannel, IdKey};
/// # fn f(channel: &EventChannel, clients: &mut HashMap<IdKey, Connection>) -> ibverbs::Result<()> {
/// if let Some(client) = channel.wait(None)?.and_then(|key| clients.get_mut(&key)) {
///     println!("{:?}", client.try_event()?);
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
    /// Addresses of the identifiers whose key [`next`](Self::next) can return, by their turns.
    ready: BTreeMap<u64, usize>,
    /// Number of turns given so far.
    turns: u64,
}

#[derive(Debug)]
struct EventQueue {
    key: IdKey,
    events: VecDeque<Event>,
    /// Maximum number of connect requests in the queue.
    max_requests: usize,
    /// `true` while the application can do nothing about an event: it does not know the key of a
    /// connect request, or a thread makes a blocking call for the identifier.
    is_hidden: bool,
    /// `true` from the end of a blocking call until the next event is taken.
    has_returned: bool,
    /// Key in [`EventDispatcher::ready`].
    turn: Option<u64>,
}

impl EventQueue {
    fn new(key: IdKey, is_hidden: bool) -> Self {
        Self {
            key,
            events: VecDeque::new(),
            max_requests: usize::MAX,
            is_hidden,
            has_returned: false,
            turn: None,
        }
    }

    fn is_ready(&self) -> bool {
        !self.is_hidden && (self.has_returned || !self.events.is_empty())
    }
}

impl EventDispatcher {
    /// Creates an event queue for the identifier at this address.
    pub(crate) fn register(&mut self, id_addr: usize, key: IdKey) {
        self.queues.insert(id_addr, EventQueue::new(key, false));
    }

    /// Limits the number of unread connect requests of a listener.
    pub(crate) fn limit_requests(&mut self, id_addr: usize, max_requests: usize) {
        self.change(id_addr, |queue| queue.max_requests = max_requests);
    }

    /// Returns the key of the identifier at this address.
    pub(crate) fn key(&self, id_addr: usize) -> Option<IdKey> {
        self.queues.get(&id_addr).map(|queue| queue.key)
    }

    /// Returns no key of this identifier until it is shown.
    pub(crate) fn hide(&mut self, id_addr: usize) {
        self.change(id_addr, |queue| queue.is_hidden = true);
    }

    /// Shows an identifier whose connect request was taken.
    pub(crate) fn show(&mut self, id_addr: usize) {
        self.change(id_addr, |queue| queue.is_hidden = false);
    }

    /// Shows an identifier after its blocking call has returned. Another identifier can have the
    /// same address by then, but not the same key.
    pub(crate) fn returned(&mut self, id_addr: usize, key: IdKey) {
        self.change(id_addr, |queue| {
            if queue.key == key {
                (queue.is_hidden, queue.has_returned) = (false, true);
            }
        });
    }

    /// Removes a queue and returns its events. Also removes the queues of the new identifiers that
    /// its connect requests carry.
    pub(crate) fn unregister(&mut self, id_addr: usize) -> VecDeque<Event> {
        let Some(queue) = self.queues.remove(&id_addr) else {
            return VecDeque::new();
        };
        if let Some(turn) = queue.turn {
            self.ready.remove(&turn);
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
            // Events of the new identifier may arrive before its connect request is taken.
            self.queues.insert(new, EventQueue::new(IdKey::new(), true));
        }
        self.change(event.id_addr(), |queue| queue.events.push_back(event));
    }

    /// Inserts events before those already in a queue.
    pub(crate) fn prepend(&mut self, id_addr: usize, mut earlier: VecDeque<Event>) {
        self.change(id_addr, |queue| {
            earlier.append(&mut queue.events);
            queue.events = earlier;
        });
    }

    /// Returns the next event of an identifier.
    pub(crate) fn take(&mut self, id_addr: usize) -> Option<Event> {
        self.change(id_addr, |queue| {
            queue.has_returned = false;
            queue.events.pop_front()
        })?
    }

    /// Returns the key of an identifier that has unread events, each in turn.
    pub(crate) fn next(&mut self) -> Option<IdKey> {
        let (_, id_addr) = self.ready.pop_first()?;
        let queue = self.queues.get_mut(&id_addr)?;
        queue.turn = Some(self.turns);
        self.ready.insert(self.turns, id_addr);
        self.turns += 1;
        Some(queue.key)
    }

    /// Calls a function on a queue, and then lists it among the ready ones or removes it.
    fn change<R>(&mut self, id_addr: usize, f: impl FnOnce(&mut EventQueue) -> R) -> Option<R> {
        let queue = self.queues.get_mut(&id_addr)?;
        let result = f(queue);
        match (queue.turn, queue.is_ready()) {
            (None, true) => {
                queue.turn = Some(self.turns);
                self.ready.insert(self.turns, id_addr);
                self.turns += 1;
            }
            (Some(turn), false) => {
                queue.turn = None;
                self.ready.remove(&turn);
            }
            _ => {}
        }
        Some(result)
    }
}

impl HasNext for EventDispatcher {
    /// Returns `true` if [`next`](Self::next) would return a key.
    fn has_next(&self) -> bool {
        !self.ready.is_empty()
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
        assert_eq!((old.queues.len(), old.ready.len()), (0, 0));
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

    #[test]
    fn hidden_identifiers_are_returned_when_they_are_shown() {
        let (mut dispatcher, keys) = dispatcher(&[8, 16]);
        dispatcher.deliver(event(8, 1));
        dispatcher.hide(8);
        dispatcher.hide(16);
        dispatcher.deliver(event(8, 2));
        assert!(!dispatcher.has_next());
        dispatcher.show(8);
        dispatcher.show(16);
        assert_eq!(
            [dispatcher.next(), dispatcher.next()],
            [Some(keys[0]), Some(keys[0])]
        );
        assert_eq!(
            [1, 2].map(|_| dispatcher.take(8).map(|event| event.status())),
            [Some(1), Some(2)]
        );
        assert_eq!(dispatcher.next(), None);
    }

    #[test]
    fn the_end_of_a_blocking_call_is_returned_like_an_event() {
        let (mut dispatcher, keys) = dispatcher(&[8]);
        dispatcher.hide(8);
        dispatcher.returned(8, IdKey::new());
        assert!(
            !dispatcher.has_next(),
            "the call of another identifier that had this address"
        );
        dispatcher.returned(8, keys[0]);
        assert_eq!(
            [dispatcher.next(), dispatcher.next()],
            [Some(keys[0]), Some(keys[0])]
        );
        assert!(dispatcher.take(8).is_none());
        assert_eq!(dispatcher.next(), None);
        dispatcher.deliver(event(8, 1));
        assert_eq!(dispatcher.next(), Some(keys[0]));
        dispatcher.hide(8);
        dispatcher.unregister(8);
        dispatcher.returned(8, keys[0]);
        assert!(!dispatcher.has_next(), "the call of a dropped operation");
    }
}
