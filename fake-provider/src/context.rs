//! Openings of a device, their function tables, and queries.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::Ipv4Addr;

use rdma_sys::{
    __VERBS_ABI_IS_EXTENDED, IBV_DEVICE_AUTO_PATH_MIG, IBV_DEVICE_RESIZE_MAX_WR, IBV_DEVICE_XRC,
    IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V2, IBV_MTU_4096, IBV_PORT_ACTIVE, ibv_context,
    ibv_context_ops, ibv_device, ibv_device_attr, ibv_gid, ibv_gid_entry, ibv_port_attr,
    verbs_context,
};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::request::MAX_SGE;
use crate::world::{Context, MAX_CQE, MAX_WR};
use crate::{cq, cq_ex, flow, mw, null, post, qp, set_errno, srq, td, xrc};

/// Entries of the port's GID table.
const GIDS: u8 = 2;

/// `ibv_open_device(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the caller gives a device of the list.
    let fake = unsafe { FakeDevice::of(device) };
    let mut world = fake.world();
    if let Some(errno) = world.faults.take(Verb::OpenDevice) {
        return null(errno);
    }
    let mut ends = [-1; 2];
    // SAFETY: the array has room for both descriptors.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return std::ptr::null_mut();
    }
    let [reader, writer] = ends;
    let number = world.contexts.insert(Context {
        reader,
        writer,
        events: VecDeque::new(),
    });
    let windows = world.profile.windows;
    let made = Box::into_raw(Box::new(verbs_context {
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
        open_qp: Some(xrc::open_qp),
        sz: size_of::<verbs_context>(),
        context: ibv_context {
            device,
            ops: ibv_context_ops {
                poll_cq: Some(cq::poll_cq),
                req_notify_cq: Some(cq::req_notify_cq),
                post_send: Some(post::post_send),
                post_recv: Some(post::post_recv),
                post_srq_recv: Some(srq::post_srq_recv),
                alloc_mw: windows.then_some(mw::alloc_mw),
                bind_mw: windows.then_some(mw::bind_mw),
                dealloc_mw: windows.then_some(mw::dealloc_mw),
                ..Default::default()
            },
            // This descriptor is never read; the place holds the number of the opening.
            cmd_fd: c_int::try_from(number).unwrap_or(-1),
            async_fd: reader,
            num_comp_vectors: 1,
            abi_compat: __VERBS_ABI_IS_EXTENDED,
            ..Default::default()
        },
        ..Default::default()
    }));
    // SAFETY: just made; the pointer may be followed back to the whole structure, as
    // `verbs_get_ctx` does.
    unsafe { &raw mut (*made).context }
}

/// `ibv_close_device(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: the caller gives an open context, and gives it up.
    unsafe {
        let mut world = FakeDevice::of_context(context).world();
        let number = crate::handle::context(context);
        if let Some(errno) = world.faults.take(Verb::CloseDevice) {
            return errno;
        }
        let children = world.pds.iter().filter(|pd| pd.context == number).count()
            + world.cqs.iter().filter(|cq| cq.context == number).count()
            + world
                .channels
                .iter()
                .filter(|channel| channel.context == number)
                .count()
            + world.tds.iter().filter(|td| td.context == number).count()
            + world
                .xrcds
                .iter()
                .filter(|xrcd| xrcd.context == number)
                .count();
        if children > 0 {
            world.violation(format!("a device was closed with {children} objects alive"));
        }
        if let Some(gone) = world.contexts.remove(number) {
            libc::close(gone.writer);
            libc::close(gone.reader);
        }
        drop(world);
        drop(Box::from_raw(rdma_sys::verbs_get_ctx(context)));
    }
    0
}

