//! Posting with the classic verbs.

use std::ffi::c_int;
use std::ptr;

use rdma_sys::{
    IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTS, IBV_SEND_INLINE, IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge,
};

use crate::device::FakeDevice;
use crate::fault::{PostFault, Queue};
use crate::profile::{Transport, UnconnectedPosts};
use crate::request::{Data, RecvWr, Remote, SendWr, Sges, To};
use crate::state::{DeviceState, Qp};

/// `ibv_post_send(3)`.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller passes a valid queue pair.
    let (slot, mut state) = unsafe {
        (
            crate::handle::qp(qp),
            FakeDevice::from_context((*qp).context).state(),
        )
    };
    let fault = state.faults.take_post(Queue::Send);
    let result = state.unconnected_error(slot);
    let mut index = 0;
    while !wr.is_null() {
        // SAFETY: the caller passes a list of valid requests.
        let request = unsafe { &*wr };
        if let Some(fault) = fault.filter(|fault| fault.at == index) {
            if fault.executed {
                // SAFETY: as above.
                let _ = unsafe { post_one_send(&mut state, slot, request) };
            }
            if fault.sets_bad_wr {
                // SAFETY: the caller passes a pointer that is valid for writes.
                unsafe { *bad_wr = wr };
            }
            return state.signed(fault.errno);
        }
        // SAFETY: as above.
        if let Err(errno) = unsafe { post_one_send(&mut state, slot, request) } {
            // SAFETY: the caller passes a pointer that is valid for writes.
            unsafe { *bad_wr = wr };
            return state.signed(errno);
        }
        index += 1;
        wr = request.next;
    }
    state.signed(result)
}

/// Posts one request of a list.
///
/// # Safety
/// The request, its gather list and its inline data are readable.
unsafe fn post_one_send(
    state: &mut DeviceState,
    qp: usize,
    request: &ibv_send_wr,
) -> Result<(), i32> {
    // SAFETY: the caller's promise.
    let list = unsafe {
        check_first(state, request.sg_list, request.num_sge);
        entries(request.sg_list, request.num_sge)
    };
    let sges = Sges::from_list(list).ok_or(libc::EINVAL)?;
    let first_empty = list.iter().position(|sge| sge.length == 0);
    let before_data = |empty: usize| list[empty..].iter().any(|sge| sge.length > 0);
    if state.profile.transport == Transport::Iwarp && first_empty.is_some_and(before_data) {
        state.violation("an empty gather entry before others crashes the kernel of Soft-iWARP");
    }
    // SAFETY: all fields of the unions are integers, which have no invalid values.
    let (imm_be, rdma, atomic) = unsafe {
        (
            request.__bindgen_anon_1.imm_data,
            request.wr.rdma,
            request.wr.atomic,
        )
    };
    let remote = match request.opcode {
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => Remote {
            addr: atomic.remote_addr,
            rkey: atomic.rkey,
            compare_add: atomic.compare_add,
            swap: atomic.swap,
        },
        // `invalidate_rkey` shares a union with the immediate data.
        IBV_WR_LOCAL_INV => Remote {
            rkey: imm_be,
            ..Remote::default()
        },
        _ => Remote {
            addr: rdma.remote_addr,
            rkey: rdma.rkey,
            ..Remote::default()
        },
    };
    let mut send = SendWr {
        wr_id: request.wr_id,
        opcode: request.opcode,
        flags: request.send_flags,
        imm_be,
        data: Data::Registered(sges),
        remote,
        to: None,
        srqn: None,
    };
    if state.is_xrc(qp) {
        // SAFETY: the field is an integer, which has no invalid values.
        send.srqn = Some(unsafe { request.qp_type.xrc.remote_srqn });
    }
    if request.opcode == IBV_WR_BIND_MW {
        // SAFETY: a bind request names a valid window, and a region that is valid or NULL.
        unsafe {
            let bind = &request.__bindgen_anon_2.bind_mw;
            send.remote = Remote {
                rkey: bind.rkey,
                ..Remote::default()
            };
            send.data = crate::mw::bind_data(bind.mw, &bind.bind_info);
        }
    }
    if state.is_datagram(qp) {
        // SAFETY: all fields of the union are integers or pointers. A datagram names a valid
        // address handle or NULL.
        let ud = unsafe { request.wr.ud };
        if ud.ah.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: as above; the handle is not NULL.
        let ah = unsafe { crate::handle::ah(ud.ah) };
        send.to = Some(To {
            ah,
            qpn: ud.remote_qpn,
            qkey: ud.remote_qkey,
        });
        send.remote = Remote::default();
    }
    if request.send_flags & IBV_SEND_INLINE == 0 {
        state.check_send(qp, &send)?;
        state.enqueue_send(qp, send, &[]);
        return Ok(());
    }
    // The crate supports one entry of inline data.
    let [entry] = sges.as_slice() else {
        return Err(libc::EOPNOTSUPP);
    };
    let start: *const u8 = ptr::with_exposed_provenance(usize::try_from(entry.addr).unwrap_or(0));
    let length = entry.length as usize;
    send.data = Data::Inline { start: 0, length };
    state.check_send(qp, &send)?;
    let bytes = if length == 0 {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(start, length) }
    };
    state.enqueue_send(qp, send, bytes);
    Ok(())
}

