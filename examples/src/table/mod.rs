//! The table of `kv`: a server writes it, clients read it by RDMA, and neither waits for the other.
//!
//! A client reads a whole entry at once, while the server may be writing it. A device is free to
//! fetch the bytes of a read in any order, so a version at the front, or at both ends, would not
//! show that the middle is from two times. Therefore an entry begins with a checksum of all its
//! other bytes, the version among them: an entry of which the checksum is right is whole, but for a
//! chance of about one in 2^64. Any other is torn, and read again.

mod entry;
mod reader;

pub use self::entry::{ENTRY, Entry, put};
pub use self::reader::Reader;
