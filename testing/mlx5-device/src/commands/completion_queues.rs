//! Completion queues.

use nic_model::engine::{Buffer, CompletionQueue};

use super::{doorbell, header_in, queue_memory};
use crate::adapter::Adapter;
use crate::guest_memory::GuestMemory;
use crate::layout::structures;
use crate::status::{Failure, Status, ensure};

structures! {
    cqc {
        CQE_SZ = 0x8, 3;
        PAGE_OFFSET = 0x54, 6;
        LOG_CQ_SIZE = 0x63, 5;
        C_EQN = 0xb8, 8;
        LOG_PAGE_SIZE = 0xc3, 5;
        DBR_ADDR = 0x1c0, 64;
    }

    /// The number of the queue, at the same offset in outputs and inputs.
    queue {
        CQN = 0x48, 24;
    }
}

/// Byte range of the context.
const CONTEXT: std::ops::Range<usize> = 0x10..0x50;

/// The entries of a queue: their number, their size in bytes, and their memory.
struct Entries<'a> {
    count: u32,
    size: u32,
    memory: Buffer<'a>,
}

/// Returns the entries that the context in an input describes.
fn entries<'a>(memory: &'a GuestMemory, input: &[u8]) -> Result<Entries<'a>, Failure> {
    let context = &input[CONTEXT];
    let size = match cqc::CQE_SZ.get(context) {
        0 => 64,
        1 => 128,
        _ => {
            return Err(Failure::new(
                Status::BadParameter,
                "unknown size of entries",
            ));
        }
    };
    let (log_pages, offset) = (
        cqc::LOG_PAGE_SIZE.get(context),
        cqc::PAGE_OFFSET.get(context),
    );
    let count = 1_u32 << cqc::LOG_CQ_SIZE.get(context);
    let length = u64::from(count) * u64::from(size);
    Ok(Entries {
        count,
        size,
        memory: queue_memory(memory, input, log_pages, offset, length)?,
    })
}

pub(super) fn create(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let context = &input[CONTEXT];
    let events = cqc::C_EQN.get32(context);
    ensure(
        adapter.objects.event_queues.get(events).is_some(),
        Status::BadResource,
        "no such event queue",
    )?;
    let entries = entries(&adapter.memory, input)?;
    let new = CompletionQueue {
        entries: entries.count,
        entry_size: entries.size,
        memory: entries.memory,
        doorbell: doorbell(&adapter.memory, cqc::DBR_ADDR.get(context))?,
    };
    let number = adapter.engine.create_cq(&new);
    let number =
        number.map_err(|_| Failure::new(Status::NoResource, "the queue cannot be created"))?;
    adapter.objects.completion_queues.insert(number, events);
    queue::CQN.set(output, u64::from(number));
    Ok(())
}

/// Changes the size of a queue. Its events are never delayed, so moderation has no effect.
pub(super) fn modify(adapter: &mut Adapter, input: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    const MODERATE: u64 = 0;
    const RESIZE: u64 = 1;
    match header_in::OP_MOD.get(input) {
        MODERATE => return Ok(()),
        RESIZE => {}
        _ => return Err(Failure::new(Status::BadParameter, "unknown change")),
    }
    let Entries {
        count,
        size,
        memory,
    } = entries(&adapter.memory, input)?;
    let number = queue::CQN.get32(input);
    let resized = adapter.engine.resize_cq(number, count, size, &memory);
    let reason = "no such queue, or it has more entries";
    ensure(resized.is_ok(), Status::BadResource, reason)
}

pub(super) fn destroy(adapter: &mut Adapter, input: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    let number = queue::CQN.get32(input);
    adapter.objects.completion_queues.remove(&number);
    let existed = adapter.engine.destroy_cq(number);
    ensure(existed, Status::BadResource, "no such completion queue")
}
