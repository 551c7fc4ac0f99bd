//! Ports: attributes, capabilities, link rate, MTU and partition keys.
//!
//! The GID table, paths of queue pairs and address handles refer to ports by number.

mod attr;
mod caps;
mod link_rate;
mod mtu;
mod pkey;

#[doc(inline)]
pub use rdma_types::{Lid, LinkWidth, PhysState, PortState};

pub use self::attr::{LinkLayer, PortAttr};
pub use self::caps::{PortCapFlags, PortCapFlags2, PortFlags};
pub use self::link_rate::{LinkRate, LinkSpeed};
pub use self::mtu::Mtu;
pub use self::pkey::{Pkey, PkeyEntry};
