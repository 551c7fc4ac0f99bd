//! The device: what a write to its memory region does to the adapter.

use std::collections::BTreeMap;
use std::io;

use crate::adapter::Adapter;
use crate::bar;
use crate::command_queue::{self, Command};
use crate::commands::{self, send_queues};
use crate::event_queue::COMMAND_EVENT;
use crate::initialization_segment::{self, InitializationSegment, Written};

/// Offsets of the doorbells of event queues in a page of doorbells: with and without arming.
const DOORBELL_ARM: u64 = 0x40;
const DOORBELL_CONSUME: u64 = 0x48;
/// Offset of the doorbell of completion queues.
const DOORBELL_COMPLETIONS: u64 = 0x20;
/// Offset of the first doorbell of send queues (BlueFlame).
const DOORBELL_REQUESTS: u64 = 0x800;

/// Steps of the adapter after a write to a doorbell. The others are made later.
const STEPS: usize = 64;

/// The adapter behind its memory region.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) adapter: Adapter,
    segment: InitializationSegment,
    /// Requests that have been written to a page of doorbells in part, by their place.
    requests: BTreeMap<u64, [u8; send_queues::REQUEST]>,
}

impl Device {
    pub(crate) fn new(adapter: Adapter) -> Self {
        Self {
            adapter,
            segment: InitializationSegment::new(),
            requests: BTreeMap::new(),
        }
    }

    /// Resets the device.
    pub(crate) fn reset(&mut self) {
        self.adapter.reset();
        self.segment = InitializationSegment::new();
    }

    /// Reads from the memory region. Pages of doorbells read as zero.
    pub(crate) fn read(&mut self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if self.adapter.objects.has_failed {
            self.segment.fail();
        }
        let end = offset.saturating_add(data.len() as u64);
        if end <= initialization_segment::SIZE as u64 {
            self.segment
                .read(usize::try_from(offset).expect("inside the segment"), data);
        }
    }

    /// Writes to the memory region.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        if offset >= u64::from(bar::FIRST_UAR) * bar::PAGE {
            self.ring(offset, data);
            return;
        }
        let Ok(value) = <[u8; 4]>::try_from(data).map(u32::from_be_bytes) else {
            eprintln!(
                "a write of {} bytes to {offset:#x} has no effect",
                data.len()
            );
            return;
        };
        match self
            .segment
            .write(usize::try_from(offset).expect("inside BAR 0"), value)
        {
            Written::Doorbell(entries) => self.execute(entries),
            Written::Reset => {
                self.adapter.reset();
                self.segment = InitializationSegment::disabled();
            }
            Written::Register => {}
            Written::ReadOnly => eprintln!("{offset:#x} is read-only: {value:#x} has no effect"),
        }
    }

    /// Moves data until there is nothing to do now. Returns `true` if there was work.
    pub(crate) fn work(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..STEPS {
            if !self.adapter.step() {
                break;
            }
            worked = true;
        }
        worked
    }

    /// Takes a write to a page of doorbells.
    fn ring(&mut self, offset: u64, data: &[u8]) {
        let (page, register) = (offset / bar::PAGE, offset % bar::PAGE);
        let arm = match (register, data.len()) {
            (DOORBELL_ARM, 4) => true,
            (DOORBELL_CONSUME, 4) => false,
            // The adapter reads the doorbell records.
            (DOORBELL_COMPLETIONS | DOORBELL_REQUESTS.., _) => {
                self.combine(offset, data);
                self.work();
                return;
            }
            _ => {
                eprintln!("the doorbell {register:#x} of page {page} has no effect: {data:02x?}");
                return;
            }
        };
        let value = u32::from_be_bytes(data.try_into().expect("four bytes"));
        match self.adapter.objects.event_queues.get_mut(value >> 24) {
            Some(queue) if u64::from(queue.uar()) == page => {
                if queue.consume(value & 0xff_ffff, arm) {
                    self.adapter.interrupts.raise(queue.vector());
                }
            }
            _ => eprintln!("page {page} has no event queue {:#x}", value >> 24),
        }
    }

    /// Keeps a part of a request that the driver writes to a page of doorbells (BlueFlame), and
    /// executes the request when it has arrived. A doorbell is only the begin of one.
    fn combine(&mut self, offset: u64, data: &[u8]) {
        let length = send_queues::REQUEST as u64;
        let (block, at) = (offset / length, offset % length);
        let request = self.requests.entry(block).or_insert([0; _]);
        let at = usize::try_from(at).expect("less than a request");
        let Some(part) = request.get_mut(at..at + data.len()) else {
            return;
        };
        part.copy_from_slice(data);
        if at + data.len() == request.len() {
            send_queues::execute(&mut self.adapter, request);
            self.requests.remove(&block);
        }
    }

    /// Executes entries of the command queue, one for each bit.
    fn execute(&mut self, entries: u32) {
        if self.adapter.objects.has_failed {
            return;
        }
        let queue = self.segment.command_queue();
        for index in (0..command_queue::ENTRIES).filter(|index| entries >> index & 1 == 1) {
            if let Err(error) = self.execute_entry(queue, index) {
                eprintln!("entry {index} of the command queue at {queue:#x}: {error}");
            }
        }
    }

    fn execute_entry(&mut self, queue: u64, index: u32) -> io::Result<()> {
        // The driver polls until it has an event queue for completions. An event for the command
        // that creates it would complete that command twice.
        let polled = self.adapter.reporter(COMMAND_EVENT).is_none();
        match command_queue::read(&self.adapter.memory, queue, index)? {
            None => return Err(io::Error::other("the driver owns it")),
            Some(Ok(command)) => self.execute_command(&command)?,
            Some(Err((address, delivery))) => {
                eprintln!("entry {index} of the command queue is malformed: {delivery:?}");
                command_queue::reject(&self.adapter.memory, address, delivery)?;
            }
        }
        if polled {
            return Ok(());
        }
        let mut data = [0; 28];
        data[..4].copy_from_slice(&(1_u32 << index).to_be_bytes());
        self.adapter.report(COMMAND_EVENT, &data)
    }

    fn execute_command(&mut self, command: &Command) -> io::Result<()> {
        let output = commands::execute(&mut self.adapter, &command.input, command.output_length);
        command.complete(&self.adapter.memory, &output)
    }
}

