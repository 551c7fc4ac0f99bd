//! Memory regions.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use rdma_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_WRITE, IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_ERR_CMD,
    IBV_REREG_MR_ERR_INPUT, ibv_advise_mr_advice, ibv_mr, ibv_pd, ibv_sge,
};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::request::Data;
use crate::state::{DeviceState, Mr};
use crate::{null, set_errno};

/// `ibv_reg_mr(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    unsafe {
        ibv_reg_mr_iova2(
            pd,
            addr,
            length,
            addr.expose_provenance() as u64,
            u32::try_from(access).unwrap_or(0),
        )
    }
}

/// Target of the inline function `ibv_reg_mr_iova`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, iova, u32::try_from(access).unwrap_or(0)) }
}

/// Target of the inline functions if optional access flags are set.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller passes a valid domain.
    let (context, mut state) = unsafe {
        (
            (*pd).context,
            FakeDevice::from_context((*pd).context).state(),
        )
    };
    if let Some(errno) = state.faults.take(Verb::RegMr) {
        return null(errno);
    }
    let address = addr.expose_provenance() as u64;
    if length == 0 || !is_consistent(access) {
        return null(libc::EINVAL);
    }
    // SAFETY: the caller passes a mapped range. A driver would pin it; this function reads both
    // ends.
    unsafe { touch(address, length) };
    state.check_no_response(address, length);
    // SAFETY: as above.
    let pd_index = unsafe { crate::handle::pd(pd) };
    let region = Mr {
        pd: pd_index,
        key: 0,
        address: iova,
        memory: address,
        dm: None,
        mapping: None,
        length,
        access,
    };
    let raw = ibv_mr {
        context,
        pd,
        addr,
        length,
        handle: 0,
        lkey: 0,
        rkey: 0,
    };
    state.add_region(&region, raw)
}

/// `ibv_reg_dmabuf_mr(3)`, for any file that can be mapped.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller passes a valid domain.
    let (context, mut state, pd_index) = unsafe {
        (
            (*pd).context,
            FakeDevice::from_context((*pd).context).state(),
            crate::handle::pd(pd),
        )
    };
    let access = u32::try_from(access).unwrap_or(0);
    if !state.profile.more_verbs {
        return null(libc::EOPNOTSUPP);
    }
    if length == 0 || !is_consistent(access) {
        return null(libc::EINVAL);
    }
    let mapped = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .saturating_add(length);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses an unused range.
    let start = unsafe { libc::mmap(ptr::null_mut(), mapped, rights, libc::MAP_SHARED, fd, 0) };
    if start == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    let start = start.expose_provenance() as u64;
    let region = Mr {
        pd: pd_index,
        key: 0,
        address: iova,
        memory: start + offset,
        dm: None,
        mapping: Some((start, mapped)),
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

/// `ibv_advise_mr(3)`, for memory that is registered for on-demand paging.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    _: ibv_advise_mr_advice,
    _: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    // SAFETY: the caller passes a valid domain and `count` readable entries.
    let (state, pd, list) = unsafe {
        (
            FakeDevice::from_context((*pd).context).state(),
            crate::handle::pd(pd),
            std::slice::from_raw_parts(list, count as usize),
        )
    };
    let is_pageable = |sge: &ibv_sge| {
        let region = state.region(pd, sge.lkey);
        region.is_some_and(|mr| mr.covers(sge) && mr.access & IBV_ACCESS_ON_DEMAND != 0)
    };
    if !state.profile.more_verbs {
        libc::EOPNOTSUPP
    } else if list.iter().all(is_pageable) {
        0
    } else {
        libc::EINVAL
    }
}

/// `ibv_rereg_mr(3)`. It only changes the access rights, and also the keys, as a driver may.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    _: *mut ibv_pd,
    _: *mut c_void,
    _: usize,
    access: c_int,
) -> c_int {
    // SAFETY: the caller passes a valid region.
    let mut state = unsafe { FakeDevice::from_context((*mr).context).state() };
    // SAFETY: no other code uses the keys of the region during the call.
    let mr = unsafe { &mut *mr };
    let unsupported = (!state.profile.more_verbs).then_some(libc::EOPNOTSUPP);
    if let Some(errno) = unsupported.or_else(|| state.faults.take(Verb::ReregMr)) {
        set_errno(errno);
        return IBV_REREG_MR_ERR_CMD;
    }
    let slot = mr.handle as usize;
    let key = state.new_key(slot);
    let access = u32::try_from(access).unwrap_or(0);
    let region = state.mrs.get_mut(slot).filter(|_| is_consistent(access));
    match region {
        Some(region) if flags.unsigned_abs() == IBV_REREG_MR_CHANGE_ACCESS => {
            (region.access, region.key) = (access, key);
            (mr.lkey, mr.rkey) = (key, key);
            0
        }
        _ => {
            set_errno(libc::EINVAL);
            IBV_REREG_MR_ERR_INPUT
        }
    }
}

