//! Queue pairs: made, moved through their states, destroyed.

use std::collections::VecDeque;
use std::ffi::c_int;

use rdma_sys::{
    IBV_MIG_ARMED, IBV_MIG_MIGRATED, IBV_MIG_REARM, IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH,
    IBV_QP_CAP, IBV_QP_DEST_QPN, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_QP_PATH_MIG_STATE, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_INIT,
    IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RAW_PACKET, IBV_QPT_RC, IBV_QPT_UC,
    IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, ibv_context, ibv_pd, ibv_qp, ibv_qp_attr,
    ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};

use crate::cq::rounded;
use crate::device::FakeDevice;
use crate::event::settled;
use crate::event_kind::Of;
use crate::fault::Verb;
use crate::pd::FakePd;
use crate::profile::AfterDestroy;
use crate::request::{Batch, MAX_SGE};
use crate::world::{Half, Handle, MAX_INLINE, MAX_WR, Qp, World};
use crate::{null, wr};

impl World {
    pub(crate) fn qp_numbers(&self) -> Vec<usize> {
        self.qps.numbers().collect()
    }

    /// A queue pair without room for requests.
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
            half: None,
            raw: false,
            parent: None,
            qkey: None,
            state: IBV_QPS_RESET,
            peer: None,
            access: 0,
            caps: ibv_qp_cap::default(),
            migration: ibv_qp_attr::default(),
            signal_all: false,
            recvs: VecDeque::new(),
            waiting: VecDeque::new(),
            sends_used: 0,
            unreported: 0,
            events_taken: 0,
            batch: Batch::default(),
        }
    }
}

/// `ibv_create_qp(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller gives a live domain, and attributes that can be read and written.
    unsafe { create(pd, &mut *attr, Verb::CreateQp, &ibv_qp_ex::default()) }
}

/// `ibv_create_qp_ex(3)`.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller gives an open context and valid attributes, which begin with the classic
    // ones.
    unsafe {
        let extended = FakeDevice::of_context(context).world().profile.extended_qp;
        if (*attr).qp_type == IBV_QPT_XRC_RECV {
            return crate::xrc::create_recv(context, &*attr);
        }
        let mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        let operations = wr::operations(FakeDevice::of_context(context).world().profile.windows);
        if !extended || (*attr).comp_mask != mask || (*attr).send_ops_flags & !operations != 0 {
            return null(libc::EOPNOTSUPP);
        }
        create(
            (*attr).pd,
            &mut *attr.cast(),
            Verb::CreateQpEx,
            &wr::table((*attr).send_ops_flags),
        )
    }
}

