//! XRC: its domains, shared receive queues that requests name, and receiving halves.

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
use crate::world::{Half, Qp, World, Xrcd};

/// An opening of an XRC domain, as C sees it, and its number.
#[repr(C)]
struct FakeXrcd {
    raw: ibv_xrcd,
    number: usize,
}

/// # Safety
/// The domain is alive.
unsafe fn number(xrcd: *mut ibv_xrcd) -> usize {
    // SAFETY: the caller's promise; the handle of a domain is a whole FakeXrcd.
    unsafe { (*xrcd.cast::<FakeXrcd>()).number }
}

/// `ibv_open_xrcd(3)`. The descriptor stands for the inode.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    // SAFETY: the caller gives an open context and readable attributes.
    let (mut world, opening, attr) = unsafe {
        (
            FakeDevice::of_context(context).world(),
            crate::handle::context(context),
            &*attr,
        )
    };
    if !world.profile.more_verbs {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = world.faults.take(Verb::OpenXrcd) {
        return null(errno);
    }
    if attr.comp_mask != IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS {
        return null(libc::EINVAL);
    }
    let file = (attr.fd >= 0).then_some(attr.fd);
    let there = world.xrcds.numbers().find(|&number| {
        file.is_some()
            && world
                .xrcds
                .get(number)
                .is_some_and(|xrcd| (xrcd.file, xrcd.context) == (file, opening))
    });
    let number = match there {
        Some(_) if attr.oflags & libc::O_EXCL != 0 => return null(libc::EINVAL),
        None if attr.oflags & libc::O_CREAT == 0 => return null(libc::EAGAIN),
        Some(number) => number,
        None => world.xrcds.insert(Xrcd {
            context: opening,
            file,
            opens: 0,
        }),
    };
    if let Some(xrcd) = world.xrcds.get_mut(number) {
        xrcd.opens += 1;
    }
    Box::into_raw(Box::new(FakeXrcd {
        raw: ibv_xrcd { context },
        number,
    }))
    .cast()
}

/// `ibv_close_xrcd(3)`.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: the caller gives a live domain, and gives it up if the answer is 0.
    unsafe {
        let (number, mut world) = (
            number(xrcd),
            FakeDevice::of_context((*xrcd).context).world(),
        );
        if let Some(errno) = world.faults.take(Verb::CloseXrcd) {
            return errno;
        }
        let children = world
            .srqs
            .iter()
            .filter(|srq| srq.xrc.is_some_and(|(of, _)| of == number))
            .count()
            + world
                .qps
                .iter()
                .filter(|qp| matches!(qp.half, Some(Half::Recv { xrcd, .. }) if xrcd == number))
                .count();
        let opens = world.xrcds.get(number).map_or(0, |xrcd| xrcd.opens);
        if opens == 1 && children > 0 {
            world.violation(format!(
                "an XRC domain was closed with {children} objects alive"
            ));
            return libc::EBUSY;
        }
        if let Some(xrcd) = world.xrcds.get_mut(number).filter(|_| opens > 1) {
            xrcd.opens -= 1;
        } else {
            world.xrcds.remove(number);
        }
        drop(world);
        drop(Box::from_raw(xrcd.cast::<FakeXrcd>()));
    }
    0
}

/// `ibv_create_srq_ex(3)`, for what `ibv_create_srq` does not do.
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the caller gives an open context, and attributes that can be read and written.
    let (mut world, init) = unsafe { (FakeDevice::of_context(context).world(), &mut *init) };
    let mask = IBV_SRQ_INIT_ATTR_TYPE
        | IBV_SRQ_INIT_ATTR_PD
        | IBV_SRQ_INIT_ATTR_XRCD
        | IBV_SRQ_INIT_ATTR_CQ;
    if !world.profile.more_verbs || init.comp_mask != mask || init.srq_type != IBV_SRQT_XRC {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = world.faults.take(Verb::CreateSrq) {
        return null(errno);
    }
    // SAFETY: the caller gives live domains and a live queue.
    let (pd, xrc) = unsafe {
        (
            crate::handle::pd(init.pd),
            (number(init.xrcd), crate::handle::cq(init.cq)),
        )
    };
    let Some(number) = world.insert_srq(pd, &mut init.attr, Some(xrc)) else {
        return null(libc::EINVAL);
    };
    Box::into_raw(Box::new(ibv_srq {
        context,
        srq_context: init.srq_context,
        pd: init.pd,
        handle: u32::try_from(number).unwrap_or(u32::MAX),
        ..Default::default()
    }))
}

