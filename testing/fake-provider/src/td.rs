//! Thread domains, and parent domains, which combine one with a protection domain.

use std::ffi::c_int;

use rdma_sys::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::pd::FakePd;
use crate::state::{Parent, Td};

/// C representation of a thread domain, with its index.
#[repr(C)]
struct FakeTd {
    raw: ibv_td,
    index: usize,
}

/// `ibv_alloc_td(3)`.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    _: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    // SAFETY: the caller passes a valid context.
    let (mut state, context_index) = unsafe {
        (
            FakeDevice::from_context(context).state(),
            crate::handle::context(context),
        )
    };
    if !state.profile.more_verbs {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = state.faults.take(Verb::AllocTd) {
        return null(errno);
    }
    let index = state.tds.insert(Td {
        context: context_index,
    });
    Box::into_raw(Box::new(FakeTd {
        raw: ibv_td { context },
        index,
    }))
    .cast()
}

/// `ibv_dealloc_td(3)`.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: the caller passes a valid thread domain, which is the start of a `FakeTd`, and does
    // not use it again if 0 is returned.
    unsafe {
        let (index, mut state) = (
            (*td.cast::<FakeTd>()).index,
            FakeDevice::from_context((*td).context).state(),
        );
        if let Some(errno) = state.faults.take(Verb::DeallocTd) {
            return errno;
        }
        let children = state
            .parents
            .iter()
            .filter(|parent| parent.td == index)
            .count();
        if children > 0 {
            state.violation(format!(
                "a thread domain was deallocated with {children} parent domains alive"
            ));
            return libc::EBUSY;
        }
        state.tds.remove(index);
        drop(state);
        drop(Box::from_raw(td.cast::<FakeTd>()));
    }
    0
}

/// `ibv_alloc_parent_domain(3)`.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the caller passes a valid context and readable attributes.
    let (mut state, attr) = unsafe { (FakeDevice::from_context(context).state(), &*attr) };
    if !state.profile.more_verbs {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = state.faults.take(Verb::AllocParentDomain) {
        return null(errno);
    }
    if attr.comp_mask != 0 || attr.td.is_null() {
        return null(libc::EINVAL);
    }
    // SAFETY: the caller passes valid domains.
    let (pd, td) = unsafe {
        (
            crate::handle::pd(attr.pd),
            (*attr.td.cast::<FakeTd>()).index,
        )
    };
    let parent = state.parents.insert(Parent { pd, td });
    FakePd::new_raw(context, pd, Some(parent))
}
