//! XRC domains, their shared receive queues, and receiving XRC queue pairs.

use std::ffi::c_int;

use rdma_sys::{
    IBV_QP_INIT_ATTR_XRCD, IBV_QP_OPEN_ATTR_CONTEXT, IBV_QP_OPEN_ATTR_NUM, IBV_QP_OPEN_ATTR_TYPE,
    IBV_QP_OPEN_ATTR_XRCD, IBV_QPT_XRC_RECV, IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD,
    IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQT_XRC, IBV_XRCD_INIT_ATTR_FD,
    IBV_XRCD_INIT_ATTR_OFLAGS, ibv_context, ibv_qp, ibv_qp_ex, ibv_qp_init_attr_ex,
    ibv_qp_open_attr, ibv_srq, ibv_srq_init_attr_ex, ibv_xrcd, ibv_xrcd_init_attr,
};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::qp::FakeQp;
use crate::state::{DeviceState, Handle, Qp, XrcRole, Xrcd};

/// C representation of an XRC domain, with its index.
#[repr(C)]
struct FakeXrcd {
    raw: ibv_xrcd,
    index: usize,
}

/// Returns the index of an XRC domain.
///
/// # Safety
/// The domain is valid.
unsafe fn index(xrcd: *mut ibv_xrcd) -> usize {
    // SAFETY: the caller's promise; each `ibv_xrcd` of this crate is the start of a `FakeXrcd`.
    unsafe { (*xrcd.cast::<FakeXrcd>()).index }
}

/// `ibv_open_xrcd(3)`. Domains are shared by descriptor rather than by inode.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
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
    if let Some(errno) = state.faults.take(Verb::OpenXrcd) {
        return null(errno);
    }
    if attr.comp_mask != IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS {
        return null(libc::EINVAL);
    }
    let file = (attr.fd >= 0).then_some(attr.fd);
    let existing = state.xrcds.indices().find(|&index| {
        file.is_some()
            && state
                .xrcds
                .get(index)
                .is_some_and(|xrcd| (xrcd.file, xrcd.context) == (file, context_index))
    });
    let index = match existing {
        Some(_) if attr.oflags & libc::O_EXCL != 0 => return null(libc::EINVAL),
        None if attr.oflags & libc::O_CREAT == 0 => return null(libc::EAGAIN),
        Some(index) => index,
        None => state.xrcds.insert(Xrcd {
            context: context_index,
            file,
            opens: 0,
        }),
    };
    if let Some(xrcd) = state.xrcds.get_mut(index) {
        xrcd.opens += 1;
    }
    Box::into_raw(Box::new(FakeXrcd {
        raw: ibv_xrcd { context },
        index,
    }))
    .cast()
}

/// `ibv_close_xrcd(3)`.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: the caller passes a valid domain, and does not use it again if 0 is returned.
    unsafe {
        let (index, mut state) = (
            index(xrcd),
            FakeDevice::from_context((*xrcd).context).state(),
        );
        if let Some(errno) = state.faults.take(Verb::CloseXrcd) {
            return errno;
        }
        let children = state
            .srqs
            .iter()
            .filter(|srq| srq.xrc.is_some_and(|(xrcd, _)| xrcd == index))
            .count()
            + state
                .qps
                .iter()
                .filter(
                    |qp| matches!(qp.xrc_role, Some(XrcRole::Recv { xrcd, .. }) if xrcd == index),
                )
                .count();
        let opens = state.xrcds.get(index).map_or(0, |xrcd| xrcd.opens);
        if opens == 1 && children > 0 {
            state.violation(format!(
                "an XRC domain was closed with {children} objects alive"
            ));
            return libc::EBUSY;
        }
        if let Some(xrcd) = state.xrcds.get_mut(index).filter(|_| opens > 1) {
            xrcd.opens -= 1;
        } else {
            state.xrcds.remove(index);
        }
        drop(state);
        drop(Box::from_raw(xrcd.cast::<FakeXrcd>()));
    }
    0
}

