//! Opening and closing a device, its function tables, and queries.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::Ipv4Addr;

use rdma_sys::{
    __VERBS_ABI_IS_EXTENDED, IBV_ATOMIC_HCA, IBV_ATOMIC_NONE, IBV_DEVICE_AUTO_PATH_MIG,
    IBV_DEVICE_RESIZE_MAX_WR, IBV_DEVICE_XRC, IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V2, IBV_MTU_4096,
    IBV_PORT_ACTIVE, ibv_context, ibv_context_ops, ibv_device, ibv_device_attr, ibv_gid,
    ibv_gid_entry, ibv_port_attr, verbs_context,
};

use crate::destroyed::Destroyed;
use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::profile::Transport;
use crate::request::MAX_SGE;
use crate::state::{Context, Handle, MAX_CQE, MAX_WR};
use crate::{cq, cq_ex, dm, flow, mr, mw, null, post, qp, set_errno, srq, td, xrc};

/// Length of the port's GID table.
const GIDS: u8 = 2;

/// `ibv_open_device(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the caller passes a device of the list.
    let fake = unsafe { FakeDevice::from_raw(device) };
    let mut state = fake.state();
    if let Some(errno) = state.faults.take(Verb::OpenDevice) {
        return null(errno);
    }
    let mut ends = [-1; 2];
    // SAFETY: `pipe` writes two descriptors, and the array has two elements.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return std::ptr::null_mut();
    }
    let [reader, writer] = ends;
    let index = state.contexts.insert(Context {
        reader,
        writer,
        events: VecDeque::new(),
    });
    let (windows, provider) = (state.profile.windows, state.profile.provider);
    let object = Box::into_raw(Box::new(verbs_context {
        query_port: Some(query_port),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        create_qp_ex: Some(qp::create_qp_ex),
        alloc_td: Some(td::alloc_td),
        dealloc_td: Some(td::dealloc_td),
        alloc_parent_domain: Some(td::alloc_parent_domain),
        ibv_create_flow: Some(flow::create_flow),
        ibv_destroy_flow: Some(flow::destroy_flow),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        create_srq_ex: Some(xrc::create_srq_ex),
        get_srq_num: Some(xrc::get_srq_num),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        reg_dm_mr: Some(dm::reg_dm_mr),
        advise_mr: Some(mr::advise_mr),
        open_qp: Some(xrc::open_qp),
        sz: size_of::<verbs_context>(),
        context: ibv_context {
            device,
            ops: ibv_context_ops {
                poll_cq: Some(provider.poll_cq()),
                req_notify_cq: Some(cq::req_notify_cq),
                post_send: Some(post::post_send),
                post_recv: Some(post::post_recv),
                post_srq_recv: Some(srq::post_srq_recv),
                alloc_mw: windows.then_some(mw::alloc_mw),
                bind_mw: windows.then_some(mw::bind_mw),
                dealloc_mw: windows.then_some(mw::dealloc_mw),
                ..Default::default()
            },
            // `libibverbs` does not read this descriptor. It stores the index of the context.
            cmd_fd: c_int::try_from(index).unwrap_or(-1),
            async_fd: reader,
            num_comp_vectors: 1,
            abi_compat: __VERBS_ABI_IS_EXTENDED,
            ..Default::default()
        },
        ..Default::default()
    }));
    // SAFETY: the allocation was just made. The pointer keeps the provenance of the whole
    // structure, which `verbs_get_ctx` needs.
    unsafe { &raw mut (*object).context }
}

/// `ibv_close_device(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: the caller passes a valid context and does not use it again if 0 is returned.
    unsafe {
        let mut state = FakeDevice::from_context(context).state();
        let index = crate::handle::context(context);
        if let Some(errno) = state.faults.take(Verb::CloseDevice) {
            return errno;
        }
        let children = state.pds.iter().filter(|pd| pd.context == index).count()
            + state.cqs.iter().filter(|cq| cq.context == index).count()
            + state
                .channels
                .iter()
                .filter(|channel| channel.context == index)
                .count()
            + state.tds.iter().filter(|td| td.context == index).count()
            + state.dms.iter().filter(|dm| dm.context == index).count()
            + state
                .xrcds
                .iter()
                .filter(|xrcd| xrcd.context == index)
                .count();
        if children > 0 {
            state.violation(format!("a device was closed with {children} objects alive"));
        }
        if let Some(gone) = state.contexts.remove(index) {
            libc::close(gone.writer);
            libc::close(gone.reader);
        }
        let whole = rdma_sys::verbs_get_ctx(context);
        let kept = Destroyed::Context(Handle(context));
        state.keep_or_free(kept, || drop(Box::from_raw(whole)));
    }
    0
}

