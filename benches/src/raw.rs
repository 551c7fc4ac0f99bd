//! The loop of `c/loop.c`, written in Rust with the functions of `rdma-sys`, which a program can
//! call on the handles that `AsRaw` returns.

#![allow(unsafe_code, reason = "calls the raw verbs")]

use std::ffi::{c_int, c_void};
use std::ptr;

use rdma_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_SEND_SIGNALED, IBV_WC_SUCCESS, IBV_WR_SEND, ibv_cq, ibv_cq_ex,
    ibv_dereg_mr, ibv_end_poll, ibv_mr, ibv_next_poll, ibv_poll_cq, ibv_poll_cq_attr,
    ibv_post_recv, ibv_post_send, ibv_qp, ibv_qp_ex, ibv_qp_to_qp_ex, ibv_recv_wr, ibv_reg_mr,
    ibv_send_wr, ibv_sge, ibv_start_poll, ibv_wc, ibv_wc_read_byte_len, ibv_wc_read_completion_ts,
    ibv_wc_read_opcode, ibv_wc_read_qp_num, ibv_wc_read_wc_flags, ibv_wr_complete, ibv_wr_send,
    ibv_wr_set_sge, ibv_wr_start,
};

use crate::rig::{BATCH, PeerStep};

#[allow(clippy::cast_possible_truncation, reason = "the value is 32")]
const POLL_COUNT: c_int = BATCH as c_int;

/// Returned by `ibv_start_poll` and `ibv_next_poll` if the queue is empty.
const ENOENT: c_int = 2;

/// A completion of a queue with timestamps.
#[derive(Clone, Copy, Default)]
#[allow(dead_code, reason = "measured, not read")]
struct Completion {
    wr_id: u64,
    qp_num: u32,
    opcode: u32,
    status: u32,
    /// Of a receive.
    byte_len: u32,
    /// Of a receive.
    wc_flags: u32,
    timestamp: u64,
}

/// The state of the loop.
pub(crate) struct RawLoop {
    qp: *mut ibv_qp,
    qp_ex: *mut ibv_qp_ex,
    cq: *mut ibv_cq,
    cq_ex: *mut ibv_cq_ex,
    mr: *mut ibv_mr,
    memory: *mut u8,
    length: u32,
    next: u64,
    last: Completion,
    wc: [ibv_wc; BATCH],
    completions: [Completion; BATCH],
    wrs: [ibv_send_wr; BATCH],
    sges: [ibv_sge; BATCH],
}

