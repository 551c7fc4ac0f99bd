//! GIDs: the table of a port, choosing an entry, and the network interfaces behind it.
//!
//! Paths of queue pairs and address handles refer to entries of this table.

mod address;
mod interface;
mod netdev;
mod query;
mod roce;
mod select;
#[cfg(feature = "serde")]
mod serde;
mod table;

pub use self::address::Gid;
pub use self::query::GidQuery;
pub use self::query::IpFamily;
pub use self::roce::RoceConfig;
pub use self::select::GidChoice;
pub use self::table::GidEntry;
pub use self::table::GidIndex;
pub use self::table::GidType;
