//! Queue pairs: creation, state changes, destruction.

use std::collections::VecDeque;
use std::ffi::c_int;

use rdma_sys::{
    IBV_MIG_ARMED, IBV_MIG_MIGRATED, IBV_MIG_REARM, IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH,
    IBV_QP_AV, IBV_QP_CAP, IBV_QP_DEST_QPN, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_DRIVER,
    IBV_QPT_RAW_PACKET, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND,
    ibv_context, ibv_ece, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr,
    ibv_qp_init_attr_ex,
};

use crate::cq::round_up;
use crate::destroyed::Destroyed;
use crate::device::FakeDevice;
use crate::event::wait_acknowledged;
use crate::fault::Verb;
use crate::pd::FakePd;
use crate::profile::{AfterDestroy, Provider, Transport};
use crate::request::{Batch, MAX_SGE};
use crate::state::{DeviceState, EventSource, Handle, MAX_INLINE, MAX_WR, Qp, XrcRole};
use crate::{null, wr};

impl DeviceState {
    pub(crate) fn qp_indices(&self) -> Vec<usize> {
        self.qps.indices().collect()
    }

    /// Returns a queue pair in RESET with queues of length 0.
    pub(crate) fn empty_qp(&mut self, pd: usize, [send_cq, recv_cq]: [usize; 2]) -> Qp {
        let uid = self.next_uid;
        self.next_uid += 1;
        Qp {
            uid,
            handle: Handle(std::ptr::null_mut()),
            pd,
            send_cq,
            recv_cq,
            srq: None,
            xrc_role: None,
            raw: false,
            parent: None,
            qkey: None,
            state: IBV_QPS_RESET,
            peer: None,
            access: 0,
            caps: ibv_qp_cap::default(),
            attributes: ibv_qp_attr::default(),
            ece_options: ECE.options,
            migration: ibv_qp_attr::default(),
            signal_all: false,
            recvs: VecDeque::new(),
            pending: VecDeque::new(),
            late_reads: VecDeque::new(),
            late_completions: Vec::new(),
            first_completions: [None; 2],
            send_slots_used: 0,
            unreported_sends: 0,
            unacked_async_events: 0,
            batch: Batch::default(),
        }
    }
}

/// C representation of a queue pair.
#[repr(C)]
pub(crate) struct FakeQp {
    raw: ibv_qp_ex,
    /// The function that rdma-core 45 appends, which no device has.
    wr_flush: Option<unsafe extern "C" fn()>,
}

impl FakeQp {
    /// Allocates a queue pair, which is freed as a `Box<Self>`.
    pub(crate) fn allocate(raw: ibv_qp_ex) -> *mut ibv_qp {
        let wr_flush = None;
        Box::into_raw(Box::new(Self { raw, wr_flush })).cast()
    }
}

/// `ibv_create_qp(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller passes a valid domain and attributes that are valid for reads and writes.
    unsafe { create(pd, &mut *attr, Verb::CreateQp, &ibv_qp_ex::default()) }
}

/// `ibv_create_qp_ex(3)`.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller passes a valid context and valid attributes. Extended attributes begin
    // with the classic ones, so the cast is valid.
    unsafe {
        let profile = FakeDevice::from_context(context).state().profile;
        if (*attr).qp_type == IBV_QPT_XRC_RECV {
            return crate::xrc::create_recv(context, &*attr);
        }
        let mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        let operations = wr::operations(&profile);
        if !profile.extended_qp
            || (*attr).comp_mask != mask
            || (*attr).send_ops_flags & !operations != 0
        {
            return null(libc::EOPNOTSUPP);
        }
        create(
            (*attr).pd,
            &mut *attr.cast(),
            Verb::CreateQpEx,
            &wr::table((*attr).send_ops_flags, &profile),
        )
    }
}

