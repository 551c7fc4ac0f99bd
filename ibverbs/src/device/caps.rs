//! Extended capabilities of a device, by subject.

use bitflags::bitflags;

bitflags! {
    /// On-demand paging support of a device (`enum ibv_odp_general_caps`). Unknown bits are kept.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::OdpGeneralCaps;
    /// let pages_on_demand = context.query_device_ex()?.odp.general.contains(OdpGeneralCaps::SUPPORT);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_device_ex")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OdpGeneralCaps: u64 {
        /// Memory can be registered for on-demand paging: `IBV_ODP_SUPPORT`.
        const SUPPORT = rdma_sys::IBV_ODP_SUPPORT as u64;
        /// The whole address space can be registered as one region: `IBV_ODP_SUPPORT_IMPLICIT`.
        const IMPLICIT = rdma_sys::IBV_ODP_SUPPORT_IMPLICIT as u64;
        const _ = !0;
    }
}

bitflags! {
    /// Operations that can use on-demand memory on one transport
    /// (`enum ibv_odp_transport_cap_bits`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::OdpTransportCaps;
    /// let needed = OdpTransportCaps::SEND | OdpTransportCaps::RECV;
    /// let sends_on_demand = context.query_device_ex()?.odp.rc.contains(needed);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_device_ex")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OdpTransportCaps: u32 {
        /// `IBV_ODP_SUPPORT_SEND`.
        const SEND = rdma_sys::IBV_ODP_SUPPORT_SEND;
        /// `IBV_ODP_SUPPORT_RECV`.
        const RECV = rdma_sys::IBV_ODP_SUPPORT_RECV;
        /// `IBV_ODP_SUPPORT_WRITE`.
        const WRITE = rdma_sys::IBV_ODP_SUPPORT_WRITE;
        /// `IBV_ODP_SUPPORT_READ`.
        const READ = rdma_sys::IBV_ODP_SUPPORT_READ;
        /// `IBV_ODP_SUPPORT_ATOMIC`.
        const ATOMIC = rdma_sys::IBV_ODP_SUPPORT_ATOMIC;
        /// `IBV_ODP_SUPPORT_SRQ_RECV`.
        const SRQ_RECV = rdma_sys::IBV_ODP_SUPPORT_SRQ_RECV;
        const _ = !0;
    }
}

bitflags! {
    /// Capabilities of raw packet queue pairs (`enum ibv_raw_packet_caps`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::RawPacketCaps;
    /// let checks_sums = context.query_device_ex()?.raw_packet_caps.contains(RawPacketCaps::IP_CSUM);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_device_ex")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RawPacketCaps: u32 {
        /// Strips customer VLAN tags: `IBV_RAW_PACKET_CAP_CVLAN_STRIPPING`.
        const CVLAN_STRIPPING = rdma_sys::IBV_RAW_PACKET_CAP_CVLAN_STRIPPING;
        /// Delivers the frame check sequence: `IBV_RAW_PACKET_CAP_SCATTER_FCS`.
        const SCATTER_FCS = rdma_sys::IBV_RAW_PACKET_CAP_SCATTER_FCS;
        /// Computes IP checksums: `IBV_RAW_PACKET_CAP_IP_CSUM`.
        const IP_CSUM = rdma_sys::IBV_RAW_PACKET_CAP_IP_CSUM;
        /// Delays the drop of a packet while no receive is posted: `IBV_RAW_PACKET_CAP_DELAY_DROP`.
        const DELAY_DROP = rdma_sys::IBV_RAW_PACKET_CAP_DELAY_DROP;
        const _ = !0;
    }
}

