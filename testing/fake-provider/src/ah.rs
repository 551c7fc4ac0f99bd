//! Address handles. The device has one port, so the GID only matters for multicast groups.

use std::ffi::c_int;

use rdma_sys::{ibv_ah, ibv_ah_attr, ibv_grh, ibv_pd, ibv_wc};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::state::Ah;

/// `ibv_create_ah(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the caller passes a valid domain and readable attributes.
    unsafe {
        if (*attr).port_num == 1 {
            create(pd, (*attr).grh.dgid.raw)
        } else {
            null(libc::EINVAL)
        }
    }
}

/// `ibv_create_ah_from_wc(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    _: *mut ibv_wc,
    _: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: the caller passes a valid domain.
    unsafe {
        if port == 1 {
            create(pd, [0; 16])
        } else {
            null(libc::EINVAL)
        }
    }
}

/// Creates an address handle.
///
/// # Safety
/// The domain is valid.
unsafe fn create(pd: *mut ibv_pd, gid: [u8; 16]) -> *mut ibv_ah {
    // SAFETY: the caller's promise.
    unsafe {
        let context = (*pd).context;
        let mut state = FakeDevice::from_context(context).state();
        if let Some(errno) = state.faults.take(Verb::CreateAh) {
            return null(errno);
        }
        let index = state.ahs.insert(Ah {
            pd: crate::handle::pd(pd),
            gid,
        });
        Box::into_raw(Box::new(ibv_ah {
            context,
            pd,
            handle: u32::try_from(index).unwrap_or(u32::MAX),
        }))
    }
}

/// `ibv_destroy_ah(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the caller passes a valid handle, and does not use it again if 0 is returned.
    unsafe {
        let (index, mut state) = (
            crate::handle::ah(ah),
            FakeDevice::from_context((*ah).context).state(),
        );
        if let Some(errno) = state.faults.take(Verb::DestroyAh) {
            return errno;
        }
        let pending = state.qps.iter().flat_map(|qp| qp.pending.iter());
        let requests = pending
            .filter(|(send, _)| send.to.is_some_and(|to| to.ah == index))
            .count();
        if requests > 0 {
            state.violation(format!(
                "an address handle was destroyed with {requests} requests on it"
            ));
        }
        state.ahs.remove(index);
        drop(state);
        drop(Box::from_raw(ah));
    }
    0
}

pub(crate) const ENTRY_POINTS: &[*const ()] = &[
    ibv_create_ah as *const (),
    ibv_create_ah_from_wc as *const (),
    ibv_destroy_ah as *const (),
];