/// Creates a queue pair with at least the requested capacities and writes the actual ones to
/// `attr.cap`.
///
/// # Safety
/// The domain, the completion queues and the shared receive queue are valid.
pub(crate) unsafe fn create(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    verb: Verb,
    table: &ibv_qp_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller's promise.
    let (context, pd_index, parent) =
        unsafe { ((*pd).context, crate::handle::pd(pd), FakePd::parent(pd)) };
    // SAFETY: as above.
    let mut state = unsafe { FakeDevice::from_context(context) }.state();
    if let Some(errno) = state.faults.take(verb) {
        return null(errno);
    }
    let Some(caps) = granted(&state, &attr.cap) else {
        return null(libc::EINVAL);
    };
    // Queue pairs that are not connected to a peer: UD, and the only type of driver, DC.
    let dc = attr.qp_type == IBV_QPT_DRIVER && state.profile.more_verbs;
    let ud = attr.qp_type == IBV_QPT_UD && state.profile.transport != Transport::Iwarp;
    let datagrams = ud || dc;
    let xrc = attr.qp_type == IBV_QPT_XRC_SEND && state.profile.more_verbs;
    let raw = attr.qp_type == IBV_QPT_RAW_PACKET && state.profile.more_verbs;
    if !datagrams && !xrc && !raw && !matches!(attr.qp_type, IBV_QPT_RC | IBV_QPT_UC) {
        return null(libc::EOPNOTSUPP);
    }
    if xrc && (caps.max_recv_wr > 0 || !attr.recv_cq.is_null() || !attr.srq.is_null()) {
        return null(libc::EINVAL);
    }
    // SAFETY: the caller passes a valid shared receive queue.
    let srq = (!attr.srq.is_null()).then(|| unsafe { crate::handle::srq(attr.srq) });
    attr.cap = caps;
    let (sends, recvs) = (caps.max_send_wr as usize, caps.max_recv_wr as usize);
    let extended = table.wr_start.is_some();
    let batch = Batch {
        sends: Vec::with_capacity(if extended { sends } else { 0 }),
        inline: Vec::with_capacity(if extended {
            sends * caps.max_inline_data as usize
        } else {
            0
        }),
        ..Batch::default()
    };
    // SAFETY: the caller's promise.
    let send_cq = unsafe { crate::handle::cq(attr.send_cq) };
    let recv_cq = if xrc {
        usize::MAX
    } else {
        // SAFETY: the caller's promise.
        unsafe { crate::handle::cq(attr.recv_cq) }
    };
    let empty = state.empty_qp(pd_index, [send_cq, recv_cq]);
    let slot = state.qps.insert(Qp {
        srq,
        xrc_role: xrc.then_some(XrcRole::Send),
        raw,
        parent,
        qkey: datagrams.then_some(0),
        caps,
        signal_all: attr.sq_sig_all != 0,
        recvs: VecDeque::with_capacity(recvs),
        pending: VecDeque::with_capacity(sends),
        batch,
        ..empty
    });
    let qp_base = ibv_qp {
        context,
        qp_context: attr.qp_context,
        pd,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        handle: u32::try_from(slot).unwrap_or(u32::MAX),
        qp_num: crate::handle::qp_num(slot),
        state: IBV_QPS_RESET,
        qp_type: attr.qp_type,
        ..Default::default()
    };
    let object = FakeQp::allocate(ibv_qp_ex { qp_base, ..*table });
    if let Some(pair) = state.qps.get_mut(slot) {
        pair.handle = Handle(object);
    }
    object
}

/// Attributes that only a device with `more_verbs` can change: paths and queue lengths.
const EXTRA_ATTRS: u32 = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_CAP;

