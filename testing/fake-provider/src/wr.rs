//! Posting with the extended verbs: `ibv_wr_start`, requests, then `ibv_wr_complete` or
//! `ibv_wr_abort`.

use std::ffi::{c_int, c_void};
use std::sync::MutexGuard;

use rdma_sys::{
    __be32, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_EX_WITH_BIND_MW, IBV_QP_EX_WITH_FLUSH,
    IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_ah,
    ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge, ibv_wr_opcode,
};

use crate::device::FakeDevice;
use crate::fault::Queue;
use crate::profile::{Profile, unset};
use crate::request::{Batch, Data, Remote, SendWr, Sges, To};
use crate::state::DeviceState;

/// Returns the operations (`send_ops_flags`) that a queue pair can be created with.
pub(crate) fn operations(profile: &Profile) -> u64 {
    let windows = if profile.windows { WINDOWS } else { 0 };
    let accepts = |function: &'static str, op: u32| {
        u64::from(op) * u64::from(profile.unset.contains(&function))
    };
    OPERATIONS
        | windows
        | accepts("wr_flush", IBV_QP_EX_WITH_FLUSH)
        | accepts("wr_atomic_write", IBV_QP_EX_WITH_ATOMIC_WRITE)
}

const OPERATIONS: u64 = (IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) as u64;

const WINDOWS: u64 =
    (IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV) as u64;

