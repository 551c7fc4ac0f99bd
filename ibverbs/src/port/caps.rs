//! Capability flags of a port.

#![allow(
    clippy::cast_possible_truncation,
    reason = "a field is narrower than its constants"
)]

use bitflags::bitflags;

bitflags! {
    /// Capabilities of a port (`enum ibv_port_cap_flags`). Unknown bits are kept.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::PortCapFlags;
    /// let runs_a_subnet_manager = context.query_port(1)?.port_cap_flags.contains(PortCapFlags::SM);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html); IBA 14.2.5.6
    #[doc(alias = "ibv_query_port")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortCapFlags: u32 {
        /// A subnet manager runs on the port: `IBV_PORT_SM`.
        const SM = rdma_sys::IBV_PORT_SM;
        /// Supports notices: `IBV_PORT_NOTICE_SUP`.
        const NOTICE_SUP = rdma_sys::IBV_PORT_NOTICE_SUP;
        /// Supports traps: `IBV_PORT_TRAP_SUP`.
        const TRAP_SUP = rdma_sys::IBV_PORT_TRAP_SUP;
        /// Supports optional inter-packet delays: `IBV_PORT_OPT_IPD_SUP`.
        const OPT_IPD_SUP = rdma_sys::IBV_PORT_OPT_IPD_SUP;
        /// Supports automatic path migration: `IBV_PORT_AUTO_MIGR_SUP`.
        const AUTO_MIGR_SUP = rdma_sys::IBV_PORT_AUTO_MIGR_SUP;
        /// Supports mapping service levels to virtual lanes: `IBV_PORT_SL_MAP_SUP`.
        const SL_MAP_SUP = rdma_sys::IBV_PORT_SL_MAP_SUP;
        /// Keeps its M_Key in non-volatile memory: `IBV_PORT_MKEY_NVRAM`.
        const MKEY_NVRAM = rdma_sys::IBV_PORT_MKEY_NVRAM;
        /// Keeps its P_Keys in non-volatile memory: `IBV_PORT_PKEY_NVRAM`.
        const PKEY_NVRAM = rdma_sys::IBV_PORT_PKEY_NVRAM;
        /// Supports reading the state of its LED: `IBV_PORT_LED_INFO_SUP`.
        const LED_INFO_SUP = rdma_sys::IBV_PORT_LED_INFO_SUP;
        /// Supports a system image GUID: `IBV_PORT_SYS_IMAGE_GUID_SUP`.
        const SYS_IMAGE_GUID_SUP = rdma_sys::IBV_PORT_SYS_IMAGE_GUID_SUP;
        /// Supports P_Key traps of external switch ports: `IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP`.
        const PKEY_SW_EXT_PORT_TRAP_SUP = rdma_sys::IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP;
        /// Supports link speeds of FDR and above: `IBV_PORT_EXTENDED_SPEEDS_SUP`.
        const EXTENDED_SPEEDS_SUP = rdma_sys::IBV_PORT_EXTENDED_SPEEDS_SUP;
        /// Has [`PortCapFlags2`]: `IBV_PORT_CAP_MASK2_SUP`.
        const CAP_MASK2_SUP = rdma_sys::IBV_PORT_CAP_MASK2_SUP;
        /// Supports a connection manager: `IBV_PORT_CM_SUP`.
        const CM_SUP = rdma_sys::IBV_PORT_CM_SUP;
        /// Supports SNMP tunneling: `IBV_PORT_SNMP_TUNNEL_SUP`.
        const SNMP_TUNNEL_SUP = rdma_sys::IBV_PORT_SNMP_TUNNEL_SUP;
        /// Supports reinitialization: `IBV_PORT_REINIT_SUP`.
        const REINIT_SUP = rdma_sys::IBV_PORT_REINIT_SUP;
        /// Supports device management: `IBV_PORT_DEVICE_MGMT_SUP`.
        const DEVICE_MGMT_SUP = rdma_sys::IBV_PORT_DEVICE_MGMT_SUP;
        /// Supports a vendor-specific management class: `IBV_PORT_VENDOR_CLASS_SUP`.
        const VENDOR_CLASS_SUP = rdma_sys::IBV_PORT_VENDOR_CLASS_SUP;
        /// Supports directed-route notices: `IBV_PORT_DR_NOTICE_SUP`.
        const DR_NOTICE_SUP = rdma_sys::IBV_PORT_DR_NOTICE_SUP;
        /// Sends a notice when these flags change: `IBV_PORT_CAP_MASK_NOTICE_SUP`.
        const CAP_MASK_NOTICE_SUP = rdma_sys::IBV_PORT_CAP_MASK_NOTICE_SUP;
        /// Supports boot management: `IBV_PORT_BOOT_MGMT_SUP`.
        const BOOT_MGMT_SUP = rdma_sys::IBV_PORT_BOOT_MGMT_SUP;
        /// Supports measuring link latency: `IBV_PORT_LINK_LATENCY_SUP`.
        const LINK_LATENCY_SUP = rdma_sys::IBV_PORT_LINK_LATENCY_SUP;
        /// Supports [`EventType::CLIENT_REREGISTER`](crate::event::EventType::CLIENT_REREGISTER):
        /// `IBV_PORT_CLIENT_REG_SUP`.
        const CLIENT_REG_SUP = rdma_sys::IBV_PORT_CLIENT_REG_SUP;
        /// GIDs are derived from IP addresses (RoCE): `IBV_PORT_IP_BASED_GIDS`.
        const IP_BASED_GIDS = rdma_sys::IBV_PORT_IP_BASED_GIDS;
        const _ = !0;
    }
}

