//! Devices: listing, opening, attributes and capabilities, clock.
//!
//! All other objects of this crate are created from an open device, a [`Context`].

mod attr;
mod attr_ex;
mod caps;
mod clock;
mod context;
mod list;
// Miri cannot switch stacks, as loom does.
#[cfg(all(test, not(miri)))]
mod loom_tests;
mod properties;
mod provider;
mod qp_numbers;
mod sync;

pub use self::attr::{AtomicCap, DeviceAttr, DeviceCapFlags};
pub use self::attr_ex::DeviceAttrEx;
pub use self::caps::{
    CqModerationCaps, OdpCaps, OdpGeneralCaps, OdpTransportCaps, PacketPacingCaps, PciAtomicCaps,
    QpTypes, RawPacketCaps, RssCaps, RxHashFields, TmCaps, TsoCaps,
};
pub use self::context::Context;
pub(crate) use self::list::not_found;
pub use self::list::{Device, NodeType, TransportType};
pub(crate) use self::properties::{Avoided, LeftCompletions};
pub(crate) use self::qp_numbers::LeftNumbers;
