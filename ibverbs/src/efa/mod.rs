//! The transport, the completion field and the queries that only EFA has, the adapter of Amazon.
//!
//! This module needs the feature `efa`, which loads libefa. [`Srd`] sends reliable datagrams,
//! [`SourceGid`] adds the GID of the sender to completions, and [`Context::query_efa`] returns the
//! limits and capabilities of a device.
//!
//! [`Context::query_efa`]: crate::Context::query_efa

mod query;
mod source_gid;
mod srd;

pub use self::query::{EfaAttr, EfaCaps};
pub use self::source_gid::SourceGid;
pub use self::srd::Srd;
