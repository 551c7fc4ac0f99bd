//! The adapter: its memory region, its command queue and its objects.

use std::io;

use crate::bar;
use crate::capabilities::Capabilities;
use crate::command_queue::{self, Command};
use crate::commands;
use crate::event_queue::{COMMAND_EVENT, EventQueue};
use crate::guest_memory::GuestMemory;
use crate::initialization_segment::{self, InitializationSegment, Written};
use crate::interrupts::Interrupts;
use crate::table::Table;

/// Offsets of the doorbells of event queues in a page of doorbells: with and without arming.
const DOORBELL_ARM: u64 = 0x40;
const DOORBELL_CONSUME: u64 = 0x48;

/// How far the driver has started the adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Disabled,
    Enabled,
    Initialized,
}

/// Objects and state that end with a reset.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) phase: Phase,
    pub(crate) capabilities: Capabilities,
    /// Pages of the guest that the driver has given to the adapter.
    pub(crate) pages: Vec<u64>,
    pub(crate) doorbell_pages: Table<()>,
    pub(crate) event_queues: Table<EventQueue>,
}

impl Objects {
    fn new() -> Self {
        Self {
            phase: Phase::default(),
            capabilities: Capabilities::new(),
            pages: Vec::new(),
            doorbell_pages: Table::new(bar::FIRST_UAR, bar::PAGES),
            event_queues: Table::new(0, 1 << crate::capabilities::LOG_MAX_EVENT_QUEUES),
        }
    }
}

/// The adapter behind a PCI function.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) memory: GuestMemory,
    pub(crate) interrupts: Interrupts,
    pub(crate) objects: Objects,
    segment: InitializationSegment,
}

impl Adapter {
    pub(crate) fn new() -> Self {
        Self {
            memory: GuestMemory::default(),
            interrupts: Interrupts::new(bar::VECTORS),
            objects: Objects::new(),
            segment: InitializationSegment::new(),
        }
    }

    /// Resets the function. Memory and interrupts belong to the client and stay.
    pub(crate) fn reset(&mut self) {
        self.objects = Objects::new();
        self.segment = InitializationSegment::new();
    }

    /// Reads from the memory region. Pages of doorbells read as zero.
    pub(crate) fn read(&mut self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let end = offset.saturating_add(data.len() as u64);
        if end <= initialization_segment::SIZE as u64 {
            self.segment
                .read(usize::try_from(offset).expect("inside the segment"), data);
        }
    }

    /// Writes to the memory region.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let Ok(value) = <[u8; 4]>::try_from(data).map(u32::from_be_bytes) else {
            eprintln!(
                "a write of {} bytes to {offset:#x} has no effect",
                data.len()
            );
            return;
        };
        if offset >= u64::from(bar::FIRST_UAR) * bar::PAGE {
            self.ring(offset, value);
            return;
        }
        match self
            .segment
            .write(usize::try_from(offset).expect("inside BAR 0"), value)
        {
            Written::Doorbell(entries) => self.execute(entries),
            Written::Register => {}
            Written::ReadOnly => eprintln!("{offset:#x} is read-only: {value:#x} has no effect"),
        }
    }

    /// Takes a write to a page of doorbells.
    fn ring(&mut self, offset: u64, value: u32) {
        let (page, register) = (offset / bar::PAGE, offset % bar::PAGE);
        if !matches!(register, DOORBELL_ARM | DOORBELL_CONSUME) {
            eprintln!("the doorbell {register:#x} of page {page} has no effect: {value:#x}");
            return;
        }
        match self.objects.event_queues.get_mut(value >> 24) {
            Some(queue) if u64::from(queue.uar()) == page => {
                if queue.consume(value & 0xff_ffff, register == DOORBELL_ARM) {
                    self.interrupts.raise(queue.vector());
                }
            }
            _ => eprintln!("page {page} has no event queue {:#x}", value >> 24),
        }
    }

    /// Executes entries of the command queue, one for each bit.
    fn execute(&mut self, entries: u32) {
        let queue = self.segment.command_queue();
        for index in (0..command_queue::ENTRIES).filter(|index| entries >> index & 1 == 1) {
            if let Err(error) = self.execute_entry(queue, index) {
                eprintln!("entry {index} of the command queue at {queue:#x}: {error}");
            }
        }
    }

    fn execute_entry(&mut self, queue: u64, index: u32) -> io::Result<()> {
        match command_queue::read(&self.memory, queue, index)? {
            None => return Err(io::Error::other("the driver owns it")),
            Some(Ok(command)) => self.execute_command(&command)?,
            Some(Err((address, delivery))) => {
                eprintln!("entry {index} of the command queue is malformed: {delivery:?}");
                command_queue::reject(&self.memory, address, delivery)?;
            }
        }
        let mut data = [0; 28];
        data[..4].copy_from_slice(&(1_u32 << index).to_be_bytes());
        self.report(COMMAND_EVENT, &data)
    }

    fn execute_command(&mut self, command: &Command) -> io::Result<()> {
        let output = commands::execute(self, &command.input, command.output_length);
        command.complete(&self.memory, &output)
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