impl DeviceState {
    fn modify_extra(&mut self, slot: usize, attr: &ibv_qp_attr, mask: u32) -> c_int {
        let has = |flag: u32| mask & flag != 0;
        if mask & EXTRA_ATTRS == 0 {
            return 0;
        }
        let caps = granted(self, &attr.cap).filter(|_| self.profile.more_verbs);
        let (Some(pair), Some(caps)) = (self.qps.get_mut(slot), caps) else {
            return libc::EINVAL;
        };
        if has(IBV_QP_CAP)
            && (pair.send_slots_used > caps.max_send_wr
                || pair.recvs.len() > caps.max_recv_wr as usize)
        {
            return libc::EINVAL;
        }
        if has(IBV_QP_CAP) {
            pair.caps = caps;
        }
        if has(IBV_QP_ALT_PATH) {
            pair.migration = ibv_qp_attr {
                path_mig_state: pair.migration.path_mig_state,
                ..*attr
            };
        }
        if has(IBV_QP_PATH_MIG_STATE) {
            // Both ends are on this device, so the peer has loaded its alternate path.
            let armed = attr.path_mig_state == IBV_MIG_REARM && pair.migration.alt_port_num != 0;
            pair.migration.path_mig_state = if armed {
                IBV_MIG_ARMED
            } else {
                IBV_MIG_MIGRATED
            };
        }
        0
    }
}

/// Attributes that the driver of EFA returns. It refuses a query of others.
const EFA_ATTRS: u32 = IBV_QP_STATE
    | IBV_QP_PKEY_INDEX
    | IBV_QP_PORT
    | IBV_QP_QKEY
    | IBV_QP_SQ_PSN
    | IBV_QP_CAP
    | IBV_QP_RNR_RETRY;

/// Copies the attributes that `mask` selects.
fn keep(kept: &mut ibv_qp_attr, attr: &ibv_qp_attr, mask: u32) {
    macro_rules! copy {
        ($($flag:ident => $($field:ident),+;)*) => {$(
            if mask & $flag != 0 {
                $(kept.$field = attr.$field;)+
            }
        )*};
    }
    copy! {
        IBV_QP_STATE => qp_state;
        IBV_QP_CAP => cap;
        IBV_QP_ALT_PATH => alt_ah_attr, alt_pkey_index, alt_port_num, alt_timeout;
        IBV_QP_PATH_MIG_STATE => path_mig_state;
        IBV_QP_ACCESS_FLAGS => qp_access_flags;
        IBV_QP_PKEY_INDEX => pkey_index;
        IBV_QP_PORT => port_num;
        IBV_QP_QKEY => qkey;
        IBV_QP_AV => ah_attr;
        IBV_QP_PATH_MTU => path_mtu;
        IBV_QP_TIMEOUT => timeout;
        IBV_QP_RETRY_CNT => retry_cnt;
        IBV_QP_RNR_RETRY => rnr_retry;
        IBV_QP_RQ_PSN => rq_psn;
        IBV_QP_SQ_PSN => sq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC => max_rd_atomic;
        IBV_QP_MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
        IBV_QP_MIN_RNR_TIMER => min_rnr_timer;
        IBV_QP_DEST_QPN => dest_qp_num;
    }
}

/// Rounds capacities up as a software driver does. Returns `None` if they exceed the limits.
fn granted(state: &DeviceState, requested: &ibv_qp_cap) -> Option<ibv_qp_cap> {
    let sge = requested.max_send_sge.max(requested.max_recv_sge);
    let wr = requested.max_send_wr.max(requested.max_recv_wr);
    if sge as usize > MAX_SGE || wr > MAX_WR || requested.max_inline_data > MAX_INLINE {
        return None;
    }
    Some(ibv_qp_cap {
        max_send_wr: round_up(state, requested.max_send_wr),
        max_recv_wr: round_up(state, requested.max_recv_wr),
        max_inline_data: requested.max_inline_data.max(16 * requested.max_send_sge),
        ..*requested
    })
}

/// `ibv_qp_to_qp_ex(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    let extended: *mut ibv_qp_ex = qp.cast();
    // SAFETY: the caller passes a valid queue pair, which is the start of an `ibv_qp_ex` in this
    // crate.
    if unsafe { (*extended).wr_start }.is_some() {
        extended
    } else {
        std::ptr::null_mut()
    }
}

