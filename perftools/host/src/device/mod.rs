//! RDMA devices and their ports, from `/sys/class/infiniband`.

mod read;
mod types;

pub use read::{all, parse_guid};
pub use types::{Device, GidRow, NamedCode, PciLink, Port, node_type, state};
