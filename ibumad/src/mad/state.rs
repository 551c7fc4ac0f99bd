//! Speeds and MTUs of ports.

use rdma_types::{LinkWidth, PhysState, PortState, c_value};

use super::bits::field_value;

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
    fn codes_of_mtus_are_numbers() {
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
    }
}
