//! Tables of the requests in flight, which own the buffers that the device may access.
//!
//! Each queue has one table. A queue pair or a shared receive queue matches a completion with its
//! request here, by `wr_id`.

mod loan;
mod request;
mod retired;
mod ring;
mod slab;
mod slot;
mod table;
#[cfg(test)]
mod table_tests;

pub(crate) use self::loan::{LoanCounter, Loans};
pub(crate) use self::request::{InFlight, Owned, Request};
pub use self::retired::{ForeignCompletion, Reclaimed, Retired};
pub(crate) use self::ring::{CompletionOrder, Ring};
pub(crate) use self::slab::RecvSlab;
pub(crate) use self::slot::Vacant;
pub(crate) use self::table::{AnyTable, RequestTable};

use self::slot::Slot;
use crate::error::{Error, ErrorKind, Result};

/// Bytes of one entry in the lists that requests are posted with, rounded up.
const LIST_ENTRY: usize = 256;

/// Checks that there is memory for the tables and lists of a queue with `requests` requests and
/// `inline` bytes of inline data. The sizes are only known after the device has created the queue,
/// and an allocation that fails then ends the process.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if there is not enough memory.
pub(crate) fn check_memory(verb: &'static str, requests: u32, inline: u64) -> Result<()> {
    // Devices round sizes up to a power of two.
    let bytes = u64::from(requests)
        .next_power_of_two()
        .saturating_mul((size_of::<Slot>() + LIST_ENTRY) as u64)
        .saturating_add(inline);
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| {
        let what = format!("not enough memory for a queue with {requests} requests");
        Error::new(ErrorKind::InvalidInput, verb, what).with_help("use a smaller queue")
    })
}
