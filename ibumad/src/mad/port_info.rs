//! A port's state and properties (IBA 14.2.5.6).

use super::bits::record;
use super::datagram::AttrId;
use super::state::{IbMtu, LinkSpeed, LinkSpeedExt, LinkWidth, PhysState, PortState};
use crate::identity::Lid;

record! {
    /// A port's state and properties: the attribute PortInfo.
    pub struct PortInfo: 64 bytes, attribute AttrId::PORT_INFO, {
        /// The key that protects it.
        m_key: u64 = 0 + 64,
        /// The subnet's prefix.
        gid_prefix: u64 = 64 + 64,
        /// Its LID.
        lid: Lid = 128 + 16,
        /// The master subnet manager's LID.
        sm_lid: Lid = 144 + 16,
        /// What it can do.
        cap_mask: u32 = 160 + 32,
        /// The maker's code of what is wrong.
        diag_code: u16 = 192 + 16,
        /// Seconds until the key's protection ends without a subnet manager.
        m_key_lease_period: u16 = 208 + 16,
        /// The port that was asked.
        local_port: u8 = 224 + 8,
        /// Widths that it may take.
        link_width_enabled: LinkWidth = 232 + 8,
        /// Widths that it could take.
        link_width_supported: LinkWidth = 240 + 8,
        /// The width that it has.
        link_width_active: LinkWidth = 248 + 8,
        /// Speeds that it could take.
        link_speed_supported: LinkSpeed = 256 + 4,
        /// Logical state.
        state: PortState = 260 + 4,
        /// Physical state.
        phys_state: PhysState = 264 + 4,
        /// What it does when there is no link: 1 sleep, 2 poll.
        link_down_default: u8 = 268 + 4,
        /// How far the key protects.
        m_key_protect_bits: u8 = 272 + 2,
        /// LID mask count: it answers to 2^lmc LIDs.
        lmc: u8 = 277 + 3,
        /// The speed that it has.
        link_speed_active: LinkSpeed = 280 + 4,
        /// Speeds that it may take.
        link_speed_enabled: LinkSpeed = 284 + 4,
        /// The MTU that it has.
        neighbor_mtu: IbMtu = 288 + 4,
        /// Service level to the subnet manager.
        sm_sl: u8 = 292 + 4,
        /// Virtual lanes that it could use, coded.
        vl_cap: u8 = 296 + 4,
        /// What the subnet manager did when the port came up.
        init_type: u8 = 300 + 4,
        /// The limit of high priority.
        vl_high_limit: u8 = 304 + 8,
        /// Places of the table of high priority.
        vl_arb_high_cap: u8 = 312 + 8,
        /// Places of the table of low priority.
        vl_arb_low_cap: u8 = 320 + 8,
        /// The answer to `init_type`.
        init_type_reply: u8 = 328 + 4,
        /// The MTU that it could have.
        mtu_cap: IbMtu = 332 + 4,
        /// Packets dropped in a row after which a lane is stalled.
        vl_stall_count: u8 = 336 + 3,
        /// How long a packet may wait at the head, coded.
        hoq_life: u8 = 339 + 5,
        /// Virtual lanes in use, coded.
        operational_vls: u8 = 344 + 4,
        /// Whether partition keys of what comes in are checked.
        partition_enforcement_inbound: bool = 348 + 1,
        /// Whether partition keys of what goes out are checked.
        partition_enforcement_outbound: bool = 349 + 1,
        /// Whether raw packets coming in are dropped.
        filter_raw_inbound: bool = 350 + 1,
        /// Whether raw packets going out are dropped.
        filter_raw_outbound: bool = 351 + 1,
        /// Datagrams with a wrong key.
        m_key_violations: u16 = 352 + 16,
        /// Packets with a wrong partition key.
        p_key_violations: u16 = 368 + 16,
        /// Packets with a wrong queue key.
        q_key_violations: u16 = 384 + 16,
        /// GUIDs that it can have.
        guid_cap: u8 = 400 + 8,
        /// Whether clients shall register anew.
        client_reregister: bool = 408 + 1,
        /// How long a packet takes through the subnet, coded.
        subnet_timeout: u8 = 411 + 5,
        /// How long it takes to answer, coded.
        resp_time: u8 = 419 + 5,
        /// Errors of the link that count as one.
        local_phy_errors: u8 = 424 + 4,
        /// Overruns that count as one.
        overrun_errors: u8 = 428 + 4,
        /// Credits that suit it.
        max_credit_hint: u16 = 432 + 16,
        /// How long the link's round trip takes.
        link_round_trip_latency: u32 = 456 + 24,
        /// What else it can do.
        cap_mask2: u16 = 480 + 16,
        /// The speed that it has, from FDR on.
        link_speed_ext_active: LinkSpeedExt = 496 + 4,
        /// Speeds that it could take, from FDR on.
        link_speed_ext_supported: LinkSpeedExt = 500 + 4,
        /// Speeds that it may take, from FDR on.
        link_speed_ext_enabled: LinkSpeedExt = 507 + 5,
    }
}

/// `IsSM` of [`PortInfo::cap_mask`]: a subnet manager runs there.
const IS_SM: u32 = 1 << 1;

impl PortInfo {
    /// Whether a subnet manager runs at this port.
    pub fn is_sm(&self) -> bool {
        self.cap_mask() & IS_SM != 0
    }
}
