//! Device attributes from the classic query, `ibv_query_device`.

#![allow(unsafe_code)]

use std::ffi::CStr;

use bitflags::bitflags;
use rdma_sys::{ibv_device_attr, ibv_query_device};

use super::context::Context;
use crate::convert::zero_or_errno;
use crate::error::Result;
use crate::raw::AsRaw;
use rdma_types::Guid;
use rdma_types::c_value;

c_value! {
    /// Scope within which a device's atomic operations are atomic (`enum ibv_atomic_cap`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::AtomicCap;
    /// if context.query_device()?.atomic_cap == AtomicCap::HCA {
    ///     println!("update shared counters through the device only");
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_device")]
    pub struct AtomicCap(u32) {
        /// No atomic operations: `IBV_ATOMIC_NONE`.
        NONE = rdma_sys::IBV_ATOMIC_NONE => "ATOMIC_NONE",
        /// Atomic with respect to other queue pairs of the same device: `IBV_ATOMIC_HCA`.
        HCA = rdma_sys::IBV_ATOMIC_HCA => "ATOMIC_HCA",
        /// Atomic with respect to CPUs and other devices too: `IBV_ATOMIC_GLOB`.
        GLOB = rdma_sys::IBV_ATOMIC_GLOB => "ATOMIC_GLOB",
    }
}

