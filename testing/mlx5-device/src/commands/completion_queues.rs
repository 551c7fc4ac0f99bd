//! Completion queues.

use nic_model::engine::CompletionQueue;

use super::{buffer, doorbell};
use crate::adapter::Adapter;
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

/// Byte offsets of the context, and of the list of pages.
const CONTEXT: std::ops::Range<usize> = 0x10..0x50;
const PAGES: usize = 0x110;
/// Pages of the adapter are at least as large.
const LOG_ADAPTER_PAGE: u64 = 12;

pub(super) fn create(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let context = &input[CONTEXT];
    let entry_size = match cqc::CQE_SZ.get(context) {
        0 => 64,
        1 => 128,
        _ => {
            return Err(Failure::new(
                Status::BadParameter,
                "unknown size of entries",
            ));
        }
    };
    let events = cqc::C_EQN.get32(context);
    ensure(
        adapter.objects.event_queues.get(events).is_some(),
        Status::BadResource,
        "no such event queue",
    )?;
    let log_page_size = cqc::LOG_PAGE_SIZE.get(context) + LOG_ADAPTER_PAGE;
    let offset = cqc::PAGE_OFFSET.get(context) << (log_page_size - 6);
    let entries = 1_u32 << cqc::LOG_CQ_SIZE.get(context);
    let length = u64::from(entries) * u64::from(entry_size);
    let memory = &adapter.memory;
    let new = CompletionQueue {
        entries,
        entry_size,
        memory: buffer(memory, &input[PAGES..], log_page_size, offset, length)?,
        doorbell: doorbell(memory, cqc::DBR_ADDR.get(context))?,
    };
    let number = adapter.engine.create_cq(&new);
    let number =
        number.map_err(|_| Failure::new(Status::NoResource, "the queue cannot be created"))?;
    adapter.objects.completion_queues.insert(number, events);
    queue::CQN.set(output, u64::from(number));
    Ok(())
}

pub(super) fn destroy(adapter: &mut Adapter, input: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    let number = queue::CQN.get32(input);
    adapter.objects.completion_queues.remove(&number);
    let existed = adapter.engine.destroy_cq(number);
    ensure(existed, Status::BadResource, "no such completion queue")
}
