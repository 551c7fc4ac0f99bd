//! Management datagrams: the 256 bytes on the wire and the attributes that they carry.
//!
//! The module contains no `unsafe` code, calls nothing outside this directory but `rdma-types`, and
//! does not panic for any bytes.

#![forbid(unsafe_code)]

mod bits;
mod datagram;
mod node;
mod path;
mod port_info;
mod sa;
mod sm_info;
mod smp;
mod state;
mod status;
mod vendor;

pub use datagram::{AttrId, MAD_HEADER_LEN, MAD_LEN, Mad, Method, MgmtClass};
pub use node::{NodeDescription, NodeInfo, NodeType};
pub use path::PathRecord;
pub use port_info::PortInfo;
pub use sa::SaMad;
pub use sm_info::{SmInfo, SmState};
pub use smp::{DirectedRoute, MAX_HOPS, Smp};
pub use state::{IbMtu, LinkSpeed, LinkSpeedExt};
pub use status::MadStatus;
pub use vendor::{OPENIB_OUI, Oui, VENDOR_DATA_LEN, VendorMad};
