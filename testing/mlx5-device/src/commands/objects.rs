//! Objects that the driver creates and destroys by their number. The adapter keeps their contexts;
//! it moves no data.

use crate::adapter::{Adapter, Kind};
use crate::layout::{Field, structures};
use crate::status::{Failure, Status};

structures! {
    /// The number of an object of most kinds, at the same offset in inputs and outputs.
    object {
        NUMBER = 0x48, 24;
    }

    /// The number of a set of counters.
    counters {
        COUNTER_SET_ID = 0x58, 8;
    }

    query_q_counter_in {
        COUNTER_SET_ID = 0xf8, 8;
    }

    /// Commands that change a queue pair, and the answer of its query.
    qp {
        STATE = 0xc0, 4;
    }
}

/// States of a queue pair.
pub(super) const RESET: u64 = 0;
pub(super) const INIT: u64 = 1;
pub(super) const READY_TO_RECEIVE: u64 = 2;
pub(super) const READY_TO_SEND: u64 = 3;
pub(super) const ERROR: u64 = 6;

/// Byte range of the context of a queue pair in inputs and outputs.
const QPC: std::ops::Range<usize> = 0x18..0x100;
const NONE: Failure = Failure::new(Status::BadResource, "no such object");

/// Returns the field with the number of an object.
fn number(kind: Kind) -> Field {
    match kind {
        Kind::CounterSet => counters::COUNTER_SET_ID,
        _ => object::NUMBER,
    }
}

/// Creates an object.
pub(super) fn create(
    kind: Kind,
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let object = adapter.objects.inputs(kind).insert(input.to_vec());
    let object = object.ok_or(Failure::new(Status::NoResource, "all numbers are in use"))?;
    number(kind).set(output, u64::from(object));
    Ok(())
}

/// Destroys an object.
pub(super) fn destroy(kind: Kind, adapter: &mut Adapter, input: &[u8]) -> Result<(), Failure> {
    let object = number(kind).get32(input);
    adapter
        .objects
        .inputs(kind)
        .remove(object)
        .map(drop)
        .ok_or(NONE)
}

/// Takes the new context of a queue pair and sets its state.
pub(super) fn modify_qp(state: u64, adapter: &mut Adapter, input: &[u8]) -> Result<(), Failure> {
    let number = object::NUMBER.get32(input);
    let context = adapter
        .objects
        .inputs(Kind::QueuePair)
        .get_mut(number)
        .ok_or(NONE)?;
    if let Some(new) = input.get(QPC) {
        context[QPC].copy_from_slice(new);
    }
    qp::STATE.set(context, state);
    Ok(())
}

pub(super) fn query_qp(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let number = object::NUMBER.get32(input);
    let context = adapter
        .objects
        .inputs(Kind::QueuePair)
        .get(number)
        .ok_or(NONE)?;
    output[QPC].copy_from_slice(&context[QPC]);
    Ok(())
}

/// Returns the counters of a set, which are zero.
pub(super) fn query_counters(
    adapter: &mut Adapter,
    input: &[u8],
    _: &mut [u8],
) -> Result<(), Failure> {
    let set = query_q_counter_in::COUNTER_SET_ID.get32(input);
    adapter
        .objects
        .inputs(Kind::CounterSet)
        .get(set)
        .map(drop)
        .ok_or(NONE)
}