/// Returns the function table for these operations. Other functions stay NULL, so calling one
/// crashes.
pub(crate) fn table(operations: u64, profile: &Profile) -> ibv_qp_ex {
    let has = |flag: u32| operations & u64::from(flag) != 0;
    let mut table = ibv_qp_ex {
        wr_start: Some(wr_start),
        wr_complete: Some(wr_complete),
        wr_abort: Some(wr_abort),
        wr_send: has(IBV_QP_EX_WITH_SEND).then_some(wr_send),
        wr_send_imm: has(IBV_QP_EX_WITH_SEND_WITH_IMM).then_some(wr_send_imm),
        wr_rdma_write: has(IBV_QP_EX_WITH_RDMA_WRITE).then_some(wr_rdma_write),
        wr_rdma_write_imm: has(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM).then_some(wr_rdma_write_imm),
        wr_rdma_read: has(IBV_QP_EX_WITH_RDMA_READ).then_some(wr_rdma_read),
        wr_atomic_cmp_swp: has(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP).then_some(wr_atomic_cmp_swp),
        wr_atomic_fetch_add: has(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
            .then_some(wr_atomic_fetch_add),
        wr_bind_mw: has(IBV_QP_EX_WITH_BIND_MW).then_some(wr_bind_mw),
        wr_local_inv: has(IBV_QP_EX_WITH_LOCAL_INV).then_some(wr_local_inv),
        wr_send_inv: has(IBV_QP_EX_WITH_SEND_WITH_INV).then_some(wr_send_inv),
        wr_set_sge: Some(wr_set_sge),
        wr_set_sge_list: Some(wr_set_sge_list),
        wr_set_inline_data: Some(wr_set_inline_data),
        wr_set_ud_addr: Some(wr_set_ud_addr),
        wr_set_xrc_srqn: Some(wr_set_xrc_srqn),
        ..Default::default()
    };
    #[rustfmt::skip]
    unset!(table, profile, [
        wr_send, wr_send_imm, wr_send_inv, wr_rdma_write, wr_rdma_write_imm, wr_rdma_read,
        wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_bind_mw, wr_local_inv, wr_set_sge,
        wr_set_sge_list, wr_set_inline_data, wr_set_ud_addr, wr_set_xrc_srqn,
    ]);
    table
}

/// Locks the device and returns its state and the slot of the queue pair.
///
/// # Safety
/// The queue pair is valid.
#[inline]
unsafe fn state_and_slot(qp: *mut ibv_qp_ex) -> (MutexGuard<'static, DeviceState>, usize) {
    // SAFETY: the caller's promise; an `ibv_qp_ex` begins with an `ibv_qp`.
    unsafe {
        (
            FakeDevice::from_context((*qp).qp_base.context).state(),
            crate::handle::qp(qp.cast()),
        )
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller passes a valid queue pair.
    let (mut state, slot) = unsafe { state_and_slot(qp) };
    let Some(pair) = state.qps.get_mut(slot) else {
        return;
    };
    if std::mem::replace(&mut pair.batch.open, true) {
        // A real provider would deadlock here.
        state.violation("ibv_wr_start was called twice");
    }
}

/// Ends a batch and returns it.
fn end(state: &mut DeviceState, slot: usize) -> Batch {
    let batch = state
        .qps
        .get_mut(slot)
        .map(|pair| std::mem::take(&mut pair.batch))
        .unwrap_or_default();
    if !batch.open {
        state.violation("ibv_wr_complete or ibv_wr_abort was called without ibv_wr_start");
    }
    batch
}

/// Returns the empty batch to the queue pair, so that its allocations are reused.
fn put_back(state: &mut DeviceState, slot: usize, mut batch: Batch) {
    batch.sends.clear();
    batch.inline.clear();
    (batch.open, batch.error) = (false, 0);
    if let Some(pair) = state.qps.get_mut(slot) {
        pair.batch = batch;
    }
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller passes a valid queue pair.
    let (mut state, slot) = unsafe { state_and_slot(qp) };
    let batch = end(&mut state, slot);
    put_back(&mut state, slot, batch);
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the caller passes a valid queue pair.
    let (mut state, slot) = unsafe { state_and_slot(qp) };
    let fault = state.faults.take_post(Queue::Send);
    let batch = end(&mut state, slot);
    let mut result = batch.error;
    let unconnected = state.unconnected_error(slot);
    if let Some(fault) = fault {
        result = fault.errno;
    }
    if result == 0 || fault.is_some_and(|fault| fault.executed) {
        for send in &batch.sends {
            match state.check_send(slot, send) {
                Ok(()) => state.enqueue_send(slot, *send, &batch.inline),
                Err(errno) => {
                    result = errno;
                    break;
                }
            }
        }
    }
    put_back(&mut state, slot, batch);
    let result = if result == 0 { unconnected } else { result };
    state.signed(result)
}

/// Begins a request of the batch.
///
/// # Safety
/// The queue pair is valid.
unsafe fn begin(qp: *mut ibv_qp_ex, opcode: ibv_wr_opcode, imm_be: u32, remote: Remote) {
    // SAFETY: the caller's promise.
    let ((mut state, slot), wr_id, flags) =
        unsafe { (state_and_slot(qp), (*qp).wr_id, (*qp).wr_flags) };
    let Some(pair) = state.qps.get_mut(slot) else {
        return;
    };
    if !pair.batch.open {
        return state.violation("a request was added without ibv_wr_start");
    }
    if pair.send_slots_used as usize + pair.batch.sends.len() >= pair.caps.max_send_wr as usize {
        pair.batch.error = libc::ENOMEM;
        return;
    }
    let data = Data::Registered(Sges::default());
    pair.batch.sends.push(SendWr {
        wr_id,
        opcode,
        flags,
        imm_be,
        data,
        remote,
        to: None,
        srqn: None,
    });
}

/// Sets the payload of the last request.
///
/// # Safety
/// The queue pair is valid.
unsafe fn set(qp: *mut ibv_qp_ex, data: impl FnOnce(&mut Batch) -> Option<Data>) {
    // SAFETY: the caller's promise.
    let (mut state, slot) = unsafe { state_and_slot(qp) };
    let Some(pair) = state.qps.get_mut(slot) else {
        return;
    };
    let data = data(&mut pair.batch);
    match (pair.batch.sends.last_mut(), data) {
        (Some(send), Some(data)) => send.data = data,
        _ => pair.batch.error = libc::EINVAL,
    }
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller passes a valid queue pair.
    unsafe { begin(qp, IBV_WR_SEND, 0, Remote::default()) }
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm_data: __be32) {
    // SAFETY: the caller passes a valid queue pair.
    unsafe { begin(qp, IBV_WR_SEND_WITH_IMM, imm_data, Remote::default()) }
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: the caller passes a valid queue pair.
    unsafe {
        begin(
            qp,
            IBV_WR_RDMA_WRITE,
            0,
            Remote {
                addr,
                rkey,
                ..Remote::default()
            },
        );
    }
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, imm_data: __be32) {
    // SAFETY: the caller passes a valid queue pair.
    unsafe {
        begin(
            qp,
            IBV_WR_RDMA_WRITE_WITH_IMM,
            imm_data,
            Remote {
                addr,
                rkey,
                ..Remote::default()
            },
        );
    }
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: the caller passes a valid queue pair.
    unsafe {
        begin(
            qp,
            IBV_WR_RDMA_READ,
            0,
            Remote {
                addr,
                rkey,
                ..Remote::default()
            },
        );
    }
}

unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    addr: u64,
    compare: u64,
    swap: u64,
) {
    // SAFETY: the caller passes a valid queue pair.
    unsafe {
        begin(
            qp,
            IBV_WR_ATOMIC_CMP_AND_SWP,
            0,
            Remote {
                addr,
                rkey,
                compare_add: compare,
                swap,
            },
        );
    }
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, add: u64) {
    // SAFETY: the caller passes a valid queue pair.
    unsafe {
        begin(
            qp,
            IBV_WR_ATOMIC_FETCH_AND_ADD,
            0,
            Remote {
                addr,
                rkey,
                compare_add: add,
                swap: 0,
            },
        );
    }
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: the caller passes a valid queue pair, a valid window, and a region that is valid or
    // NULL.
    unsafe {
        begin(
            qp,
            IBV_WR_BIND_MW,
            0,
            Remote {
                rkey,
                ..Remote::default()
            },
        );
        let bind = crate::mw::bind_data(mw, &*info);
        set(qp, |_| Some(bind));
    }
}

unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: the caller passes a valid queue pair.
    unsafe {
        begin(
            qp,
            IBV_WR_LOCAL_INV,
            0,
            Remote {
                rkey,
                ..Remote::default()
            },
        );
    }
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: the caller passes a valid queue pair.
    unsafe { begin(qp, IBV_WR_SEND_WITH_INV, rkey, Remote::default()) }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the caller passes a valid queue pair.
    unsafe {
        set(qp, |_| {
            Sges::from_list(&[ibv_sge { addr, length, lkey }]).map(Data::Registered)
        });
    }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the caller passes a valid queue pair and a list of `count` readable entries.
    unsafe {
        let list = if count == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(list, count)
        };
        set(qp, |_| Sges::from_list(list).map(Data::Registered));
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: the caller passes a valid queue pair and `length` readable bytes.
    unsafe {
        let bytes = if length == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(addr.cast::<u8>(), length)
        };
        set(qp, |batch| {
            let start = batch.inline.len();
            batch.inline.extend_from_slice(bytes);
            Some(Data::Inline { start, length })
        });
    }
}

unsafe extern "C" fn wr_set_ud_addr(
    qp: *mut ibv_qp_ex,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    // SAFETY: the caller passes a valid queue pair and a valid address handle.
    let ((mut state, slot), ah) = unsafe { (state_and_slot(qp), crate::handle::ah(ah)) };
    let Some(pair) = state.qps.get_mut(slot) else {
        return;
    };
    match pair.batch.sends.last_mut() {
        Some(send) => {
            send.to = Some(To {
                ah,
                qpn: remote_qpn,
                qkey: remote_qkey,
            });
        }
        None => pair.batch.error = libc::EINVAL,
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: the caller passes a valid queue pair.
    let (mut state, slot) = unsafe { state_and_slot(qp) };
    let Some(pair) = state.qps.get_mut(slot) else {
        return;
    };
    match pair.batch.sends.last_mut() {
        Some(send) => send.srqn = Some(remote_srqn),
        None => pair.batch.error = libc::EINVAL,
    }
}
