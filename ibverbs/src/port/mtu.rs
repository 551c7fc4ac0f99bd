//! The path MTU.

use rdma_types::c_value;

c_value! {
    /// The RDMA path MTU (`enum ibv_mtu`), as a code: the value is not a number of bytes.
    ///
    /// # Example
    /// ```
    /// use ibverbs::Mtu;
    /// assert_eq!(Mtu::B1024.bytes(), Some(1024));
    /// assert_eq!(Mtu::from_bytes(4096), Some(Mtu::B4096));
    /// assert_eq!(Mtu::from_bytes(1500), None); // an Ethernet MTU is not an RDMA MTU
    /// ```
    #[doc(alias = "ibv_query_port")]
    pub struct Mtu(u32) {
        /// 256 bytes.
        B256 = rdma_sys::IBV_MTU_256 => "256",
        /// 512 bytes.
        B512 = rdma_sys::IBV_MTU_512 => "512",
        /// 1024 bytes.
        B1024 = rdma_sys::IBV_MTU_1024 => "1024",
        /// 2048 bytes.
        B2048 = rdma_sys::IBV_MTU_2048 => "2048",
        /// 4096 bytes.
        B4096 = rdma_sys::IBV_MTU_4096 => "4096",
    }
}

impl Mtu {
    /// Returns the MTU in bytes, or `None` for an undefined code (not 1 to 5).
    pub const fn bytes(self) -> Option<u32> {
        match self.0 {
            code @ 1..=5 => Some(128 << code),
            _ => None,
        }
    }

    /// Returns the code for an MTU of exactly this many bytes, or `None` if there is none.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            256 => Some(Self::B256),
            512 => Some(Self::B512),
            1024 => Some(Self::B1024),
            2048 => Some(Self::B2048),
            4096 => Some(Self::B4096),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes_and_bytes_agree() {
        for bytes in [256, 512, 1024, 2048, 4096] {
            let mtu = Mtu::from_bytes(bytes).expect("a defined MTU");
            assert_eq!(mtu.bytes(), Some(bytes));
            assert_eq!(mtu.to_string(), bytes.to_string());
        }
        assert_eq!(Mtu::from_bytes(1500), None);
        assert_eq!(Mtu(9).bytes(), None);
        assert_eq!(Mtu(9).to_string(), "unknown (9)");
    }
}
