//! Send queues of Ethernet. The driver creates one to test write combining (`wc.c`): it writes
//! requests to a page of doorbells, and the adapter must execute what arrived there. It executes
//! only requests without an operation, because it has no Ethernet.

use super::objects;
use crate::adapter::{Adapter, Kind};
use crate::layout::structures;
use crate::status::Failure;

structures! {
    sqc {
        USER_INDEX = 0x28, 24;
        CQN = 0x48, 24;
    }

    /// The control segment of a request.
    request {
        COUNTER = 0x8, 16;
        OPCODE = 0x18, 8;
        SQN = 0x20, 24;
        COMPLETES = 0x5c, 1;
    }
}

/// Byte offset of the context.
const CONTEXT: usize = 0x20;
/// Bytes of a request in a page of doorbells.
pub(crate) const REQUEST: usize = 64;

/// Changes the state of a queue, which has no effect.
pub(super) fn modify(adapter: &mut Adapter, input: &[u8], _: &mut [u8]) -> Result<(), Failure> {
    objects::get(Kind::SendQueue, adapter, input).map(drop)
}

/// Executes a request of a page of doorbells. The engine reads those of queue pairs from memory.
pub(crate) fn execute(adapter: &mut Adapter, bytes: &[u8; REQUEST]) {
    const NOTHING: u64 = 0;
    let number = request::SQN.get32(bytes);
    let Some(input) = adapter.objects.inputs(Kind::SendQueue).get(number) else {
        return;
    };
    let context = &input[CONTEXT..];
    let (cq, user_index) = (sqc::CQN.get32(context), sqc::USER_INDEX.get32(context));
    if request::OPCODE.get(bytes) == NOTHING && request::COMPLETES.get(bytes) == 1 {
        let counter = u16::try_from(request::COUNTER.get(bytes)).expect("the field has 16 bits");
        adapter
            .engine
            .complete_empty_request(cq, number, user_index, counter);
    }
}
