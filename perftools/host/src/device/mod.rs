//! RDMA devices and their ports, from `/sys/class/infiniband`.

mod read;
mod types;

pub use read::{all, all_without_tables, parse_guid};
pub use types::{Device, GidRow, NamedCode, Port, state};
