//! The inline functions with a context whose tables contain Rust functions. Functions that the
//! provider has are called; missing ones return the same errors as the C headers. Also runs under
//! Miri.

#![allow(missing_docs, reason = "a test")]
#![allow(unsafe_code, reason = "raw FFI is under test")]

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ptr::null_mut;

use rdma_sys::*;

/// Creates a context like one of libibverbs, with empty tables.
fn context(extended: bool) -> Box<verbs_context> {
    let mut vctx = Box::new(verbs_context {
        sz: size_of::<verbs_context>(),
        ..Default::default()
    });
    if extended {
        vctx.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    }
    vctx
}

/// Returns the pointer that a program uses: to the last field of the extended structure.
fn inner(vctx: *mut verbs_context) -> *mut ibv_context {
    // SAFETY: the caller passes a live structure.
    unsafe { &raw mut (*vctx).context }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Replaces the function of the shared library at link time.
#[unsafe(no_mangle)]
extern "C" fn ibv_query_port(_: *mut ibv_context, port_num: u8, attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: the test passes a live structure.
    unsafe { (*attr).lid = u16::from(port_num) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_reg_mr(_: *mut ibv_pd, _: *mut c_void, _: usize, _: c_int) -> *mut ibv_mr {
    core::ptr::without_provenance_mut(1)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_reg_mr_iova2(
    _: *mut ibv_pd,
    addr: *mut c_void,
    _: usize,
    iova: u64,
    _: u32,
) -> *mut ibv_mr {
    assert_eq!(addr.addr() as u64, iova);
    core::ptr::without_provenance_mut(2)
}

unsafe extern "C" fn query_port(
    _: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    assert_eq!(size, size_of::<ibv_port_attr>());
    // SAFETY: the test passes a live structure.
    unsafe { (*attr).lid = 100 + u16::from(port_num) };
    0
}

#[test]
fn extended_context_is_found_if_it_exists() {
    for extended in [false, true] {
        let vctx = Box::into_raw(context(extended));
        // SAFETY: the context is live until the box is taken back.
        unsafe {
            assert_eq!(
                verbs_get_ctx(inner(vctx)),
                if extended { vctx } else { null_mut() }
            );
            drop(Box::from_raw(vctx));
        }
    }
}

#[test]
fn missing_create_function_returns_null_and_errno() {
    let vctx = Box::into_raw(context(true));
    // SAFETY: the context is live until the box is taken back; the attributes are not read.
    unsafe {
        let mut cq = ibv_cq_init_attr_ex::default();
        assert!(ibv_create_cq_ex(inner(vctx), &raw mut cq).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        let mut qp = ibv_qp_init_attr_ex {
            comp_mask: IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            ..Default::default()
        };
        assert!(ibv_create_qp_ex(inner(vctx), &raw mut qp).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        assert_eq!(
            ibv_query_rt_values_ex(inner(vctx), null_mut()),
            libc::EOPNOTSUPP
        );
        drop(Box::from_raw(vctx));
    }
}

/// Some providers create these objects without their functions.
#[test]
fn objects_without_functions_are_not_supported() {
    let (mut dm, mut wq) = (ibv_dm::default(), ibv_wq::default());
    let (mut requests, mut bytes) = ([ibv_recv_wr::default(); 2], [0_u8; 4]);
    let mut bad = null_mut();
    // SAFETY: the objects are live, their functions are NULL, and the buffers are valid.
    unsafe {
        let address = bytes.as_mut_ptr().cast();
        let copied = ibv_memcpy_to_dm(&raw mut dm, 0, address, 4);
        assert_eq!(copied, libc::EOPNOTSUPP);
        let copied = ibv_memcpy_from_dm(address, &raw mut dm, 0, 4);
        assert_eq!(copied, libc::EOPNOTSUPP);
        let posted = ibv_post_wq_recv(&raw mut wq, requests.as_mut_ptr(), &raw mut bad);
        assert_eq!(posted, libc::EOPNOTSUPP);
    }
    assert_eq!(bad, requests.as_mut_ptr());
}

#[test]
fn table_entry_missing_in_an_older_library_is_not_read() {
    let mut vctx = context(true);
    vctx.query_port = Some(query_port);
    // In an older library the structure begins after the first field.
    vctx.sz -= offset_of!(verbs_context, advise_mr);
    let vctx = Box::into_raw(vctx);
    // SAFETY: the context is live until the box is taken back.
    unsafe {
        let mut attr = ibv_port_attr {
            flags: 7,
            ..Default::default()
        };
        assert_eq!(rdma_sys::ibv_query_port(inner(vctx), 3, &raw mut attr), 0);
        assert_eq!(
            (attr.lid, attr.flags),
            (3, 0),
            "the older function sets the LID; the other fields are zeroed"
        );
        (*vctx).sz = size_of::<verbs_context>();
        assert_eq!(rdma_sys::ibv_query_port(inner(vctx), 3, &raw mut attr), 0);
        assert_eq!(attr.lid, 103, "the function of the table");
        drop(Box::from_raw(vctx));
    }
}

#[test]
fn device_query_rejects_unknown_input() {
    let vctx = Box::into_raw(context(true));
    let input = ibv_query_device_ex_input { comp_mask: 1 };
    // SAFETY: the context is live until the box is taken back.
    unsafe {
        let mut attr = ibv_device_attr_ex::default();
        assert_eq!(
            ibv_query_device_ex(inner(vctx), &raw const input, &raw mut attr),
            libc::EINVAL
        );
        drop(Box::from_raw(vctx));
    }
}

#[test]
fn optional_access_flags_select_the_newer_function() {
    let mut byte = 0u8;
    let addr = (&raw mut byte).cast();
    let register = |access: ibv_access_flags| {
        // SAFETY: the functions above accept any arguments.
        unsafe { rdma_sys::ibv_reg_mr(null_mut(), addr, 1, access.try_into().unwrap()).addr() }
    };
    assert_eq!(register(IBV_ACCESS_LOCAL_WRITE), 1);
    assert_eq!(
        register(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING),
        2
    );
}

#[test]
fn post_and_poll_use_the_classic_table() {
    unsafe extern "C" fn post_send(
        _: *mut ibv_qp,
        wr: *mut ibv_send_wr,
        bad: *mut *mut ibv_send_wr,
    ) -> c_int {
        // SAFETY: the test passes live pointers.
        unsafe { *bad = wr };
        libc::ENOMEM
    }
    unsafe extern "C" fn poll_cq(_: *mut ibv_cq, _: c_int, wc: *mut ibv_wc) -> c_int {
        // SAFETY: the test passes a live completion.
        unsafe { (*wc).__bindgen_anon_1.imm_data = 9u32.to_be() };
        1
    }
    let mut vctx = context(false);
    vctx.context.ops.post_send = Some(post_send);
    vctx.context.ops.poll_cq = Some(poll_cq);
    let vctx = Box::into_raw(vctx);
    // SAFETY: the context is live until the box is taken back, and so are the objects that refer to
    // it.
    unsafe {
        let mut qp = ibv_qp {
            context: inner(vctx),
            ..Default::default()
        };
        let (mut wr, mut bad) = (ibv_send_wr::default(), null_mut());
        let wr: *mut ibv_send_wr = &raw mut wr;
        assert_eq!(ibv_post_send(&raw mut qp, wr, &raw mut bad), libc::ENOMEM);
        assert_eq!(bad, wr);

        let mut cq = ibv_cq {
            context: inner(vctx),
            ..Default::default()
        };
        let mut wc = ibv_wc::default();
        assert_eq!(ibv_poll_cq(&raw mut cq, 1, &raw mut wc), 1);
        assert_eq!(u32::from_be(wc.__bindgen_anon_1.imm_data), 9);
        drop(Box::from_raw(vctx));
    }
}

#[test]
fn extended_interfaces_use_the_tables_of_the_objects() {
    unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
        // SAFETY: the test passes a live queue pair.
        unsafe { (*qp).comp_mask = u64::from(lkey) + addr + u64::from(length) };
    }
    unsafe extern "C" fn complete(_: *mut ibv_qp_ex) -> c_int {
        libc::ENOMEM
    }
    unsafe extern "C" fn next(_: *mut ibv_cq_ex) -> c_int {
        libc::ENOENT
    }
    unsafe extern "C" fn imm(_: *mut ibv_cq_ex) -> __be32 {
        5
    }
    let qp = &raw mut *Box::leak(Box::new(ibv_qp_ex {
        wr_set_sge: Some(set_sge),
        wr_complete: Some(complete),
        ..Default::default()
    }));
    let cq = &raw mut *Box::leak(Box::new(ibv_cq_ex {
        next_poll: Some(next),
        read_imm_data: Some(imm),
        ..Default::default()
    }));
    // SAFETY: both objects are live until their boxes are taken back.
    unsafe {
        ibv_wr_set_sge(qp, 1, 20, 300);
        assert_eq!((*qp).comp_mask, 321);
        assert_eq!(ibv_wr_complete(qp), libc::ENOMEM);
        assert_eq!(ibv_next_poll(cq), libc::ENOENT);
        assert_eq!(ibv_wc_read_imm_data(cq), 5);
        assert_eq!(ibv_wc_read_invalidated_rkey(cq), 5);
        assert_eq!(ibv_cq_ex_to_cq(cq).addr(), cq.addr());
        drop(Box::from_raw(qp));
        drop(Box::from_raw(cq));
    }
}

#[test]
fn window_is_bound_only_in_its_protection_domain() {
    unsafe extern "C" fn bind_mw(_: *mut ibv_qp, _: *mut ibv_mw, _: *mut ibv_mw_bind) -> c_int {
        0
    }
    let mut vctx = context(false);
    vctx.context.ops.bind_mw = Some(bind_mw);
    let vctx = Box::into_raw(vctx);
    let mut pd = ibv_pd::default();
    // SAFETY: the context is live until the box is taken back, and so are the objects that refer to
    // it.
    unsafe {
        let mut mw = ibv_mw {
            context: inner(vctx),
            pd: &raw mut pd,
            type_: IBV_MW_TYPE_2,
            ..Default::default()
        };
        let mut mr = ibv_mr::default();
        let mr = &raw mut mr;
        let mut bind = ibv_mw_bind::default();
        let bind_window =
            |mw: &mut ibv_mw, bind: &mut ibv_mw_bind| ibv_bind_mw(null_mut(), mw, bind);
        assert_eq!(bind_window(&mut mw, &mut bind), libc::EINVAL, "type 2");
        mw.type_ = IBV_MW_TYPE_1;
        assert_eq!(
            bind_window(&mut mw, &mut bind),
            0,
            "neither region nor range: the window is unbound"
        );
        bind.bind_info.length = 1;
        assert_eq!(
            bind_window(&mut mw, &mut bind),
            libc::EINVAL,
            "a range without a region"
        );
        bind.bind_info.mr = mr;
        assert_eq!(
            bind_window(&mut mw, &mut bind),
            libc::EPERM,
            "a region of another protection domain"
        );
        (*mr).pd = &raw mut pd;
        assert_eq!(bind_window(&mut mw, &mut bind), 0);
        drop(Box::from_raw(vctx));
    }
}

#[test]
fn arithmetic_matches_the_headers() {
    assert_eq!(ibv_inc_rkey(0x1234_56ff), 0x1234_5600);
    assert_eq!(ibv_inc_rkey(0xffff_ffff), 0xffff_ff00);
    assert_eq!(ibv_inc_rkey(7), 8);
    assert_eq!(ibv_flow_label_to_udp_sport(0), 0xc000);
    assert_eq!(ibv_flow_label_to_udp_sport(0x4_4001), 0xc001 ^ 0x11);
    assert_eq!(ibv_is_qpt_supported(1 << IBV_QPT_UD, IBV_QPT_UD), 1);
    assert_eq!(ibv_is_qpt_supported(1 << IBV_QPT_UD, IBV_QPT_RC), 0);
    assert_eq!(
        ibv_is_qpt_supported(u32::MAX, IBV_QPT_DRIVER),
        0,
        "the type has no bit in the mask"
    );
}

#[cfg(feature = "rdmacm")]
#[test]
fn connection_manager_functions() {
    assert_eq!(rdma_seterrno(0), 0);
    assert_eq!(rdma_seterrno(libc::EBUSY), -1);
    assert_eq!(errno(), libc::EBUSY);
    let mut id = rdma_cm_id::default();
    let id = &raw mut id;
    // SAFETY: the identifier is live.
    unsafe {
        (*id).route.addr.__bindgen_anon_2.dst_sin.sin_port = 7u16.to_le();
        (*id).route.addr.__bindgen_anon_1.src_sin.sin_port = 8u16.to_le();
        // The port is the first field after the address family.
        assert_eq!((*rdma_get_peer_addr(id)).sa_data[0], 7);
        assert_eq!((*rdma_get_local_addr(id)).sa_data[0], 8);
    }
}

#[cfg(feature = "umad")]
#[test]
fn datagram_functions() {
    let packed = umad_sa_mcm_set_sl_flow_hop(3, 0xa_bcde, 0x7f);
    assert_eq!(u32::from_be(packed), 0x3abc_de7f);
    let (mut sl, mut flow, mut hop) = (0, 0, 0);
    // SAFETY: the pointers are to live locals.
    unsafe { umad_sa_mcm_get_sl_flow_hop(packed, &raw mut sl, &raw mut flow, &raw mut hop) };
    assert_eq!((sl, flow, hop), (3, 0xa_bcde, 0x7f));
    assert_eq!(umad_sa_set_rate_mtu_or_life(2, 0x45), 0x85);
    assert_eq!(umad_sa_get_rate_mtu_or_life(0x85), 5);
    let buffer = umad_alloc(2, 64);
    assert!(!buffer.is_null());
    // SAFETY: `buffer` was allocated above with 128 zeroed bytes.
    unsafe {
        assert_eq!(*buffer.cast::<u8>().add(127), 0);
        umad_free(buffer);
    }
}

#[test]
#[cfg(feature = "mlx5")]
fn mlx5_timestamps_are_converted_on_both_sides_of_the_clock() {
    let clock = mlx5dv_clock_info {
        nsec: 1_000_000,
        last_cycles: 10,
        frac: 0,
        mult: 8,
        shift: 2,
        mask: 0xffff,
    };
    // Two nanoseconds for each cycle.
    assert_eq!(mlx5dv_ts_to_ns(&clock, 110), 1_000_200);
    assert_eq!(mlx5dv_ts_to_ns(&clock, 0), 999_980);
    // The counter wraps around at its mask.
    assert_eq!(mlx5dv_ts_to_ns(&clock, 0x1_0000 - 90), 999_800);
}
