//! Memory windows as C sees them. What they open is in `window`.

use std::ffi::c_int;

use rdma_sys::{
    IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_WR_BIND_MW, ibv_inc_rkey, ibv_mw, ibv_mw_bind,
    ibv_mw_bind_info, ibv_mw_type, ibv_pd, ibv_qp,
};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::request::{Bind, Data, Remote, SendWr};
use crate::window::WINDOW;
use crate::world::Mw;

/// `ibv_alloc_mw(3)`.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, type_: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the caller gives a live domain.
    let (context, number) = unsafe { ((*pd).context, crate::handle::pd(pd)) };
    // SAFETY: as above.
    let mut world = unsafe { FakeDevice::of_context(context) }.world();
    if let Some(errno) = world.faults.take(Verb::AllocMw) {
        return null(errno);
    }
    if !matches!(type_, IBV_MW_TYPE_1 | IBV_MW_TYPE_2) {
        return null(libc::EINVAL);
    }
    let place = world.mws.next();
    let key = world.new_key(place) | WINDOW;
    let handle = u32::try_from(world.mws.insert(Mw {
        pd: number,
        kind: type_,
        key,
        bound: None,
    }))
    .unwrap_or(u32::MAX);
    Box::into_raw(Box::new(ibv_mw {
        context,
        pd,
        rkey: key,
        handle,
        type_,
    }))
}

/// `ibv_dealloc_mw(3)`.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the caller gives a live window, and gives it up if the answer is 0.
    unsafe {
        let mut world = FakeDevice::of_context((*mw).context).world();
        if let Some(errno) = world.faults.take(Verb::DeallocMw) {
            return errno;
        }
        world.mws.remove(crate::handle::mw(mw));
        drop(world);
        drop(Box::from_raw(mw));
    }
    0
}

/// `ibv_bind_mw(3)`: a request of the send queue, with a key that is chosen here.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: the caller gives a live queue pair, a live window and a readable request that names a
    // live region or none.
    let (mut world, place, bind, data, rkey) = unsafe {
        let world = FakeDevice::of_context((*qp).context).world();
        (
            world,
            crate::handle::qp(qp),
            &*bind,
            of_info(mw, &(*bind).bind_info),
            ibv_inc_rkey((*mw).rkey),
        )
    };
    if let Some(errno) = world.faults.take(Verb::BindMw) {
        return errno;
    }
    let (wr_id, flags) = (bind.wr_id, bind.send_flags);
    let remote = Remote {
        rkey,
        ..Remote::default()
    };
    let send = SendWr {
        wr_id,
        opcode: IBV_WR_BIND_MW,
        flags,
        imm_be: 0,
        data,
        remote,
        to: None,
        srqn: None,
    };
    if let Err(errno) = world.check_send(place, &send) {
        return errno;
    }
    world.take_send(place, send, &[]);
    // SAFETY: as above.
    unsafe { (*mw).rkey = rkey };
    0
}

/// What a request to bind says.
///
/// # Safety
/// The window is alive, and so is the region, or it is NULL.
pub(crate) unsafe fn of_info(mw: *mut ibv_mw, info: &ibv_mw_bind_info) -> Data {
    // SAFETY: the caller's promise.
    let (mw, mr) = unsafe {
        (
            crate::handle::mw(mw),
            info.mr.as_ref().map(|mr| mr.handle as usize),
        )
    };
    Data::Bind(Bind {
        mw,
        mr,
        address: info.addr,
        length: info.length,
        access: info.mw_access_flags,
    })
}