/// Returns `true` if the device may write all that its peers may write.
pub(crate) fn is_consistent(access: u32) -> bool {
    let remote_writes = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) != 0;
    !remote_writes || access & IBV_ACCESS_LOCAL_WRITE != 0
}

/// `ibv_dereg_mr(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller passes a valid region, and does not use it again if 0 is returned.
    unsafe {
        let mut state = FakeDevice::from_context((*mr).context).state();
        if let Some(errno) = state.destroy_fault(Verb::DeregMr) {
            return errno;
        }
        let requests = state.requests_on((*mr).lkey);
        if requests > 0 {
            state.violation(format!(
                "a region was deregistered with {requests} requests on it"
            ));
        }
        let region = state.mrs.get((*mr).handle as usize);
        let (access, memory) = region.map_or((0, (*mr).addr.addr() as u64), |region| {
            (region.access, region.memory)
        });
        state.check_no_transmission((*mr).lkey, access);
        let windows = state.windows_of_region((*mr).handle as usize);
        if windows > 0 {
            state.violation(format!(
                "a region was deregistered with {windows} windows bound to it"
            ));
            return libc::EINVAL;
        }
        // The program must free the memory only after this call. Otherwise Miri reports this
        // access.
        touch(memory, (*mr).length);
        let gone = state.mrs.remove((*mr).handle as usize);
        if let Some((start, length)) = gone.and_then(|region| region.mapping) {
            libc::munmap(ptr::with_exposed_provenance_mut(to_usize(start)), length);
        }
        drop(state);
        drop(Box::from_raw(mr));
    }
    0
}

impl DeviceState {
    /// Adds a region with a new key, and returns its C representation.
    pub(crate) fn add_region(&mut self, region: &Mr, raw: ibv_mr) -> *mut ibv_mr {
        let slot = self.mrs.next();
        let key = self.new_key(slot);
        let index = self.mrs.insert(Mr { key, ..*region });
        Box::into_raw(Box::new(ibv_mr {
            handle: u32::try_from(index).unwrap_or(u32::MAX),
            lkey: key,
            rkey: key,
            ..raw
        }))
    }

    /// Returns the region with this key, if it is in the domain.
    #[inline]
    pub(crate) fn region(&self, pd: usize, key: u32) -> Option<&Mr> {
        let slot = (key >> 8).checked_sub(1)?;
        self.mrs
            .get(slot as usize)
            .filter(|region| region.key == key && region.pd == pd)
    }

    /// Returns the number of requests in flight that use this key.
    fn requests_on(&self, key: u32) -> usize {
        let shared = self.srqs.iter().flat_map(|srq| srq.recvs.iter());
        let recvs = self
            .qps
            .iter()
            .flat_map(|qp| qp.recvs.iter())
            .chain(shared)
            .map(|recv| recv.sges);
        let sends = self.qps.iter().flat_map(|qp| {
            let pending = qp.pending.iter().map(|(send, _)| send);
            qp.late_reads.iter().chain(pending)
        });
        let sends = sends.filter_map(|send| match send.data {
            Data::Registered(sges) => Some(sges),
            Data::Bind(_) | Data::Inline { .. } => None,
        });
        recvs
            .chain(sends)
            .filter(|sges| sges.as_slice().iter().any(|sge| sge.lkey == key))
            .count()
    }
}

impl Mr {
    /// Returns `true` if the entry lies within the region.
    pub(crate) fn covers(&self, sge: &ibv_sge) -> bool {
        let end = self.address + self.length as u64;
        sge.addr >= self.address
            && sge
                .addr
                .checked_add(sge.length.into())
                .is_some_and(|last| last <= end)
    }

    /// Returns the bytes of an entry within the region by their addresses in the process.
    pub(crate) fn in_memory(&self, sge: &ibv_sge) -> ibv_sge {
        ibv_sge {
            addr: sge
                .addr
                .wrapping_sub(self.address)
                .wrapping_add(self.memory),
            ..*sge
        }
    }
}

/// Reads both ends of a range.
///
/// # Safety
/// The range is mapped, and no other thread writes to it.
unsafe fn touch(address: u64, length: usize) {
    let start: *const u8 = ptr::with_exposed_provenance(to_usize(address));
    // SAFETY: the caller's promise.
    unsafe {
        start.read_volatile();
        start.add(length - 1).read_volatile();
    }
}

fn to_usize(address: u64) -> usize {
    usize::try_from(address).unwrap_or(0)
}

pub(crate) const ENTRY_POINTS: &[*const ()] = &[
    ibv_reg_mr as *const (),
    ibv_reg_mr_iova as *const (),
    ibv_reg_mr_iova2 as *const (),
    ibv_reg_dmabuf_mr as *const (),
    ibv_rereg_mr as *const (),
    ibv_dereg_mr as *const (),
];
