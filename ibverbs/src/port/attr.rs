//! Attributes of a port.

#![allow(unsafe_code)]

use std::mem::offset_of;
use std::ptr;

use rdma_sys::{
    ibv_context, ibv_port_attr, ibv_query_port, ibv_query_port_speed, verbs_context, verbs_get_ctx,
};

use super::caps::{PortCapFlags, PortCapFlags2, PortFlags};
use super::link_rate::{LinkRate, LinkSpeed};
use super::mtu::Mtu;
use crate::convert::zero_or_errno;
use crate::device::Context;
use crate::error::Result;
use crate::raw::AsRaw;
use rdma_types::{Lid, LinkWidth, PhysState, PortState, c_value};

c_value! {
    /// The link layer of a port.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::LinkLayer;
    /// let needs_a_gid = context.query_port(1)?.link_layer == LinkLayer::ETHERNET;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_port")]
    pub struct LinkLayer(u8) {
        /// Not reported by the driver; InfiniBand on old drivers: `IBV_LINK_LAYER_UNSPECIFIED`.
        UNSPECIFIED = rdma_sys::IBV_LINK_LAYER_UNSPECIFIED => "Unspecified",
        /// InfiniBand: `IBV_LINK_LAYER_INFINIBAND`.
        INFINIBAND = rdma_sys::IBV_LINK_LAYER_INFINIBAND => "InfiniBand",
        /// RoCE or iWARP: `IBV_LINK_LAYER_ETHERNET`.
        ETHERNET = rdma_sys::IBV_LINK_LAYER_ETHERNET => "Ethernet",
    }
}

/// `struct ibv_port_attr` of rdma-core 49 and later, which has one more field than the bindings
/// (rdma-core 44).
#[repr(C)]
#[derive(Default)]
struct ExtendedPortAttr {
    attr: ibv_port_attr,
    active_speed_ex: u32,
}

/// Calls `ibv_query_port` with the size of the longer structure. A library that does not know the
/// last field leaves it 0.
///
/// # Safety
/// `context` must be an open context.
unsafe fn query_port(context: *mut ibv_context, port_num: u8, attr: &mut ExtendedPortAttr) -> i32 {
    // SAFETY: the caller guarantees that the context is open.
    let extended = unsafe { verbs_get_ctx(context) };
    let needed = size_of::<verbs_context>() - offset_of!(verbs_context, query_port);
    // SAFETY: the function table belongs to the open context. The entry is read only if the table
    // is long enough to contain it.
    let entry = unsafe {
        if extended.is_null() || (*extended).sz < needed {
            None
        } else {
            (*extended).query_port
        }
    };
    match entry {
        // SAFETY: the library writes at most the given number of bytes, which is the size of the
        // structure.
        Some(query) => unsafe {
            query(
                context,
                port_num,
                ptr::from_mut(attr).cast(),
                size_of::<ExtendedPortAttr>(),
            )
        },
        // SAFETY: the context is open and the structure is writable.
        None => unsafe { ibv_query_port(context, port_num, &raw mut attr.attr) },
    }
}

/// Attributes of a port (`struct ibv_port_attr`).
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// let port = context.query_port(1)?;
/// println!(
///     "{}, {}, path MTU {} bytes",
///     port.state,
///     port.rate(),
///     port.active_mtu
/// );
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_port")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttr {
    /// Logical state.
    pub state: PortState,
    /// Physical state.
    pub phys_state: PhysState,
    /// Largest MTU of the port.
    pub max_mtu: Mtu,
    /// Current MTU.
    pub active_mtu: Mtu,
    /// Length of the GID table.
    pub gid_tbl_len: u32,
    /// Length of the P_Key table.
    pub pkey_tbl_len: u16,
    /// Largest message in bytes.
    pub max_msg_sz: u32,
    /// LID of the port.
    pub lid: Lid,
    /// LID of the subnet manager.
    pub sm_lid: Lid,
    /// LID mask control.
    pub lmc: u8,
    /// Service level of the subnet manager.
    pub sm_sl: u8,
    /// Link layer.
    pub link_layer: LinkLayer,
    /// Number of lanes of the link.
    pub active_width: LinkWidth,
    /// Speed of one lane. XDR is only reported with rdma-core 49 and Linux 6.5 or later, which
    /// have the field `active_speed_ex`; older versions report NDR.
    pub active_speed: LinkSpeed,
    /// Number of virtual lanes, encoded: 1 to 5 stand for 1, 2, 4, 8 and 15 lanes.
    pub max_vl_num: u8,
    /// Capabilities.
    pub port_cap_flags: PortCapFlags,
    /// More capabilities.
    pub port_cap_flags2: PortCapFlags2,
    /// Requirements on the users of the port.
    pub flags: PortFlags,
    /// Number of packets with a wrong P_Key.
    pub bad_pkey_cntr: u32,
    /// Number of packets with a wrong Q_Key.
    pub qkey_viol_cntr: u32,
    /// Subnet timeout, encoded: 4.096 µs × 2ⁿ.
    pub subnet_timeout: u8,
    /// Type of initialization done by the subnet manager.
    pub init_type_reply: u8,
}