/// Checks that the first entry of an empty list names no memory: several providers use it without
/// looking at the number of entries (docs/drivers.md, "What is avoided").
///
/// # Safety
/// The list is null, or has a readable entry.
unsafe fn check_first(state: &mut DeviceState, list: *const ibv_sge, count: c_int) {
    // SAFETY: the caller's promise.
    let first = unsafe { list.as_ref() };
    let is_zero = |sge: &ibv_sge| (sge.addr, sge.length, sge.lkey) == (0, 0, 0);
    if count == 0 && !first.is_some_and(is_zero) {
        state.violation("a provider would use the entry of a request without entries");
    }
}

/// Returns a gather or scatter list as a slice.
///
/// # Safety
/// The list has `count` readable entries.
unsafe fn entries<'a>(list: *const ibv_sge, count: c_int) -> &'a [ibv_sge] {
    match usize::try_from(count) {
        // SAFETY: the caller's promise.
        Ok(count @ 1..) => unsafe { std::slice::from_raw_parts(list, count) },
        _ => &[],
    }
}

/// Returns `true` if the queue pair accepts sends.
fn is_connected(pair: &Qp) -> bool {
    matches!(pair.state, IBV_QPS_RTS | IBV_QPS_ERR)
}

impl DeviceState {
    /// Returns the error number with which the next post to the send queue fails although its
    /// requests are queued, or 0.
    pub(crate) fn unconnected_error(&self, qp: usize) -> i32 {
        let Some(pair) = self.qps.get(qp).filter(|pair| !is_connected(pair)) else {
            return 0;
        };
        match self.profile.unconnected_posts {
            UnconnectedPosts::FailOnceAndQueue if pair.pending.is_empty() => libc::ENOTCONN,
            UnconnectedPosts::FailAndQueue => libc::EINVAL,
            _ => 0,
        }
    }

    /// Checks that a send can be posted: the state of the queue pair, the operation, the sizes, and
    /// a free slot.
    pub(crate) fn check_send(&self, qp: usize, send: &SendWr) -> Result<(), i32> {
        let pair = self.qps.get(qp).ok_or(libc::EINVAL)?;
        if !is_connected(pair) && self.profile.unconnected_posts == UnconnectedPosts::Reject {
            return Err(libc::EINVAL);
        }
        let atomic = matches!(
            send.opcode,
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD
        );
        let fetches = atomic || send.opcode == IBV_WR_RDMA_READ;
        let windows = matches!(
            send.opcode,
            IBV_WR_BIND_MW | IBV_WR_LOCAL_INV | IBV_WR_SEND_WITH_INV
        );
        let known = fetches
            || (windows && self.profile.windows)
            || crate::execute::OUTBOUND_OPCODES.contains(&send.opcode);
        let send_datagram = matches!(send.opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM);
        if !known
            || (atomic && self.profile.transport == Transport::Iwarp)
            || (pair.qkey.is_some() && !send_datagram)
        {
            return Err(libc::EOPNOTSUPP);
        }
        if pair.raw && send.opcode != IBV_WR_SEND {
            return Err(libc::EOPNOTSUPP);
        }
        if pair.xrc_role.is_some() && send.srqn.is_none() {
            return Err(libc::EINVAL);
        }
        let reachable = send
            .to
            .and_then(|to| self.ahs.get(to.ah))
            .is_some_and(|ah| ah.pd == pair.pd);
        if pair.qkey.is_some() && !reachable {
            return Err(libc::EINVAL);
        }
        if (atomic && send.remote.addr % 8 != 0)
            || (fetches && matches!(send.data, Data::Inline { .. }))
        {
            return Err(libc::EINVAL);
        }
        match &send.data {
            Data::Inline { length, .. } if *length > pair.caps.max_inline_data as usize => {
                return Err(libc::EINVAL);
            }
            Data::Registered(sges) if sges.count > pair.caps.max_send_sge as usize => {
                return Err(libc::EINVAL);
            }
            _ => {}
        }
        if pair.send_slots_used >= pair.caps.max_send_wr {
            Err(libc::ENOMEM)
        } else {
            Ok(())
        }
    }