/// `ibv_query_device(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: the caller gives an open context.
    let fake = unsafe { FakeDevice::of_context(context) };
    if let Some(errno) = fake.world().faults.take(Verb::QueryDevice) {
        return errno;
    }
    let more = fake.world().profile.more_verbs;
    let count = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
    let answer = ibv_device_attr {
        node_guid: fake.guid_be(),
        sys_image_guid: fake.guid_be(),
        vendor_id: fake.world().profile.vendor_id,
        max_mr_size: u64::MAX,
        max_qp: 4096,
        max_qp_wr: count(MAX_WR),
        max_sge: c_int::try_from(MAX_SGE).unwrap_or(1),
        max_sge_rd: 1,
        max_cq: 4096,
        max_cqe: count(MAX_CQE),
        max_mr: 4096,
        max_pd: 4096,
        max_srq: 4096,
        max_srq_wr: count(MAX_WR),
        phys_port_cnt: 1,
        device_cap_flags: if more {
            IBV_DEVICE_RESIZE_MAX_WR | IBV_DEVICE_AUTO_PATH_MIG | IBV_DEVICE_XRC
        } else {
            0
        },
        ..Default::default()
    };
    // SAFETY: the caller gives a place for the answer.
    unsafe { attr.write(answer) };
    0
}

unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    length: usize,
) -> c_int {
    // SAFETY: the caller gives an open context.
    let fault = unsafe { FakeDevice::of_context(context) }
        .world()
        .faults
        .take(Verb::QueryPort);
    if port_num != 1 || length < size_of::<ibv_port_attr>() {
        return libc::EINVAL;
    }
    if let Some(errno) = fault {
        return errno;
    }
    let answer = ibv_port_attr {
        state: IBV_PORT_ACTIVE,
        phys_state: 5,
        max_mtu: IBV_MTU_4096,
        active_mtu: IBV_MTU_4096,
        gid_tbl_len: GIDS.into(),
        pkey_tbl_len: 1,
        max_msg_sz: 1 << 30,
        active_width: 1,
        active_speed: 32,
        link_layer: 2, // IBV_LINK_LAYER_ETHERNET
        ..Default::default()
    };
    // SAFETY: the caller gives a place of this length for the answer.
    unsafe { attr.write(answer) };
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
    answer: *mut ibv_gid,
) -> c_int {
    match u8::try_from(index) {
        Ok(index) if index < GIDS && port_num == 1 => {
            // SAFETY: the caller gives a place for the answer.
            unsafe { answer.write(gid(index)) };
            0
        }
        _ => {
            set_errno(libc::ENODATA);
            -1
        }
    }
}

/// What the header's `ibv_query_gid_ex` calls.
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
    let Some(place) = u8::try_from(index).ok().filter(|&index| index < GIDS) else {
        return libc::ENODATA;
    };
    // SAFETY: the caller gives an open context.
    let iwarp = unsafe { FakeDevice::of_context(context) }
        .world()
        .profile
        .iwarp;
    // SAFETY: the caller gives a place of this size for the answer.
    unsafe { entry.write(gid_entry(place, iwarp)) };
    0
}

fn gid_entry(index: u8, iwarp: bool) -> ibv_gid_entry {
    let gid_type = if iwarp {
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

/// What the header's `ibv_query_gid_table` calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    // SAFETY: the caller gives an open context.
    let mut world = unsafe { FakeDevice::of_context(context) }.world();
    if let Some(errno) = world.faults.take(Verb::QueryGidTable) {
        return -isize::try_from(errno).unwrap_or(1);
    }
    if flags != 0 || entry_size != size_of::<ibv_gid_entry>() || max_entries < GIDS.into() {
        return -isize::try_from(libc::EINVAL).unwrap_or(1);
    }
    for index in 0..GIDS {
        // SAFETY: the caller gives room for `max_entries`, which is at least so many.
        unsafe {
            entries
                .add(index.into())
                .write(gid_entry(index, world.profile.iwarp));
        };
    }
    GIDS.into()
}

/// `ibv_query_port(3)` of old: what a context without the extended table is asked by. No context of
/// this crate is.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    _: *mut ibv_context,
    _: u8,
    _: *mut rdma_sys::_compat_ibv_port_attr,
) -> c_int {
    libc::EOPNOTSUPP
}

pub(crate) fn entry_points() -> Vec<*const ()> {
    vec![
        ibv_open_device as *const (),
        ibv_close_device as *const (),
        ibv_query_device as *const (),
        ibv_query_gid as *const (),
        _ibv_query_gid_ex as *const (),
        _ibv_query_gid_table as *const (),
        ibv_query_port as *const (),
    ]
}
