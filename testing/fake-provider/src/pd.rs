//! Protection domains.

use std::ffi::c_int;

use rdma_sys::{ibv_context, ibv_pd};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::state::Pd;

/// C representation of a protection domain or parent domain. The handle of a parent domain is that
/// of its protection domain.
#[repr(C)]
pub(crate) struct FakePd {
    raw: ibv_pd,
    parent: Option<usize>,
}

impl FakePd {
    pub(crate) fn new_raw(
        context: *mut ibv_context,
        pd: usize,
        parent: Option<usize>,
    ) -> *mut ibv_pd {
        let handle = u32::try_from(pd).unwrap_or(u32::MAX);
        Box::into_raw(Box::new(Self {
            raw: ibv_pd { context, handle },
            parent,
        }))
        .cast()
    }

    /// Returns the index of the parent domain, if `pd` is one.
    ///
    /// # Safety
    /// The domain is valid.
    pub(crate) unsafe fn parent(pd: *mut ibv_pd) -> Option<usize> {
        // SAFETY: the caller's promise; each `ibv_pd` of this crate is the start of a `FakePd`.
        unsafe { (*pd.cast::<Self>()).parent }
    }
}

/// `ibv_alloc_pd(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the caller passes a valid context.
    let (mut state, index) = unsafe {
        (
            FakeDevice::from_context(context).state(),
            crate::handle::context(context),
        )
    };
    if let Some(errno) = state.faults.take(Verb::AllocPd) {
        return null(errno);
    }
    let index = state.pds.insert(Pd { context: index });
    FakePd::new_raw(context, index, None)
}

/// `ibv_dealloc_pd(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller passes a valid domain, and does not use it again if 0 is returned.
    unsafe {
        let mut state = FakeDevice::from_context((*pd).context).state();
        let index = crate::handle::pd(pd);
        if let Some(errno) = state.faults.take(Verb::DeallocPd) {
            return errno;
        }
        if let Some(parent) = FakePd::parent(pd) {
            let (qps, cqs) = (state.qps.iter(), state.cqs.iter());
            let children = qps.filter(|qp| qp.parent == Some(parent)).count()
                + cqs.filter(|cq| cq.parent == Some(parent)).count();
            if children > 0 {
                state.violation(format!(
                    "a parent domain was deallocated with {children} queues alive"
                ));
                return libc::EBUSY;
            }
            state.parents.remove(parent);
            drop(state);
            drop(Box::from_raw(pd.cast::<FakePd>()));
            return 0;
        }
        let children = state.mrs.iter().filter(|mr| mr.pd == index).count()
            + state.mws.iter().filter(|mw| mw.pd == index).count()
            + state.qps.iter().filter(|qp| qp.pd == index).count()
            + state.srqs.iter().filter(|srq| srq.pd == index).count()
            + state
                .parents
                .iter()
                .filter(|parent| parent.pd == index)
                .count()
            + state.ahs.iter().filter(|ah| ah.pd == index).count();
        if children > 0 {
            state.violation(format!(
                "a domain was deallocated with {children} objects alive"
            ));
            return libc::EBUSY;
        }
        state.pds.remove(index);
        drop(state);
        drop(Box::from_raw(pd.cast::<FakePd>()));
    }
    0
}

pub(crate) const ENTRY_POINTS: &[*const ()] =
    &[ibv_alloc_pd as *const (), ibv_dealloc_pd as *const ()];
