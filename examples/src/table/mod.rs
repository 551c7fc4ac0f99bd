//! The hash table of `kv`: the server writes it and clients read it by RDMA, without locks.
//!
//! A client reads an entry with a single RDMA read, possibly while the server is writing the entry.
//! A device may fetch the bytes of a read in any order. A version number at the start or at both
//! ends therefore cannot detect that the middle is a mixture of two versions. Instead, each entry
//! begins with a checksum of all its other bytes, including the version. If the checksum does not
//! match, the entry is torn and the client reads it again. A torn entry passes this test with a
//! probability of about 2^-64.

mod entry;
mod reader;

pub use self::entry::{ENTRY_LEN, Entry, put};
pub use self::reader::Reader;
