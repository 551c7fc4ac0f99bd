//! The adapter: the guest's memory and interrupts, and its objects.

use std::io;

use crate::bar;
use crate::capabilities::{self, Capabilities};
use crate::event_queue::EventQueue;
use crate::guest_memory::GuestMemory;
use crate::interrupts::Interrupts;
use crate::table::Table;

/// The progress of the driver in starting the adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Disabled,
    Enabled,
    Initialized,
}

/// Kinds of objects for which the adapter keeps only the driver's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    ProtectionDomain,
    MemoryKey,
    CompletionQueue,
    QueuePair,
    SharedReceiveQueue,
    XrcDomain,
    TransportDomain,
    CounterSet,
}

/// Number of kinds.
const KINDS: usize = Kind::CounterSet as usize + 1;

/// Objects and state that end with a reset.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) phase: Phase,
    pub(crate) capabilities: Capabilities,
    /// Pages of the guest that the driver has given to the adapter.
    pub(crate) pages: Vec<u64>,
    pub(crate) doorbell_pages: Table<()>,
    pub(crate) event_queues: Table<EventQueue>,
    /// Capabilities of the port that agents of the driver have added.
    pub(crate) port_capabilities: u32,
    inputs: [Table<Vec<u8>>; KINDS],
}

impl Objects {
    fn new() -> Self {
        Self {
            phase: Phase::default(),
            capabilities: Capabilities::new(),
            pages: Vec::new(),
            doorbell_pages: Table::new(bar::FIRST_UAR, bar::PAGES),
            event_queues: Table::new(0, 1 << capabilities::LOG_MAX_EVENT_QUEUES),
            port_capabilities: 0,
            inputs: std::array::from_fn(|kind| {
                let counters = kind == Kind::CounterSet as usize;
                // The lowest numbers of queue pairs have a meaning of their own.
                if counters {
                    Table::new(1, 1 << 8)
                } else {
                    Table::new(1 << 6, 1 << 18)
                }
            }),
        }
    }

    /// Returns the objects of a kind: the inputs of the commands that created them.
    pub(crate) fn inputs(&mut self, kind: Kind) -> &mut Table<Vec<u8>> {
        &mut self.inputs[kind as usize]
    }

    /// Returns the number of objects that the driver has to destroy before it stops the adapter.
    pub(crate) fn count(&self) -> usize {
        let inputs: usize = self.inputs.iter().map(Table::len).sum();
        inputs + self.doorbell_pages.len() + self.event_queues.len()
    }
}

/// The adapter behind a PCI function.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) memory: GuestMemory,
    pub(crate) interrupts: Interrupts,
    pub(crate) objects: Objects,
}

impl Adapter {
    pub(crate) fn new() -> Self {
        Self {
            memory: GuestMemory::default(),
            interrupts: Interrupts::new(bar::VECTORS),
            objects: Objects::new(),
        }
    }

    /// Resets the adapter. Memory and interrupts belong to the client and stay.
    pub(crate) fn reset(&mut self) {
        self.objects = Objects::new();
    }

    /// Returns `true` if an event queue reports a type of event.
    pub(crate) fn reports(&mut self, event: u8) -> bool {
        self.objects
            .event_queues
            .iter_mut()
            .any(|queue| queue.reports(event))
    }

    /// Adds an event to the queue that reports its type, if there is one.
    pub(crate) fn report(&mut self, event: u8, data: &[u8; 28]) -> io::Result<()> {
        if let Some(queue) = self
            .objects
            .event_queues
            .iter_mut()
            .find(|queue| queue.reports(event))
            && queue.push(&self.memory, event, data)?
            && !self.interrupts.raise(queue.vector())
        {
            eprintln!("the guest does not use the vector {}", queue.vector());
        }
        Ok(())
    }
}
