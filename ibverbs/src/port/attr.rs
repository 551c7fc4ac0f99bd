//! Ports of a device.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::offset_of;
use std::ptr;

use rdma_sys::{ibv_context, ibv_port_attr, ibv_query_port, verbs_context, verbs_get_ctx};

use super::caps::{PortCapFlags, PortCapFlags2, PortFlags};
use super::link_rate::{LinkRate, LinkSpeed, LinkWidth};
use super::mtu::Mtu;
use crate::convert::zero_or_errno;
use crate::device::Context;
use crate::error::Result;
use crate::newtype::c_value;
use crate::raw::AsRaw;

c_value! {
    /// The logical state of a port (`enum ibv_port_state`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::PortState;
    /// if context.query_port(1)?.state != PortState::ACTIVE {
    ///     println!("port 1 of {} carries no traffic yet", context.device_name());
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html); IBA 14.2.5.6
    pub struct PortState(u32) {
        /// `IBV_PORT_NOP`.
        NOP = rdma_sys::IBV_PORT_NOP => "NOP",
        /// `IBV_PORT_DOWN`.
        DOWN = rdma_sys::IBV_PORT_DOWN => "DOWN",
        /// Waiting for a subnet manager: `IBV_PORT_INIT`.
        INIT = rdma_sys::IBV_PORT_INIT => "INIT",
        /// `IBV_PORT_ARMED`.
        ARMED = rdma_sys::IBV_PORT_ARMED => "ARMED",
        /// `IBV_PORT_ACTIVE`.
        ACTIVE = rdma_sys::IBV_PORT_ACTIVE => "ACTIVE",
        /// `IBV_PORT_ACTIVE_DEFER`.
        ACTIVE_DEFER = rdma_sys::IBV_PORT_ACTIVE_DEFER => "ACTIVE_DEFER",
    }
}

c_value! {
    /// What carries a port's packets.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::LinkLayer;
    /// let needs_a_gid = context.query_port(1)?.link_layer == LinkLayer::ETHERNET;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html)
    pub struct LinkLayer(u8) {
        /// `IBV_LINK_LAYER_UNSPECIFIED`: the driver does not say; InfiniBand on old drivers.
        UNSPECIFIED = rdma_sys::IBV_LINK_LAYER_UNSPECIFIED => "Unspecified",
        /// `IBV_LINK_LAYER_INFINIBAND`.
        INFINIBAND = rdma_sys::IBV_LINK_LAYER_INFINIBAND => "InfiniBand",
        /// RoCE or iWARP: `IBV_LINK_LAYER_ETHERNET`.
        ETHERNET = rdma_sys::IBV_LINK_LAYER_ETHERNET => "Ethernet",
    }
}

c_value! {
    /// The physical state of a port (IBA PortInfo:PortPhysicalState).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::port::PhysState;
    /// if context.query_port(1)?.phys_state == PhysState::POLLING {
    ///     println!("no cable, or nobody at its other end");
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html); IBA 14.2.5.6
    pub struct PhysState(u8) {
        /// Asleep.
        SLEEP = 1 => "Sleep",
        /// Looking for a peer.
        POLLING = 2 => "Polling",
        /// Switched off.
        DISABLED = 3 => "Disabled",
        /// Training.
        TRAINING = 4 => "PortConfigurationTraining",
        /// The link is up.
        LINK_UP = 5 => "LinkUp",
        /// Recovering from an error.
        RECOVERY = 6 => "LinkErrorRecovery",
        /// Testing.
        PHY_TEST = 7 => "PhyTest",
    }
}

/// A local identifier: the address of a port within an InfiniBand subnet; 0 on RoCE and iWARP.
///
/// # Example
/// ```
/// use ibverbs::{AhAttr, Lid};
/// let way = AhAttr::to_lid(1, Lid(7)); // to a port of the same InfiniBand subnet
/// assert_eq!(way.dlid, Lid(7));
/// ```
///
/// # References
/// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html); IBA 4.1.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lid(pub u16);

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// `struct ibv_port_attr` as rdma-core 49 and later have it: with one more field, which the
/// bindings (44) lack.
#[repr(C)]
#[derive(Default)]
struct WithSpeed {
    attr: ibv_port_attr,
    active_speed_ex: u32,
}

/// As `ibv_query_port`, telling the library of the longer structure; one that does not know the
/// last field leaves it 0.
///
/// # Safety
/// The context is open.
unsafe fn query_port(context: *mut ibv_context, port_num: u8, attr: &mut WithSpeed) -> i32 {
    // SAFETY: the context is open, by the caller's promise.
    let extended = unsafe { verbs_get_ctx(context) };
    let needed = size_of::<verbs_context>() - offset_of!(verbs_context, query_port);
    // SAFETY: the table is that of the open context, and read only if it is long enough to have the
    // entry.
    let entry = unsafe {
        if extended.is_null() || (*extended).sz < needed {
            None
        } else {
            (*extended).query_port
        }
    };
    match entry {
        // SAFETY: the library writes no more than the length that it is told, and that is the
        // structure's.
        Some(query) => unsafe {
            query(
                context,
                port_num,
                ptr::from_mut(attr).cast(),
                size_of::<WithSpeed>(),
            )
        },
        // SAFETY: the context is open and the structure is valid for writing.
        None => unsafe { ibv_query_port(context, port_num, &raw mut attr.attr) },
    }
}

