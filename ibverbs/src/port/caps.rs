//! What a port can do.

#![allow(
    clippy::cast_possible_truncation,
    reason = "a field is narrower than its constants"
)]

use bitflags::bitflags;

bitflags! {
    /// What a port can do (`enum ibv_port_cap_flags`); bits that this version does not name are kept.
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
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortCapFlags: u32 {
        /// A subnet manager runs on it: `IBV_PORT_SM`.
        const SM = rdma_sys::IBV_PORT_SM;
        /// Notices: `IBV_PORT_NOTICE_SUP`.
        const NOTICE_SUP = rdma_sys::IBV_PORT_NOTICE_SUP;
        /// Traps: `IBV_PORT_TRAP_SUP`.
        const TRAP_SUP = rdma_sys::IBV_PORT_TRAP_SUP;
        /// Optional inter-packet delays: `IBV_PORT_OPT_IPD_SUP`.
        const OPT_IPD_SUP = rdma_sys::IBV_PORT_OPT_IPD_SUP;
        /// Automatic path migration: `IBV_PORT_AUTO_MIGR_SUP`.
        const AUTO_MIGR_SUP = rdma_sys::IBV_PORT_AUTO_MIGR_SUP;
        /// Service level to lane mapping: `IBV_PORT_SL_MAP_SUP`.
        const SL_MAP_SUP = rdma_sys::IBV_PORT_SL_MAP_SUP;
        /// Keeps its M_Key over power cycles: `IBV_PORT_MKEY_NVRAM`.
        const MKEY_NVRAM = rdma_sys::IBV_PORT_MKEY_NVRAM;
        /// Keeps its P_Keys over power cycles: `IBV_PORT_PKEY_NVRAM`.
        const PKEY_NVRAM = rdma_sys::IBV_PORT_PKEY_NVRAM;
        /// Its light can be seen: `IBV_PORT_LED_INFO_SUP`.
        const LED_INFO_SUP = rdma_sys::IBV_PORT_LED_INFO_SUP;
        /// System image GUID: `IBV_PORT_SYS_IMAGE_GUID_SUP`.
        const SYS_IMAGE_GUID_SUP = rdma_sys::IBV_PORT_SYS_IMAGE_GUID_SUP;
        /// Traps of a switch's external port: `IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP`.
        const PKEY_SW_EXT_PORT_TRAP_SUP = rdma_sys::IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP;
        /// FDR and faster: `IBV_PORT_EXTENDED_SPEEDS_SUP`.
        const EXTENDED_SPEEDS_SUP = rdma_sys::IBV_PORT_EXTENDED_SPEEDS_SUP;
        /// Has [`PortCapFlags2`]: `IBV_PORT_CAP_MASK2_SUP`.
        const CAP_MASK2_SUP = rdma_sys::IBV_PORT_CAP_MASK2_SUP;
        /// A connection manager answers: `IBV_PORT_CM_SUP`.
        const CM_SUP = rdma_sys::IBV_PORT_CM_SUP;
        /// SNMP through the fabric: `IBV_PORT_SNMP_TUNNEL_SUP`.
        const SNMP_TUNNEL_SUP = rdma_sys::IBV_PORT_SNMP_TUNNEL_SUP;
        /// Reinitialisation: `IBV_PORT_REINIT_SUP`.
        const REINIT_SUP = rdma_sys::IBV_PORT_REINIT_SUP;
        /// Device management: `IBV_PORT_DEVICE_MGMT_SUP`.
        const DEVICE_MGMT_SUP = rdma_sys::IBV_PORT_DEVICE_MGMT_SUP;
        /// The vendor's management class: `IBV_PORT_VENDOR_CLASS_SUP`.
        const VENDOR_CLASS_SUP = rdma_sys::IBV_PORT_VENDOR_CLASS_SUP;
        /// Directed-route notices: `IBV_PORT_DR_NOTICE_SUP`.
        const DR_NOTICE_SUP = rdma_sys::IBV_PORT_DR_NOTICE_SUP;
        /// Tells when these bits change: `IBV_PORT_CAP_MASK_NOTICE_SUP`.
        const CAP_MASK_NOTICE_SUP = rdma_sys::IBV_PORT_CAP_MASK_NOTICE_SUP;
        /// Boot management: `IBV_PORT_BOOT_MGMT_SUP`.
        const BOOT_MGMT_SUP = rdma_sys::IBV_PORT_BOOT_MGMT_SUP;
        /// Link latency: `IBV_PORT_LINK_LATENCY_SUP`.
        const LINK_LATENCY_SUP = rdma_sys::IBV_PORT_LINK_LATENCY_SUP;
        /// Takes [`EventType::CLIENT_REREGISTER`](crate::event::EventType::CLIENT_REREGISTER): `IBV_PORT_CLIENT_REG_SUP`.
        const CLIENT_REG_SUP = rdma_sys::IBV_PORT_CLIENT_REG_SUP;
        /// Its GIDs are made from IP addresses (RoCE): `IBV_PORT_IP_BASED_GIDS`.
        const IP_BASED_GIDS = rdma_sys::IBV_PORT_IP_BASED_GIDS;
        const _ = !0;
    }
}

bitflags! {
    /// What else a port can do (`enum ibv_port_cap_flags2`); bits that this version does not name are kept.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::PortCapFlags2;
    /// let knows_hdr = context.query_port(1)?.port_cap_flags2.contains(PortCapFlags2::LINK_SPEED_HDR_SUP);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html); IBA 14.2.5.6
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortCapFlags2: u16 {
        /// Its node's description can be set: `IBV_PORT_SET_NODE_DESC_SUP`.
        const SET_NODE_DESC_SUP = rdma_sys::IBV_PORT_SET_NODE_DESC_SUP as u16;
        /// Extended port information: `IBV_PORT_INFO_EXT_SUP`.
        const INFO_EXT_SUP = rdma_sys::IBV_PORT_INFO_EXT_SUP as u16;
        /// Virtualised: `IBV_PORT_VIRT_SUP`.
        const VIRT_SUP = rdma_sys::IBV_PORT_VIRT_SUP as u16;
        /// Table of a switch's port states: `IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP`.
        const SWITCH_PORT_STATE_TABLE_SUP = rdma_sys::IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP as u16;
        /// Two lanes: `IBV_PORT_LINK_WIDTH_2X_SUP`.
        const LINK_WIDTH_2X_SUP = rdma_sys::IBV_PORT_LINK_WIDTH_2X_SUP as u16;
        /// HDR: `IBV_PORT_LINK_SPEED_HDR_SUP`.
        const LINK_SPEED_HDR_SUP = rdma_sys::IBV_PORT_LINK_SPEED_HDR_SUP as u16;
        /// NDR: `IBV_PORT_LINK_SPEED_NDR_SUP`.
        const LINK_SPEED_NDR_SUP = rdma_sys::IBV_PORT_LINK_SPEED_NDR_SUP as u16;
        const _ = !0;
    }
}

bitflags! {
    /// What a port asks of its users (`ibv_port_attr.flags`); bits that this version does not name are kept.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::PortFlags;
    /// if context.query_port(1)?.flags.contains(PortFlags::GRH_REQUIRED) {
    ///     println!("name a GID in every path, also within the subnet");
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html)
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortFlags: u8 {
        /// Every path needs a global route, as on RoCE: `IBV_QPF_GRH_REQUIRED`.
        const GRH_REQUIRED = rdma_sys::IBV_QPF_GRH_REQUIRED as u8;
        const _ = !0;
    }
}
