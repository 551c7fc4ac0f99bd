//! Tables of the requests in flight, which own the buffers that the device may access.
//!
//! Every queue has one; a completion is matched with its request here.

mod batched;
mod kept;
mod likely;
mod loan;
mod retired;
mod ring;
mod slab;
mod slot;
#[cfg(test)]
mod slot_tests;

pub(crate) use self::batched::Batched;
pub(crate) use self::kept::InFlight;
pub(crate) use self::likely::less_likely;
pub(crate) use self::loan::Loans;
pub use self::retired::{ForeignCompletion, Reclaimed, Retired};
pub(crate) use self::ring::Ring;
pub(crate) use self::slab::RecvSlab;
pub(crate) use self::slot::{Entry, Next, Table};
