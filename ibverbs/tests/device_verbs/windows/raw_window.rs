//! Raw window bindings that this crate would reject.

#![allow(unsafe_code)]

use ibverbs::{AsRaw, ProtectionDomain, QueuePair, Rc};
use rdma_sys::{
    IBV_MW_TYPE_2, IBV_SEND_SIGNALED, IBV_WR_BIND_MW, ibv_alloc_mw, ibv_dealloc_mw, ibv_dereg_mr,
    ibv_inc_rkey, ibv_mr, ibv_mw, ibv_mw_bind_info, ibv_post_send, ibv_reg_mr, ibv_send_wr,
    ibv_send_wr__bindgen_ty_4__bindgen_ty_1,
};

/// A region and a type 2 window, both created with raw verbs.
pub(crate) struct RawWindow {
    mr: *mut ibv_mr,
    mw: *mut ibv_mw,
    memory: Vec<u8>,
}

impl RawWindow {
    pub(crate) fn new(pd: &ProtectionDomain, len: usize, access: u32) -> Self {
        let mut memory = vec![0; len];
        // SAFETY: the memory lives until the region is deregistered, and the test's pair keeps the
        // domain alive.
        let mr = unsafe { ibv_reg_mr(pd.as_raw(), memory.as_mut_ptr().cast(), len, access as i32) };
        // SAFETY: the domain is alive.
        let mw = unsafe { ibv_alloc_mw(pd.as_raw(), IBV_MW_TYPE_2) };
        assert!(!mr.is_null() && !mw.is_null());
        Self { mr, mw, memory }
    }

    /// Posts a request to bind `len` bytes starting at `offset`. Its completion matches no request
    /// of the crate.
    pub(crate) fn bind(&self, qp: &mut QueuePair<Rc>, offset: u64, len: u64, access: u32) {
        // SAFETY: the window is live.
        let rkey = ibv_inc_rkey(unsafe { (*self.mw).rkey });
        let addr = self.memory.as_ptr().addr() as u64;
        let bind_info = ibv_mw_bind_info {
            mr: self.mr,
            addr: addr.wrapping_add(offset),
            length: len,
            mw_access_flags: access,
        };
        let mut wr = ibv_send_wr {
            opcode: IBV_WR_BIND_MW,
            send_flags: IBV_SEND_SIGNALED,
            ..Default::default()
        };
        wr.__bindgen_anon_2.bind_mw = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
            mw: self.mw,
            rkey,
            bind_info,
        };
        // SAFETY: the queue pair is alive and used exclusively, and the request is valid during the
        // call.
        let returned = unsafe {
            ibv_post_send(
                qp.as_raw().expect("alive").as_ptr(),
                &raw mut wr,
                &mut std::ptr::null_mut(),
            )
        };
        assert_eq!(
            returned, 0,
            "the device must reject the binding, not the post"
        );
    }
}

impl Drop for RawWindow {
    fn drop(&mut self) {
        // SAFETY: created by `new` and freed once; nothing refers to them any more.
        let window = unsafe { ibv_dealloc_mw(self.mw) };
        // SAFETY: as above.
        let region = unsafe { ibv_dereg_mr(self.mr) };
        assert_eq!((window, region), (0, 0));
    }
}
