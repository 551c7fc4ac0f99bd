//! Shared receive queues: "receive memory pools" (RMP), and those of extended reliable connections.

use nic_model::engine::SharedReceiveQueue;

use super::{doorbell, queue_memory};
use crate::adapter::Adapter;
use crate::layout::structures;
use crate::status::{Failure, Status, ensure};

structures! {
    /// The work queue in the context of a pool.
    wq {
        PAGE_OFFSET = 0x2b, 5;
        LWM = 0x30, 16;
        PD = 0x48, 24;
        DBR_ADDR = 0x80, 64;
        LOG_WQ_STRIDE = 0x10c, 4;
        LOG_WQ_PG_SZ = 0x113, 5;
        LOG_WQ_SZ = 0x11b, 5;
    }

    rmpc {
        STATE = 0x8, 4;
    }

    xrc_srqc {
        LOG_XRC_SRQ_SIZE = 0x4, 4;
        LOG_RQ_STRIDE = 0x25, 3;
        XRCD = 0x28, 24;
        PAGE_OFFSET = 0x40, 6;
        CQN = 0x48, 24;
        LOG_PAGE_SIZE = 0x82, 6;
        USER_INDEX = 0x88, 24;
        PD = 0xc8, 24;
        LWM = 0xe0, 16;
        DB_RECORD_ADDR = 0x140, 64;
    }

    /// The number of the queue, at the same offset in outputs and inputs.
    queue {
        NUMBER = 0x48, 24;
    }

    arm_xrc_srq_in {
        LWM = 0x70, 16;
    }

    modify_rmp_in {
        BITMASK_LWM = 0xbf, 1;
    }
}

/// Byte offsets of the context of an XRC queue, of the context of a pool, and of the work queue in
/// the input.
const XRC_CONTEXT: std::ops::Range<usize> = 0x10..0x50;
const POOL_CONTEXT: usize = 0x20;
const WORK_QUEUE: std::ops::Range<usize> = 0x50..0x110;

const NONE: Failure = Failure::new(Status::BadResource, "no such queue");

pub(super) fn create(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let context = &input[WORK_QUEUE];
    let (size, stride) = (wq::LOG_WQ_SZ.get(context), wq::LOG_WQ_STRIDE.get(context));
    let (log_pages, offset) = (wq::LOG_WQ_PG_SZ.get(context), wq::PAGE_OFFSET.get(context));
    let length = 1 << (size + stride);
    let memory = &adapter.memory;
    let new = SharedReceiveQueue {
        pd: wq::PD.get32(context),
        user_index: 0,
        xrc: None,
        requests: 1 << size,
        log_request_size: wq::LOG_WQ_STRIDE.get32(context),
        memory: queue_memory(memory, input, log_pages, offset, length)?,
        doorbell: doorbell(memory, wq::DBR_ADDR.get(context))?,
    };
    let number = adapter.engine.create_srq(&new);
    number_of(number, output)
}

pub(super) fn create_xrc(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let context = &input[XRC_CONTEXT];
    let size = xrc_srqc::LOG_XRC_SRQ_SIZE.get(context);
    let stride = xrc_srqc::LOG_RQ_STRIDE.get32(context) + 4;
    let (log_pages, offset) = (
        xrc_srqc::LOG_PAGE_SIZE.get(context),
        xrc_srqc::PAGE_OFFSET.get(context),
    );
    let length = 1 << (size + u64::from(stride));
    let memory = &adapter.memory;
    let new = SharedReceiveQueue {
        pd: xrc_srqc::PD.get32(context),
        user_index: xrc_srqc::USER_INDEX.get32(context),
        xrc: Some((xrc_srqc::XRCD.get32(context), xrc_srqc::CQN.get32(context))),
        requests: 1 << size,
        log_request_size: stride,
        memory: queue_memory(memory, input, log_pages, offset, length)?,
        doorbell: doorbell(memory, xrc_srqc::DB_RECORD_ADDR.get(context))?,
    };
    let number = adapter.engine.create_srq(&new);
    number_of(number, output)
}

/// Sets the number of a new queue in the output.
fn number_of(number: std::io::Result<u32>, output: &mut [u8]) -> Result<(), Failure> {
    let number =
        number.map_err(|_| Failure::new(Status::NoResource, "the queue cannot be created"))?;
    queue::NUMBER.set(output, u64::from(number));
    Ok(())
}

pub(super) fn destroy(adapter: &mut Adapter, input: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    let existed = adapter.engine.destroy_srq(queue::NUMBER.get32(input));
    ensure(existed, Status::BadResource, "no such queue")
}

/// Sets the limit of a queue ("low water mark").
fn limit(adapter: &mut Adapter, input: &[u8], limit: u32) -> Result<(), Failure> {
    let set = adapter.engine.limit_srq(queue::NUMBER.get32(input), limit);
    let reason = "no such queue, or the limit is above its size";
    ensure(set.is_ok(), Status::BadResource, reason)
}

pub(super) fn modify(adapter: &mut Adapter, input: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    if modify_rmp_in::BITMASK_LWM.get(input) == 0 {
        return Ok(());
    }
    limit(adapter, input, wq::LWM.get32(&input[WORK_QUEUE]))
}

pub(super) fn arm_xrc(adapter: &mut Adapter, input: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    limit(adapter, input, arm_xrc_srq_in::LWM.get32(input))
}

/// Returns the limit of a queue, which is all that the driver takes from the answer.
fn query_limit(adapter: &Adapter, input: &[u8]) -> Result<u64, Failure> {
    let limit = adapter.engine.srq_limit(queue::NUMBER.get32(input));
    limit.map(u64::from).ok_or(NONE)
}

pub(super) fn query(adapter: &mut Adapter, input: &[u8], output: &mut [u8]) -> Result<(), Failure> {
    const READY: u64 = 1;
    let limit = query_limit(adapter, input)?;
    rmpc::STATE.at(POOL_CONTEXT).set(output, READY);
    wq::LWM.set(&mut output[WORK_QUEUE], limit);
    Ok(())
}

pub(super) fn query_xrc(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let limit = query_limit(adapter, input)?;
    xrc_srqc::LWM.set(&mut output[XRC_CONTEXT], limit);
    Ok(())
}
