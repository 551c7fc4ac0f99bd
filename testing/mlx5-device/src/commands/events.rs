//! Event queues.

use super::{PAGES, pages};
use crate::adapter::Adapter;
use crate::bar;
use crate::event_queue::EventQueue;
use crate::layout::structures;
use crate::status::{Failure, Status, ensure};

structures! {
    create_eq_in {
        EVENT_BITMASK_0 = 0x2c0, 64;
        EVENT_BITMASK_1 = 0x300, 64;
        EVENT_BITMASK_2 = 0x340, 64;
        EVENT_BITMASK_3 = 0x380, 64;
    }

    /// The number of the queue, at the same offset in all inputs and outputs.
    queue {
        EQ_NUMBER = 0x58, 8;
    }
}

/// Byte range of the context.
const CONTEXT: std::ops::Range<usize> = 0x10..0x50;

pub(super) fn create(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let events = [
        create_eq_in::EVENT_BITMASK_0,
        create_eq_in::EVENT_BITMASK_1,
        create_eq_in::EVENT_BITMASK_2,
        create_eq_in::EVENT_BITMASK_3,
    ]
    .map(|field| field.get(input));
    let queue = EventQueue::new(&input[CONTEXT], events, pages(&input[PAGES..]).collect()).ok_or(
        Failure::new(Status::BadParameter, "the pages do not hold the queue"),
    )?;
    let objects = &mut adapter.objects;
    let page = objects.doorbell_pages.get(queue.uar());
    ensure(
        page.is_some(),
        Status::BadResource,
        "the page of doorbells is not allocated",
    )?;
    ensure(
        queue.vector() < bar::VECTORS,
        Status::BadParameter,
        "no such interrupt",
    )?;
    let number = objects.event_queues.insert(queue).ok();
    let number = number.ok_or(Failure::new(
        Status::NoResource,
        "all event queues are in use",
    ))?;
    queue::EQ_NUMBER.set(output, u64::from(number));
    Ok(())
}

pub(super) fn destroy(adapter: &mut Adapter, input: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    let queue = adapter
        .objects
        .event_queues
        .remove(queue::EQ_NUMBER.get32(input));
    ensure(queue.is_some(), Status::BadResource, "no such event queue")
}