impl PortAttr {
    fn from_raw(
        ExtendedPortAttr {
            attr: raw,
            active_speed_ex: speed_ex,
        }: &ExtendedPortAttr,
    ) -> Self {
        let speed_ex = *speed_ex;
        Self {
            state: PortState(u8::try_from(raw.state).unwrap_or(u8::MAX)),
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

    /// Returns the rate of the link, which is displayed as by ibstat: `100 Gb/sec (4X EDR)`.
    ///
    /// For a port that is down, the rate is not meaningful.
    pub fn rate(&self) -> LinkRate {
        LinkRate {
            width: self.active_width,
            speed: self.active_speed,
        }
    }
}

impl Context {
    /// Queries the attributes of a port. Ports are numbered from 1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the device does not have this
    /// port.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// let port = context.query_port(1)?; // the first port
    /// println!("{} {}", port.link_layer, port.state);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_port")]
    pub fn query_port(&self, port_num: u8) -> Result<PortAttr> {
        let mut attr = ExtendedPortAttr::default();
        // SAFETY: the context is open and the structure is writable.
        let returned = unsafe { query_port(self.as_raw(), port_num, &mut attr) };
        zero_or_errno(
            "ibv_query_port",
            || format!("port {port_num} of {}", self.device_name()),
            returned,
        )?;
        Ok(PortAttr::from_raw(&attr))
    }

    /// Queries the effective bandwidth of a port in Mbit/s. It can be lower than the
    /// [rate](PortAttr::rate) of the link.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device, the kernel or the
    /// installed rdma-core (62 or newer) cannot tell it.
    ///
    /// # References
    /// [`ibv_query_port_speed(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_query_port_speed.3.md)
    #[doc(alias = "ibv_query_port_speed")]
    pub fn query_port_speed(&self, port_num: u8) -> Result<u64> {
        /// The verb counts in 100 Mbit/s.
        const UNIT: u64 = 100;
        let mut speed = 0;
        // SAFETY: the context is open and the number is writable.
        let returned =
            unsafe { ibv_query_port_speed(self.as_raw(), port_num.into(), &raw mut speed) };
        zero_or_errno(
            "ibv_query_port_speed",
            || format!("port {port_num} of {}", self.device_name()),
            returned,
        )?;
        Ok(speed.saturating_mul(UNIT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_structure_appends_its_field() {
        assert_eq!(
            offset_of!(ExtendedPortAttr, active_speed_ex),
            size_of::<ibv_port_attr>()
        );
        assert_eq!(size_of::<ExtendedPortAttr>(), 56, "as in rdma-core 49");
    }

    #[test]
    fn speed_above_eight_bits_uses_the_extended_field() {
        let attr = ibv_port_attr {
            active_width: 2,
            active_speed: 128,
            ..Default::default()
        };
        let old = PortAttr::from_raw(&ExtendedPortAttr {
            attr,
            active_speed_ex: 0,
        });
        let new = PortAttr::from_raw(&ExtendedPortAttr {
            attr,
            active_speed_ex: 256,
        });
        assert_eq!(old.rate().to_string(), "400 Gb/sec (4X NDR)");
        assert_eq!(new.rate().to_string(), "800 Gb/sec (4X XDR)");
    }
}
