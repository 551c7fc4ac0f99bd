//! An open device.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_close_device, ibv_context, ibv_device_attr, ibv_open_device, ibv_query_device};

use crate::convert::{non_null, zero_or_errno};
use crate::device::{Device, Guid};
use crate::error::Result;
use crate::raw::AsRaw;

/// An open device: what domains, queues and channels are made on. Cloning it is cheap and refers to the same opening.
///
/// # Example
/// ```no_run
/// let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// println!("{} queue pairs", context.query_device()?.max_qp);
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    raw: NonNull<ibv_context>,
    device: Device,
}

// SAFETY: libibverbs' contexts may be used from any thread, several at once (ibv_open_device(3), "thread safe").
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last owner goes; every child held an Arc of this, so none is left.
        let returned = unsafe { ibv_close_device(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with(&self.device);
        }
    }
}

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] without rights to `/dev/infiniband/uverbs*`, [`ErrorKind::NotFound`] when the device
    /// went away or its node is missing.
    ///
    /// # References
    /// [`ibv_open_device(3)`](https://man7.org/linux/man-pages/man3/ibv_open_device.3.html)
    pub fn open(&self) -> Result<Context> {
        Context::open(self.clone())
    }
}

impl Context {
    fn open(device: Device) -> Result<Self> {
        let raw = non_null(
            "ibv_open_device",
            || device.name().into(),
            || {
                // SAFETY: the device is alive while `device` is.
                unsafe { ibv_open_device(device.as_raw()) }
            },
        )?;
        Ok(Self(Arc::new(Inner { raw, device })))
    }

    /// The device that is open.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The name of the device that is open.
    pub fn device_name(&self) -> &str {
        self.0.device.name()
    }

    /// What the device can do.
    ///
    /// # Errors
    /// Fails only when the device is gone.
    ///
    /// # References
    /// [`ibv_query_device(3)`](https://man7.org/linux/man-pages/man3/ibv_query_device.3.html)
    pub fn query_device(&self) -> Result<DeviceAttr> {
        let mut attr = ibv_device_attr::default();
        // SAFETY: the context is open and the structure is valid for writing.
        let returned = unsafe { ibv_query_device(self.as_raw(), &raw mut attr) };
        zero_or_errno("ibv_query_device", || self.device_name().into(), returned)?;
        Ok(DeviceAttr::from_raw(&attr))
    }
}

impl AsRaw for Context {
    type Raw = ibv_context;

    fn as_raw(&self) -> *mut ibv_context {
        self.0.raw.as_ptr()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.device_name()).finish()
    }
}

/// What a device can do (`struct ibv_device_attr`); counts are limits, sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are those of ibv_query_device(3), under their own names")]
pub struct DeviceAttr {
    pub fw_ver: String,
    pub node_guid: Guid,
    pub sys_image_guid: Guid,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_mr_size: u64,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_sge_rd: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_pd: u32,
    pub max_qp_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub phys_port_cnt: u8,
}

impl DeviceAttr {
    pub(crate) fn from_raw(raw: &ibv_device_attr) -> Self {
        let count = |value: i32| u32::try_from(value).unwrap_or(0);
        // SAFETY: the library NUL-terminates the version within its array.
        let fw_ver = unsafe { CStr::from_ptr(raw.fw_ver.as_ptr()) };
        Self {
            fw_ver: fw_ver.to_string_lossy().into_owned(),
            node_guid: Guid(u64::from_be(raw.node_guid)),
            sys_image_guid: Guid(u64::from_be(raw.sys_image_guid)),
            vendor_id: raw.vendor_id,
            vendor_part_id: raw.vendor_part_id,
            hw_ver: raw.hw_ver,
            max_mr_size: raw.max_mr_size,
            max_qp: count(raw.max_qp),
            max_qp_wr: count(raw.max_qp_wr),
            max_sge: count(raw.max_sge),
            max_sge_rd: count(raw.max_sge_rd),
            max_cq: count(raw.max_cq),
            max_cqe: count(raw.max_cqe),
            max_mr: count(raw.max_mr),
            max_pd: count(raw.max_pd),
            max_qp_rd_atom: count(raw.max_qp_rd_atom),
            max_qp_init_rd_atom: count(raw.max_qp_init_rd_atom),
            max_srq: count(raw.max_srq),
            max_srq_wr: count(raw.max_srq_wr),
            phys_port_cnt: raw.phys_port_cnt,
        }
    }
}
