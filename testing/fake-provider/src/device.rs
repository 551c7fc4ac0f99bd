//! The device list, and queries that need no open device.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_sys::{
    __be64, IBV_NODE_CA, IBV_NODE_RNIC, IBV_NODE_UNSPECIFIED, IBV_TRANSPORT_IB,
    IBV_TRANSPORT_IWARP, IBV_TRANSPORT_UNSPECIFIED, ibv_context, ibv_device,
};

use crate::fault::Verb;
use crate::profile::{Profile, Transport};
use crate::state::DeviceState;

/// A device. It is never freed, because the program may keep a pointer to it.
#[repr(C)]
pub(crate) struct FakeDevice {
    raw: ibv_device,
    name: String,
    guid: u64,
    state: Mutex<DeviceState>,
}

// SAFETY: `raw` is not written after the device was created. Everything else is behind a lock.
unsafe impl Send for FakeDevice {}
// SAFETY: as above.
unsafe impl Sync for FakeDevice {}

struct Devices {
    listed: Vec<&'static FakeDevice>,
    /// Devices that were removed from the list.
    unlisted: Vec<&'static FakeDevice>,
}

static DEVICES: Mutex<Devices> = Mutex::new(Devices {
    listed: Vec::new(),
    unlisted: Vec::new(),
});

fn devices() -> MutexGuard<'static, Devices> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeDevice {
    pub(crate) fn add(profile: Profile) -> &'static Self {
        let mut all = devices();
        let number = all.listed.len() + all.unlisted.len();
        let name = format!("fake{number}");
        let (node_type, transport_type) = match profile.transport {
            Transport::Ib => (IBV_NODE_CA, IBV_TRANSPORT_IB),
            Transport::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
            Transport::Unspecified => (IBV_NODE_UNSPECIFIED, IBV_TRANSPORT_UNSPECIFIED),
        };
        let mut raw = ibv_device {
            node_type,
            transport_type,
            ..Default::default()
        };
        for (slot, byte) in raw.name.iter_mut().zip(name.bytes()) {
            *slot = byte.to_c_char();
        }
        let guid = 0x00fa_4e00_0000_0000 + number as u64;
        let device = Box::leak(Box::new(Self {
            raw,
            name,
            guid,
            state: Mutex::new(DeviceState::new(profile)),
        }));
        all.listed.push(device);
        device
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn guid_be(&self) -> __be64 {
        self.guid.to_be()
    }

    pub(crate) fn unlist(&'static self) {
        let mut all = devices();
        all.listed.retain(|&listed| !ptr::eq(listed, self));
        all.unlisted.push(self);
    }

    #[inline]
    pub(crate) fn state(&self) -> MutexGuard<'_, DeviceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn as_raw(&'static self) -> *mut ibv_device {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the device for a C pointer.
    ///
    /// # Safety
    /// The pointer comes from the device list.
    #[inline]
    pub(crate) unsafe fn from_raw(device: *mut ibv_device) -> &'static Self {
        // SAFETY: the device list contains pointers to whole `FakeDevice` values, which are never
        // freed.
        unsafe { &*device.cast::<Self>() }
    }

    /// Returns the device of a context.
    ///
    /// # Safety
    /// The context is valid.
    #[inline]
    pub(crate) unsafe fn from_context(context: *mut ibv_context) -> &'static Self {
        // SAFETY: the caller's promise; `device` of a context is the device it was opened on.
        unsafe { Self::from_raw((*context).device) }
    }
}

/// Conversion to `c_char`, which is signed on some targets and unsigned on others.
trait ToCChar {
    fn to_c_char(self) -> c_char;
}

impl ToCChar for u8 {
    fn to_c_char(self) -> c_char {
        c_char::from_ne_bytes([self])
    }
}

/// `ibv_get_device_list(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let listed = devices().listed.clone();
    let fault = listed.iter().find_map(|device| {
        device
            .state()
            .faults
            .take_for_this_thread(Verb::GetDeviceList)
    });
    if let Some(errno) = fault {
        return crate::null(errno);
    }
    let mut list: Vec<*mut ibv_device> = listed.iter().map(|device| device.as_raw()).collect();
    if !count.is_null() {
        // SAFETY: `count` is not NULL, so the caller passes a pointer that is valid for writes.
        unsafe { *count = c_int::try_from(list.len()).unwrap_or(0) };
    }
    list.push(ptr::null_mut());
    Box::into_raw(list.into_boxed_slice()).cast()
}

/// `ibv_free_device_list(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the list comes from `ibv_get_device_list`: a boxed slice that ends with NULL, freed
    // once.
    unsafe {
        let mut length = 1;
        while !(*list.add(length - 1)).is_null() {
            length += 1;
        }
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(list, length)));
    }
}

/// `ibv_get_device_guid(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> __be64 {
    // SAFETY: the caller passes a device of the list.
    unsafe { FakeDevice::from_raw(device) }.guid_be()
}

/// `ibv_get_device_name(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller passes a device of the list. Its name is NUL-terminated.
    unsafe { (&raw const (*device).name).cast() }
}

pub(crate) const ENTRY_POINTS: &[*const ()] = &[
    ibv_get_device_list as *const (),
    ibv_free_device_list as *const (),
    ibv_get_device_guid as *const (),
    ibv_get_device_name as *const (),
];
