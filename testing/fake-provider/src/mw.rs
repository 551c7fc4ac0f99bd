//! Memory windows: the C interface. `window` implements the bindings.

use std::ffi::c_int;

use rdma_sys::{
    IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_WR_BIND_MW, ibv_inc_rkey, ibv_mw, ibv_mw_bind,
    ibv_mw_bind_info, ibv_mw_type, ibv_pd, ibv_qp,
};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::request::{Bind, Data, Remote, SendWr};
use crate::state::Mw;
use crate::window::WINDOW_BIT;

/// `ibv_alloc_mw(3)`.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, type_: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the caller passes a valid domain.
    let (context, index) = unsafe { ((*pd).context, crate::handle::pd(pd)) };
    // SAFETY: as above.
    let mut state = unsafe { FakeDevice::from_context(context) }.state();
    if let Some(errno) = state.faults.take(Verb::AllocMw) {
        return null(errno);
    }
    if !matches!(type_, IBV_MW_TYPE_1 | IBV_MW_TYPE_2) {
        return null(libc::EINVAL);
    }
    let slot = state.mws.next();
    let key = state.new_key(slot) | WINDOW_BIT;
    let handle = u32::try_from(state.mws.insert(Mw {
        pd: index,
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
    // SAFETY: the caller passes a valid window, and does not use it again if 0 is returned.
    unsafe {
        let mut state = FakeDevice::from_context((*mw).context).state();
        if let Some(errno) = state.faults.take(Verb::DeallocMw) {
            return errno;
        }
        state.mws.remove(crate::handle::mw(mw));
        drop(state);
        drop(Box::from_raw(mw));
    }
    0
}

/// `ibv_bind_mw(3)`. It posts a request, and the provider chooses the key.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: the caller passes a valid queue pair, a valid window, and a readable request whose
    // region is valid or NULL.
    let (mut state, slot, bind, data, rkey) = unsafe {
        let state = FakeDevice::from_context((*qp).context).state();
        (
            state,
            crate::handle::qp(qp),
            &*bind,
            bind_data(mw, &(*bind).bind_info),
            ibv_inc_rkey((*mw).rkey),
        )
    };
    if let Some(errno) = state.faults.take(Verb::BindMw) {
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
    if let Err(errno) = state.check_send(slot, &send) {
        return errno;
    }
    state.enqueue_send(slot, send, &[]);
    // SAFETY: as above.
    unsafe { (*mw).rkey = rkey };
    0
}

/// Returns the data of a bind request.
///
/// # Safety
/// The window is valid. The region is valid or NULL.
pub(crate) unsafe fn bind_data(mw: *mut ibv_mw, info: &ibv_mw_bind_info) -> Data {
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