    pub(crate) fn is_datagram(&self, qp: usize) -> bool {
        self.qps.get(qp).is_some_and(|pair| pair.qkey.is_some())
    }

    fn is_xrc(&self, qp: usize) -> bool {
        self.qps.get(qp).is_some_and(|pair| pair.xrc_role.is_some())
    }

    fn check_recv(&self, qp: usize, sges: &Sges) -> Result<(), i32> {
        let pair = self.qps.get(qp).ok_or(libc::EINVAL)?;
        if pair.state == IBV_QPS_RESET
            || pair.srq.is_some()
            || sges.count > pair.caps.max_recv_sge as usize
        {
            return Err(libc::EINVAL);
        }
        if pair.recvs.len() >= pair.caps.max_recv_wr as usize {
            Err(libc::ENOMEM)
        } else {
            Ok(())
        }
    }
}

/// `ibv_post_recv(3)`.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller passes a valid queue pair.
    let (slot, mut state) = unsafe {
        (
            crate::handle::qp(qp),
            FakeDevice::from_context((*qp).context).state(),
        )
    };
    let fault = state.faults.take_post(Queue::Recv);
    let check = |state: &DeviceState, sges: &Sges| state.check_recv(slot, sges);
    // SAFETY: the caller passes a list of valid requests, and `bad_wr` is valid for writes.
    unsafe {
        post_list(&mut state, fault, wr, bad_wr, check, |state, recv| {
            state.enqueue_recv(slot, recv);
        })
    }
}

/// Posts a list of receives.
///
/// # Safety
/// The requests and their scatter lists are readable, and `bad_wr` is valid for writes.
pub(crate) unsafe fn post_list(
    state: &mut DeviceState,
    fault: Option<PostFault>,
    mut wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
    check: impl Fn(&DeviceState, &Sges) -> Result<(), i32>,
    take: impl Fn(&mut DeviceState, RecvWr),
) -> c_int {
    let mut index = 0;
    while !wr.is_null() {
        // SAFETY: the caller passes a list of readable requests, each with a readable scatter list.
        let (request, list) = unsafe {
            check_first(state, (*wr).sg_list, (*wr).num_sge);
            (&*wr, entries((*wr).sg_list, (*wr).num_sge))
        };
        let fault = fault.filter(|fault| fault.at == index);
        let sges = Sges::from_list(list).ok_or(libc::EINVAL);
        let checked = sges.and_then(|sges| check(state, &sges).map(|()| sges));
        match checked {
            Ok(sges) if fault.is_none_or(|fault| fault.executed) => {
                take(
                    state,
                    RecvWr {
                        wr_id: request.wr_id,
                        sges,
                    },
                );
            }
            Ok(_) => {}
            Err(errno) => {
                // SAFETY: the caller passes a pointer that is valid for writes.
                unsafe { *bad_wr = wr };
                return state.signed(errno);
            }
        }
        if let Some(fault) = fault {
            if fault.sets_bad_wr {
                // SAFETY: the caller passes a pointer that is valid for writes.
                unsafe { *bad_wr = wr };
            }
            return state.signed(fault.errno);
        }
        index += 1;
        wr = request.next;
    }
    0
}
