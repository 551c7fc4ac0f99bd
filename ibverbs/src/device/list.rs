//! The RDMA devices of this host.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    ibv_device, ibv_free_device_list, ibv_get_device_guid, ibv_get_device_index,
    ibv_get_device_list,
};

use crate::convert::non_null;
use crate::error::{Error, ErrorKind, Result, load_libibverbs};
use crate::raw::as_raw;
use rdma_types::Guid;
use rdma_types::c_value;

c_value! {
    /// The transport of a device (`enum ibv_transport_type`).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Device, device::TransportType};
    /// for device in Device::list()? {
    ///     if device.transport() == TransportType::IWARP {
    ///     println!("{} supports connections through rdma_cm only", device.name());
    ///     }
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_get_device_list")]
    pub struct TransportType(i32) {
        /// InfiniBand and RoCE: `IBV_TRANSPORT_IB`.
        IB = rdma_sys::IBV_TRANSPORT_IB => "InfiniBand",
        /// iWARP: `IBV_TRANSPORT_IWARP`.
        IWARP = rdma_sys::IBV_TRANSPORT_IWARP => "iWARP",
        /// Cisco usNIC: `IBV_TRANSPORT_USNIC`.
        USNIC = rdma_sys::IBV_TRANSPORT_USNIC => "usNIC",
        /// Cisco usNIC over UDP: `IBV_TRANSPORT_USNIC_UDP`.
        USNIC_UDP = rdma_sys::IBV_TRANSPORT_USNIC_UDP => "usNIC UDP",
        /// Not one of the above: `IBV_TRANSPORT_UNSPECIFIED`.
        UNSPECIFIED = rdma_sys::IBV_TRANSPORT_UNSPECIFIED => "unspecified",
    }
}

c_value! {
    /// The kind of node that a device is in its fabric (`enum ibv_node_type`).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Device, device::NodeType};
    /// let switches = Device::list()?.into_iter().filter(|device| device.node_type() == NodeType::SWITCH);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_event_type_str(3)`](https://man7.org/linux/man-pages/man3/ibv_event_type_str.3.html) (`ibv_node_type_str`)
    #[doc(alias = "ibv_event_type_str")]
    pub struct NodeType(i32) {
        /// Channel adapter: `IBV_NODE_CA`.
        CA = rdma_sys::IBV_NODE_CA => "InfiniBand channel adapter",
        /// InfiniBand switch: `IBV_NODE_SWITCH`.
        SWITCH = rdma_sys::IBV_NODE_SWITCH => "InfiniBand switch",
        /// InfiniBand router: `IBV_NODE_ROUTER`.
        ROUTER = rdma_sys::IBV_NODE_ROUTER => "InfiniBand router",
        /// iWARP adapter: `IBV_NODE_RNIC`.
        RNIC = rdma_sys::IBV_NODE_RNIC => "iWARP NIC",
        /// Other adapter, such as EFA: `IBV_NODE_UNSPECIFIED`.
        UNSPECIFIED = rdma_sys::IBV_NODE_UNSPECIFIED => "unspecified",
    }
}

/// The array returned by `ibv_get_device_list`. Its devices are valid as long as the list, or a
/// context opened from it, exists.
struct List(NonNull<*mut ibv_device>);

// SAFETY: the list is never changed after it was created, and libibverbs locks the state behind it.
unsafe impl Send for List {}
// SAFETY: as for Send.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list came from ibv_get_device_list and is freed once. Every Device holds it
        // by Arc, so no Device exists.
        unsafe {
            ibv_free_device_list(self.0.as_ptr());
        }
    }
}

/// An RDMA device of this host, not yet opened.
///
/// # Example
/// ```no_run
/// for device in ibverbs::Device::list()? {
///     println!("{} {} {}", device.name(), device.guid(), device.transport());
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_get_device_list")]
#[derive(Clone)]
pub struct Device {
    raw: NonNull<ibv_device>,
    name: Arc<str>,
    _list: Arc<List>,
}

// SAFETY: a device is immutable and is kept valid by the list that it holds.
unsafe impl Send for Device {}
// SAFETY: as for Send.
unsafe impl Sync for Device {}

