//! Address handles. The device has one port, so that every handle leads to it.

use std::ffi::c_int;

use rdma_sys::{ibv_ah, ibv_ah_attr, ibv_grh, ibv_pd, ibv_wc};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::world::Ah;

/// `ibv_create_ah(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the caller gives a live domain and readable attributes.
    unsafe {
        if (*attr).port_num == 1 {
            create(pd)
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
    // SAFETY: the caller gives a live domain.
    unsafe {
        if port == 1 {
            create(pd)
        } else {
            null(libc::EINVAL)
        }
    }
}

/// # Safety
/// The domain is alive.
unsafe fn create(pd: *mut ibv_pd) -> *mut ibv_ah {
    // SAFETY: the caller's promise.
    unsafe {
        let context = (*pd).context;
        let mut world = FakeDevice::of_context(context).world();
        if let Some(errno) = world.faults.take(Verb::CreateAh) {
            return null(errno);
        }
        let number = world.ahs.insert(Ah {
            pd: crate::handle::pd(pd),
        });
        Box::into_raw(Box::new(ibv_ah {
            context,
            pd,
            handle: u32::try_from(number).unwrap_or(u32::MAX),
        }))
    }
}

/// `ibv_destroy_ah(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the caller gives a live handle, and gives it up if the answer is 0.
    unsafe {
        let (number, mut world) = (
            crate::handle::ah(ah),
            FakeDevice::of_context((*ah).context).world(),
        );
        if let Some(errno) = world.faults.take(Verb::DestroyAh) {
            return errno;
        }
        let waiting = world.qps.iter().flat_map(|qp| qp.waiting.iter());
        let requests = waiting
            .filter(|(send, _)| send.to.is_some_and(|to| to.ah == number))
            .count();
        if requests > 0 {
            world.violation(format!(
                "an address handle was destroyed with {requests} requests on it"
            ));
        }
        world.ahs.remove(number);
        drop(world);
        drop(Box::from_raw(ah));
    }
    0
}

pub(crate) fn entry_points() -> Vec<*const ()> {
    vec![
        ibv_create_ah as *const (),
        ibv_create_ah_from_wc as *const (),
        ibv_destroy_ah as *const (),
    ]
}