/// `ibv_get_srq_num(3)`.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, answer: *mut u32) -> c_int {
    // SAFETY: the caller gives a live queue and a place for the answer.
    unsafe {
        let (number, world) = (
            crate::handle::srq(srq),
            FakeDevice::of_context((*srq).context).world(),
        );
        if world.srqs.get(number).is_none_or(|srq| srq.xrc.is_none()) {
            return libc::EINVAL;
        }
        answer.write(crate::handle::srq_number_of(number));
    }
    0
}

/// `ibv_create_qp_ex(3)` of a receiving half.
///
/// # Safety
/// The context is open and the domain alive.
pub(crate) unsafe fn create_recv(
    context: *mut ibv_context,
    attr: &ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller's promise.
    let mut world = unsafe { FakeDevice::of_context(context) }.world();
    if !world.profile.more_verbs || attr.comp_mask != IBV_QP_INIT_ATTR_XRCD {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = world.faults.take(Verb::CreateQpEx) {
        return null(errno);
    }
    // SAFETY: the caller's promise.
    let xrcd = unsafe { number(attr.xrcd) };
    let empty = world.empty_qp(usize::MAX, [usize::MAX; 2]);
    let place = world.qps.insert(Qp {
        half: Some(Half::Recv { xrcd, opens: 1 }),
        ..empty
    });
    handle(context, place, attr.qp_context)
}

fn handle(
    context: *mut ibv_context,
    place: usize,
    qp_context: *mut std::ffi::c_void,
) -> *mut ibv_qp {
    let qp_base = ibv_qp {
        context,
        qp_context,
        handle: u32::try_from(place).unwrap_or(u32::MAX),
        qp_num: crate::handle::number_of(place),
        qp_type: IBV_QPT_XRC_RECV,
        ..Default::default()
    };
    Box::into_raw(Box::new(ibv_qp_ex {
        qp_base,
        ..Default::default()
    }))
    .cast()
}

/// `ibv_open_qp(3)`.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    // SAFETY: the caller gives an open context, readable attributes and a live domain.
    let (mut world, attr) = unsafe { (FakeDevice::of_context(context).world(), &*attr) };
    let mask = IBV_QP_OPEN_ATTR_NUM
        | IBV_QP_OPEN_ATTR_XRCD
        | IBV_QP_OPEN_ATTR_CONTEXT
        | IBV_QP_OPEN_ATTR_TYPE;
    if !world.profile.more_verbs || attr.comp_mask != mask || attr.qp_type != IBV_QPT_XRC_RECV {
        return null(libc::EOPNOTSUPP);
    }
    // SAFETY: as above.
    let wanted = unsafe { number(attr.xrcd) };
    let place = crate::handle::place_of(attr.qp_num);
    match place
        .and_then(|place| world.qps.get_mut(place))
        .and_then(|pair| pair.half.as_mut())
    {
        Some(Half::Recv { xrcd, opens }) if *xrcd == wanted => *opens += 1,
        _ => return null(libc::EINVAL),
    }
    handle(context, place.unwrap_or(usize::MAX), attr.qp_context)
}

impl World {
    /// Whether others still have this receiving half open: then it stays.
    pub(crate) fn close_shared_qp(&mut self, place: usize) -> bool {
        match self.qps.get_mut(place).and_then(|pair| pair.half.as_mut()) {
            Some(Half::Recv { opens, .. }) if *opens > 1 => {
                *opens -= 1;
                true
            }
            _ => false,
        }
    }
}
