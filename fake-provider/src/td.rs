//! Thread domains, and parent domains, which join one with a protection domain.

use std::ffi::c_int;

use rdma_sys::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::pd::FakePd;
use crate::world::{Parent, Td};

/// A thread domain as C sees it, and its number.
#[repr(C)]
struct FakeTd {
    raw: ibv_td,
    number: usize,
}

/// `ibv_alloc_td(3)`.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    _: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    // SAFETY: the caller gives an open context.
    let (mut world, opening) = unsafe {
        (
            FakeDevice::of_context(context).world(),
            crate::handle::context(context),
        )
    };
    if !world.profile.more_verbs {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = world.faults.take(Verb::AllocTd) {
        return null(errno);
    }
    let number = world.tds.insert(Td { context: opening });
    Box::into_raw(Box::new(FakeTd {
        raw: ibv_td { context },
        number,
    }))
    .cast()
}

/// `ibv_dealloc_td(3)`.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: the caller gives a live domain, whose handle is a whole FakeTd, and gives it up if
    // the answer is 0.
    unsafe {
        let (number, mut world) = (
            (*td.cast::<FakeTd>()).number,
            FakeDevice::of_context((*td).context).world(),
        );
        if let Some(errno) = world.faults.take(Verb::DeallocTd) {
            return errno;
        }
        let children = world
            .parents
            .iter()
            .filter(|parent| parent.td == number)
            .count();
        if children > 0 {
            world.violation(format!(
                "a thread domain was deallocated with {children} parent domains alive"
            ));
            return libc::EBUSY;
        }
        world.tds.remove(number);
        drop(world);
        drop(Box::from_raw(td.cast::<FakeTd>()));
    }
    0
}

/// `ibv_alloc_parent_domain(3)`.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the caller gives an open context and readable attributes.
    let (mut world, attr) = unsafe { (FakeDevice::of_context(context).world(), &*attr) };
    if !world.profile.more_verbs {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = world.faults.take(Verb::AllocParentDomain) {
        return null(errno);
    }
    if attr.comp_mask != 0 || attr.td.is_null() {
        return null(libc::EINVAL);
    }
    // SAFETY: the caller gives live domains.
    let (pd, td) = unsafe {
        (
            crate::handle::pd(attr.pd),
            (*attr.td.cast::<FakeTd>()).number,
        )
    };
    let parent = world.parents.insert(Parent { pd, td });
    FakePd::make(context, pd, Some(parent))
}
