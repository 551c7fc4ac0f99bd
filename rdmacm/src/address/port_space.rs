//! Port spaces.

use rdma_types::c_value;

c_value! {
    /// Namespace of port numbers, which also determines the queue pair type (`enum
    /// rdma_port_space`).
    ///
    /// The same number in two port spaces denotes two ports. Connections use [`TCP`](Self::TCP) or
    /// [`IB`](Self::IB), datagrams use [`UDP`](Self::UDP) or [`IPOIB`](Self::IPOIB). On iWARP the
    /// `TCP` ports are those of the host's TCP stack.
    ///
    /// # Example
    /// ```no_run
    /// use rdmacm::{ListenOptions, PortSpace};
    /// let listener = ListenOptions::new().port_space(PortSpace::IB).bind("0.0.0.0:7471".parse()?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "rdma_create_id")]
    pub struct PortSpace(u32) {
        /// Datagrams between members of an IP-over-InfiniBand network, with its multicast groups
        /// and its Q_Key.
        IPOIB = rdma_sys::RDMA_PS_IPOIB => "IPoIB",
        /// Reliable connections.
        TCP = rdma_sys::RDMA_PS_TCP => "TCP",
        /// Datagrams.
        UDP = rdma_sys::RDMA_PS_UDP => "UDP",
        /// InfiniBand service IDs, used here for reliable connections.
        IB = rdma_sys::RDMA_PS_IB => "IB",
    }
}

impl PortSpace {
    /// Returns `true` for the port spaces of datagrams.
    pub(crate) fn is_datagram(self) -> bool {
        matches!(self, Self::UDP | Self::IPOIB)
    }
}
