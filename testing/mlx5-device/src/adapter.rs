//! The adapter: the guest's memory and interrupts, and its objects.

use std::collections::BTreeMap;
use std::io;

use nic_model::engine::Event;
use nic_model::{Engine, Table};

use crate::bar;
use crate::capabilities::{self, Capabilities};
use crate::event_queue::EventQueue;
use crate::guest_memory::GuestMemory;
use crate::interrupts::Interrupts;

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
    XrcDomain,
    TransportDomain,
    SendQueue,
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
    /// The event queue of each completion queue.
    pub(crate) completion_queues: BTreeMap<u32, u32>,
    /// The inputs of the commands that created and changed queue pairs.
    pub(crate) queue_pairs: BTreeMap<u32, Vec<u8>>,
    /// The adapter has reported a fatal error.
    pub(crate) has_failed: bool,
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
            doorbell_pages: Table::between(bar::FIRST_UAR, bar::PAGES - 1),
            event_queues: Table::between(0, (1 << capabilities::LOG_MAX_EVENT_QUEUES) - 1),
            completion_queues: BTreeMap::new(),
            queue_pairs: BTreeMap::new(),
            has_failed: false,
            port_capabilities: 0,
            inputs: std::array::from_fn(|kind| {
                let counters = kind == Kind::CounterSet as usize;
                Table::new(if counters { 0xff } else { (1 << 18) - 1 })
            }),
        }
    }

    /// Returns the objects of a kind: the inputs of the commands that created them.
    pub(crate) fn inputs(&mut self, kind: Kind) -> &mut Table<Vec<u8>> {
        &mut self.inputs[kind as usize]
    }

    /// Returns the number of objects that the driver has to destroy before it stops the adapter.
    pub(crate) fn count(&self) -> usize {
        let inputs: usize = self.inputs.iter().map(|inputs| inputs.iter().count()).sum();
        inputs + self.doorbell_pages.iter().count() + self.event_queues.iter().count()
    }
}

/// The adapter behind a PCI function.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) memory: GuestMemory,
    pub(crate) interrupts: Interrupts,
    pub(crate) objects: Objects,
    /// Queues, memory keys and the network.
    pub(crate) engine: Engine,
}

impl Adapter {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            memory: GuestMemory::default(),
            interrupts: Interrupts::new(bar::VECTORS),
            objects: Objects::new(),
            engine,
        }
    }

    /// Returns an adapter for tests, which reaches only itself.
    #[cfg(test)]
    pub(crate) fn alone() -> Self {
        Self::new(Engine::new().expect("an adapter needs two pipes"))
    }

    /// Resets the adapter. Memory and interrupts belong to the client and stay.
    pub(crate) fn reset(&mut self) {
        self.objects = Objects::new();
        self.engine.reset();
    }

    /// Returns the number of objects that the driver has to destroy before it stops the adapter.
    pub(crate) fn count(&self) -> usize {
        self.objects.count() + self.engine.count()
    }

    /// Moves data and reports events. Returns `true` if there was work.
    pub(crate) fn step(&mut self) -> bool {
        let worked = self.engine.step();
        for event in self.engine.events() {
            if let Err(error) = self.forward(event) {
                eprintln!("reporting {event:?}: {error}");
            }
        }
        worked
    }

    /// Adds an event of the engine to an event queue.
    fn forward(&mut self, event: Event) -> io::Result<()> {
        const COMPLETION: u8 = 0x00;
        const COMPLETION_QUEUE_ERROR: u8 = 0x04;
        const PORT_CHANGE: u8 = 0x09;
        const INVALID_REQUEST: u8 = 0x10;
        const ACCESS_ERROR: u8 = 0x11;
        const LAST_REQUEST: u8 = 0x13;
        const LIMIT_REACHED: u8 = 0x14;
        let mut data = [0; 28];
        match event {
            Event::Completion(number) => {
                data[24..].copy_from_slice(&number.to_be_bytes());
                match self.objects.completion_queues.get(&number) {
                    Some(queue) => self.push(*queue, (COMPLETION, 0), &data),
                    None => Ok(()),
                }
            }
            Event::CompletionQueueError(number) => {
                const OVERRUN: u8 = 1;
                data[..4].copy_from_slice(&number.to_be_bytes());
                data[11] = OVERRUN;
                self.report(COMPLETION_QUEUE_ERROR, &data)
            }
            Event::InvalidRequest(number) => self.report_queue(INVALID_REQUEST, number),
            Event::AccessError(number) => self.report_queue(ACCESS_ERROR, number),
            Event::LastRequest(number) => self.report_queue(LAST_REQUEST, number),
            Event::LimitReached(number) => self.report_queue(LIMIT_REACHED, number),
            Event::Link { up } => {
                const DOWN: u8 = 1;
                const ACTIVE: u8 = 4;
                // The number of the port is in the upper half.
                data[8] = 1 << 4;
                let state = if up { ACTIVE } else { DOWN };
                self.report_with(PORT_CHANGE, state, &data)
            }
            // The driver reads it from the registers of the health.
            Event::Fatal => {
                self.objects.has_failed = true;
                Ok(())
            }
        }
    }

    /// Reports an event of a queue pair or of a shared receive queue.
    fn report_queue(&mut self, event: u8, number: u32) -> io::Result<()> {
        let mut data = [0; 28];
        // The type of the resource before the number is 0.
        data[24..].copy_from_slice(&number.to_be_bytes());
        self.report(event, &data)
    }

    /// Returns the number of the event queue that reports a type of event.
    pub(crate) fn reporter(&self, event: u8) -> Option<u32> {
        let mut queues = self.objects.event_queues.iter();
        queues.find_map(|(number, queue)| queue.reports(event).then_some(number))
    }

    /// Adds an event to the queue that reports its type, if there is one.
    pub(crate) fn report(&mut self, event: u8, data: &[u8; 28]) -> io::Result<()> {
        self.report_with(event, 0, data)
    }

    /// Like [`Self::report`], with a subtype.
    fn report_with(&mut self, event: u8, subtype: u8, data: &[u8; 28]) -> io::Result<()> {
        match self.reporter(event) {
            Some(queue) => self.push(queue, (event, subtype), data),
            None => Ok(()),
        }
    }

    /// Adds an event with a type and a subtype to a queue.
    fn push(&mut self, queue: u32, event: (u8, u8), data: &[u8; 28]) -> io::Result<()> {
        if let Some(queue) = self.objects.event_queues.get_mut(queue)
            && queue.push(&self.memory, event, data)?
            && !self.interrupts.raise(queue.vector())
        {
            eprintln!("the guest does not use the vector {}", queue.vector());
        }
        Ok(())
    }
}
