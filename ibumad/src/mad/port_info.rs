//! Attributes of ports (IBA 14.2.5.6).

use rdma_types::Lid;

use super::bits::record;
use super::datagram::AttrId;
use super::state::{IbMtu, LinkSpeed, LinkSpeedExt};
use rdma_types::{LinkWidth, PhysState, PortState};

record! {
    /// The state and the properties of a port: the attribute PortInfo.
    ///
    /// # Example
    /// ```no_run
    /// # fn f(smi: &ibumad::Smi) -> ibumad::Result<()> {
    /// let port = smi.port_info(&ibumad::Target::local(), 1)?;
    /// println!("{}, subnet manager at LID {}", port.state(), port.sm_lid());
    /// # Ok(()) }
    /// ```
    pub struct PortInfo: 64 bytes, attribute AttrId::PORT_INFO, {
        /// M_Key, the key that protects the port's attributes.
        m_key: u64 = 0 + 64,
        /// Subnet prefix.
        gid_prefix: u64 = 64 + 64,
        /// Base LID.
        lid: Lid = 128 + 16,
        /// LID of the master subnet manager.
        sm_lid: Lid = 144 + 16,
        /// Capability mask.
        cap_mask: u32 = 160 + 32,
        /// Diagnostic code, defined by the vendor.
        diag_code: u16 = 192 + 16,
        /// Seconds after which the protection by the M_Key expires unless the subnet manager renews
        /// it.
        m_key_lease_period: u16 = 208 + 16,
        /// Number of the port that received the request.
        local_port: u8 = 224 + 8,
        /// Enabled link widths.
        link_width_enabled: LinkWidth = 232 + 8,
        /// Supported link widths.
        link_width_supported: LinkWidth = 240 + 8,
        /// Active link width.
        link_width_active: LinkWidth = 248 + 8,
        /// Supported link speeds.
        link_speed_supported: LinkSpeed = 256 + 4,
        /// Logical state.
        state: PortState = 260 + 4,
        /// Physical state.
        phys_state: PhysState = 264 + 4,
        /// Physical state that the port enters without a link: 1 sleep, 2 polling.
        link_down_default: u8 = 268 + 4,
        /// Protection level of the M_Key.
        m_key_protect_bits: u8 = 272 + 2,
        /// LID mask control: the port has 2^lmc LIDs.
        lmc: u8 = 277 + 3,
        /// Active link speed.
        link_speed_active: LinkSpeed = 280 + 4,
        /// Enabled link speeds.
        link_speed_enabled: LinkSpeed = 284 + 4,
        /// Active MTU.
        neighbor_mtu: IbMtu = 288 + 4,
        /// Service level for requests to the subnet manager.
        sm_sl: u8 = 292 + 4,
        /// Supported virtual lanes, encoded.
        vl_cap: u8 = 296 + 4,
        /// Type of initialization that the port requests from the subnet manager.
        init_type: u8 = 300 + 4,
        /// Limit of the high-priority part of virtual lane arbitration.
        vl_high_limit: u8 = 304 + 8,
        /// Number of entries of the high-priority table of virtual lane arbitration.
        vl_arb_high_cap: u8 = 312 + 8,
        /// Number of entries of the low-priority table of virtual lane arbitration.
        vl_arb_low_cap: u8 = 320 + 8,
        /// Type of initialization that the subnet manager performed.
        init_type_reply: u8 = 328 + 4,
        /// Maximum MTU.
        mtu_cap: IbMtu = 332 + 4,
        /// Number of consecutively dropped packets after which a virtual lane is stalled.
        vl_stall_count: u8 = 336 + 3,
        /// Time that a packet may stay at the head of a virtual lane, encoded.
        hoq_life: u8 = 339 + 5,
        /// Virtual lanes in use, encoded.
        operational_vls: u8 = 344 + 4,
        /// `true` if partition keys of incoming packets are checked.
        partition_enforcement_inbound: bool = 348 + 1,
        /// `true` if partition keys of outgoing packets are checked.
        partition_enforcement_outbound: bool = 349 + 1,
        /// `true` if incoming raw packets are dropped.
        filter_raw_inbound: bool = 350 + 1,
        /// `true` if outgoing raw packets are dropped.
        filter_raw_outbound: bool = 351 + 1,
        /// Number of management packets with a wrong M_Key.
        m_key_violations: u16 = 352 + 16,
        /// Number of packets with a wrong partition key.
        p_key_violations: u16 = 368 + 16,
        /// Number of packets with a wrong queue key.
        q_key_violations: u16 = 384 + 16,
        /// Number of entries of the GUID table.
        guid_cap: u8 = 400 + 8,
        /// `true` if the subnet manager asks clients to repeat their registrations.
        client_reregister: bool = 408 + 1,
        /// Maximum propagation delay in the subnet, encoded: 4.096 µs × 2^n.
        subnet_timeout: u8 = 411 + 5,
        /// Maximum time between a request and its response, encoded: 4.096 µs × 2^n.
        resp_time: u8 = 419 + 5,
        /// Threshold of local physical errors.
        local_phy_errors: u8 = 424 + 4,
        /// Threshold of buffer overruns.
        overrun_errors: u8 = 428 + 4,
        /// Maximum of useful flow-control credits.
        max_credit_hint: u16 = 432 + 16,
        /// Round-trip latency of the link.
        link_round_trip_latency: u32 = 456 + 24,
        /// Second capability mask.
        cap_mask2: u16 = 480 + 16,
        /// Active link speed from FDR on.
        link_speed_ext_active: LinkSpeedExt = 496 + 4,
        /// Supported link speeds from FDR on.
        link_speed_ext_supported: LinkSpeedExt = 500 + 4,
        /// Enabled link speeds from FDR on.
        link_speed_ext_enabled: LinkSpeedExt = 507 + 5,
    }
}

/// `IsSM` of [`PortInfo::cap_mask`]: a subnet manager runs at the port.
const IS_SM: u32 = 1 << 1;

impl PortInfo {
    /// Returns `true` if a subnet manager runs at this port.
    pub fn is_sm(&self) -> bool {
        self.cap_mask() & IS_SM != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_manager_is_bit_1_of_the_capabilities() {
        for (mask, expected) in [(0, false), (0b10, true), (!0b10, false)] {
            let mut bytes = [0; 64];
            bytes[20..24].copy_from_slice(&u32::to_be_bytes(mask));
            let info = PortInfo::from_bytes(&bytes).expect("64 bytes");
            assert_eq!(info.is_sm(), expected, "{mask:#x}");
        }
    }
}
