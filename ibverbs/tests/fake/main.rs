//! Tests of the safe verbs on the fake provider, whose devices do what no real one does on request.
//!
//! They are one program, because linking each of them would take longer than running all of them.

use test_support as _;

/// No test leaves objects of its device.
const LEAKS: bool = false;

mod fixture;

mod batches;
mod channels;
mod completions;
mod datagrams;
#[cfg(feature = "mlx5")]
mod dc;
mod device_memory;
mod domains;
mod errors;
mod events;
mod faults;
mod fields;
mod forks;
mod invalidation;
mod lifetimes;
mod lists;
mod memory;
mod modify;
mod order;
mod owned;
mod panics;
mod payloads;
mod post_states;
mod providers;
mod raw;
mod reads;
mod release;
mod scope;
mod scope_ends;
mod srq;
mod stored_requests;
mod threads;
mod unset;
mod windows;
mod xrc;
