//! Ports: attributes, capabilities, link rate, MTU and partition keys.
//!
//! Used by the GID table and by the paths of queue pairs.

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
