//! Device attributes from the extended query, `ibv_query_device_ex`.

#![allow(unsafe_code)]

use std::ptr;

use rdma_sys::{ibv_device_attr_ex, ibv_query_device_ex};

use super::attr::{DeviceAttr, DeviceCapFlags};
use super::caps::{
    CqModerationCaps, OdpCaps, OdpGeneralCaps, OdpTransportCaps, PacketPacingCaps, PciAtomicCaps,
    QpTypes, RawPacketCaps, RssCaps, RxHashFields, TmCaps, TsoCaps,
};
use super::context::Context;
use crate::convert::zero_or_errno;
use crate::error::Result;
use crate::raw::AsRaw;

/// Attributes, limits and capabilities of a device (`struct ibv_device_attr_ex`). Counts are
/// maxima; sizes are in bytes.
///
/// If the provider or the kernel only supports the classic query, `attr` is filled in and all other
/// fields are 0.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// let device = context.query_device_ex()?;
/// println!(
///     "{} queue pairs, a clock of {} kHz",
///     device.attr.max_qp, device.hca_core_clock
/// );
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_device_ex")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttrEx {
    /// Attributes that the classic query returns too.
    pub attr: DeviceAttr,
    /// On-demand paging.
    pub odp: OdpCaps,
    /// Valid bits of a completion timestamp; 0 if the device has no timestamps.
    pub completion_timestamp_mask: u64,
    /// Frequency of the device's clock in kHz; 0 if unknown.
    pub hca_core_clock: u64,
    /// All 64 capability bits; empty if the extended query is not supported.
    pub device_cap_flags_ex: DeviceCapFlags,
    /// TCP segmentation.
    pub tso: TsoCaps,
    /// Receive-side scaling.
    pub rss: RssCaps,
    /// Maximum number of receive work queues (`ibv_create_wq`).
    pub max_wq_type_rq: u32,
    /// Packet pacing.
    pub packet_pacing: PacketPacingCaps,
    /// Capabilities of raw packet queue pairs.
    pub raw_packet_caps: RawPacketCaps,
    /// Tag matching.
    pub tm: TmCaps,
    /// Moderation of completion events.
    pub cq_mod: CqModerationCaps,
    /// Size of the device memory that can be allocated, in bytes; 0 if there is none.
    pub max_dm_size: u64,
    /// Atomic operations over PCI.
    pub pci_atomic: PciAtomicCaps,
    /// Number of ports, which can exceed 255. Equals the classic count if the device does not
    /// report it.
    pub phys_port_cnt: u32,
    /// Number of completion vectors of the open context.
    pub num_comp_vectors: u32,
}