bitflags! {
    /// Packet fields that receive-side scaling can hash (`enum ibv_rx_hash_fields`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::RxHashFields;
    /// let fields = context.query_device_ex()?.rss.rx_hash_fields;
    /// let spreads_udp = fields.contains(RxHashFields::SRC_PORT_UDP | RxHashFields::DST_PORT_UDP);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_device_ex")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RxHashFields: u64 {
        /// `IBV_RX_HASH_SRC_IPV4`.
        const SRC_IPV4 = rdma_sys::IBV_RX_HASH_SRC_IPV4 as u64;
        /// `IBV_RX_HASH_DST_IPV4`.
        const DST_IPV4 = rdma_sys::IBV_RX_HASH_DST_IPV4 as u64;
        /// `IBV_RX_HASH_SRC_IPV6`.
        const SRC_IPV6 = rdma_sys::IBV_RX_HASH_SRC_IPV6 as u64;
        /// `IBV_RX_HASH_DST_IPV6`.
        const DST_IPV6 = rdma_sys::IBV_RX_HASH_DST_IPV6 as u64;
        /// `IBV_RX_HASH_SRC_PORT_TCP`.
        const SRC_PORT_TCP = rdma_sys::IBV_RX_HASH_SRC_PORT_TCP as u64;
        /// `IBV_RX_HASH_DST_PORT_TCP`.
        const DST_PORT_TCP = rdma_sys::IBV_RX_HASH_DST_PORT_TCP as u64;
        /// `IBV_RX_HASH_SRC_PORT_UDP`.
        const SRC_PORT_UDP = rdma_sys::IBV_RX_HASH_SRC_PORT_UDP as u64;
        /// `IBV_RX_HASH_DST_PORT_UDP`.
        const DST_PORT_UDP = rdma_sys::IBV_RX_HASH_DST_PORT_UDP as u64;
        /// `IBV_RX_HASH_IPSEC_SPI`.
        const IPSEC_SPI = rdma_sys::IBV_RX_HASH_IPSEC_SPI as u64;
        /// `IBV_RX_HASH_INNER`.
        const INNER = rdma_sys::IBV_RX_HASH_INNER as u64;
        const _ = !0;
    }
}

/// On-demand paging support, by transport.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::{AccessFlags, MemoryOptions, caps::OdpTransportCaps};
/// let odp = context.query_device_ex()?.odp;
/// let on_demand = odp.rc.contains(OdpTransportCaps::WRITE);
/// let options = MemoryOptions::new().on_demand(on_demand);
/// let region = context
///     .alloc_pd()?
///     .shared_with(1 << 30, AccessFlags::REMOTE_WRITE, options)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_device_ex")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "one field per transport")]
pub struct OdpCaps {
    pub general: OdpGeneralCaps,
    pub rc: OdpTransportCaps,
    pub uc: OdpTransportCaps,
    pub ud: OdpTransportCaps,
    pub xrc: OdpTransportCaps,
}

/// A set of queue pair types: bit n stands for `ibv_qp_type` n.
///
/// # Example
/// ```
/// use ibverbs::{QpType, caps::QpTypes};
/// let types = QpTypes(1 << QpType::RC.0 | 1 << QpType::UD.0);
/// assert!(types.contains(QpType::UD.0) && !types.contains(QpType::UC.0));
/// ```
#[doc(alias = "ibv_query_device_ex")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QpTypes(pub u32);

impl QpTypes {
    /// Returns `true` if the set contains the queue pair type with this number (`QpType(n).0`).
    ///
    /// # Example
    /// ```
    /// use ibverbs::{QpType, caps::QpTypes};
    /// assert!(QpTypes(1 << 8).contains(QpType::RAW_PACKET.0));
    /// assert!(!QpTypes(1 << 8).contains(QpType::RC.0));
    /// ```
    pub const fn contains(self, qp_type: u32) -> bool {
        qp_type < u32::BITS && self.0 >> qp_type & 1 == 1
    }
}

/// TCP segmentation offload (`struct ibv_tso_caps`).
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::QpType;
/// let tso = context.query_device_ex()?.tso;
/// if tso.supported_qpts.contains(QpType::RAW_PACKET.0) {
///     println!("segments of up to {} bytes", tso.max_tso);
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_device_ex")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TsoCaps {
    /// Largest payload in bytes; 0 if segmentation is not supported.
    pub max_tso: u32,
    /// Queue pair types that support segmentation.
    pub supported_qpts: QpTypes,
}