bitflags! {
    /// Device capability flags (`enum ibv_device_cap_flags`). Unknown bits are kept.
    ///
    /// The classic query returns the lower 32 bits. The extended query
    /// ([`DeviceAttrEx`](crate::caps::DeviceAttrEx)) returns all 64.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::caps::DeviceCapFlags;
    /// let flags = context.query_device()?.device_cap_flags;
    /// if flags.contains(DeviceCapFlags::MEM_WINDOW_TYPE_2B) {
    ///     println!("type 2B memory windows");
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_device")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct DeviceCapFlags: u64 {
        /// The depth of a queue pair can be changed: `IBV_DEVICE_RESIZE_MAX_WR`.
        const RESIZE_MAX_WR = rdma_sys::IBV_DEVICE_RESIZE_MAX_WR as u64;
        /// Counts packets with a wrong P_Key: `IBV_DEVICE_BAD_PKEY_CNTR`.
        const BAD_PKEY_CNTR = rdma_sys::IBV_DEVICE_BAD_PKEY_CNTR as u64;
        /// Counts packets with a wrong Q_Key: `IBV_DEVICE_BAD_QKEY_CNTR`.
        const BAD_QKEY_CNTR = rdma_sys::IBV_DEVICE_BAD_QKEY_CNTR as u64;
        /// Raw packet multicast: `IBV_DEVICE_RAW_MULTI`.
        const RAW_MULTI = rdma_sys::IBV_DEVICE_RAW_MULTI as u64;
        /// Automatic path migration: `IBV_DEVICE_AUTO_PATH_MIG`.
        const AUTO_PATH_MIG = rdma_sys::IBV_DEVICE_AUTO_PATH_MIG as u64;
        /// A queue pair can be moved to another port: `IBV_DEVICE_CHANGE_PHY_PORT`.
        const CHANGE_PHY_PORT = rdma_sys::IBV_DEVICE_CHANGE_PHY_PORT as u64;
        /// Checks that an address handle belongs to the port of the UD queue pair that uses it:
        /// `IBV_DEVICE_UD_AV_PORT_ENFORCE`.
        const UD_AV_PORT_ENFORCE = rdma_sys::IBV_DEVICE_UD_AV_PORT_ENFORCE as u64;
        /// `ibv_modify_qp` accepts the current state as an attribute:
        /// `IBV_DEVICE_CURR_QP_STATE_MOD`.
        const CURR_QP_STATE_MOD = rdma_sys::IBV_DEVICE_CURR_QP_STATE_MOD as u64;
        /// Ports can be shut down: `IBV_DEVICE_SHUTDOWN_PORT`.
        const SHUTDOWN_PORT = rdma_sys::IBV_DEVICE_SHUTDOWN_PORT as u64;
        /// The subnet manager can set the type of port initialization: `IBV_DEVICE_INIT_TYPE`.
        const INIT_TYPE = rdma_sys::IBV_DEVICE_INIT_TYPE as u64;
        /// Raises an event when a port becomes active: `IBV_DEVICE_PORT_ACTIVE_EVENT`.
        const PORT_ACTIVE_EVENT = rdma_sys::IBV_DEVICE_PORT_ACTIVE_EVENT as u64;
        /// Has a system image GUID: `IBV_DEVICE_SYS_IMAGE_GUID`.
        const SYS_IMAGE_GUID = rdma_sys::IBV_DEVICE_SYS_IMAGE_GUID as u64;
        /// RC queue pairs can send an RNR NAK (receiver not ready): `IBV_DEVICE_RC_RNR_NAK_GEN`.
        const RC_RNR_NAK_GEN = rdma_sys::IBV_DEVICE_RC_RNR_NAK_GEN as u64;
        /// The depth of a shared receive queue can be changed: `IBV_DEVICE_SRQ_RESIZE`.
        const SRQ_RESIZE = rdma_sys::IBV_DEVICE_SRQ_RESIZE as u64;
        /// Can raise an event after N completions: `IBV_DEVICE_N_NOTIFY_CQ`.
        const N_NOTIFY_CQ = rdma_sys::IBV_DEVICE_N_NOTIFY_CQ as u64;
        /// Memory windows: `IBV_DEVICE_MEM_WINDOW`.
        const MEM_WINDOW = rdma_sys::IBV_DEVICE_MEM_WINDOW as u64;
        /// Computes IP checksums on UD queue pairs: `IBV_DEVICE_UD_IP_CSUM`.
        const UD_IP_CSUM = rdma_sys::IBV_DEVICE_UD_IP_CSUM as u64;
        /// Extended reliable connections: `IBV_DEVICE_XRC`.
        const XRC = rdma_sys::IBV_DEVICE_XRC as u64;
        /// Fast registration, local invalidate and send with invalidate:
        /// `IBV_DEVICE_MEM_MGT_EXTENSIONS`.
        const MEM_MGT_EXTENSIONS = rdma_sys::IBV_DEVICE_MEM_MGT_EXTENSIONS as u64;
        /// Memory windows of type 2A: `IBV_DEVICE_MEM_WINDOW_TYPE_2A`.
        const MEM_WINDOW_TYPE_2A = rdma_sys::IBV_DEVICE_MEM_WINDOW_TYPE_2A as u64;
        /// Memory windows of type 2B: `IBV_DEVICE_MEM_WINDOW_TYPE_2B`.
        const MEM_WINDOW_TYPE_2B = rdma_sys::IBV_DEVICE_MEM_WINDOW_TYPE_2B as u64;
        /// Computes IP checksums on RC queue pairs: `IBV_DEVICE_RC_IP_CSUM`.
        const RC_IP_CSUM = rdma_sys::IBV_DEVICE_RC_IP_CSUM as u64;
        /// Computes IP checksums on raw packet queue pairs: `IBV_DEVICE_RAW_IP_CSUM`.
        const RAW_IP_CSUM = rdma_sys::IBV_DEVICE_RAW_IP_CSUM as u64;
        /// Flow steering rules for raw packet queue pairs: `IBV_DEVICE_MANAGED_FLOW_STEERING`.
        const MANAGED_FLOW_STEERING = rdma_sys::IBV_DEVICE_MANAGED_FLOW_STEERING as u64;
        /// Can deliver the frame check sequence of raw packets (extended query only):
        /// `IBV_DEVICE_RAW_SCATTER_FCS`.
        const RAW_SCATTER_FCS = rdma_sys::IBV_DEVICE_RAW_SCATTER_FCS;
        /// Pads PCI writes to full cache lines (extended query only):
        /// `IBV_DEVICE_PCI_WRITE_END_PADDING`.
        const PCI_WRITE_END_PADDING = rdma_sys::IBV_DEVICE_PCI_WRITE_END_PADDING;
        /// Flushes writes, so that all processors and devices see them (extended query only):
        /// `IB_UVERBS_DEVICE_FLUSH_GLOBAL`.
        const FLUSH_GLOBAL = 1 << 38;
        /// Flushes writes, so that they survive a power failure (extended query only):
        /// `IB_UVERBS_DEVICE_FLUSH_PERSISTENT`.
        const FLUSH_PERSISTENT = 1 << 39;
        /// Atomic writes (extended query only): `IB_UVERBS_DEVICE_ATOMIC_WRITE`.
        const ATOMIC_WRITE = 1 << 40;
        const _ = !0;
    }
}

/// Attributes and limits of a device (`struct ibv_device_attr`). Counts are maxima; sizes are in
/// bytes.
///
/// The fields keep their C names.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::CqOptions;
/// let limits = context.query_device()?;
/// let cq = context.create_cq(CqOptions::new().depth(limits.max_cqe.min(4096)))?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_device")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "the fields are those of ibv_query_device(3), under their own names"
)]
pub struct DeviceAttr {
    pub fw_ver: String,
    pub node_guid: Guid,
    pub sys_image_guid: Guid,
    pub max_mr_size: u64,
    /// Page sizes that can be registered: bit n stands for 2ⁿ bytes.
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub device_cap_flags: DeviceCapFlags,
    pub max_sge: u32,
    pub max_sge_rd: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_pd: u32,
    pub max_qp_rd_atom: u32,
    pub max_ee_rd_atom: u32,
    pub max_res_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    pub max_ee_init_rd_atom: u32,
    pub atomic_cap: AtomicCap,
    pub max_ee: u32,
    pub max_rdd: u32,
    pub max_mw: u32,
    pub max_raw_ipv6_qp: u32,
    pub max_raw_ethy_qp: u32,
    pub max_mcast_grp: u32,
    pub max_mcast_qp_attach: u32,
    pub max_total_mcast_qp_attach: u32,
    pub max_ah: u32,
    pub max_fmr: u32,
    pub max_map_per_fmr: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_pkeys: u16,
    /// Time that the device may take to acknowledge a packet, encoded: 4.096 µs × 2ⁿ.
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

impl DeviceAttr {
    /// Returns `true` for Soft-RoCE (rxe), the kernel's software implementation of RoCE.
    pub fn is_soft_roce(&self) -> bool {
        const VENDOR: u32 = 0x00ff_ffff;
        self.vendor_id == VENDOR
    }

