//! GIDs: the table of a port, choosing an entry, and the network interfaces behind it.
//!
//! Paths of queue pairs and address handles refer to entries of this table.

mod interface;
mod netdev;
mod query;
mod roce;
mod select;
mod table;

pub use self::query::GidQuery;
pub use self::query::IpFamily;
pub use self::roce::RoceConfig;
pub use self::select::GidChoice;
pub use self::table::GidEntry;
pub use self::table::GidIndex;
pub use self::table::GidType;
#[doc(inline)]
pub use rdma_types::Gid;

use rdma_sys::ibv_gid;

/// Converts a GID to the C union.
pub(crate) fn to_raw(gid: Gid) -> ibv_gid {
    ibv_gid { raw: gid.0 }
}

/// Converts the C union to a GID.
#[allow(unsafe_code)]
pub(crate) fn from_raw(raw: &ibv_gid) -> Gid {
    // SAFETY: every field of the union covers the same 16 bytes, and any bytes are a valid GID.
    Gid(unsafe { raw.raw })
}