/// Receive-side scaling (`struct ibv_rss_caps`).
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// let rss = context.query_device_ex()?.rss;
/// println!(
///     "{} tables of {} work queues",
///     rss.max_rwq_indirection_tables, rss.max_rwq_indirection_table_size
/// );
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_device_ex")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RssCaps {
    /// Queue pair types that support receive-side scaling.
    pub supported_qpts: QpTypes,
    /// Maximum number of indirection tables.
    pub max_rwq_indirection_tables: u32,
    /// Maximum number of work queues in one table.
    pub max_rwq_indirection_table_size: u32,
    /// Packet fields that can be hashed.
    pub rx_hash_fields: RxHashFields,
    /// Hash functions, as bits (1 is Toeplitz).
    pub rx_hash_function: u8,
}

/// Range of the send rate limit of a queue pair (`struct ibv_packet_pacing_caps`). All fields are 0
/// if packet pacing is not supported.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// let pacing = context.query_device_ex()?.packet_pacing;
/// println!(
///     "from {} to {} kbit/s",
///     pacing.qp_rate_limit_min, pacing.qp_rate_limit_max
/// );
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_device_ex")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketPacingCaps {
    /// Lowest rate in kbit/s.
    pub qp_rate_limit_min: u32,
    /// Highest rate in kbit/s.
    pub qp_rate_limit_max: u32,
    /// Queue pair types that support packet pacing.
    pub supported_qpts: QpTypes,
}

/// Tag matching (`struct ibv_tm_caps`). All fields are 0 if it is not supported.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// let tm = context.query_device_ex()?.tm;
/// println!(
///     "{} tags per shared receive queue, {} operations in flight",
///     tm.max_num_tags, tm.max_ops
/// );
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_device_ex")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TmCaps {
    /// Largest rendezvous header in bytes.
    pub max_rndv_hdr_size: u32,
    /// Maximum number of tags in one shared receive queue.
    pub max_num_tags: u32,
    /// Supported transports, as bits (1 is RC).
    pub flags: u32,
    /// Maximum number of outstanding tag list operations.
    pub max_ops: u32,
    /// Maximum number of scatter entries of a tagged receive.
    pub max_sge: u32,
}

/// Limits of completion moderation (`struct ibv_cq_moderation_caps`). All fields are 0 if it is not
/// supported.
///
/// # Example
/// This example lets the device raise as few completion events as possible:
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// # let mut cq = context.create_cq(ibverbs::CqOptions::default())?;
/// use std::time::Duration;
/// let caps = context.query_device_ex()?.cq_mod;
/// cq.moderate(
///     caps.max_cq_count,
///     Duration::from_micros(caps.max_cq_period.into()),
/// )?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_device_ex")]
#[doc(alias = "ibv_modify_cq")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CqModerationCaps {
    /// Highest number of completions per event.
    pub max_cq_count: u16,
    /// Longest delay of an event, in µs.
    pub max_cq_period: u16,
}

/// Operand sizes of atomic operations over PCI (`struct ibv_pci_atomic_caps`), as bits: 1 for 4
/// bytes, 2 for 8 bytes, 4 for 16 bytes.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// let adds_to_8_bytes = context.query_device_ex()?.pci_atomic.fetch_add & 2 != 0;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_device_ex")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "one field per operation")]
pub struct PciAtomicCaps {
    pub fetch_add: u16,
    pub swap: u16,
    pub compare_swap: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qp_types_contains_accepts_any_number() {
        assert!(QpTypes(1 << 2).contains(2));
        assert!(
            !QpTypes(u32::MAX).contains(255),
            "IBV_QPT_DRIVER (255) has no bit"
        );
    }
}
