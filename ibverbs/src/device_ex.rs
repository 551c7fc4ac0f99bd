//! All that a device says of itself: the extended query.

#![allow(unsafe_code)]

use std::ptr;

use rdma_sys::{ibv_device_attr_ex, ibv_query_device_ex};

use crate::context::{Context, DeviceAttr};
use crate::convert::zero_or_errno;
use crate::error::Result;
use crate::newtype::c_value;
use crate::raw::AsRaw;

c_value! {
    /// Towards whom a device's atomics are atomic (`enum ibv_atomic_cap`).
    pub struct AtomicCap(u32) {
        /// No atomics: `IBV_ATOMIC_NONE`.
        NONE = rdma_sys::IBV_ATOMIC_NONE => "ATOMIC_NONE",
        /// Among the queue pairs of this device: `IBV_ATOMIC_HCA`.
        HCA = rdma_sys::IBV_ATOMIC_HCA => "ATOMIC_HCA",
        /// Also towards the processors: `IBV_ATOMIC_GLOB`.
        GLOB = rdma_sys::IBV_ATOMIC_GLOB => "ATOMIC_GLOB",
    }
}

/// All that a device says of itself (`struct ibv_device_attr_ex`); counts are limits, sizes are bytes, flags are the
/// bits of the C enumerations.
///
/// Where provider or kernel know the classic query only, the extended fields are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are those of ibv_query_device_ex(3), under their own names")]
pub struct DeviceAttrEx {
    pub attr: DeviceAttr,
    pub page_size_cap: u64,
    pub device_cap_flags: u32,
    pub max_ee_rd_atom: i32,
    pub max_res_rd_atom: i32,
    pub max_ee_init_rd_atom: i32,
    pub atomic_cap: AtomicCap,
    pub max_ee: i32,
    pub max_rdd: i32,
    pub max_mw: i32,
    pub max_raw_ipv6_qp: i32,
    pub max_raw_ethy_qp: i32,
    pub max_mcast_grp: i32,
    pub max_mcast_qp_attach: i32,
    pub max_total_mcast_qp_attach: i32,
    pub max_ah: i32,
    pub max_fmr: i32,
    pub max_map_per_fmr: i32,
    pub max_srq_sge: i32,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub odp_general_caps: u64,
    pub rc_odp_caps: u32,
    pub uc_odp_caps: u32,
    pub ud_odp_caps: u32,
    pub xrc_odp_caps: u32,
    pub completion_timestamp_mask: u64,
    /// In kHz.
    pub hca_core_clock: u64,
    pub device_cap_flags_ex: u64,
    pub max_tso: u32,
    pub tso_supported_qpts: u32,
    pub rss_supported_qpts: u32,
    pub max_rwq_indirection_tables: u32,
    pub max_rwq_indirection_table_size: u32,
    pub rx_hash_function: u8,
    pub rx_hash_fields_mask: u64,
    pub max_wq_type_rq: u32,
    /// In kbit/s.
    pub qp_rate_limit_min: u32,
    /// In kbit/s.
    pub qp_rate_limit_max: u32,
    pub pacing_supported_qpts: u32,
    pub raw_packet_caps: u32,
    pub tm_max_rndv_hdr_size: u32,
    pub tm_max_num_tags: u32,
    pub tm_flags: u32,
    pub tm_max_ops: u32,
    pub tm_max_sge: u32,
    pub max_cq_count: u16,
    /// In µs.
    pub max_cq_period: u16,
    pub max_dm_size: u64,
    /// Completion vectors of the open context.
    pub num_comp_vectors: u32,
}

