//! The states of a port and the width of its link.

use crate::c_value;

c_value! {
    /// The logical state of a port (IBA 14.2.5.6, `PortInfo:PortState`; `enum ibv_port_state`).
    ///
    /// # Example
    /// ```
    /// use rdma_types::PortState;
    /// assert_eq!(PortState(4), PortState::ACTIVE);
    /// ```
    #[doc(alias = "ibv_port_state_str")]
    pub struct PortState(u8) {
        /// No change (only in a `Set` of PortInfo): `IBV_PORT_NOP`.
        NOP = 0 => "NOP",
        /// No link: `IBV_PORT_DOWN`.
        DOWN = 1 => "DOWN",
        /// The link is up, but no subnet manager has configured the port yet: `IBV_PORT_INIT`.
        INIT = 2 => "INIT",
        /// Configured but not yet activated by the subnet manager: `IBV_PORT_ARMED`.
        ARMED = 3 => "ARMED",
        /// The port can send and receive: `IBV_PORT_ACTIVE`.
        ACTIVE = 4 => "ACTIVE",
        /// The port was active and its link is recovering: `IBV_PORT_ACTIVE_DEFER`.
        ACTIVE_DEFER = 5 => "ACTIVE_DEFER",
    }
}

c_value! {
    /// The physical state of a port (IBA 14.2.5.6, `PortInfo:PortPhysicalState`).
    ///
    /// # Example
    /// ```
    /// use rdma_types::PhysState;
    /// assert_eq!(PhysState(2), PhysState::POLLING); // no cable, or no port at its other end
    /// ```
    pub struct PhysState(u8) {
        /// No change (only in a `Set` of PortInfo).
        NOP = 0 => "No change",
        /// Sleeping, without link detection.
        SLEEP = 1 => "Sleep",
        /// Polling for a port at the other end of the link.
        POLLING = 2 => "Polling",
        /// Disabled.
        DISABLED = 3 => "Disabled",
        /// Configuring the link.
        TRAINING = 4 => "PortConfigurationTraining",
        /// The link is up.
        LINK_UP = 5 => "LinkUp",
        /// Recovering from an error.
        ERROR_RECOVERY = 6 => "LinkErrorRecovery",
        /// Running a test of the physical layer.
        PHY_TEST = 7 => "PhyTest",
    }
}

c_value! {
    /// The width of a link, as a code: the value is not the number of lanes. A set of bits where a
    /// field lists several.
    ///
    /// # Example
    /// ```
    /// use rdma_types::LinkWidth;
    /// assert_eq!(LinkWidth::X4.lanes(), Some(4)); // its code is 2
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
    /// Returns the number of lanes, or `None` for an unknown code or a set of several widths.
    pub const fn lanes(self) -> Option<u32> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_widths_are_numbers_of_lanes() {
        let lanes = [1, 2, 4, 8, 16, 3].map(|code| LinkWidth(code).lanes());
        assert_eq!(lanes, [Some(1), Some(4), Some(8), Some(12), Some(2), None]);
    }
}
