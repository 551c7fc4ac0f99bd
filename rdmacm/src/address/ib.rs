//! `AF_IB` addresses: a GID and a service ID in place of an IP address and a port.

use std::fmt;

use ibverbs::Gid;
use rdma_types::setters;

use crate::address::PortSpace;

/// An `AF_IB` address, for InfiniBand fabrics without IP addresses.
///
/// # Example
/// ```
/// use rdmacm::PortSpace;
/// use rdmacm::address::IbAddr;
/// let address = IbAddr::new("fe80::2:c903:0:1234".parse()?, PortSpace::TCP, 7471);
/// assert_eq!(address.service_id, 0x0106_1d2f);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`rdma_bind_addr(3)`](https://man7.org/linux/man-pages/man3/rdma_bind_addr.3.html), IBA A11
#[doc(alias = "rdma_bind_addr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IbAddr {
    /// GID of the port.
    pub gid: Gid,
    /// Partition key. Default: `0xffff`, the default partition.
    pub pkey: u16,
    /// Service ID. For a port of a port space it is the number of the port space followed by the
    /// port.
    pub service_id: u64,
}

setters! {
    IbAddr {
        gid: Gid,
        pkey: u16,
        service_id: u64,
    }
}

impl IbAddr {
    /// Creates the address of a port in the default partition.
    pub fn new(gid: Gid, port_space: PortSpace, port: u16) -> Self {
        Self {
            gid,
            pkey: 0xffff,
            service_id: u64::from(port_space.0) << 16 | u64::from(port),
        }
    }

    /// Returns the last 16 bits of the service ID, which correspond to the port.
    pub fn port(&self) -> u16 {
        (self.service_id & 0xffff) as u16
    }
}

impl fmt::Display for IbAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GID {} service {:#x}", self.gid, self.service_id)
    }
}
