//! Objects that the driver creates and destroys by their number. The adapter keeps their contexts.

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
}

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
    let object = adapter.objects.inputs(kind).insert(input.to_vec()).ok();
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

/// Returns the input that created the object with the number in an input.
pub(super) fn get<'a>(
    kind: Kind,
    adapter: &'a mut Adapter,
    input: &[u8],
) -> Result<&'a [u8], Failure> {
    let object = adapter.objects.inputs(kind).get(number(kind).get32(input));
    object.map(Vec::as_slice).ok_or(NONE)
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
