//! Port spaces.

use crate::newtype::c_value;

c_value! {
    /// Whose port numbers they are, and which kind of queue pair they stand for (`enum rdma_port_space`).
    ///
    /// The same number in two port spaces is two ports. Connections are of [`TCP`](Self::TCP) (or [`IB`](Self::IB)), datagrams of
    /// [`UDP`](Self::UDP) or [`IPOIB`](Self::IPOIB). On iWARP the ports of `TCP` are those of the host's TCP.
    ///
    /// # Example
    /// ```no_run
    /// use rdmacm::{ListenOptions, PortSpace};
    /// let listener = ListenOptions::new().port_space(PortSpace::IB).bind("0.0.0.0:7471".parse()?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # References
    /// [`rdma_create_id(3)`](https://man7.org/linux/man-pages/man3/rdma_create_id.3.html)
    pub struct PortSpace(u32) {
        /// Datagrams among the members of an IP-over-InfiniBand network: with its multicast groups and its queue key.
        IPOIB = rdma_sys::RDMA_PS_IPOIB => "IPoIB",
        /// Reliable connections.
        TCP = rdma_sys::RDMA_PS_TCP => "TCP",
        /// Datagrams.
        UDP = rdma_sys::RDMA_PS_UDP => "UDP",
        /// Service numbers of InfiniBand; here for reliable connections.
        IB = rdma_sys::RDMA_PS_IB => "IB",
    }
}

impl PortSpace {
    /// Whether it is of datagrams.
    pub(crate) fn is_datagram(self) -> bool {
        matches!(self, Self::UDP | Self::IPOIB)
    }
}