impl DeviceAttrEx {
    fn from_raw(raw: &ibv_device_attr_ex, num_comp_vectors: u32) -> Self {
        let odp = &raw.odp_caps.per_transport_caps;
        let attr = DeviceAttr::from_raw(&raw.orig_attr);
        let phys_port_cnt = raw.phys_port_cnt_ex.max(attr.phys_port_cnt.into());
        Self {
            attr,
            odp: OdpCaps {
                general: OdpGeneralCaps::from_bits_retain(raw.odp_caps.general_caps),
                rc: OdpTransportCaps::from_bits_retain(odp.rc_odp_caps),
                uc: OdpTransportCaps::from_bits_retain(odp.uc_odp_caps),
                ud: OdpTransportCaps::from_bits_retain(odp.ud_odp_caps),
                xrc: OdpTransportCaps::from_bits_retain(raw.xrc_odp_caps),
            },
            completion_timestamp_mask: raw.completion_timestamp_mask,
            hca_core_clock: raw.hca_core_clock,
            device_cap_flags_ex: DeviceCapFlags::from_bits_retain(raw.device_cap_flags_ex),
            tso: TsoCaps {
                max_tso: raw.tso_caps.max_tso,
                supported_qpts: QpTypes(raw.tso_caps.supported_qpts),
            },
            rss: RssCaps {
                supported_qpts: QpTypes(raw.rss_caps.supported_qpts),
                max_rwq_indirection_tables: raw.rss_caps.max_rwq_indirection_tables,
                max_rwq_indirection_table_size: raw.rss_caps.max_rwq_indirection_table_size,
                rx_hash_fields: RxHashFields::from_bits_retain(raw.rss_caps.rx_hash_fields_mask),
                rx_hash_function: raw.rss_caps.rx_hash_function,
            },
            max_wq_type_rq: raw.max_wq_type_rq,
            packet_pacing: PacketPacingCaps {
                qp_rate_limit_min: raw.packet_pacing_caps.qp_rate_limit_min,
                qp_rate_limit_max: raw.packet_pacing_caps.qp_rate_limit_max,
                supported_qpts: QpTypes(raw.packet_pacing_caps.supported_qpts),
            },
            raw_packet_caps: RawPacketCaps::from_bits_retain(raw.raw_packet_caps),
            tm: TmCaps {
                max_rndv_hdr_size: raw.tm_caps.max_rndv_hdr_size,
                max_num_tags: raw.tm_caps.max_num_tags,
                flags: raw.tm_caps.flags,
                max_ops: raw.tm_caps.max_ops,
                max_sge: raw.tm_caps.max_sge,
            },
            cq_mod: CqModerationCaps {
                max_cq_count: raw.cq_mod_caps.max_cq_count,
                max_cq_period: raw.cq_mod_caps.max_cq_period,
            },
            max_dm_size: raw.max_dm_size,
            pci_atomic: PciAtomicCaps {
                fetch_add: raw.pci_atomic_caps.fetch_add,
                swap: raw.pci_atomic_caps.swap,
                compare_swap: raw.pci_atomic_caps.compare_swap,
            },
            phys_port_cnt,
            num_comp_vectors,
        }
    }
}

impl Context {
    /// Queries all attributes of the device, including the extended ones.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::caps::OdpGeneralCaps;
    /// let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// let all = context.query_device_ex()?;
    /// println!(
    ///     "{}, {} completion vectors",
    ///     all.attr.atomic_cap, all.num_comp_vectors
    /// );
    /// println!(
    ///     "on-demand paging: {}",
    ///     all.odp.general.contains(OdpGeneralCaps::SUPPORT)
    /// );
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails only if the device has been removed.
    #[doc(alias = "ibv_query_device_ex")]
    pub fn query_device_ex(&self) -> Result<DeviceAttrEx> {
        let mut attr = ibv_device_attr_ex::default();
        // SAFETY: the context is open, the input is null (none), and the structure is writable.
        let returned = unsafe { ibv_query_device_ex(self.as_raw(), ptr::null(), &raw mut attr) };
        zero_or_errno(
            "ibv_query_device_ex",
            || self.device_name().into(),
            returned,
        )?;
        Ok(DeviceAttrEx::from_raw(&attr, self.num_comp_vectors()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_extended_query_classic_values_are_used() {
        let mut raw = ibv_device_attr_ex::default();
        raw.orig_attr.max_qp = 7;
        raw.orig_attr.phys_port_cnt = 2;
        raw.orig_attr.device_cap_flags = 1 << 17 | 1 << 30;
        let attr = DeviceAttrEx::from_raw(&raw, 4);
        assert_eq!(
            (attr.attr.max_qp, attr.phys_port_cnt, attr.num_comp_vectors),
            (7, 2, 4)
        );
        assert!(
            attr.attr
                .device_cap_flags
                .contains(DeviceCapFlags::MEM_WINDOW)
        );
        assert_eq!(
            attr.attr.device_cap_flags.bits(),
            1 << 17 | 1 << 30,
            "unknown bits are kept"
        );
        assert!(attr.device_cap_flags_ex.is_empty());
        assert_eq!(attr.odp, OdpCaps::default());
    }
}