/// `ibv_create_srq_ex(3)`, only for shared receive queues of XRC.
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the caller passes a valid context and attributes that are valid for reads and writes.
    let (mut state, init) = unsafe { (FakeDevice::from_context(context).state(), &mut *init) };
    let mask = IBV_SRQ_INIT_ATTR_TYPE
        | IBV_SRQ_INIT_ATTR_PD
        | IBV_SRQ_INIT_ATTR_XRCD
        | IBV_SRQ_INIT_ATTR_CQ;
    if !state.profile.more_verbs || init.comp_mask != mask || init.srq_type != IBV_SRQT_XRC {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = state.faults.take(Verb::CreateSrq) {
        return null(errno);
    }
    // SAFETY: the caller passes valid domains and a valid queue.
    let (pd, xrc) = unsafe {
        (
            crate::handle::pd(init.pd),
            (index(init.xrcd), crate::handle::cq(init.cq)),
        )
    };
    let Some(index) = state.insert_srq(pd, &mut init.attr, Some(xrc)) else {
        return null(libc::EINVAL);
    };
    let object = Box::into_raw(Box::new(ibv_srq {
        context,
        srq_context: init.srq_context,
        pd: init.pd,
        handle: u32::try_from(index).unwrap_or(u32::MAX),
        ..Default::default()
    }));
    if let Some(queue) = state.srqs.get_mut(index) {
        queue.handle = Handle(object);
    }
    object
}

/// `ibv_get_srq_num(3)`.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, result: *mut u32) -> c_int {
    // SAFETY: the caller passes a valid queue and a pointer that is valid for writes.
    unsafe {
        let (index, state) = (
            crate::handle::srq(srq),
            FakeDevice::from_context((*srq).context).state(),
        );
        if state.srqs.get(index).is_none_or(|srq| srq.xrc.is_none()) {
            return libc::EINVAL;
        }
        result.write(crate::handle::srq_num(index));
    }
    0
}

/// `ibv_create_qp_ex(3)` for a receiving XRC queue pair.
///
/// # Safety
/// The context and the XRC domain are valid.
pub(crate) unsafe fn create_recv(
    context: *mut ibv_context,
    attr: &ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller's promise.
    let mut state = unsafe { FakeDevice::from_context(context) }.state();
    if !state.profile.more_verbs || attr.comp_mask != IBV_QP_INIT_ATTR_XRCD {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = state.faults.take(Verb::CreateQpEx) {
        return null(errno);
    }
    // SAFETY: the caller's promise.
    let xrcd = unsafe { index(attr.xrcd) };
    let empty = state.empty_qp(usize::MAX, [usize::MAX; 2]);
    let slot = state.qps.insert(Qp {
        xrc_role: Some(XrcRole::Recv { xrcd, opens: 1 }),
        ..empty
    });
    let object = handle(context, slot, attr.qp_context);
    if let Some(pair) = state.qps.get_mut(slot) {
        pair.handle = Handle(object);
    }
    object
}

fn handle(
    context: *mut ibv_context,
    slot: usize,
    qp_context: *mut std::ffi::c_void,
) -> *mut ibv_qp {
    let qp_base = ibv_qp {
        context,
        qp_context,
        handle: u32::try_from(slot).unwrap_or(u32::MAX),
        qp_num: crate::handle::qp_num(slot),
        qp_type: IBV_QPT_XRC_RECV,
        ..Default::default()
    };
    FakeQp::allocate(ibv_qp_ex {
        qp_base,
        ..Default::default()
    })
}

/// `ibv_open_qp(3)`.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    // SAFETY: the caller passes a valid context, readable attributes and a valid domain.
    let (mut state, attr) = unsafe { (FakeDevice::from_context(context).state(), &*attr) };
    let mask = IBV_QP_OPEN_ATTR_NUM
        | IBV_QP_OPEN_ATTR_XRCD
        | IBV_QP_OPEN_ATTR_CONTEXT
        | IBV_QP_OPEN_ATTR_TYPE;
    if !state.profile.more_verbs || attr.comp_mask != mask || attr.qp_type != IBV_QPT_XRC_RECV {
        return null(libc::EOPNOTSUPP);
    }
    // SAFETY: as above.
    let xrcd_index = unsafe { index(attr.xrcd) };
    let slot = crate::handle::qp_index(attr.qp_num);
    match slot
        .and_then(|slot| state.qps.get_mut(slot))
        .and_then(|pair| pair.xrc_role.as_mut())
    {
        Some(XrcRole::Recv { xrcd, opens }) if *xrcd == xrcd_index => *opens += 1,
        _ => return null(libc::EINVAL),
    }
    handle(context, slot.unwrap_or(usize::MAX), attr.qp_context)
}

impl DeviceState {
    /// Closes one handle of a shared queue pair. Returns `true` if others are open, in which case
    /// the queue pair stays.
    pub(crate) fn close_shared(&mut self, slot: usize) -> bool {
        let Some(pair) = self.qps.get_mut(slot) else {
            return false;
        };
        match &mut pair.xrc_role {
            Some(XrcRole::Recv { opens, .. }) if *opens > 1 => {
                *opens -= 1;
                // It may be the one that is closed.
                pair.handle = Handle(std::ptr::null_mut());
                true
            }
            _ => false,
        }
    }
}
