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
#[cfg(test)]
mod table_tests;

pub(crate) use self::loan::Loans;
pub(crate) use self::request::{InFlight, Owned, Request};
pub use self::retired::{ForeignCompletion, Reclaimed, Retired};
pub(crate) use self::ring::{CompletionOrder, Ring};
pub(crate) use self::slab::RecvSlab;
pub(crate) use self::slot::{RequestTable, Vacant};