/// `ibv_query_device(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: the caller passes a valid context.
    let fake = unsafe { FakeDevice::from_context(context) };
    let mut state = fake.state();
    if let Some(errno) = state.faults.take(Verb::QueryDevice) {
        return errno;
    }
    let is_iwarp = state.profile.transport == Transport::Iwarp;
    let count = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
    let result = ibv_device_attr {
        node_guid: fake.guid_be(),
        sys_image_guid: fake.guid_be(),
        vendor_id: state.profile.vendor_id,
        max_mr_size: u64::MAX,
        max_qp: 4096,
        max_qp_wr: count(MAX_WR),
        max_sge: c_int::try_from(MAX_SGE).unwrap_or(1),
        max_sge_rd: if is_iwarp {
            1
        } else {
            c_int::try_from(MAX_SGE).unwrap_or(1)
        },
        max_cq: 4096,
        max_cqe: count(MAX_CQE),
        max_mr: 4096,
        max_pd: 4096,
        max_srq: 4096,
        max_srq_wr: count(MAX_WR),
        phys_port_cnt: 1,
        atomic_cap: if is_iwarp {
            IBV_ATOMIC_NONE
        } else {
            IBV_ATOMIC_HCA
        },
        device_cap_flags: if state.profile.more_verbs {
            IBV_DEVICE_RESIZE_MAX_WR | IBV_DEVICE_AUTO_PATH_MIG | IBV_DEVICE_XRC
        } else {
            0
        },
        ..Default::default()
    };
    // SAFETY: the caller passes a pointer that is valid for writes.
    unsafe { attr.write(result) };
    0
}

unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    length: usize,
) -> c_int {
    // SAFETY: the caller passes a valid context.
    let mut state = unsafe { FakeDevice::from_context(context) }.state();
    let fault = state.faults.take(Verb::QueryPort);
    if port_num != 1 || length < size_of::<ibv_port_attr>() {
        return libc::EINVAL;
    }
    if let Some(errno) = fault {
        return errno;
    }
    let result = ibv_port_attr {
        state: IBV_PORT_ACTIVE,
        phys_state: 5,
        max_mtu: IBV_MTU_4096,
        active_mtu: IBV_MTU_4096,
        gid_tbl_len: GIDS.into(),
        pkey_tbl_len: 1,
        max_msg_sz: 1 << 30,
        active_width: 1,
        active_speed: 32,
        link_layer: if state.profile.infiniband_link { 1 } else { 2 }, // IBV_LINK_LAYER_…
        ..Default::default()
    };
    // SAFETY: the caller passes a pointer that is valid for writes of `length` bytes.
    unsafe { attr.write(result) };
    0
}

fn gid(index: u8) -> ibv_gid {
    ibv_gid {
        raw: Ipv4Addr::new(10, 0, 0, 1 + index).to_ipv6_mapped().octets(),
    }
}

/// `ibv_query_gid(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(
    _: *mut ibv_context,
    port_num: u8,
    index: c_int,
    result: *mut ibv_gid,
) -> c_int {
    match u8::try_from(index) {
        Ok(index) if index < GIDS && port_num == 1 => {
            // SAFETY: the caller passes a pointer that is valid for writes.
            unsafe { result.write(gid(index)) };
            0
        }
        _ => {
            set_errno(libc::ENODATA);
            -1
        }
    }
}

/// Target of the inline function `ibv_query_gid_ex`.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    if flags != 0 || entry_size != size_of::<ibv_gid_entry>() || port_num != 1 {
        return libc::EINVAL;
    }
    let Some(slot) = u8::try_from(index).ok().filter(|&index| index < GIDS) else {
        return libc::ENODATA;
    };
    // SAFETY: the caller passes a valid context.
    let transport = unsafe { FakeDevice::from_context(context) }
        .state()
        .profile
        .transport;
    // SAFETY: the caller passes a pointer that is valid for writes of `entry_size` bytes.
    unsafe { entry.write(gid_entry(slot, transport)) };
    0
}

fn gid_entry(index: u8, transport: Transport) -> ibv_gid_entry {
    let gid_type = if transport == Transport::Iwarp {
        IBV_GID_TYPE_IB
    } else {
        IBV_GID_TYPE_ROCE_V2
    };
    ibv_gid_entry {
        gid: gid(index),
        gid_index: index.into(),
        port_num: 1,
        gid_type,
        ..Default::default()
    }
}

/// Target of the inline function `ibv_query_gid_table`.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    // SAFETY: the caller passes a valid context.
    let mut state = unsafe { FakeDevice::from_context(context) }.state();
    if let Some(errno) = state.faults.take(Verb::QueryGidTable) {
        return -isize::try_from(errno).unwrap_or(1);
    }
    if flags != 0 || entry_size != size_of::<ibv_gid_entry>() || max_entries < GIDS.into() {
        return -isize::try_from(libc::EINVAL).unwrap_or(1);
    }
    for index in 0..GIDS {
        // SAFETY: the caller passes an array of `max_entries`, which is at least `GIDS`.
        unsafe {
            entries
                .add(index.into())
                .write(gid_entry(index, state.profile.transport));
        };
    }
    GIDS.into()
}

/// The exported `ibv_query_port(3)`, used only for a context without the extended function table.
/// All contexts of this crate have that table.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    _: *mut ibv_context,
    _: u8,
    _: *mut rdma_sys::_compat_ibv_port_attr,
) -> c_int {
    libc::EOPNOTSUPP
}

pub(crate) const ENTRY_POINTS: &[*const ()] = &[
    ibv_open_device as *const (),
    ibv_close_device as *const (),
    ibv_query_device as *const (),
    ibv_query_gid as *const (),
    _ibv_query_gid_ex as *const (),
    _ibv_query_gid_table as *const (),
    ibv_query_port as *const (),
];