/// What a port is and how it stands (`struct ibv_port_attr`).
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// let port = context.query_port(1)?;
/// println!(
///     "{}, {}, {} bytes a packet at most",
///     port.state,
///     port.rate(),
///     port.active_mtu
/// );
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html)
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttr {
    /// Logical state.
    pub state: PortState,
    /// Physical state.
    pub phys_state: PhysState,
    /// Largest MTU of the port.
    pub max_mtu: Mtu,
    /// MTU in force.
    pub active_mtu: Mtu,
    /// Length of the GID table.
    pub gid_tbl_len: u32,
    /// Length of the P_Key table.
    pub pkey_tbl_len: u16,
    /// Largest message in bytes.
    pub max_msg_sz: u32,
    /// Base LID.
    pub lid: Lid,
    /// LID of the subnet manager.
    pub sm_lid: Lid,
    /// LID mask control.
    pub lmc: u8,
    /// Service level of the subnet manager.
    pub sm_sl: u8,
    /// What carries the packets.
    pub link_layer: LinkLayer,
    /// Lanes of the link.
    pub active_width: LinkWidth,
    /// Speed of one lane. XDR needs a library (49 or later) and a kernel (6.5 or later) that have
    /// the wider field `active_speed_ex`; others report such a link as NDR.
    pub active_speed: LinkSpeed,
    /// Code of the number of virtual lanes (1 to 5 for 1, 2, 4, 8, 15).
    pub max_vl_num: u8,
    /// Capabilities.
    pub port_cap_flags: PortCapFlags,
    /// More capabilities.
    pub port_cap_flags2: PortCapFlags2,
    /// What the port asks of its users.
    pub flags: PortFlags,
    /// Packets with a wrong P_Key.
    pub bad_pkey_cntr: u32,
    /// Packets with a wrong Q_Key.
    pub qkey_viol_cntr: u32,
    /// Subnet timeout code.
    pub subnet_timeout: u8,
    /// What the subnet manager initialised.
    pub init_type_reply: u8,
}

impl PortAttr {
    fn from_raw(
        WithSpeed {
            attr: raw,
            active_speed_ex: speed_ex,
        }: &WithSpeed,
    ) -> Self {
        let speed_ex = *speed_ex;
        Self {
            state: PortState(raw.state),
            phys_state: PhysState(raw.phys_state),
            max_mtu: Mtu(raw.max_mtu),
            active_mtu: Mtu(raw.active_mtu),
            gid_tbl_len: u32::try_from(raw.gid_tbl_len).unwrap_or(0),
            pkey_tbl_len: raw.pkey_tbl_len,
            max_msg_sz: raw.max_msg_sz,
            lid: Lid(raw.lid),
            sm_lid: Lid(raw.sm_lid),
            lmc: raw.lmc,
            sm_sl: raw.sm_sl,
            link_layer: LinkLayer(raw.link_layer),
            active_width: LinkWidth(raw.active_width),
            active_speed: LinkSpeed(if speed_ex == 0 {
                raw.active_speed.into()
            } else {
                speed_ex
            }),
            max_vl_num: raw.max_vl_num,
            port_cap_flags: PortCapFlags::from_bits_retain(raw.port_cap_flags),
            port_cap_flags2: PortCapFlags2::from_bits_retain(raw.port_cap_flags2),
            flags: PortFlags::from_bits_retain(raw.flags),
            bad_pkey_cntr: raw.bad_pkey_cntr,
            qkey_viol_cntr: raw.qkey_viol_cntr,
            subnet_timeout: raw.subnet_timeout,
            init_type_reply: raw.init_type_reply,
        }
    }

    /// The rate of the link, which prints as in ibstat: `100 Gb/sec (4X EDR)`.
    ///
    /// A port that is down may give any rate.
    pub fn rate(&self) -> LinkRate {
        LinkRate {
            width: self.active_width,
            speed: self.active_speed,
        }
    }
}

impl Context {
    /// Queries a port; ports count from 1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for a port that the device does
    /// not have.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// let port = context.query_port(1)?; // ports count from 1
    /// println!("{} {}", port.link_layer, port.state);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html)
    pub fn query_port(&self, port_num: u8) -> Result<PortAttr> {
        let mut attr = WithSpeed::default();
        // SAFETY: the context is open and the structure is valid for writing.
        let returned = unsafe { query_port(self.as_raw(), port_num, &mut attr) };
        zero_or_errno(
            "ibv_query_port",
            || format!("port {port_num} of {}", self.device_name()),
            returned,
        )?;
        Ok(PortAttr::from_raw(&attr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_structure_adds_its_field_at_the_end() {
        assert_eq!(
            offset_of!(WithSpeed, active_speed_ex),
            size_of::<ibv_port_attr>()
        );
        assert_eq!(size_of::<WithSpeed>(), 56, "as in rdma-core 49");
    }

    #[test]
    fn a_speed_beyond_eight_bits_comes_from_the_wider_field() {
        let attr = ibv_port_attr {
            active_width: 2,
            active_speed: 128,
            ..Default::default()
        };
        let old = PortAttr::from_raw(&WithSpeed {
            attr,
            active_speed_ex: 0,
        });
        let new = PortAttr::from_raw(&WithSpeed {
            attr,
            active_speed_ex: 256,
        });
        assert_eq!(old.rate().to_string(), "400 Gb/sec (4X NDR)");
        assert_eq!(new.rate().to_string(), "800 Gb/sec (4X XDR)");
    }
}