impl Device {
    /// Lists the RDMA devices of this host, in the order of libibverbs. The list is empty if there
    /// are none.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the kernel has no RDMA support, or if libibverbs is not
    /// installed (with the feature `dlopen`).
    #[doc(alias = "ibv_get_device_list")]
    pub fn list() -> Result<Vec<Self>> {
        const CALL: &str = "ibv_get_device_list";
        load_libibverbs(CALL)?;
        let mut count = 0;
        let list = non_null(
            CALL,
            || "RDMA devices of this host".into(),
            || {
                // SAFETY: the counter is writable.
                unsafe { ibv_get_device_list(&raw mut count) }
            },
        )?;
        let list = Arc::new(List(list));
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the library returned `count` valid device pointers, which live as long as the
        // list.
        let raw = unsafe { std::slice::from_raw_parts(list.0.as_ptr(), count) };
        Ok(raw
            .iter()
            .filter_map(|&device| NonNull::new(device))
            .map(|raw| {
                // SAFETY: the list keeps the device alive, and its name is a NUL-terminated array.
                let name = unsafe { CStr::from_ptr((*raw.as_ptr()).name.as_ptr()) };
                Self {
                    raw,
                    name: name.to_string_lossy().into(),
                    _list: Arc::clone(&list),
                }
            })
            .collect())
    }

    /// Finds a device by its name, such as `mlx5_0` or `rxe0`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if no device has this name; the message lists the available names.
    ///
    /// # Example
    /// ```no_run
    /// let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_get_device_list")]
    #[doc(alias = "ibv_get_device_name")]
    pub fn by_name(name: &str) -> Result<Self> {
        let devices = Self::list()?;
        if let Some(device) = devices.iter().find(|device| device.name() == name) {
            return Ok(device.clone());
        }
        let names: Vec<String> = devices
            .iter()
            .map(|device| device.name().to_owned())
            .collect();
        let what = format!("no RDMA device named `{name}`");
        Err(not_found(&what, &names, "NETDEV"))
    }

    /// Finds a device by its node GUID.
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`]: no device has this GUID; the message lists the available ones.
    /// - [`ErrorKind::InvalidInput`]: several devices have this GUID. Software devices do if their
    ///   network interfaces have the same MAC address.
    ///
    /// # Example
    /// ```no_run
    /// let device = ibverbs::Device::by_guid("0002:c903:00a1:b2c3".parse()?)?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_get_device_list")]
    #[doc(alias = "ibv_get_device_guid")]
    pub fn by_guid(guid: Guid) -> Result<Self> {
        let devices = Self::list()?;
        let describe = |devices: &[Self]| -> Vec<String> {
            devices
                .iter()
                .map(|device| format!("{} ({})", device.name(), device.guid()))
                .collect()
        };
        let mut found: Vec<Self> = devices
            .iter()
            .filter(|device| device.guid() == guid)
            .cloned()
            .collect();
        match found.pop() {
            Some(device) if found.is_empty() => Ok(device),
            Some(device) => {
                found.push(device);
                let what = format!("several devices have the GUID {guid}");
                Err(
                    Error::new(ErrorKind::InvalidInput, "open", what).with_help(format!(
                        "open one of them by its name: {}",
                        describe(&found).join(", ")
                    )),
                )
            }
            None => Err(not_found(
                &format!("no RDMA device has the GUID {guid}"),
                &describe(&devices),
                "NETDEV",
            )),
        }
    }

    /// Returns the kernel's index of the device, which does not change when the device is renamed;
    /// `None` if the kernel does not report one.
    #[doc(alias = "ibv_get_device_index")]
    pub fn index(&self) -> Option<u32> {
        // SAFETY: `self` keeps the device alive.
        u32::try_from(unsafe { ibv_get_device_index(self.raw.as_ptr()) }).ok()
    }

    /// Returns the kernel's name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the node GUID.
    #[doc(alias = "ibv_get_device_guid")]
    pub fn guid(&self) -> Guid {
        // SAFETY: `self` keeps the device alive.
        let guid = unsafe { ibv_get_device_guid(self.raw.as_ptr()) };
        Guid(u64::from_be(guid))
    }

    /// Returns the transport: InfiniBand (also for RoCE) or iWARP.
    pub fn transport(&self) -> TransportType {
        // SAFETY: `self` keeps the device alive.
        let raw = unsafe { (*self.raw.as_ptr()).transport_type };
        TransportType(raw)
    }

    /// Returns the node type: channel adapter, iWARP NIC and so on.
    pub fn node_type(&self) -> NodeType {
        // SAFETY: `self` keeps the device alive.
        let raw = unsafe { (*self.raw.as_ptr()).node_type };
        NodeType(raw)
    }
}

/// The error for a device that this host does not have; `netdev` is used in the help text.
pub(crate) fn not_found(what: &str, available: &[String], netdev: &str) -> Error {
    let error = |what| Error::new(ErrorKind::NotFound, "open", what);
    if available.is_empty() {
        return error(format!("{what}; none is available")).with_help(format!(
            "create a software device: `rdma link add rxe0 type rxe netdev {netdev}`"
        ));
    }
    error(format!("{what}; available: {}", available.join(", ")))
}

as_raw!(Device: ibv_device, raw);

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name)
            .field("transport", &self.transport())
            .finish()
    }
}
