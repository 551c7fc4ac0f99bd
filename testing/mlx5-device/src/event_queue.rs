//! Event queues: rings of events in the guest's memory, each with an interrupt.

use std::io;

use crate::guest_memory::GuestMemory;
use crate::layout::structures;

/// Bytes of an event.
const EVENT: usize = 64;
const LOG_EVENT: u64 = 6;
/// Pages of the adapter are at least as large.
pub(crate) const LOG_ADAPTER_PAGE: u64 = 12;

/// Type of the event that reports executed commands.
pub(crate) const COMMAND_EVENT: u8 = 0x0a;

structures! {
    /// The context of an event queue.
    eqc {
        PAGE_OFFSET = 0x54, 6;
        LOG_EQ_SIZE = 0x63, 5;
        UAR_PAGE = 0x68, 24;
        INTR = 0xb4, 12;
        LOG_PAGE_SIZE = 0xc3, 5;
    }

    /// An event.
    eqe {
        EVENT_TYPE = 0x8, 8;
        EVENT_SUB_TYPE = 0x18, 8;
        OWNER = 0x1ff, 1;
    }
}

/// Byte offset of the data in an event.
const EVENT_DATA: usize = 32;

/// An event queue.
#[derive(Debug)]
pub(crate) struct EventQueue {
    pages: Vec<u64>,
    log_page: u64,
    log_size: u64,
    uar: u32,
    vector: u32,
    events: [u64; 4],
    producer: u32,
    consumer: u32,
    armed: bool,
}

impl EventQueue {
    /// Makes a queue from the driver's context, its mask of events and its pages. Returns `None` if
    /// the pages are too few.
    pub(crate) fn new(context: &[u8], events: [u64; 4], pages: Vec<u64>) -> Option<Self> {
        let log_page = eqc::LOG_PAGE_SIZE.get(context) + LOG_ADAPTER_PAGE;
        let log_size = eqc::LOG_EQ_SIZE.get(context);
        let bytes = 1_u64.checked_shl(u32::try_from(log_size + LOG_EVENT).ok()?)?;
        let holds = bytes <= (pages.len() as u64) << log_page;
        if !holds || eqc::PAGE_OFFSET.get(context) != 0 {
            return None;
        }
        Some(Self {
            pages,
            log_page,
            log_size,
            uar: eqc::UAR_PAGE.get32(context),
            vector: eqc::INTR.get32(context),
            events,
            producer: 0,
            consumer: 0,
            armed: false,
        })
    }

    /// Returns the index of the page with the queue's doorbell.
    pub(crate) fn uar(&self) -> u32 {
        self.uar
    }

    /// Returns the vector of the interrupt.
    pub(crate) fn vector(&self) -> u32 {
        self.vector
    }

    /// Returns `true` if the driver wants a type of event in this queue.
    pub(crate) fn reports(&self, event: u8) -> bool {
        self.events[usize::from(event / 64)] >> (event % 64) & 1 == 1
    }

    /// Adds an event with its type, its subtype and 28 bytes of data. Returns `true` if it raises
    /// the interrupt.
    pub(crate) fn push(
        &mut self,
        memory: &GuestMemory,
        (kind, subtype): (u8, u8),
        data: &[u8; 28],
    ) -> io::Result<bool> {
        let size = 1_u64 << self.log_size;
        if u64::from(self.producer.wrapping_sub(self.consumer) & 0xff_ffff) >= size {
            return Err(io::Error::other("the event queue is full"));
        }
        let mut event = [0; EVENT];
        eqe::EVENT_TYPE.set(&mut event, u64::from(kind));
        eqe::EVENT_SUB_TYPE.set(&mut event, u64::from(subtype));
        event[EVENT_DATA..EVENT_DATA + 28].copy_from_slice(data);
        eqe::OWNER.set(&mut event, u64::from(self.producer) >> self.log_size & 1);
        let at = (u64::from(self.producer) & (size - 1)) << LOG_EVENT;
        let page = usize::try_from(at >> self.log_page).expect("the index of a page in a list");
        let page = self.pages[page];
        // An address that overflows is not in the guest's memory.
        let address = page.saturating_add(at & ((1 << self.log_page) - 1));
        // The last byte has the ownership.
        memory.write(address, &event[..EVENT - 1])?;
        memory.write(
            address.saturating_add(EVENT as u64 - 1),
            &event[EVENT - 1..],
        )?;
        self.producer = (self.producer + 1) & 0xff_ffff;
        Ok(self.fires())
    }

    /// Takes the driver's counter of consumed events, and arms the queue on request. Returns `true`
    /// if that raises the interrupt, because there are further events.
    pub(crate) fn consume(&mut self, consumer: u32, arm: bool) -> bool {
        self.consumer = consumer;
        self.armed |= arm;
        self.fires()
    }

    fn fires(&mut self) -> bool {
        self.producer != self.consumer && std::mem::take(&mut self.armed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of two events, and its memory.
    fn queue() -> (EventQueue, GuestMemory) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(0x1000).unwrap();
        let mut memory = GuestMemory::default();
        memory.map(0x7000, 0x1000, Some(file), 0);
        let mut context = [0; 64];
        eqc::LOG_EQ_SIZE.set(&mut context, 1);
        eqc::INTR.set(&mut context, 5);
        let events = [1 << COMMAND_EVENT, 0, 0, 0];
        (
            EventQueue::new(&context, events, vec![0x7000]).unwrap(),
            memory,
        )
    }

    fn owner_at(memory: &GuestMemory, index: u64) -> (u8, u8) {
        let mut event = [0; EVENT];
        memory.read(0x7000 + index * 64, &mut event).unwrap();
        (event[1], event[63])
    }

    #[test]
    fn the_owner_changes_with_each_round_of_the_ring() {
        let (mut queue, memory) = queue();
        for index in 0..2 {
            queue.push(&memory, (COMMAND_EVENT, 0), &[0; 28]).unwrap();
            assert_eq!(owner_at(&memory, index), (COMMAND_EVENT, 0));
        }
        assert!(queue.push(&memory, (COMMAND_EVENT, 0), &[0; 28]).is_err());
        queue.consume(2, false);
        queue.push(&memory, (COMMAND_EVENT, 0), &[0; 28]).unwrap();
        assert_eq!(owner_at(&memory, 0), (COMMAND_EVENT, 1));
    }

    #[test]
    fn an_armed_queue_raises_one_interrupt() {
        let (mut queue, memory) = queue();
        assert!(!queue.push(&memory, (COMMAND_EVENT, 0), &[0; 28]).unwrap());
        assert!(queue.consume(0, true));
        assert!(!queue.consume(1, true));
        assert!(queue.push(&memory, (COMMAND_EVENT, 0), &[0; 28]).unwrap());
        assert!(!queue.consume(2, false));
        assert_eq!(
            (
                queue.vector(),
                queue.reports(COMMAND_EVENT),
                queue.reports(9)
            ),
            (5, true, false)
        );
    }

    #[test]
    fn a_queue_needs_pages_for_its_events() {
        let mut context = [0; 64];
        eqc::LOG_EQ_SIZE.set(&mut context, 7);
        assert!(EventQueue::new(&context, [0; 4], vec![0x1000]).is_none());
        assert!(EventQueue::new(&context, [0; 4], vec![0x1000, 0x5000]).is_some());
    }
}
