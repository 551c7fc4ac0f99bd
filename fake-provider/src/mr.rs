//! Memory regions.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use rdma_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_WRITE, ibv_mr, ibv_pd,
    ibv_sge,
};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::request::Data;
use crate::world::{Mr, World};

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

/// What the header's `ibv_reg_mr` calls when optional flags are asked for. The address must be the
/// memory's own here.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller gives a live domain.
    let (context, mut world) =
        unsafe { ((*pd).context, FakeDevice::of_context((*pd).context).world()) };
    if let Some(errno) = world.faults.take(Verb::RegMr) {
        return null(errno);
    }
    let remote_writes = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) != 0;
    let address = addr.expose_provenance() as u64;
    if length == 0 || iova != address || (remote_writes && access & IBV_ACCESS_LOCAL_WRITE == 0) {
        return null(libc::EINVAL);
    }
    // SAFETY: the caller's memory is mapped; a driver pins it, this one looks at both ends.
    unsafe { touch(address, length) };
    let place = world.mrs.next();
    let key = world.new_key(place);
    // SAFETY: as above.
    let pd_number = unsafe { crate::handle::pd(pd) };
    let number = world.mrs.insert(Mr {
        pd: pd_number,
        key,
        address,
        length,
        access,
    });
    let handle = u32::try_from(number).unwrap_or(u32::MAX);
    Box::into_raw(Box::new(ibv_mr {
        context,
        pd,
        addr,
        length,
        handle,
        lkey: key,
        rkey: key,
    }))
}

/// `ibv_dereg_mr(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller gives a live region, and gives it up if the answer is 0.
    unsafe {
        let mut world = FakeDevice::of_context((*mr).context).world();
        if let Some(errno) = world.faults.take(Verb::DeregMr) {
            return errno;
        }
        let requests = world.requests_on((*mr).lkey);
        if requests > 0 {
            world.violation(format!(
                "a region was deregistered with {requests} requests on it"
            ));
        }
        let windows = world.windows_of_region((*mr).handle as usize);
        if windows > 0 {
            world.violation(format!(
                "a region was deregistered with {windows} windows bound to it"
            ));
            return libc::EINVAL;
        }
        // Its memory must be there to the end: Miri finds memory that was freed before.
        touch((*mr).addr.addr() as u64, (*mr).length);
        world.mrs.remove((*mr).handle as usize);
        drop(world);
        drop(Box::from_raw(mr));
    }
    0
}

impl World {
    /// The region that a key opens in a domain.
    #[inline]
    pub(crate) fn region(&self, pd: usize, key: u32) -> Option<&Mr> {
        let place = (key >> 8).checked_sub(1)?;
        self.mrs
            .get(place as usize)
            .filter(|region| region.key == key && region.pd == pd)
    }

    /// How many requests in flight name this key.
    fn requests_on(&self, key: u32) -> usize {
        let shared = self.srqs.iter().flat_map(|srq| srq.recvs.iter());
        let recvs = self
            .qps
            .iter()
            .flat_map(|qp| qp.recvs.iter())
            .chain(shared)
            .map(|recv| recv.sges);
        let sends = self.qps.iter().flat_map(|qp| qp.waiting.iter());
        let sends = sends.filter_map(|(send, _)| match send.data {
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
    /// Whether the region has all of an entry's bytes.
    pub(crate) fn covers(&self, sge: &ibv_sge) -> bool {
        let end = self.address + self.length as u64;
        sge.addr >= self.address
            && sge
                .addr
                .checked_add(sge.length.into())
                .is_some_and(|last| last <= end)
    }
}

/// Reads both ends of a range.
///
/// # Safety
/// It is mapped, and nobody writes to it now.
unsafe fn touch(address: u64, length: usize) {
    let start: *const u8 = ptr::with_exposed_provenance(usize::try_from(address).unwrap_or(0));
    // SAFETY: the caller's promise.
    unsafe {
        start.read_volatile();
        start.add(length - 1).read_volatile();
    }
}

pub(crate) fn entry_points() -> Vec<*const ()> {
    vec![
        ibv_reg_mr as *const (),
        ibv_reg_mr_iova2 as *const (),
        ibv_dereg_mr as *const (),
    ]
}