    /// Returns `true` for Soft-iWARP (siw), the kernel's software implementation of iWARP.
    pub fn is_soft_iwarp(&self) -> bool {
        const VENDOR: u32 = 0x0062_6d74;
        self.vendor_id == VENDOR
    }

    pub(crate) fn from_raw(raw: &ibv_device_attr) -> Self {
        let count = |value: i32| u32::try_from(value).unwrap_or(0);
        // SAFETY: the library NUL-terminates the version within its array.
        let fw_ver = unsafe { CStr::from_ptr(raw.fw_ver.as_ptr()) };
        Self {
            fw_ver: fw_ver.to_string_lossy().into_owned(),
            node_guid: Guid(u64::from_be(raw.node_guid)),
            sys_image_guid: Guid(u64::from_be(raw.sys_image_guid)),
            max_mr_size: raw.max_mr_size,
            page_size_cap: raw.page_size_cap,
            vendor_id: raw.vendor_id,
            vendor_part_id: raw.vendor_part_id,
            hw_ver: raw.hw_ver,
            max_qp: count(raw.max_qp),
            max_qp_wr: count(raw.max_qp_wr),
            device_cap_flags: DeviceCapFlags::from_bits_retain(raw.device_cap_flags.into()),
            max_sge: count(raw.max_sge),
            max_sge_rd: count(raw.max_sge_rd),
            max_cq: count(raw.max_cq),
            max_cqe: count(raw.max_cqe),
            max_mr: count(raw.max_mr),
            max_pd: count(raw.max_pd),
            max_qp_rd_atom: count(raw.max_qp_rd_atom),
            max_ee_rd_atom: count(raw.max_ee_rd_atom),
            max_res_rd_atom: count(raw.max_res_rd_atom),
            max_qp_init_rd_atom: count(raw.max_qp_init_rd_atom),
            max_ee_init_rd_atom: count(raw.max_ee_init_rd_atom),
            atomic_cap: AtomicCap(raw.atomic_cap),
            max_ee: count(raw.max_ee),
            max_rdd: count(raw.max_rdd),
            max_mw: count(raw.max_mw),
            max_raw_ipv6_qp: count(raw.max_raw_ipv6_qp),
            max_raw_ethy_qp: count(raw.max_raw_ethy_qp),
            max_mcast_grp: count(raw.max_mcast_grp),
            max_mcast_qp_attach: count(raw.max_mcast_qp_attach),
            max_total_mcast_qp_attach: count(raw.max_total_mcast_qp_attach),
            max_ah: count(raw.max_ah),
            max_fmr: count(raw.max_fmr),
            max_map_per_fmr: count(raw.max_map_per_fmr),
            max_srq: count(raw.max_srq),
            max_srq_wr: count(raw.max_srq_wr),
            max_srq_sge: count(raw.max_srq_sge),
            max_pkeys: raw.max_pkeys,
            local_ca_ack_delay: raw.local_ca_ack_delay,
            phys_port_cnt: raw.phys_port_cnt,
        }
    }
}

impl Context {
    /// Queries the attributes and limits of the device.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::caps::{AtomicCap, DeviceCapFlags};
    /// let attr = ibverbs::Device::by_name("rxe0")?.open()?.query_device()?;
    /// let atomics = attr.atomic_cap != AtomicCap::NONE;
    /// let windows = attr.device_cap_flags.contains(DeviceCapFlags::MEM_WINDOW);
    /// println!(
    ///     "atomics: {atomics}, memory windows: {windows}, {} queue pairs",
    ///     attr.max_qp
    /// );
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails only if the device has been removed.
    #[doc(alias = "ibv_query_device")]
    pub fn query_device(&self) -> Result<DeviceAttr> {
        let mut attr = ibv_device_attr::default();
        // SAFETY: the context is open and the structure is writable.
        let returned = unsafe { ibv_query_device(self.as_raw(), &raw mut attr) };
        zero_or_errno("ibv_query_device", || self.device_name().into(), returned)?;
        Ok(DeviceAttr::from_raw(&attr))
    }
}
