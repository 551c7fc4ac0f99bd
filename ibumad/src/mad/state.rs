//! States, widths, speeds and MTUs of ports.

use rdma_types::c_value;

use super::bits::field_value;

c_value! {
    /// The logical state of a port.
    ///
    /// # Example
    /// ```
    /// use ibumad::PortState;
    /// assert_eq!(PortState(4), PortState::ACTIVE);
    /// ```
    pub struct PortState(u8) {
        /// No change (only in `Set`).
        NOP = 0 => "No change",
        /// No link.
        DOWN = 1 => "Down",
        /// The link is up; no subnet manager has configured the port.
        INIT = 2 => "Initialize",
        /// Configured, not yet active.
        ARMED = 3 => "Armed",
        /// Active: the port carries data.
        ACTIVE = 4 => "Active",
    }
}

c_value! {
    /// The physical state of a port.
    ///
    /// # Example
    /// ```
    /// use ibumad::PhysState;
    /// assert_eq!(PhysState(5), PhysState::LINK_UP);
    /// ```
    pub struct PhysState(u8) {
        /// No change (only in `Set`).
        NOP = 0 => "No change",
        /// The port sleeps.
        SLEEP = 1 => "Sleep",
        /// The port searches for a peer.
        POLLING = 2 => "Polling",
        /// The port is disabled.
        DISABLED = 3 => "Disabled",
        /// The port negotiates with its peer.
        TRAINING = 4 => "PortConfigurationTraining",
        /// The link is up.
        LINK_UP = 5 => "LinkUp",
        /// The link is recovering from an error.
        ERROR_RECOVERY = 6 => "LinkErrorRecovery",
        /// The physical layer is being tested.
        PHY_TEST = 7 => "PhyTest",
    }
}

c_value! {
    /// The width of a link; a set of bits where a field lists several.
    ///
    /// # Example
    /// ```
    /// use ibumad::mad::LinkWidth;
    /// let supported = LinkWidth(3);
    /// assert_eq!(supported.0, LinkWidth::X1.0 | LinkWidth::X4.0);
    /// ```
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
    /// Returns the number of lanes, or `None` for a set of several widths.
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
    /// The speed of a lane up to QDR; a set of bits where a field lists several.
    ///
    /// # Example
    /// ```
    /// use ibumad::mad::LinkSpeed;
    /// assert_eq!(LinkSpeed(4), LinkSpeed::QDR);
    /// ```
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
    /// The speed of a lane from FDR on; a set of bits where a field lists several.
    ///
    /// # Example
    /// ```
    /// use ibumad::mad::LinkSpeedExt;
    /// let supported = LinkSpeedExt(3);
    /// assert_ne!(supported.0 & LinkSpeedExt::EDR.0, 0);
    /// ```
    pub struct LinkSpeedExt(u8) {
        /// No extended speed.
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
    /// An MTU, encoded as in PortInfo.
    ///
    /// # Example
    /// ```
    /// use ibumad::mad::IbMtu;
    /// assert_eq!(IbMtu(5), IbMtu::B4096);
    /// ```
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
    /// Returns the number of bytes, or `None` for an unknown code.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_mtus_and_widths_are_numbers() {
        let bytes = (0..=6).map(|code| IbMtu(code).bytes());
        let expected = [
            None,
            Some(256),
            Some(512),
            Some(1024),
            Some(2048),
            Some(4096),
            None,
        ];
        assert!(bytes.eq(expected));
        let lanes = [1, 2, 4, 8, 16, 3].map(|code| LinkWidth(code).lanes());
        assert_eq!(lanes, [Some(1), Some(4), Some(8), Some(12), Some(2), None]);
    }
}