impl DeviceAttrEx {
    fn from_raw(raw: &ibv_device_attr_ex, vectors: i32) -> Self {
        let classic = &raw.orig_attr;
        let odp = &raw.odp_caps.per_transport_caps;
        Self {
            attr: DeviceAttr::from_raw(classic),
            page_size_cap: classic.page_size_cap,
            device_cap_flags: classic.device_cap_flags,
            max_ee_rd_atom: classic.max_ee_rd_atom,
            max_res_rd_atom: classic.max_res_rd_atom,
            max_ee_init_rd_atom: classic.max_ee_init_rd_atom,
            atomic_cap: AtomicCap(classic.atomic_cap),
            max_ee: classic.max_ee,
            max_rdd: classic.max_rdd,
            max_mw: classic.max_mw,
            max_raw_ipv6_qp: classic.max_raw_ipv6_qp,
            max_raw_ethy_qp: classic.max_raw_ethy_qp,
            max_mcast_grp: classic.max_mcast_grp,
            max_mcast_qp_attach: classic.max_mcast_qp_attach,
            max_total_mcast_qp_attach: classic.max_total_mcast_qp_attach,
            max_ah: classic.max_ah,
            max_fmr: classic.max_fmr,
            max_map_per_fmr: classic.max_map_per_fmr,
            max_srq_sge: classic.max_srq_sge,
            max_pkeys: classic.max_pkeys,
            local_ca_ack_delay: classic.local_ca_ack_delay,
            odp_general_caps: raw.odp_caps.general_caps,
            rc_odp_caps: odp.rc_odp_caps,
            uc_odp_caps: odp.uc_odp_caps,
            ud_odp_caps: odp.ud_odp_caps,
            xrc_odp_caps: raw.xrc_odp_caps,
            completion_timestamp_mask: raw.completion_timestamp_mask,
            hca_core_clock: raw.hca_core_clock,
            device_cap_flags_ex: raw.device_cap_flags_ex,
            max_tso: raw.tso_caps.max_tso,
            tso_supported_qpts: raw.tso_caps.supported_qpts,
            rss_supported_qpts: raw.rss_caps.supported_qpts,
            max_rwq_indirection_tables: raw.rss_caps.max_rwq_indirection_tables,
            max_rwq_indirection_table_size: raw.rss_caps.max_rwq_indirection_table_size,
            rx_hash_function: raw.rss_caps.rx_hash_function,
            rx_hash_fields_mask: raw.rss_caps.rx_hash_fields_mask,
            max_wq_type_rq: raw.max_wq_type_rq,
            qp_rate_limit_min: raw.packet_pacing_caps.qp_rate_limit_min,
            qp_rate_limit_max: raw.packet_pacing_caps.qp_rate_limit_max,
            pacing_supported_qpts: raw.packet_pacing_caps.supported_qpts,
            raw_packet_caps: raw.raw_packet_caps,
            tm_max_rndv_hdr_size: raw.tm_caps.max_rndv_hdr_size,
            tm_max_num_tags: raw.tm_caps.max_num_tags,
            tm_flags: raw.tm_caps.flags,
            tm_max_ops: raw.tm_caps.max_ops,
            tm_max_sge: raw.tm_caps.max_sge,
            max_cq_count: raw.cq_mod_caps.max_cq_count,
            max_cq_period: raw.cq_mod_caps.max_cq_period,
            max_dm_size: raw.max_dm_size,
            num_comp_vectors: u32::try_from(vectors).unwrap_or(0),
        }
    }
}

impl Context {
    /// All that the device says of itself, the extended properties included.
    ///
    /// # Example
    /// ```no_run
    /// let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// let all = context.query_device_ex()?;
    /// println!("{}, {} completion vectors", all.atomic_cap, all.num_comp_vectors);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails only when the device is gone.
    ///
    /// # References
    /// [`ibv_query_device_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
    pub fn query_device_ex(&self) -> Result<DeviceAttrEx> {
        let mut attr = ibv_device_attr_ex::default();
        // SAFETY: the context is open, no input is given, and the structure is valid for writing.
        let returned = unsafe { ibv_query_device_ex(self.as_raw(), ptr::null(), &raw mut attr) };
        zero_or_errno("ibv_query_device_ex", || self.device_name().into(), returned)?;
        // SAFETY: the context is open; the library sets the number when it opens.
        let vectors = unsafe { (*self.as_raw()).num_comp_vectors };
        Ok(DeviceAttrEx::from_raw(&attr, vectors))
    }
}
