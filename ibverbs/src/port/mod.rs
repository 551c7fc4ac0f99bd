//! Ports: attributes, capabilities, link rate, MTU and partition keys.
//!
//! The GID table, paths of queue pairs and address handles refer to ports by number.

mod attr;
mod caps;
mod link_rate;
mod mtu;
mod pkey;

pub use self::attr::{Lid, LinkLayer, PhysState, PortAttr, PortState};
pub use self::caps::{PortCapFlags, PortCapFlags2, PortFlags};
pub use self::link_rate::{LinkRate, LinkSpeed, LinkWidth};
pub use self::mtu::Mtu;
pub use self::pkey::{Pkey, PkeyEntry};
