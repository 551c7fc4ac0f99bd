//! Protection domains.

use std::ffi::c_int;

use rdma_sys::{ibv_context, ibv_pd};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::world::Pd;

/// A domain as C sees it: its handle is that of the protection domain, also of a parent domain.
#[repr(C)]
pub(crate) struct FakePd {
    raw: ibv_pd,
    parent: Option<usize>,
}

impl FakePd {
    pub(crate) fn make(context: *mut ibv_context, pd: usize, parent: Option<usize>) -> *mut ibv_pd {
        let handle = u32::try_from(pd).unwrap_or(u32::MAX);
        Box::into_raw(Box::new(Self {
            raw: ibv_pd { context, handle },
            parent,
        }))
        .cast()
    }

    /// The number of the parent domain, if it is one.
    ///
    /// # Safety
    /// The domain is alive.
    pub(crate) unsafe fn parent(pd: *mut ibv_pd) -> Option<usize> {
        // SAFETY: the caller's promise; every domain is a whole FakePd.
        unsafe { (*pd.cast::<Self>()).parent }
    }
}

/// `ibv_alloc_pd(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the caller gives an open context.
    let (mut world, number) = unsafe {
        (
            FakeDevice::of_context(context).world(),
            crate::handle::context(context),
        )
    };
    if let Some(errno) = world.faults.take(Verb::AllocPd) {
        return null(errno);
    }
    let number = world.pds.insert(Pd { context: number });
    FakePd::make(context, number, None)
}

/// `ibv_dealloc_pd(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller gives a live domain, and gives it up if the answer is 0.
    unsafe {
        let mut world = FakeDevice::of_context((*pd).context).world();
        let number = crate::handle::pd(pd);
        if let Some(errno) = world.faults.take(Verb::DeallocPd) {
            return errno;
        }
        if let Some(parent) = FakePd::parent(pd) {
            let children = world
                .qps
                .iter()
                .filter(|qp| qp.parent == Some(parent))
                .count();
            if children > 0 {
                world.violation(format!(
                    "a parent domain was deallocated with {children} queue pairs alive"
                ));
                return libc::EBUSY;
            }
            world.parents.remove(parent);
            drop(world);
            drop(Box::from_raw(pd.cast::<FakePd>()));
            return 0;
        }
        let children = world.mrs.iter().filter(|mr| mr.pd == number).count()
            + world.mws.iter().filter(|mw| mw.pd == number).count()
            + world.qps.iter().filter(|qp| qp.pd == number).count()
            + world.srqs.iter().filter(|srq| srq.pd == number).count()
            + world
                .parents
                .iter()
                .filter(|parent| parent.pd == number)
                .count()
            + world.ahs.iter().filter(|ah| ah.pd == number).count();
        if children > 0 {
            world.violation(format!(
                "a domain was deallocated with {children} objects alive"
            ));
            return libc::EBUSY;
        }
        world.pds.remove(number);
        drop(world);
        drop(Box::from_raw(pd.cast::<FakePd>()));
    }
    0
}

pub(crate) fn entry_points() -> Vec<*const ()> {
    vec![ibv_alloc_pd as *const (), ibv_dealloc_pd as *const ()]
}
