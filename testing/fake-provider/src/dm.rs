//! Device memory, which is memory of the process that only copies access.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use rdma_sys::{IBV_ACCESS_ZERO_BASED, ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::mr::is_consistent;
use crate::null;
use crate::profile::unset;
use crate::state::{Dm, Mr};

/// Maximum size of an allocation, in bytes.
const MAX_LENGTH: usize = 1 << 20;

/// C representation of device memory, with its index.
#[repr(C)]
struct FakeDm {
    raw: ibv_dm,
    index: usize,
}

/// `ibv_alloc_dm(3)`.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    // SAFETY: the caller passes a valid context and readable attributes.
    let (mut state, context_index, attr) = unsafe {
        (
            FakeDevice::from_context(context).state(),
            crate::handle::context(context),
            &*attr,
        )
    };
    if !state.profile.more_verbs {
        return null(libc::EOPNOTSUPP);
    }
    if attr.length == 0 || attr.length > MAX_LENGTH || attr.comp_mask != 0 {
        return null(libc::EINVAL);
    }
    let bytes = Box::into_raw(vec![0_u8; attr.length].into_boxed_slice());
    let mut raw = ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        ..Default::default()
    };
    unset!(raw, state.profile, [memcpy_to_dm, memcpy_from_dm]);
    let index = state.dms.insert(Dm {
        context: context_index,
        memory: bytes.cast::<u8>().expose_provenance() as u64,
        length: attr.length,
    });
    Box::into_raw(Box::new(FakeDm { raw, index })).cast()
}

/// `ibv_free_dm(3)`.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    // SAFETY: the caller passes valid memory, which is the start of a `FakeDm`, and does not use it
    // again if 0 is returned.
    unsafe {
        let mut state = FakeDevice::from_context((*dm).context).state();
        let index = (*dm.cast::<FakeDm>()).index;
        let regions = state.mrs.iter().filter(|mr| mr.dm == Some(index)).count();
        if regions > 0 {
            state.violation(format!("device memory was freed with {regions} regions"));
            return libc::EBUSY;
        }
        if let Some(gone) = state.dms.remove(index) {
            let bytes = ptr::slice_from_raw_parts_mut(start(&gone, 0), gone.length);
            drop(Box::from_raw(bytes));
        }
        drop(state);
        drop(Box::from_raw(dm.cast::<FakeDm>()));
    }
    0
}

/// Returns the address of the byte at an offset.
fn start(dm: &Dm, offset: usize) -> *mut u8 {
    ptr::with_exposed_provenance_mut::<u8>(usize::try_from(dm.memory).unwrap_or(0))
        .wrapping_add(offset)
}

/// `ibv_memcpy_to_dm(3)`.
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the caller passes valid memory and `length` readable bytes.
    unsafe {
        copy(dm, offset, from, length, |inside| {
            ptr::copy(from.cast(), inside, length);
        })
    }
}

/// `ibv_memcpy_from_dm(3)`.
unsafe extern "C" fn memcpy_from_dm(
    into: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: the caller passes valid memory and `length` writable bytes.
    unsafe {
        copy(dm, offset, into, length, |inside| {
            ptr::copy(inside, into.cast(), length);
        })
    }
}

/// Calls `copy` with the address of `length` bytes at an offset. The device executes no request
/// meanwhile.
///
/// # Safety
/// The memory is valid.
unsafe fn copy(
    dm: *mut ibv_dm,
    offset: u64,
    host: *const c_void,
    length: usize,
    copy: impl FnOnce(*mut u8),
) -> c_int {
    // SAFETY: the caller's promise.
    let (index, mut state) = unsafe {
        (
            (*dm.cast::<FakeDm>()).index,
            FakeDevice::from_context((*dm).context).state(),
        )
    };
    if !host.cast::<u32>().is_aligned() {
        state.violation("libmlx5 accesses the memory of the host as words");
    }
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = offset.checked_add(length);
    match state
        .dms
        .get(index)
        .filter(|dm| end.is_some_and(|end| end <= dm.length))
    {
        Some(dm) => copy(start(dm, offset)),
        None => return libc::EINVAL,
    }
    0
}

/// `ibv_reg_dm_mr(3)`. The kernel accepts zero-based addresses only.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller passes a valid domain and valid memory.
    let (context, pd_index, index, is_own) = unsafe {
        (
            (*pd).context,
            crate::handle::pd(pd),
            (*dm.cast::<FakeDm>()).index,
            (*dm).context == (*pd).context,
        )
    };
    // SAFETY: as above.
    let mut state = unsafe { FakeDevice::from_context(context) }.state();
    if let Some(errno) = state.faults.take(Verb::RegMr) {
        return null(errno);
    }
    let end = offset.checked_add(length as u64);
    let memory = state
        .dms
        .get(index)
        .filter(|dm| is_own && length > 0 && end.is_some_and(|end| end <= dm.length as u64));
    let Some(memory) = memory.map(|dm| dm.memory + offset) else {
        return null(libc::EINVAL);
    };
    if access & IBV_ACCESS_ZERO_BASED == 0 || !is_consistent(access) {
        return null(libc::EINVAL);
    }
    let region = Mr {
        pd: pd_index,
        key: 0,
        address: 0,
        memory,
        dm: Some(index),
        mapping: None,
        length,
        access,
    };
    let raw = ibv_mr {
        context,
        pd,
        addr: ptr::null_mut(),
        length,
        handle: 0,
        lkey: 0,
        rkey: 0,
    };
    state.add_region(&region, raw)
}