impl RawLoop {
    /// Creates the state of the loop, with one registered buffer.
    ///
    /// # Safety
    /// `qp` and `cq` must outlive the returned value.
    pub(crate) unsafe fn new(
        qp: *mut ibv_qp,
        cq: *mut ibv_cq,
        stamped: bool,
        length: u32,
    ) -> Box<Self> {
        let memory = Box::leak(vec![0_u8; length as usize].into_boxed_slice()).as_mut_ptr();
        // SAFETY: the caller passes a valid queue pair; `drop` deregisters the memory before
        // freeing it.
        let (qp_ex, mr) = unsafe {
            (
                ibv_qp_to_qp_ex(qp),
                ibv_reg_mr(
                    (*qp).pd,
                    memory.cast(),
                    length as usize,
                    IBV_ACCESS_LOCAL_WRITE as c_int,
                ),
            )
        };
        let cq_ex = if stamped { cq.cast() } else { ptr::null_mut() };
        let (wc, wrs, sges) = (
            [ibv_wc::default(); BATCH],
            [ibv_send_wr::default(); BATCH],
            [ibv_sge::default(); BATCH],
        );
        Box::new(Self {
            qp,
            qp_ex,
            cq,
            cq_ex,
            mr,
            memory,
            length,
            next: 0,
            last: Completion::default(),
            wc,
            completions: [Completion::default(); BATCH],
            wrs,
            sges,
        })
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    #[inline]
    fn sge(&self) -> ibv_sge {
        ibv_sge {
            addr: self.memory.expose_provenance() as u64,
            length: self.length,
            // SAFETY: `new` created the memory region, and `drop` destroys it.
            lkey: unsafe { (*self.mr).lkey },
        }
    }

    #[inline]
    unsafe fn poll_classic(&mut self) -> c_int {
        // SAFETY: the caller of `new` keeps the CQ alive, and `wc` has `POLL_COUNT` entries.
        let count = unsafe { ibv_poll_cq(self.cq, POLL_COUNT, self.wc.as_mut_ptr()) };
        for wc in self.wc.iter().take(count.unsigned_abs() as usize) {
            if wc.status != IBV_WC_SUCCESS {
                return -1;
            }
        }
        count
    }

    /// Reads the fields that identify a completion, those of a message received, and the timestamp.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured")]
    unsafe fn read_fields(cq: *mut ibv_cq_ex, completion: &mut Completion, receives: bool) {
        // SAFETY: the caller polls the CQ, which has a current completion.
        unsafe {
            completion.wr_id = (*cq).wr_id;
            completion.qp_num = ibv_wc_read_qp_num(cq);
            completion.opcode = ibv_wc_read_opcode(cq);
            if receives {
                completion.byte_len = ibv_wc_read_byte_len(cq);
                completion.wc_flags = ibv_wc_read_wc_flags(cq);
            }
            completion.timestamp = ibv_wc_read_completion_ts(cq);
        }
    }

    /// Copies completions and ends the poll.
    #[inline]
    unsafe fn copy_stamped(&mut self, receives: bool) -> c_int {
        let mut attr = ibv_poll_cq_attr::default();
        let mut count = 0;
        // SAFETY: the caller of `new` keeps the CQ alive. The CQ is read only between a successful
        // `ibv_start_poll` and `ibv_end_poll`.
        unsafe {
            let mut returned = ibv_start_poll(self.cq_ex, &raw mut attr);
            if returned != 0 {
                return if returned == ENOENT { 0 } else { -1 };
            }
            for completion in &mut self.completions {
                completion.status = (*self.cq_ex).status;
                Self::read_fields(self.cq_ex, completion, receives);
                count += 1;
                if count == POLL_COUNT {
                    break;
                }
                returned = ibv_next_poll(self.cq_ex);
                if returned != 0 {
                    break;
                }
            }
            ibv_end_poll(self.cq_ex);
            if returned != 0 && returned != ENOENT {
                -1
            } else {
                count
            }
        }
    }

    #[inline]
    unsafe fn poll_stamped(&mut self, receives: bool) -> c_int {
        // SAFETY: the caller of `new` keeps the CQ alive.
        let count = unsafe { self.copy_stamped(receives) };
        for completion in self
            .completions
            .iter()
            .take(usize::try_from(count).unwrap_or(0))
        {
            if completion.status != IBV_WC_SUCCESS {
                return -1;
            }
            self.last.timestamp = completion.timestamp;
        }
        count
    }

    /// Reads each completion before the next one is polled.
    #[inline]
    unsafe fn poll_in_place(&mut self, receives: bool) -> c_int {
        let mut attr = ibv_poll_cq_attr::default();
        let mut count = 0;
        // SAFETY: see `copy_stamped`.
        unsafe {
            let mut returned = ibv_start_poll(self.cq_ex, &raw mut attr);
            if returned != 0 {
                return if returned == ENOENT { 0 } else { -1 };
            }
            loop {
                if (*self.cq_ex).status != IBV_WC_SUCCESS {
                    count = -1;
                    break;
                }
                Self::read_fields(self.cq_ex, &mut self.last, receives);
                count += 1;
                if count == POLL_COUNT {
                    break;
                }
                returned = ibv_next_poll(self.cq_ex);
                if returned != 0 {
                    break;
                }
            }
            ibv_end_poll(self.cq_ex);
            if returned != 0 && returned != ENOENT {
                -1
            } else {
                count
            }
        }
    }

    #[inline]
    unsafe fn post_classic(&mut self, count: usize) -> c_int {
        for index in 0..count {
            self.sges[index] = self.sge();
            let wr = ibv_send_wr {
                wr_id: self.next(),
                sg_list: &raw mut self.sges[index],
                num_sge: 1,
                opcode: IBV_WR_SEND,
                send_flags: IBV_SEND_SIGNALED,
                next: if index + 1 < count {
                    &raw mut self.wrs[index + 1]
                } else {
                    ptr::null_mut()
                },
                ..Default::default()
            };
            self.wrs[index] = wr;
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the caller of `new` keeps the queue pair alive, `self` owns the memory, and the
        // list of requests ends with a null pointer.
        unsafe { ibv_post_send(self.qp, self.wrs.as_mut_ptr(), &raw mut bad) }
    }

    #[inline]
    unsafe fn post_extended(&mut self, count: usize) -> c_int {
        // SAFETY: the caller of `new` keeps the queue pair alive and created it with sends enabled;
        // `self` owns the memory.
        unsafe {
            ibv_wr_start(self.qp_ex);
            for _ in 0..count {
                (*self.qp_ex).wr_id = self.next();
                (*self.qp_ex).wr_flags = IBV_SEND_SIGNALED;
                ibv_wr_send(self.qp_ex);
                let ibv_sge { addr, length, lkey } = self.sge();
                ibv_wr_set_sge(self.qp_ex, lkey, addr, length);
            }
            ibv_wr_complete(self.qp_ex)
        }
    }

    #[inline]
    unsafe fn post_recv(&mut self) -> c_int {
        let mut sge = self.sge();
        let mut wr = ibv_recv_wr {
            wr_id: self.next(),
            sg_list: &raw mut sge,
            num_sge: 1,
            ..Default::default()
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the caller of `new` keeps the queue pair alive, and `self` owns the memory.
        unsafe { ibv_post_recv(self.qp, &raw mut wr, &raw mut bad) }
    }
}

impl Drop for RawLoop {
    fn drop(&mut self) {
        // SAFETY: `new` created both. If the region cannot be deregistered, its memory is leaked,
        // because the device may still access it.
        unsafe {
            if ibv_dereg_mr(self.mr) == 0 {
                drop(Box::from_raw(ptr::slice_from_raw_parts_mut(
                    self.memory,
                    self.length as usize,
                )));
            }
        }
    }
}

macro_rules! measured {
    ($($name:ident: $poll:ident($($receives:expr)?), $post:ident($($count:expr)?);)*) => {$(
        // SAFETY: no other symbol has this name.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub(crate) unsafe fn $name(
            state: &mut RawLoop,
            times: c_int,
            peer_step: PeerStep,
            rig: *mut c_void,
        ) -> c_int {
            let mut completed = 0;
            for _ in 0..times {
                // SAFETY: the caller of `RawLoop::new` keeps the handles alive, and `rig` points to
                // a live rig that is not borrowed.
                unsafe {
                    peer_step(rig);
                    let count = state.$poll($($receives)?);
                    if count < 0 || state.$post($($count)?) != 0 {
                        return -1;
                    }
                    completed += count;
                }
            }
            completed
        }
    )*};
}

measured! {
    measured_raw_send_classic: poll_classic(), post_classic(1);
    measured_raw_send_extended: poll_classic(), post_extended(1);
    measured_raw_send_stamped: poll_stamped(false), post_extended(1);
    measured_raw_send_in_place: poll_in_place(false), post_extended(1);
    measured_raw_batch_classic: poll_classic(), post_classic(BATCH);
    measured_raw_batch_extended: poll_classic(), post_extended(BATCH);
    measured_raw_batch_stamped: poll_stamped(false), post_extended(BATCH);
    measured_raw_batch_in_place: poll_in_place(false), post_extended(BATCH);
    measured_raw_recv_classic: poll_classic(), post_recv();
    measured_raw_recv_stamped: poll_stamped(true), post_recv();
    measured_raw_recv_in_place: poll_in_place(true), post_recv();
}
