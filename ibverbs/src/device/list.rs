//! RDMA devices of this host.

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
use crate::error::{Error, Result};
use crate::guid::Guid;
use crate::kind::ErrorKind;
use crate::newtype::c_value;
use crate::raw::AsRaw;

c_value! {
    /// The transport of a device (`enum ibv_transport_type`).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Device, device::TransportType};
    /// for device in Device::list()? {
    ///     if device.transport() == TransportType::IWARP {
    ///         println!("{} connects by rdma_cm only", device.name());
    ///     }
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_get_device_list(3)`](https://man7.org/linux/man-pages/man3/ibv_get_device_list.3.html)
    pub struct TransportType(i32) {
        /// InfiniBand, and RoCE: `IBV_TRANSPORT_IB`.
        IB = rdma_sys::IBV_TRANSPORT_IB => "InfiniBand",
        /// `IBV_TRANSPORT_IWARP`.
        IWARP = rdma_sys::IBV_TRANSPORT_IWARP => "iWARP",
        /// `IBV_TRANSPORT_USNIC`.
        USNIC = rdma_sys::IBV_TRANSPORT_USNIC => "usNIC",
        /// `IBV_TRANSPORT_USNIC_UDP`.
        USNIC_UDP = rdma_sys::IBV_TRANSPORT_USNIC_UDP => "usNIC UDP",
        /// `IBV_TRANSPORT_UNSPECIFIED`.
        UNSPECIFIED = rdma_sys::IBV_TRANSPORT_UNSPECIFIED => "unspecified",
    }
}

c_value! {
    /// What a device is in its fabric (`enum ibv_node_type`).
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
    pub struct NodeType(i32) {
        /// Channel adapter: `IBV_NODE_CA`.
        CA = rdma_sys::IBV_NODE_CA => "InfiniBand channel adapter",
        /// `IBV_NODE_SWITCH`.
        SWITCH = rdma_sys::IBV_NODE_SWITCH => "InfiniBand switch",
        /// `IBV_NODE_ROUTER`.
        ROUTER = rdma_sys::IBV_NODE_ROUTER => "InfiniBand router",
        /// iWARP adapter: `IBV_NODE_RNIC`.
        RNIC = rdma_sys::IBV_NODE_RNIC => "iWARP NIC",
    }
}

/// The array that `ibv_get_device_list` returned; a device is valid while its list, or a context on
/// it, lives.
struct List(NonNull<*mut ibv_device>);

// SAFETY: the list is read-only after its creation; libibverbs locks what is behind it.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list came from ibv_get_device_list and is freed once; every Device holds it
        // by Arc.
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
///
/// # References
/// [`ibv_get_device_list(3)`](https://man7.org/linux/man-pages/man3/ibv_get_device_list.3.html)
#[derive(Clone)]
pub struct Device {
    raw: NonNull<ibv_device>,
    name: Arc<str>,
    _list: Arc<List>,
}

// SAFETY: a device is immutable, and kept valid by the list it holds.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// The RDMA devices of this host, in the library's order; empty when there are none.
    ///
    /// # Errors
    /// Fails when the kernel has no RDMA at all, or out of memory.
    ///
    /// # References
    /// [`ibv_get_device_list(3)`](https://man7.org/linux/man-pages/man3/ibv_get_device_list.3.html)
    pub fn list() -> Result<Vec<Self>> {
        let mut count = 0;
        let list = non_null(
            "ibv_get_device_list",
            || "RDMA devices of this host".into(),
            || {
                // SAFETY: the counter is valid for writing during the call.
                unsafe { ibv_get_device_list(&raw mut count) }
            },
        )?;
        let list = Arc::new(List(list));
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the library returned `count` valid device pointers, alive as long as the list.
        let raw = unsafe { std::slice::from_raw_parts(list.0.as_ptr(), count) };
        Ok(raw
            .iter()
            .filter_map(|&device| NonNull::new(device))
            .map(|raw| {
                // SAFETY: the device is alive and its name is a NUL-terminated array within it.
                let name = unsafe { CStr::from_ptr((*raw.as_ptr()).name.as_ptr()) };
                Self {
                    raw,
                    name: name.to_string_lossy().into(),
                    _list: Arc::clone(&list),
                }
            })
            .collect())
    }

    /// The device with this name, such as `mlx5_0` or `rxe0`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] names the devices that there are.
    ///
    /// # Example
    /// ```no_run
    /// let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_get_device_list(3)`](https://man7.org/linux/man-pages/man3/ibv_get_device_list.3.html),
    /// [`ibv_get_device_name(3)`](https://man7.org/linux/man-pages/man3/ibv_get_device_name.3.html)
    pub fn by_name(name: &str) -> Result<Self> {
        let devices = Self::list()?;
        if let Some(device) = devices.iter().find(|device| device.name() == name) {
            return Ok(device.clone());
        }
        let names: Vec<&str> = devices.iter().map(Self::name).collect();
        let hint = if names.is_empty() {
            "this host has no RDMA device; a software one: `rdma link add rxe0 type rxe netdev NETDEV`".into()
        } else {
            format!("this host has: {}", names.join(", "))
        };
        Err(Error::new(
            ErrorKind::NotFound,
            "open",
            format!("no RDMA device is called {name:?}"),
        )
        .with_hint(hint))
    }

    /// The device with this node GUID.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] names the GUIDs that there are; [`ErrorKind::InvalidInput`] when
    /// several devices have this one, as software devices on interfaces of one MAC address do.
    ///
    /// # Example
    /// ```no_run
    /// let port_of_a_known_host = ibverbs::Device::by_guid("0002:c903:00a1:b2c3".parse()?)?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_get_device_list(3)`](https://man7.org/linux/man-pages/man3/ibv_get_device_list.3.html),
    /// [`ibv_get_device_guid(3)`](https://man7.org/linux/man-pages/man3/ibv_get_device_guid.3.html)
    pub fn by_guid(guid: Guid) -> Result<Self> {
        let devices = Self::list()?;
        let list = |devices: &[Self]| {
            devices
                .iter()
                .map(|device| format!("{} ({})", device.name(), device.guid()))
                .collect::<Vec<_>>()
                .join(", ")
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
                Err(Error::new(ErrorKind::InvalidInput, "open", what)
                    .with_hint(format!("open one by its name: {}", list(&found))))
            }
            None => Err(Error::new(
                ErrorKind::NotFound,
                "open",
                format!("no RDMA device has the GUID {guid}"),
            )
            .with_hint(format!("this host has: {}", list(&devices)))),
        }
    }

    /// The number that the kernel gave the device, which it keeps when it is renamed; `None` where
    /// the kernel gives none.
    ///
    /// # References
    /// [`ibv_get_device_index(3)`](https://man7.org/linux/man-pages/man3/ibv_get_device_index.3.html)
    pub fn index(&self) -> Option<u32> {
        // SAFETY: the device is alive while self is.
        u32::try_from(unsafe { ibv_get_device_index(self.raw.as_ptr()) }).ok()
    }

    /// The name that the kernel gave the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node GUID.
    ///
    /// # References
    /// [`ibv_get_device_guid(3)`](https://man7.org/linux/man-pages/man3/ibv_get_device_guid.3.html)
    pub fn guid(&self) -> Guid {
        // SAFETY: the device is alive while self is.
        let guid = unsafe { ibv_get_device_guid(self.raw.as_ptr()) };
        Guid(u64::from_be(guid))
    }

    /// InfiniBand (RoCE included) or iWARP.
    pub fn transport(&self) -> TransportType {
        // SAFETY: the device is alive while self is.
        let raw = unsafe { (*self.raw.as_ptr()).transport_type };
        TransportType(raw)
    }

    /// Channel adapter, iWARP NIC, …
    pub fn node_type(&self) -> NodeType {
        // SAFETY: the device is alive while self is.
        let raw = unsafe { (*self.raw.as_ptr()).node_type };
        NodeType(raw)
    }
}

impl AsRaw for Device {
    type Raw = ibv_device;

    fn as_raw(&self) -> *mut ibv_device {
        self.raw.as_ptr()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name)
            .field("transport", &self.transport())
            .finish()
    }
}
