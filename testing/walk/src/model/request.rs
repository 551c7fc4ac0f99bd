//! Requests in flight.

use std::collections::VecDeque;
use std::fmt;

use super::memory::{BufModel, Effect, Id};
use super::window::WindowRequest;

/// The result that a request must have while its queue pair works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Succeeds,
    Fails,
    /// It depends on the time at which the device executes the request.
    Either,
}

/// A request in flight.
pub(crate) struct Entry {
    pub(crate) tag: u64,
    pub(crate) what: &'static str,
    /// `false` for a request that retired before an older one.
    pub(crate) in_flight: bool,
    /// Over iWARP, a later completion retires the request. Before it is posted: its memory allows
    /// this.
    pub(crate) unsignaled: bool,
    pub(crate) fate: Fate,
    /// The queue pair that a datagram addresses.
    pub(crate) to: Option<Id>,
    pub(crate) bufs: Vec<BufModel>,
    pub(crate) is_list: bool,
    pub(crate) effects: Vec<Effect>,
    /// Bytes that the request writes to its buffer.
    pub(crate) fetched: Option<Vec<u8>>,
    /// Number of bytes that a receive takes.
    pub(crate) capacity: usize,
    pub(crate) window: Option<WindowRequest>,
}

/// Returns the position of the request in flight with this tag.
pub(crate) fn position_in_flight(queue: &VecDeque<Entry>, tag: u64) -> Option<usize> {
    queue
        .iter()
        .position(|entry| entry.tag == tag && entry.in_flight)
}

/// Takes the request at `position` out of its queue. Its place is kept until all older requests
/// have retired.
pub(crate) fn take_in_flight(queue: &mut VecDeque<Entry>, position: usize) -> Entry {
    let blank = Entry {
        in_flight: false,
        ..Entry::without_memory(queue[position].tag, "retired")
    };
    let entry = std::mem::replace(&mut queue[position], blank);
    while queue.front().is_some_and(|entry| !entry.in_flight) {
        queue.pop_front();
    }
    entry
}

impl Entry {
    /// Creates a request without memory.
    pub(crate) fn without_memory(tag: u64, what: &'static str) -> Self {
        Self {
            tag,
            what,
            in_flight: true,
            unsignaled: false,
            fate: Fate::Succeeds,
            to: None,
            bufs: Vec::new(),
            is_list: false,
            effects: Vec::new(),
            fetched: None,
            capacity: 0,
            window: None,
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.tag)?;
        if let Some(to) = self.to {
            write!(f, " to {to}")?;
        }
        if self.fate != Fate::Succeeds {
            write!(f, " ({:?})", self.fate)?;
        }
        for BufModel { pool, len, .. } in &self.bufs {
            write!(f, ", {len} bytes of pool {}", pool.unwrap_or_default())?;
        }
        self.effects
            .iter()
            .try_for_each(|effect| write!(f, ", {effect:?}"))
    }
}