#[cfg(test)]
mod tests {
    use super::Device;
    use crate::adapter::{Adapter, Phase};
    use crate::command_queue::write_entry;
    use crate::layout::Field;

    const QUEUE: u64 = 0x1000;
    const EVENTS: u64 = 0x8000;

    /// Executes a command of the driver, whose input is zero where it is not given.
    fn send(device: &mut Device, opcode: u64, mut input: Vec<u8>) {
        Field::new(0, 16).set(&mut input, opcode);
        write_entry(&device.adapter.memory, QUEUE, &input, 0x10);
        device.write(0x14, &u32::try_from(QUEUE).unwrap().to_be_bytes());
        device.write(0x18, &1_u32.to_be_bytes());
    }

    fn first_event(device: &Device) -> (u8, u8) {
        let mut event = [0; 64];
        device.adapter.memory.read(EVENTS, &mut event).unwrap();
        (event[1], event[63])
    }

    #[test]
    fn an_event_queue_does_not_report_its_own_creation() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(0x1_0000).unwrap();
        let mut device = Device::new(Adapter::alone());
        device.adapter.memory.map(0, 0x1_0000, Some(file), 0);
        device.adapter.memory.write(EVENTS, &[0xff; 64]).unwrap();
        device.adapter.objects.phase = Phase::Initialized;
        device.adapter.objects.doorbell_pages.insert(()).unwrap();

        let mut create = vec![0; 0x118];
        Field::new(0x68, 24).at(0x10).set(&mut create, 16);
        Field::new(0x2c0, 64).set(&mut create, 1 << 0xa);
        Field::new(0x880, 64).set(&mut create, EVENTS);
        send(&mut device, 0x301, create);
        assert_eq!(device.adapter.objects.event_queues.iter().count(), 1);
        assert_eq!(first_event(&device), (0xff, 0xff));

        send(&mut device, 0x802, vec![0; 0x10]);
        assert_eq!(first_event(&device), (0xa, 0));
    }
}
