//! What a device can do beyond the classic query, by subject.

use bitflags::bitflags;

bitflags! {
    /// On-demand paging in general (`enum ibv_odp_general_caps`); bits that this version does not name are kept.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::OdpGeneralCaps;
    /// let pages_on_demand = context.query_device_ex()?.odp.general.contains(OdpGeneralCaps::SUPPORT);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OdpGeneralCaps: u64 {
        /// Regions may be registered on demand: `IBV_ODP_SUPPORT`.
        const SUPPORT = rdma_sys::IBV_ODP_SUPPORT as u64;
        /// The whole address space may be one region: `IBV_ODP_SUPPORT_IMPLICIT`.
        const IMPLICIT = rdma_sys::IBV_ODP_SUPPORT_IMPLICIT as u64;
        const _ = !0;
    }
}

bitflags! {
    /// The operations that may use on-demand memory, on one transport (`enum ibv_odp_transport_cap_bits`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::OdpTransportCaps;
    /// let needed = OdpTransportCaps::SEND | OdpTransportCaps::RECV;
    /// let sends_on_demand = context.query_device_ex()?.odp.rc.contains(needed);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
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
    /// What raw packet queues can do (`enum ibv_raw_packet_caps`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::RawPacketCaps;
    /// let checks_sums = context.query_device_ex()?.raw_packet_caps.contains(RawPacketCaps::IP_CSUM);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RawPacketCaps: u32 {
        /// Strips customer VLAN tags: `IBV_RAW_PACKET_CAP_CVLAN_STRIPPING`.
        const CVLAN_STRIPPING = rdma_sys::IBV_RAW_PACKET_CAP_CVLAN_STRIPPING;
        /// Scatters the frame check sequence: `IBV_RAW_PACKET_CAP_SCATTER_FCS`.
        const SCATTER_FCS = rdma_sys::IBV_RAW_PACKET_CAP_SCATTER_FCS;
        /// Checksums of IP: `IBV_RAW_PACKET_CAP_IP_CSUM`.
        const IP_CSUM = rdma_sys::IBV_RAW_PACKET_CAP_IP_CSUM;
        /// Waits with dropping while there is no receive: `IBV_RAW_PACKET_CAP_DELAY_DROP`.
        const DELAY_DROP = rdma_sys::IBV_RAW_PACKET_CAP_DELAY_DROP;
        const _ = !0;
    }
}

bitflags! {
    /// What receive-side scaling can hash (`enum ibv_rx_hash_fields`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::RxHashFields;
    /// let fields = context.query_device_ex()?.rss.rx_hash_fields;
    /// let spreads_udp = fields.contains(RxHashFields::SRC_PORT_UDP | RxHashFields::DST_PORT_UDP);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
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

/// On-demand paging, by transport.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::{AccessFlags, MemoryOptions, caps::OdpTransportCaps};
/// let odp = context.query_device_ex()?.odp;
/// let on_demand = odp.rc.contains(OdpTransportCaps::WRITE);
/// let options = MemoryOptions {
///     on_demand,
///     ..MemoryOptions::default()
/// };
/// let region = context
///     .alloc_pd()?
///     .shared_with(1 << 30, AccessFlags::REMOTE_WRITE, options)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "one field a transport")]
pub struct OdpCaps {
    pub general: OdpGeneralCaps,
    pub rc: OdpTransportCaps,
    pub uc: OdpTransportCaps,
    pub ud: OdpTransportCaps,
    pub xrc: OdpTransportCaps,
}

/// A set of queue pair types, as the bits 1 << `ibv_qp_type`.
///
/// # Example
/// ```
/// use ibverbs::{QpType, caps::QpTypes};
/// let types = QpTypes(1 << QpType::RC.0 | 1 << QpType::UD.0);
/// assert!(types.contains(QpType::UD.0) && !types.contains(QpType::UC.0));
/// ```
///
/// # References
/// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QpTypes(pub u32);

impl QpTypes {
    /// Whether the queue pair type of this number (`QpType(n).0`) is in the set.
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

/// TCP segmentation by the device (`struct ibv_tso_caps`).
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
///
/// # References
/// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TsoCaps {
    /// Largest payload in bytes; 0 without segmentation.
    pub max_tso: u32,
    /// The queue pair types that have it.
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
///
/// # References
/// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RssCaps {
    /// The queue pair types that have it.
    pub supported_qpts: QpTypes,
    /// Indirection tables of the device.
    pub max_rwq_indirection_tables: u32,
    /// Work queues of one table.
    pub max_rwq_indirection_table_size: u32,
    /// What can be hashed.
    pub rx_hash_fields: RxHashFields,
    /// Hash functions, as bits (1: Toeplitz).
    pub rx_hash_function: u8,
}

/// Limits on a queue pair's sending rate (`struct ibv_packet_pacing_caps`); all 0 without packet
/// pacing.
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
///
/// # References
/// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketPacingCaps {
    /// In kbit/s.
    pub qp_rate_limit_min: u32,
    /// In kbit/s.
    pub qp_rate_limit_max: u32,
    /// The queue pair types that have it.
    pub supported_qpts: QpTypes,
}

/// Tag matching (`struct ibv_tm_caps`); all 0 without.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// let tm = context.query_device_ex()?.tm;
/// println!(
///     "{} tags of a shared receive queue, {} operations at once",
///     tm.max_num_tags, tm.max_ops
/// );
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TmCaps {
    /// Bytes of a rendezvous header.
    pub max_rndv_hdr_size: u32,
    /// Tags of one shared receive queue.
    pub max_num_tags: u32,
    /// Transports, as bits (1: RC).
    pub flags: u32,
    /// List operations outstanding.
    pub max_ops: u32,
    /// Scatter entries of a tagged receive.
    pub max_sge: u32,
}

/// Moderation of completion events (`struct ibv_cq_moderation_caps`); all 0 without.
///
/// # Example
/// As few events as the device can make of it:
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
///
/// # References
/// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html),
/// [`ibv_modify_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_cq.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CqModerationCaps {
    /// Completions an event.
    pub max_cq_count: u16,
    /// In µs.
    pub max_cq_period: u16,
}

/// Operand sizes of atomics over PCI (`struct ibv_pci_atomic_caps`), as bits: 1 for 4 bytes, 2 for
/// 8, 4 for 16.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// let adds_to_8_bytes = context.query_device_ex()?.pci_atomic.fetch_add & 2 != 0;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "one field an operation")]
pub struct PciAtomicCaps {
    pub fetch_add: u16,
    pub swap: u16,
    pub compare_swap: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_queue_pair_types_answers_for_any_number() {
        assert!(QpTypes(1 << 2).contains(2));
        assert!(
            !QpTypes(u32::MAX).contains(255),
            "IBV_QPT_DRIVER has no bit"
        );
    }
}
