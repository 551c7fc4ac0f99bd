//! Values of ports.

use super::bits::field_value;
use crate::newtype::c_value;

c_value! {
    /// Logical state of a port.
    pub struct PortState(u8) {
        /// No change asked for (only in `Set`).
        NOP = 0 => "No change",
        /// No link.
        DOWN = 1 => "Down",
        /// A link, and no subnet manager has set it up yet.
        INIT = 2 => "Initialize",
        /// Set up, not yet in use.
        ARMED = 3 => "Armed",
        /// In use.
        ACTIVE = 4 => "Active",
    }
}

c_value! {
    /// Physical state of a port.
    pub struct PhysState(u8) {
        /// No change asked for (only in `Set`).
        NOP = 0 => "No change",
        /// Asleep.
        SLEEP = 1 => "Sleep",
        /// Looking for a peer.
        POLLING = 2 => "Polling",
        /// Switched off.
        DISABLED = 3 => "Disabled",
        /// Agreeing with the peer.
        TRAINING = 4 => "PortConfigurationTraining",
        /// The link is up.
        LINK_UP = 5 => "LinkUp",
        /// The link is being repaired.
        ERROR_RECOVERY = 6 => "LinkErrorRecovery",
        /// A test of the physical layer.
        PHY_TEST = 7 => "PhyTest",
    }
}

c_value! {
    /// Width of a link; as a set where it says what is possible.
    pub struct LinkWidth(u8) {
        /// One lane.
        X1 = 1 => "1X",
        /// Four lanes.
        X4 = 2 => "4X",
        /// Eight lanes.
        X8 = 4 => "8X",
        /// Twelve lanes.
        X12 = 8 => "12X",
        /// Two lanes.
        X2 = 16 => "2X",
    }
}

impl LinkWidth {
    /// Lanes of an active width.
    pub const fn lanes(self) -> Option<u8> {
        match self {
            Self::X1 => Some(1),
            Self::X2 => Some(2),
            Self::X4 => Some(4),
            Self::X8 => Some(8),
            Self::X12 => Some(12),
            _ => None,
        }
    }
}

c_value! {
    /// Speed of a lane, up to QDR; as a set where it says what is possible.
    pub struct LinkSpeed(u8) {
        /// Single data rate.
        SDR = 1 => "2.5 Gbps",
        /// Double data rate.
        DDR = 2 => "5.0 Gbps",
        /// Quad data rate.
        QDR = 4 => "10.0 Gbps",
    }
}

c_value! {
    /// Speed of a lane from FDR on; as a set where it says what is possible.
    pub struct LinkSpeedExt(u8) {
        /// Not one of these.
        NONE = 0 => "No Extended Speed",
        /// Fourteen data rate.
        FDR = 1 => "14.0625 Gbps",
        /// Enhanced data rate.
        EDR = 2 => "25.78125 Gbps",
        /// High data rate.
        HDR = 4 => "53.125 Gbps",
        /// Next data rate.
        NDR = 8 => "106.25 Gbps",
    }
}

c_value! {
    /// MTU, coded.
    pub struct IbMtu(u8) {
        /// 256 bytes.
        B256 = 1 => "256",
        /// 512 bytes.
        B512 = 2 => "512",
        /// 1024 bytes.
        B1024 = 3 => "1024",
        /// 2048 bytes.
        B2048 = 4 => "2048",
        /// 4096 bytes.
        B4096 = 5 => "4096",
    }
}

impl IbMtu {
    /// It in bytes.
    pub const fn bytes(self) -> Option<u32> {
        match self.0 {
            1..=5 => Some(128 << self.0),
            _ => None,
        }
    }
}

field_value!(
    PortState(u8),
    PhysState(u8),
    LinkWidth(u8),
    LinkSpeed(u8),
    LinkSpeedExt(u8),
    IbMtu(u8)
);