/// `ibv_modify_qp(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the caller passes a valid queue pair and readable attributes.
    let (slot, attr, mut state) = unsafe {
        (
            crate::handle::qp(qp),
            &*attr,
            FakeDevice::from_context((*qp).context).state(),
        )
    };
    if let Some(errno) = state.faults.take(Verb::ModifyQp) {
        return errno;
    }
    let mask = u32::try_from(mask).unwrap_or(0);
    let has = |flag: u32| mask & flag != 0;
    let result = state.modify_extra(slot, attr, mask);
    if result != 0 || mask & EXTRA_ATTRS == mask {
        return result;
    }
    let Some(pair) = state.qps.get_mut(slot) else {
        return libc::EINVAL;
    };
    if pair.batch.open {
        state.violation("a queue pair was modified between ibv_wr_start and ibv_wr_complete");
        return libc::EINVAL;
    }
    if has(IBV_QP_STATE) && attr.qp_state == IBV_QPS_RESET {
        state.check_poll_lock_of_qp(slot, "a queue pair was reset");
    }
    let Some(pair) = state.qps.get_mut(slot) else {
        return libc::EINVAL;
    };
    let allowed = match attr.qp_state {
        _ if !has(IBV_QP_STATE) => false,
        IBV_QPS_INIT => pair.state == IBV_QPS_RESET && has(IBV_QP_PORT) && attr.port_num == 1,
        IBV_QPS_RTR => {
            pair.state == IBV_QPS_INIT && (has(IBV_QP_DEST_QPN) || pair.qkey.is_some() || pair.raw)
        }
        IBV_QPS_RTS => pair.state == IBV_QPS_RTR,
        state => matches!(state, IBV_QPS_RESET | IBV_QPS_ERR),
    };
    if !allowed {
        return libc::EINVAL;
    }
    if has(IBV_QP_ACCESS_FLAGS) {
        pair.access = attr.qp_access_flags;
    }
    keep(&mut pair.attributes, attr, mask);
    if has(IBV_QP_DEST_QPN) {
        pair.peer = crate::handle::qp_index(attr.dest_qp_num);
    }
    if has(IBV_QP_QKEY) && pair.qkey.is_some() {
        pair.qkey = Some(attr.qkey);
    }
    if attr.qp_state == IBV_QPS_ERR {
        state.enter_error(slot);
    } else {
        pair.state = attr.qp_state;
    }
    if attr.qp_state == IBV_QPS_RTS {
        state.progress(slot);
    }
    0
}

/// `ibv_query_qp(3)`. Providers return more attributes than those that the mask selects, which a
/// program must not rely on.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller passes a valid queue pair.
    let (slot, mut state) = unsafe {
        (
            crate::handle::qp(qp),
            FakeDevice::from_context((*qp).context).state(),
        )
    };
    if let Some(errno) = state.faults.take(Verb::QueryQp) {
        return errno;
    }
    let Some(pair) = state.qps.get(slot) else {
        return libc::EINVAL;
    };
    let mask = mask.unsigned_abs();
    if state.profile.provider == Provider::Efa && mask & !EFA_ATTRS != 0 {
        return libc::EOPNOTSUPP;
    }
    let all = ibv_qp_attr {
        qp_state: pair.state,
        cap: pair.caps,
        path_mig_state: pair.migration.path_mig_state,
        alt_ah_attr: pair.migration.alt_ah_attr,
        alt_pkey_index: pair.migration.alt_pkey_index,
        alt_port_num: pair.migration.alt_port_num,
        alt_timeout: pair.migration.alt_timeout,
        ..pair.attributes
    };
    let mut selected = ibv_qp_attr::default();
    keep(&mut selected, &all, mask);
    // SAFETY: the caller passes two pointers that are valid for writes.
    unsafe {
        attr.write(selected);
        init.write(ibv_qp_init_attr {
            cap: pair.caps,
            ..Default::default()
        });
    }
    0
}