/// Makes a queue pair with at least what is asked for, and says in `attr.cap` what it has.
///
/// # Safety
/// Domain and completion queues are alive.
unsafe fn create(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    verb: Verb,
    table: &ibv_qp_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller's promise.
    let (context, pd_number, parent) =
        unsafe { ((*pd).context, crate::handle::pd(pd), FakePd::parent(pd)) };
    // SAFETY: as above.
    let mut world = unsafe { FakeDevice::of_context(context) }.world();
    if let Some(errno) = world.faults.take(verb) {
        return null(errno);
    }
    let Some(caps) = granted(&world, &attr.cap) else {
        return null(libc::EINVAL);
    };
    let datagrams = attr.qp_type == IBV_QPT_UD && !world.profile.iwarp;
    let xrc = attr.qp_type == IBV_QPT_XRC_SEND && world.profile.more_verbs;
    let raw = attr.qp_type == IBV_QPT_RAW_PACKET && world.profile.more_verbs;
    if !datagrams && !xrc && !raw && !matches!(attr.qp_type, IBV_QPT_RC | IBV_QPT_UC) {
        return null(libc::EOPNOTSUPP);
    }
    if xrc && (caps.max_recv_wr > 0 || !attr.recv_cq.is_null() || !attr.srq.is_null()) {
        return null(libc::EINVAL);
    }
    // SAFETY: a shared receive queue that the caller names is alive.
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
    // SAFETY: as above.
    let recv_cq = if xrc {
        usize::MAX
    } else {
        unsafe { crate::handle::cq(attr.recv_cq) }
    };
    let empty = world.empty_qp(pd_number, [send_cq, recv_cq]);
    let place = world.qps.insert(Qp {
        srq,
        half: xrc.then_some(Half::Send),
        raw,
        parent,
        qkey: datagrams.then_some(0),
        caps,
        signal_all: attr.sq_sig_all != 0,
        recvs: VecDeque::with_capacity(recvs),
        waiting: VecDeque::with_capacity(sends),
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
        handle: u32::try_from(place).unwrap_or(u32::MAX),
        qp_num: crate::handle::number_of(place),
        state: IBV_QPS_RESET,
        qp_type: attr.qp_type,
        ..Default::default()
    };
    let made: *mut ibv_qp = Box::into_raw(Box::new(ibv_qp_ex { qp_base, ..*table })).cast();
    if let Some(pair) = world.qps.get_mut(place) {
        pair.handle = Handle(made);
    }
    made
}

/// What not every device can change: its path, and how long its queues are.
const MORE: u32 = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_CAP;

impl World {
    fn modify_more(&mut self, place: usize, attr: &ibv_qp_attr, mask: u32) -> c_int {
        let has = |flag: u32| mask & flag != 0;
        if mask & MORE == 0 {
            return 0;
        }
        let caps = granted(self, &attr.cap).filter(|_| self.profile.more_verbs);
        let (Some(pair), Some(caps)) = (self.qps.get_mut(place), caps) else {
            return libc::EINVAL;
        };
        if has(IBV_QP_CAP)
            && (pair.sends_used > caps.max_send_wr || pair.recvs.len() > caps.max_recv_wr as usize)
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
            // The peer of a loopback has always loaded its path too.
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

/// Sizes as a software driver rounds them up; `None` for more than the device has.
fn granted(world: &World, asked: &ibv_qp_cap) -> Option<ibv_qp_cap> {
    let sge = asked.max_send_sge.max(asked.max_recv_sge);
    let wr = asked.max_send_wr.max(asked.max_recv_wr);
    if sge as usize > MAX_SGE || wr > MAX_WR || asked.max_inline_data > MAX_INLINE {
        return None;
    }
    Some(ibv_qp_cap {
        max_send_wr: rounded(world, asked.max_send_wr),
        max_recv_wr: rounded(world, asked.max_recv_wr),
        max_inline_data: asked.max_inline_data.max(16 * asked.max_send_sge),
        ..*asked
    })
}

/// `ibv_qp_to_qp_ex(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    let extended: *mut ibv_qp_ex = qp.cast();
    // SAFETY: the caller gives a live queue pair; each is a whole ibv_qp_ex here.
    if unsafe { (*extended).wr_start }.is_some() {
        extended
    } else {
        std::ptr::null_mut()
    }
}

/// `ibv_modify_qp(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the caller gives a live queue pair and readable attributes.
    let (place, attr, mut world) = unsafe {
        (
            crate::handle::qp(qp),
            &*attr,
            FakeDevice::of_context((*qp).context).world(),
        )
    };
    if let Some(errno) = world.faults.take(Verb::ModifyQp) {
        return errno;
    }
    let mask = u32::try_from(mask).unwrap_or(0);
    let has = |flag: u32| mask & flag != 0;
    let answer = world.modify_more(place, attr, mask);
    if answer != 0 || mask & MORE == mask {
        return answer;
    }
    let Some(pair) = world.qps.get_mut(place) else {
        return libc::EINVAL;
    };
    if pair.batch.open {
        world.violation("a queue pair was modified between ibv_wr_start and its end");
        return libc::EINVAL;
    }
    if has(IBV_QP_STATE) && attr.qp_state == IBV_QPS_RESET {
        world.locks_of(place, "a queue pair was reset");
    }
    let Some(pair) = world.qps.get_mut(place) else {
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
    if has(IBV_QP_DEST_QPN) {
        pair.peer = crate::handle::place_of(attr.dest_qp_num);
    }
    if has(IBV_QP_QKEY) && pair.qkey.is_some() {
        pair.qkey = Some(attr.qkey);
    }
    if attr.qp_state == IBV_QPS_ERR {
        world.enter_error(place);
    } else {
        pair.state = attr.qp_state;
    }
    0
}

/// `ibv_query_qp(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller gives a live queue pair.
    let (place, mut world) = unsafe {
        (
            crate::handle::qp(qp),
            FakeDevice::of_context((*qp).context).world(),
        )
    };
    if let Some(errno) = world.faults.take(Verb::QueryQp) {
        return errno;
    }
    let Some(pair) = world.qps.get(place) else {
        return libc::EINVAL;
    };
    // SAFETY: the caller gives places for both answers.
    unsafe {
        attr.write(ibv_qp_attr {
            qp_state: pair.state,
            cap: pair.caps,
            ..pair.migration
        });
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
    // SAFETY: the caller gives a live queue pair, and gives it up if the answer is 0.
    unsafe {
        let device = FakeDevice::of_context((*qp).context);
        let (place, mut world) = (crate::handle::qp(qp), device.world());
        if let Some(errno) = world.faults.take(Verb::DestroyQp) {
            return world.signed(errno);
        }
        if world.close_shared_qp(place) {
            drop(world);
            drop(Box::from_raw(qp.cast::<ibv_qp_ex>()));
            return 0;
        }
        world.locks_of(place, "a queue pair was destroyed");
        let flows = world.flows.iter().filter(|flow| flow.qp == place).count();
        if flows > 0 {
            world.violation(format!(
                "a queue pair was destroyed with {flows} flow rules"
            ));
            return libc::EBUSY;
        }
        if world.qps.get(place).is_some_and(|pair| pair.batch.open) {
            world.violation("a queue pair was destroyed between ibv_wr_start and its end");
        }
        let windows = world.windows_of_pair(place);
        if windows > 0 {
            // Soft-RoCE waits for them, and goes on after 50 seconds.
            world.violation(format!(
                "a queue pair was destroyed with {windows} windows bound"
            ));
        }
        world = settled(device, world, Of::Qp(place));
        if world.profile.after_destroy == AfterDestroy::LeaveAndFlush {
            world.flush(place);
        }
        if let Some(gone) = world.qps.remove(place) {
            if world.profile.after_destroy == AfterDestroy::Drop {
                for cq in [gone.send_cq, gone.recv_cq] {
                    if let Some(queue) = world.cqs.get_mut(cq) {
                        queue.entries.retain(|entry| entry.uid != gone.uid);
                    }
                }
            }
        }
        drop(world);
        drop(Box::from_raw(qp.cast::<ibv_qp_ex>()));
    }
    0
}

pub(crate) fn entry_points() -> Vec<*const ()> {
    vec![
        ibv_create_qp as *const (),
        ibv_qp_to_qp_ex as *const (),
        ibv_modify_qp as *const (),
        ibv_query_qp as *const (),
        ibv_destroy_qp as *const (),
    ]
}
