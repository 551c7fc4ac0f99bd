//! Completion queues by the extended verbs.

use std::ffi::{c_int, c_uint};

use rdma_sys::{
    IBV_WC_EX_WITH_BYTE_LEN, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, IBV_WC_EX_WITH_CVLAN,
    IBV_WC_EX_WITH_DLID_PATH_BITS, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_IMM,
    IBV_WC_EX_WITH_QP_NUM, IBV_WC_EX_WITH_SL, IBV_WC_EX_WITH_SLID, IBV_WC_EX_WITH_SRC_QP,
    ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc, ibv_wc_opcode,
};

use crate::cq::FakeCq;
use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::null;
use crate::thread::Thread;
use crate::world::World;

/// The fields that a queue can be made with: those of Soft-RoCE.
const FIELDS: u32 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS;

/// Those that a device with more has.
const EXTRA_FIELDS: u32 = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
    | IBV_WC_EX_WITH_CVLAN
    | IBV_WC_EX_WITH_FLOW_TAG;

/// `ibv_create_cq_ex(3)`.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the caller gives an open context and readable attributes.
    let (attr, mut world) = unsafe { (&*attr, FakeDevice::of_context(context).world()) };
    if !world.profile.extended_cq || attr.comp_mask != 0 {
        return null(libc::EOPNOTSUPP);
    }
    if let Some(errno) = world.faults.take(Verb::CreateCqEx) {
        return null(errno);
    }
    let fields = if world.profile.extra_fields {
        FIELDS | EXTRA_FIELDS
    } else {
        FIELDS
    };
    drop(world);
    if attr.wc_flags & !u64::from(fields) != 0 {
        return null(libc::EOPNOTSUPP);
    }
    let asked_for = |flag: u32| attr.wc_flags & u64::from(flag) != 0;
    let empty = ibv_cq_ex {
        context,
        channel: attr.channel,
        cq_context: attr.cq_context,
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_wc_flags: Some(read_wc_flags),
        // Only what was asked for is there: calling another one is a crash, as with a real
        // provider.
        read_byte_len: asked_for(IBV_WC_EX_WITH_BYTE_LEN).then_some(read_byte_len),
        read_imm_data: asked_for(IBV_WC_EX_WITH_IMM).then_some(read_imm_data),
        read_qp_num: asked_for(IBV_WC_EX_WITH_QP_NUM).then_some(read_qp_num),
        read_src_qp: asked_for(IBV_WC_EX_WITH_SRC_QP).then_some(read_src_qp),
        read_slid: asked_for(IBV_WC_EX_WITH_SLID).then_some(read_slid),
        read_sl: asked_for(IBV_WC_EX_WITH_SL).then_some(read_sl),
        read_dlid_path_bits: asked_for(IBV_WC_EX_WITH_DLID_PATH_BITS)
            .then_some(read_dlid_path_bits),
        read_completion_ts: asked_for(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
            .then_some(read_completion_ts),
        read_completion_wallclock_ns: asked_for(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
            .then_some(read_completion_wallclock_ns),
        read_cvlan: asked_for(IBV_WC_EX_WITH_CVLAN).then_some(read_cvlan),
        read_flow_tag: asked_for(IBV_WC_EX_WITH_FLOW_TAG).then_some(read_flow_tag),
        ..Default::default()
    };
    // SAFETY: the caller gives an open context and a live channel, or NULL.
    let made = unsafe {
        crate::cq::create(
            &empty,
            attr.cqe,
            c_int::try_from(attr.comp_vector).unwrap_or(-1),
        )
    };
    made.cast()
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, _: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller gives a live queue.
    unsafe { step(cq, true) }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller gives a live queue.
    unsafe { step(cq, false) }
}

/// Moves to the next entry. A poll is begun by a `start_poll` that found one, and only then.
///
/// # Safety
/// The queue is alive, and used by one thread.
unsafe fn step(cq: *mut ibv_cq_ex, first: bool) -> c_int {
    // SAFETY: the caller's promise.
    let (mut world, number) = unsafe {
        (
            FakeDevice::of_context((*cq).context).world(),
            crate::handle::cq(cq.cast()),
        )
    };
    if let Some(errno) = world.faults.take_poll() {
        return errno;
    }
    let wc = world.take_completion(number);
    let begun = world.cqs.get_mut(number).is_some_and(|queue| {
        let begun = queue.polling.is_some();
        if wc.is_some() {
            queue.polling = Some(Thread::this());
        }
        begun
    });
    if begun == first {
        world.violation("a poll was begun twice, or stepped on without being begun");
    }
    let Some(wc) = wc else { return libc::ENOENT };
    // SAFETY: the caller's promise; the handle of a queue is a whole FakeCq.
    unsafe {
        (*cq).wr_id = wc.wr_id;
        (*cq).status = wc.status;
        (*cq.cast::<FakeCq>()).current = wc;
    }
    0
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the caller gives a live queue.
    let (mut world, number) = unsafe {
        (
            FakeDevice::of_context((*cq).context).world(),
            crate::handle::cq(cq.cast()),
        )
    };
    if world
        .cqs
        .get_mut(number)
        .and_then(|queue| queue.polling.take())
        .is_none()
    {
        world.violation("a poll was ended that was not begun");
    }
}

impl World {
    /// As below, of the queues that a queue pair completes on.
    pub(crate) fn locks_of(&mut self, pair: usize, what: &str) {
        if let Some(queues) = self.qps.get(pair).map(|pair| [pair.send_cq, pair.recv_cq]) {
            self.locks(&queues, what);
        }
    }

    /// What takes the lock of these queues, which a provider may hold for a poll: on the same
    /// thread it would wait for itself.
    pub(crate) fn locks(&mut self, queues: &[usize], what: &str) {
        let own = Some(Thread::this());
        if queues
            .iter()
            .any(|&cq| self.cqs.get(cq).is_some_and(|queue| queue.polling == own))
        {
            self.violation(format!(
                "{what} within a poll of its completion queue, which would not return"
            ));
        }
    }
}

macro_rules! readers {
    ($($name:ident: $kind:ty = $read:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $kind {
            let read: fn(&ibv_wc) -> $kind = $read;
            // SAFETY: the caller gives a live queue, whose handle is a whole FakeCq.
            read(unsafe { &(*cq.cast::<FakeCq>()).current })
        }
    )*};
}

readers! {
    // Numbers that a test can tell apart, and that differ from entry to entry.
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
