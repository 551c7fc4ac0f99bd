//! Extended completion queues.

use std::ffi::{c_int, c_uint};

use rdma_sys::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, IBV_WC_EX_WITH_BYTE_LEN,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_DLID_PATH_BITS, IBV_WC_EX_WITH_FLOW_TAG,
    IBV_WC_EX_WITH_IMM, IBV_WC_EX_WITH_QP_NUM, IBV_WC_EX_WITH_SL, IBV_WC_EX_WITH_SLID,
    IBV_WC_EX_WITH_SRC_QP, ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc,
    ibv_wc_opcode,
};

use crate::cq::FakeCq;
use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::pd::FakePd;
use crate::profile::unset;
use crate::state::{DeviceState, ThreadToken};

/// Completion fields that every profile supports. Soft-RoCE supports the same ones.
const FIELDS: u32 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS;

/// Completion fields of a profile with `extra_fields`.
const EXTRA_FIELDS: u32 = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
    | IBV_WC_EX_WITH_CVLAN
    | IBV_WC_EX_WITH_FLOW_TAG;

/// Attributes of a queue in a domain.
const IN_DOMAIN: u32 = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;

/// `ibv_create_cq_ex(3)`.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the caller passes a valid context and readable attributes.
    let (attr, mut state) = unsafe { (&*attr, FakeDevice::from_context(context).state()) };
    let in_domain = attr.comp_mask == IN_DOMAIN && state.profile.more_verbs;
    if !state.profile.extended_cq || (attr.comp_mask != 0 && !in_domain) {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = state.faults.take(Verb::CreateCqEx) {
        return null(errno);
    }
    let selects = |mask: u32| attr.comp_mask & mask != 0;
    if selects(IBV_CQ_INIT_ATTR_MASK_FLAGS) != (attr.flags != 0)
        || selects(IBV_CQ_INIT_ATTR_MASK_PD) == attr.parent_domain.is_null()
    {
        state.violation("comp_mask and the attributes of ibv_create_cq_ex disagree");
    }
    let fields = if state.profile.extra_fields {
        FIELDS | EXTRA_FIELDS
    } else {
        FIELDS
    };
    let profile = state.profile;
    drop(state);
    if attr.wc_flags & !u64::from(fields) != 0 {
        return null(libc::EOPNOTSUPP);
    }
    let requested = |flag: u32| attr.wc_flags & u64::from(flag) != 0;
    let mut empty = ibv_cq_ex {
        context,
        channel: attr.channel,
        cq_context: attr.cq_context,
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_wc_flags: Some(read_wc_flags),
        // A field that was not requested has no reader. Calling it crashes, as with a real
        // provider.
        read_byte_len: requested(IBV_WC_EX_WITH_BYTE_LEN).then_some(read_byte_len),
        read_imm_data: requested(IBV_WC_EX_WITH_IMM).then_some(read_imm_data),
        read_qp_num: requested(IBV_WC_EX_WITH_QP_NUM).then_some(read_qp_num),
        read_src_qp: requested(IBV_WC_EX_WITH_SRC_QP).then_some(read_src_qp),
        read_slid: requested(IBV_WC_EX_WITH_SLID).then_some(read_slid),
        read_sl: requested(IBV_WC_EX_WITH_SL).then_some(read_sl),
        read_dlid_path_bits: requested(IBV_WC_EX_WITH_DLID_PATH_BITS)
            .then_some(read_dlid_path_bits),
        read_completion_ts: requested(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
            .then_some(read_completion_ts),
        read_completion_wallclock_ns: requested(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
            .then_some(read_completion_wallclock_ns),
        read_cvlan: requested(IBV_WC_EX_WITH_CVLAN).then_some(read_cvlan),
        read_flow_tag: requested(IBV_WC_EX_WITH_FLOW_TAG).then_some(read_flow_tag),
        ..Default::default()
    };
    #[rustfmt::skip]
    unset!(empty, profile, [
        read_byte_len, read_imm_data, read_qp_num, read_src_qp, read_slid, read_sl,
        read_dlid_path_bits, read_completion_ts, read_completion_wallclock_ns, read_cvlan,
        read_flow_tag,
    ]);
    // SAFETY: the caller passes a valid context and a channel that is valid or NULL.
    let object = unsafe {
        crate::cq::create(
            &empty,
            attr.cqe,
            c_int::try_from(attr.comp_vector).unwrap_or(-1),
        )
    };
    if in_domain && !object.is_null() {
        // SAFETY: the queue was just created, and the caller passes a valid domain.
        unsafe {
            let mut state = FakeDevice::from_context(context).state();
            let cq = crate::handle::cq(object);
            if let Some(cq) = state.cqs.get_mut(cq) {
                cq.parent = FakePd::parent(attr.parent_domain);
            }
        }
    }
    object.cast()
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, _: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller passes a valid queue.
    unsafe { step(cq, true) }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller passes a valid queue.
    unsafe { step(cq, false) }
}

/// Moves to the next entry. `start_poll` begins a poll only if it finds an entry.
///
/// # Safety
/// The queue is valid, and no other thread polls it.
unsafe fn step(cq: *mut ibv_cq_ex, first: bool) -> c_int {
    // SAFETY: the caller's promise.
    let (mut state, index) = unsafe {
        (
            FakeDevice::from_context((*cq).context).state(),
            crate::handle::cq(cq.cast()),
        )
    };
    if let Some(errno) = state.faults.take_poll() {
        return errno;
    }
    if first {
        state.finish_late_if_empty(index);
        state.write_late();
    }
    let wc = loop {
        match state.take_completion(index) {
            Some(Err(errno)) if first => return errno,
            // No provider with such completions has this verb.
            Some(Err(_)) => {}
            Some(Ok(wc)) => break Some(wc),
            None => break None,
        }
    };
    let begun = state.cqs.get_mut(index).is_some_and(|queue| {
        let begun = queue.polling.is_some();
        if wc.is_some() {
            queue.polling = Some(ThreadToken::current());
        }
        begun
    });
    if begun == first {
        state.violation("ibv_start_poll was called twice, or ibv_next_poll without ibv_start_poll");
    }
    let Some(wc) = wc else { return libc::ENOENT };
    // SAFETY: the caller's promise; each `ibv_cq_ex` of this crate is the start of a `FakeCq`.
    unsafe {
        (*cq).wr_id = wc.wr_id;
        (*cq).status = wc.status;
        (*cq.cast::<FakeCq>()).current = wc;
    }
    0
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the caller passes a valid queue.
    let (mut state, index) = unsafe {
        (
            FakeDevice::from_context((*cq).context).state(),
            crate::handle::cq(cq.cast()),
        )
    };
    if state
        .cqs
        .get_mut(index)
        .and_then(|queue| queue.polling.take())
        .is_none()
    {
        state.violation("ibv_end_poll was called without ibv_start_poll");
    }
}

impl DeviceState {
    /// Calls [`check_poll_lock`](Self::check_poll_lock) for the completion queues of a queue pair.
    pub(crate) fn check_poll_lock_of_qp(&mut self, pair: usize, what: &str) {
        if let Some(queues) = self.qps.get(pair).map(|pair| [pair.send_cq, pair.recv_cq]) {
            self.check_poll_lock(&queues, what);
        }
    }

    /// Records a violation if this thread has an open poll on one of the queues. A provider may
    /// hold the queue's lock during a poll, so an operation that takes the same lock would
    /// deadlock.
    pub(crate) fn check_poll_lock(&mut self, queues: &[usize], what: &str) {
        let own = Some(ThreadToken::current());
        if queues
            .iter()
            .any(|&cq| self.cqs.get(cq).is_some_and(|queue| queue.polling == own))
        {
            self.violation(format!(
                "{what} within a poll of its completion queue, which would deadlock"
            ));
        }
    }
}

macro_rules! readers {
    ($($name:ident: $kind:ty = $read:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $kind {
            let read: fn(&ibv_wc) -> $kind = $read;
            // SAFETY: the caller passes a valid queue, which is the start of a `FakeCq`.
            read(unsafe { &(*cq.cast::<FakeCq>()).current })
        }
    )*};
}

readers! {
    // Values that differ between fields, and where possible between entries, so that a test
    // detects a reader of the wrong field.
    read_completion_ts: u64 = |wc| 1_000 + u64::from(wc.byte_len);
    read_completion_wallclock_ns: u64 = |wc| 2_000 + u64::from(wc.byte_len);
    read_cvlan: u16 = |_| 42;
    read_flow_tag: u32 = |_| 0x0012_3456;
    read_opcode: ibv_wc_opcode = |wc| wc.opcode;
    read_vendor_err: u32 = |wc| wc.vendor_err;
    read_wc_flags: c_uint = |wc| wc.wc_flags;
    read_byte_len: u32 = |wc| wc.byte_len;
    read_qp_num: u32 = |wc| wc.qp_num;
    read_src_qp: u32 = |wc| wc.src_qp;
    read_slid: u32 = |wc| wc.slid.into();
    read_sl: u8 = |wc| wc.sl;
    read_dlid_path_bits: u8 = |wc| wc.dlid_path_bits;
    // SAFETY: both fields of the union are 32-bit integers.
    read_imm_data: u32 = |wc| unsafe { wc.__bindgen_anon_1.imm_data };
}