bitflags! {
    /// Further capabilities of a port (`enum ibv_port_cap_flags2`). Unknown bits are kept.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::PortCapFlags2;
    /// let supports_hdr = context.query_port(1)?.port_cap_flags2.contains(PortCapFlags2::LINK_SPEED_HDR_SUP);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html); IBA 14.2.5.6
    #[doc(alias = "ibv_query_port")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortCapFlags2: u16 {
        /// Supports setting the node description: `IBV_PORT_SET_NODE_DESC_SUP`.
        const SET_NODE_DESC_SUP = rdma_sys::IBV_PORT_SET_NODE_DESC_SUP as u16;
        /// Supports extended port information: `IBV_PORT_INFO_EXT_SUP`.
        const INFO_EXT_SUP = rdma_sys::IBV_PORT_INFO_EXT_SUP as u16;
        /// Supports virtualization: `IBV_PORT_VIRT_SUP`.
        const VIRT_SUP = rdma_sys::IBV_PORT_VIRT_SUP as u16;
        /// Supports the switch port state table: `IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP`.
        const SWITCH_PORT_STATE_TABLE_SUP = rdma_sys::IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP as u16;
        /// Supports links of two lanes: `IBV_PORT_LINK_WIDTH_2X_SUP`.
        const LINK_WIDTH_2X_SUP = rdma_sys::IBV_PORT_LINK_WIDTH_2X_SUP as u16;
        /// Supports the link speed HDR: `IBV_PORT_LINK_SPEED_HDR_SUP`.
        const LINK_SPEED_HDR_SUP = rdma_sys::IBV_PORT_LINK_SPEED_HDR_SUP as u16;
        /// Supports the link speed NDR: `IBV_PORT_LINK_SPEED_NDR_SUP`.
        const LINK_SPEED_NDR_SUP = rdma_sys::IBV_PORT_LINK_SPEED_NDR_SUP as u16;
        const _ = !0;
    }
}

bitflags! {
    /// Requirements of a port on its users (`ibv_port_attr.flags`). Unknown bits are kept.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::PortFlags;
    /// if context.query_port(1)?.flags.contains(PortFlags::GRH_REQUIRED) {
    ///     println!("every path needs a GID, even within the subnet");
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_port")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortFlags: u8 {
        /// Every path needs a global route, as on RoCE: `IBV_QPF_GRH_REQUIRED`.
        const GRH_REQUIRED = rdma_sys::IBV_QPF_GRH_REQUIRED as u8;
        const _ = !0;
    }
}