/// `ibv_destroy_qp(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller passes a valid queue pair, and does not use it again if 0 is returned.
    unsafe {
        let device = FakeDevice::from_context((*qp).context);
        let (slot, mut state) = (crate::handle::qp(qp), device.state());
        if let Some(errno) = state.destroy_fault(Verb::DestroyQp) {
            return state.signed(errno);
        }
        if state.close_shared(slot) {
            drop(state);
            drop(Box::from_raw(qp.cast::<FakeQp>()));
            return 0;
        }
        state.check_poll_lock_of_qp(slot, "a queue pair was destroyed");
        if state.groups.iter().any(|group| group.qp == slot) {
            state.violation("a queue pair was destroyed in a multicast group");
            return libc::EBUSY;
        }
        let flows = state.flows.iter().filter(|flow| flow.qp == slot).count();
        if flows > 0 {
            state.violation(format!(
                "a queue pair was destroyed with {flows} flow rules"
            ));
            return libc::EBUSY;
        }
        if state.qps.get(slot).is_some_and(|pair| pair.batch.open) {
            state.violation("a queue pair was destroyed between ibv_wr_start and ibv_wr_complete");
        }
        let windows = state.windows_of_pair(slot);
        if windows > 0 {
            // Soft-RoCE waits until the windows are unbound, for at most 50 seconds.
            state.violation(format!(
                "a queue pair was destroyed with {windows} windows bound"
            ));
        }
        state = wait_acknowledged(device, state, EventSource::Qp(slot));
        state.report_late_completions(slot);
        let after_destroy = state.profile.after_destroy;
        if matches!(
            after_destroy,
            AfterDestroy::LeaveAndFlush | AfterDestroy::Poison
        ) {
            state.flush(slot);
        }
        state.late_writes.retain(|write| write.qp != slot);
        if let Some(gone) = state.qps.remove(slot) {
            if state.profile.after_destroy == AfterDestroy::Drop {
                for cq in [gone.send_cq, gone.recv_cq] {
                    if let Some(queue) = state.cqs.get_mut(cq) {
                        queue.entries.retain(|entry| entry.uid != gone.uid);
                    }
                }
            }
        }
        let kept = Destroyed::Qp(Handle(qp.cast()));
        state.keep_or_free(kept, || drop(Box::from_raw(qp.cast::<FakeQp>())));
    }
    0
}

/// The vendor and the options that the device offers.
const ECE: ibv_ece = ibv_ece {
    vendor_id: 0xfa4e,
    options: 0b1011,
    comp_mask: 0,
};

/// `ibv_query_ece(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller passes a valid queue pair.
    let (slot, state) = unsafe {
        (
            crate::handle::qp(qp),
            FakeDevice::from_context((*qp).context).state(),
        )
    };
    match state.qps.get(slot) {
        Some(pair) if state.profile.more_verbs => {
            let options = pair.ece_options;
            // SAFETY: the caller passes a pointer that is valid for writes.
            unsafe { ece.write(ibv_ece { options, ..ECE }) };
            0
        }
        _ => libc::EOPNOTSUPP,
    }
}

/// `ibv_set_ece(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller passes a valid queue pair and readable options.
    let (slot, mut state, ece) = unsafe {
        (
            crate::handle::qp(qp),
            FakeDevice::from_context((*qp).context).state(),
            &*ece,
        )
    };
    if !state.profile.more_verbs {
        return libc::EOPNOTSUPP;
    }
    if ece.vendor_id != ECE.vendor_id || ece.options & !ECE.options != 0 || ece.comp_mask != 0 {
        return libc::EINVAL;
    }
    if let Some(pair) = state.qps.get_mut(slot) {
        pair.ece_options = ece.options;
    }
    0
}

pub(crate) const ENTRY_POINTS: &[*const ()] = &[
    ibv_create_qp as *const (),
    ibv_qp_to_qp_ex as *const (),
    ibv_modify_qp as *const (),
    ibv_query_qp as *const (),
    ibv_destroy_qp as *const (),
    ibv_query_ece as *const (),
    ibv_set_ece as *const (),
];
