//! The measured cases: one function for each step and variant. The functions of the safe variants
//! are in `safe`, those of the raw variant in `raw`, and those of the C variants in `c/loop.c`.

#![allow(unsafe_code, reason = "calls the C loop")]

use std::ffi::{c_int, c_void};
use std::mem::replace;
use std::ptr::NonNull;
use std::time::Duration;

use ibverbs::{AsRaw, Error, ErrorKind, QpOptions, QueueMap, Rc, Result, wr};

use crate::raw::{
    RawLoop, measured_raw_batch_classic, measured_raw_batch_extended, measured_raw_batch_in_place,
    measured_raw_batch_stamped, measured_raw_recv_classic, measured_raw_recv_in_place,
    measured_raw_recv_stamped, measured_raw_send_classic, measured_raw_send_extended,
    measured_raw_send_in_place, measured_raw_send_stamped,
};
use crate::rig::{
    BATCH, FIRST_RECEIVES, MESSAGE_LEN, PeerStep, Rig, Verbs, peer_step_nothing, peer_step_receive,
    peer_step_send,
};
use crate::safe::{
    Lending, Many, measured_rust_batch_buf, measured_rust_batch_held, measured_rust_batch_lent,
    measured_rust_batch_of_1, measured_rust_batch_of_2, measured_rust_batch_of_4,
    measured_rust_batch_of_8, measured_rust_poll_empty, measured_rust_recv_buf,
    measured_rust_recv_held, measured_rust_recv_lent, measured_rust_send_buf,
    measured_rust_send_held, measured_rust_send_lent, measured_rust_send_of_16,
    measured_rust_send_of_256, measured_rust_send_of_4096, measured_rust_stamped_batch_buf,
    measured_rust_stamped_batch_held, measured_rust_stamped_recv_buf,
    measured_rust_stamped_recv_held, measured_rust_stamped_send_buf,
    measured_rust_stamped_send_held,
};

/// One measured function.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The measured step, such as "send".
    pub step: &'static str,
    /// The verbs that post and poll.
    pub verbs: Verbs,
    /// The program: C, raw verbs from Rust, or safe Rust with the kind of memory that it uses.
    pub variant: &'static str,
    /// Symbol name of the measured function, for a profiler.
    pub function: &'static str,
    /// Requests per iteration.
    pub requests: usize,
    run: Run,
}

/// The measured function, by its signature. Its arguments are the state of its loop, the number of
/// iterations, and the step of the peer before each iteration. It returns the number of completed
/// requests.
#[derive(Clone, Copy, Debug)]
enum Run {
    Rust(Role, fn(&mut Rig, c_int, PeerStep) -> Result<usize>),
    C(
        Role,
        unsafe extern "C" fn(*mut CLoopState, c_int, PeerStep, *mut c_void) -> c_int,
    ),
    Raw(
        Role,
        unsafe fn(&mut RawLoop, c_int, PeerStep, *mut c_void) -> c_int,
    ),
    Lent(
        Role,
        fn(&mut Lending<'_, '_, '_>, c_int, PeerStep, *mut c_void) -> Result<usize>,
    ),
    /// With the number of queue pairs.
    Many(
        usize,
        fn(&mut Many, c_int, PeerStep, *mut c_void) -> Result<usize>,
    ),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The measured function sends; the peer receives.
    Sender,
    /// The measured function receives; the peer sends.
    Receiver,
}

use Role::{Receiver, Sender};

/// The state of a C loop, `struct loop` in `c/loop.c`.
#[repr(C)]
#[derive(Debug)]
struct CLoopState {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn c_loop_new(
        qp: *mut QpRaw,
        cq: *mut CqRaw,
        stamped: c_int,
        count: u32,
        length: u32,
    ) -> *mut CLoopState;
    fn c_loop_free(state: *mut CLoopState);
    fn c_loop_post_first(state: *mut CLoopState, receives: c_int, count: c_int) -> c_int;
}

/// Declares the measured functions of `c/loop.c`.
macro_rules! c_functions {
    ($($name:ident)*) => {
        unsafe extern "C" {$(
            fn $name(
                state: *mut CLoopState,
                times: c_int,
                peer_step: PeerStep,
                rig: *mut c_void,
            ) -> c_int;
        )*}
    };
}

c_functions! {
    measured_c_send_classic
    measured_c_send_extended
    measured_c_send_stamped
    measured_c_send_in_place
    measured_c_batch_classic
    measured_c_batch_extended
    measured_c_batch_of_2
    measured_c_batch_of_4
    measured_c_batch_of_8
    measured_c_poll_empty
    measured_c_batch_stamped
    measured_c_batch_in_place
    measured_c_recv_classic
    measured_c_recv_stamped
    measured_c_recv_in_place
    measured_c_send_buf_classic
    measured_c_send_buf_extended
    measured_c_send_buf_stamped
    measured_c_send_buf_in_place
    measured_c_batch_buf_classic
    measured_c_batch_buf_extended
    measured_c_batch_buf_stamped
    measured_c_batch_buf_in_place
    measured_c_recv_buf_classic
    measured_c_recv_buf_stamped
    measured_c_recv_buf_in_place
}

type QpRaw = rdma_sys::ibv_qp;
type CqRaw = <ibverbs::CompletionQueue as AsRaw>::Raw;

macro_rules! cases {
    ($($step:literal $verbs:ident $variant:literal $requests:expr => $kind:ident $role:tt $function:ident;)*) => {
        [$(Case {
            step: $step,
            verbs: Verbs::$verbs,
            variant: $variant,
            function: stringify!($function),
            requests: $requests,
            run: Run::$kind($role, $function),
        }),*]
    };
}

/// Number of variants of each step: C, raw verbs from Rust, safe Rust with held memory, C with
/// buffers, safe Rust with buffers.
pub const VARIANTS: usize = 5;

/// All cases, ordered by step and verbs.
pub const CASES: [Case; 12 * VARIANTS] = cases! {
    "send" Classic "C" 1 => C Sender measured_c_send_classic;
    "send" Classic "raw" 1 => Raw Sender measured_raw_send_classic;
    "send" Classic "held" 1 => Rust Sender measured_rust_send_held;
    "send" Classic "C, buffers" 1 => C Sender measured_c_send_buf_classic;
    "send" Classic "buffers" 1 => Rust Sender measured_rust_send_buf;
    "send" Extended "C" 1 => C Sender measured_c_send_extended;
    "send" Extended "raw" 1 => Raw Sender measured_raw_send_extended;
    "send" Extended "held" 1 => Rust Sender measured_rust_send_held;
    "send" Extended "C, buffers" 1 => C Sender measured_c_send_buf_extended;
    "send" Extended "buffers" 1 => Rust Sender measured_rust_send_buf;
    "send" Timestamps "C" 1 => C Sender measured_c_send_stamped;
    "send" Timestamps "raw" 1 => Raw Sender measured_raw_send_stamped;
    "send" Timestamps "held" 1 => Rust Sender measured_rust_stamped_send_held;
    "send" Timestamps "C, buffers" 1 => C Sender measured_c_send_buf_stamped;
    "send" Timestamps "buffers" 1 => Rust Sender measured_rust_stamped_send_buf;
    "send" InPlace "C" 1 => C Sender measured_c_send_in_place;
    "send" InPlace "raw" 1 => Raw Sender measured_raw_send_in_place;
    "send" InPlace "held" 1 => Rust Sender measured_rust_stamped_send_held;
    "send" InPlace "C, buffers" 1 => C Sender measured_c_send_buf_in_place;
    "send" InPlace "buffers" 1 => Rust Sender measured_rust_stamped_send_buf;
    "batch of 32" Classic "C" BATCH => C Sender measured_c_batch_classic;
    "batch of 32" Classic "raw" BATCH => Raw Sender measured_raw_batch_classic;
    "batch of 32" Classic "held" BATCH => Rust Sender measured_rust_batch_held;
    "batch of 32" Classic "C, buffers" BATCH => C Sender measured_c_batch_buf_classic;
    "batch of 32" Classic "buffers" BATCH => Rust Sender measured_rust_batch_buf;
    "batch of 32" Extended "C" BATCH => C Sender measured_c_batch_extended;
    "batch of 32" Extended "raw" BATCH => Raw Sender measured_raw_batch_extended;
    "batch of 32" Extended "held" BATCH => Rust Sender measured_rust_batch_held;
    "batch of 32" Extended "C, buffers" BATCH => C Sender measured_c_batch_buf_extended;
    "batch of 32" Extended "buffers" BATCH => Rust Sender measured_rust_batch_buf;
    "batch of 32" Timestamps "C" BATCH => C Sender measured_c_batch_stamped;
    "batch of 32" Timestamps "raw" BATCH => Raw Sender measured_raw_batch_stamped;
    "batch of 32" Timestamps "held" BATCH => Rust Sender measured_rust_stamped_batch_held;
    "batch of 32" Timestamps "C, buffers" BATCH => C Sender measured_c_batch_buf_stamped;
    "batch of 32" Timestamps "buffers" BATCH => Rust Sender measured_rust_stamped_batch_buf;
    "batch of 32" InPlace "C" BATCH => C Sender measured_c_batch_in_place;
    "batch of 32" InPlace "raw" BATCH => Raw Sender measured_raw_batch_in_place;
    "batch of 32" InPlace "held" BATCH => Rust Sender measured_rust_stamped_batch_held;
    "batch of 32" InPlace "C, buffers" BATCH => C Sender measured_c_batch_buf_in_place;
    "batch of 32" InPlace "buffers" BATCH => Rust Sender measured_rust_stamped_batch_buf;
    "receive" Classic "C" 1 => C Receiver measured_c_recv_classic;
    "receive" Classic "raw" 1 => Raw Receiver measured_raw_recv_classic;
    "receive" Classic "held" 1 => Rust Receiver measured_rust_recv_held;
    "receive" Classic "C, buffers" 1 => C Receiver measured_c_recv_buf_classic;
    "receive" Classic "buffers" 1 => Rust Receiver measured_rust_recv_buf;
    "receive" Extended "C" 1 => C Receiver measured_c_recv_classic;
    "receive" Extended "raw" 1 => Raw Receiver measured_raw_recv_classic;
    "receive" Extended "held" 1 => Rust Receiver measured_rust_recv_held;
    "receive" Extended "C, buffers" 1 => C Receiver measured_c_recv_buf_classic;
    "receive" Extended "buffers" 1 => Rust Receiver measured_rust_recv_buf;
    "receive" Timestamps "C" 1 => C Receiver measured_c_recv_stamped;
    "receive" Timestamps "raw" 1 => Raw Receiver measured_raw_recv_stamped;
    "receive" Timestamps "held" 1 => Rust Receiver measured_rust_stamped_recv_held;
    "receive" Timestamps "C, buffers" 1 => C Receiver measured_c_recv_buf_stamped;
    "receive" Timestamps "buffers" 1 => Rust Receiver measured_rust_stamped_recv_buf;
    "receive" InPlace "C" 1 => C Receiver measured_c_recv_in_place;
    "receive" InPlace "raw" 1 => Raw Receiver measured_raw_recv_in_place;
    "receive" InPlace "held" 1 => Rust Receiver measured_rust_stamped_recv_held;
    "receive" InPlace "C, buffers" 1 => C Receiver measured_c_recv_buf_in_place;
    "receive" InPlace "buffers" 1 => Rust Receiver measured_rust_stamped_recv_buf;
};

/// The steps with a slice that was lent to a scope. Compare them with the C program of the same
/// step and verbs.
pub const LENT: [Case; 6] = cases! {
    "send" Classic "lent" 1 => Lent Sender measured_rust_send_lent;
    "send" Extended "lent" 1 => Lent Sender measured_rust_send_lent;
    "batch of 32" Classic "lent" BATCH => Lent Sender measured_rust_batch_lent;
    "batch of 32" Extended "lent" BATCH => Lent Sender measured_rust_batch_lent;
    "receive" Classic "lent" 1 => Lent Receiver measured_rust_recv_lent;
    "receive" Extended "lent" 1 => Lent Receiver measured_rust_recv_lent;
};

/// Steps beside those of the table, each with the C program that it is compared with.
pub const OTHERS: [[Case; 2]; 8] = [
    cases! {
        "batch of 1" Extended "C" 1 => C Sender measured_c_send_extended;
        "batch of 1" Extended "held" 1 => Rust Sender measured_rust_batch_of_1;
    },
    cases! {
        "batch of 2" Extended "C" 2 => C Sender measured_c_batch_of_2;
        "batch of 2" Extended "held" 2 => Rust Sender measured_rust_batch_of_2;
    },
    cases! {
        "batch of 4" Extended "C" 4 => C Sender measured_c_batch_of_4;
        "batch of 4" Extended "held" 4 => Rust Sender measured_rust_batch_of_4;
    },
    cases! {
        "batch of 8" Extended "C" 8 => C Sender measured_c_batch_of_8;
        "batch of 8" Extended "held" 8 => Rust Sender measured_rust_batch_of_8;
    },
    cases! {
        "send of one of 16" Extended "C" 1 => C Sender measured_c_send_extended;
        "send of one of 16" Extended "held" 1 => Many 16 measured_rust_send_of_16;
    },
    cases! {
        "send of one of 256" Extended "C" 1 => C Sender measured_c_send_extended;
        "send of one of 256" Extended "held" 1 => Many 256 measured_rust_send_of_256;
    },
    cases! {
        "send of one of 4096" Extended "C" 1 => C Sender measured_c_send_extended;
        "send of one of 4096" Extended "held" 1 => Many 4096 measured_rust_send_of_4096;
    },
    cases! {
        "empty poll" Extended "C" 0 => C Sender measured_c_poll_empty;
        "empty poll" Extended "held" 0 => Rust Sender measured_rust_poll_empty;
    },
];

/// Owns the state of the C loop.
struct CLoop(NonNull<CLoopState>);

impl CLoop {
    fn new(rig: &Rig, role: Role) -> Result<Self> {
        let qp = if role == Sender { &rig.a } else { &rig.b };
        let (cq, count) = (
            rig.raw_cq(role == Sender),
            u32::try_from(BATCH).unwrap_or(0),
        );
        let qp = qp.as_raw()?.as_ptr();
        // SAFETY: `Case::run` drops the state before the rig, which owns the queue pair and the CQ.
        let state = unsafe { c_loop_new(qp, cq, rig.uses_stamped.into(), count, MESSAGE_LEN) };
        NonNull::new(state)
            .map(Self)
            .ok_or_else(|| Error::new(ErrorKind::Os, "c_loop_new", "out of memory"))
    }
}

impl Drop for CLoop {
    fn drop(&mut self) {
        // SAFETY: `new` created the state, and only `drop` frees it.
        unsafe { c_loop_free(self.0.as_ptr()) }
    }
}

/// Converts the return value of a C or raw loop: a number of requests, or -1.
fn check_returned(returned: c_int) -> Result<usize> {
    usize::try_from(returned).map_err(|_| failed("a request failed".into()))
}

fn failed(what: String) -> Error {
    Error::new(ErrorKind::Os, "run a benchmark loop", what)
}

impl Case {
    /// Creates a rig for this case.
    ///
    /// # Errors
    /// Those of [`Rig::new`].
    pub fn rig(&self) -> Result<Rig> {
        Rig::new(self.verbs)
    }

    /// Runs `times` iterations of the measured function. The peer takes a step before each of them.
    ///
    /// # Errors
    /// Fails if a request fails, or if not all requests of an iteration complete.
    pub fn run(&self, rig: &mut Rig, times: usize) -> Result<()> {
        let times = c_int::try_from(times).unwrap_or(c_int::MAX);
        rig.requests = self.requests;
        match self.run {
            Run::Rust(role, measured) => self.repeat(rig, role, times, measured, Rig::post_first),
            Run::C(role, measured) => {
                let state = CLoop::new(rig, role)?;
                self.repeat(
                    rig,
                    role,
                    times,
                    |rig, times, peer_step| {
                        // SAFETY: `state` lives until the end of this block. Safe code does not use
                        // the queue pair of `state` during the call.
                        check_returned(unsafe {
                            measured(state.0.as_ptr(), times, peer_step, (&raw mut *rig).cast())
                        })
                    },
                    |_, receives, count| {
                        let count = c_int::try_from(count).unwrap_or(0);
                        // SAFETY: `state` is alive, and has `BATCH` buffers, more than `count`.
                        check_returned(unsafe {
                            c_loop_post_first(state.0.as_ptr(), receives.into(), count)
                        })
                        .map(|_| ())
                    },
                )
            }
            Run::Raw(role, measured) => {
                let qp = if role == Sender { &rig.a } else { &rig.b };
                let cq = rig.raw_cq(role == Sender);
                let qp = qp.as_raw()?.as_ptr();
                // SAFETY: the rig, which owns the queue pair and the CQ, outlives this function.
                let mut raw = unsafe { RawLoop::new(qp, cq, rig.uses_stamped, MESSAGE_LEN) };
                let measured = |rig: &mut Rig, times, peer_step| {
                    // SAFETY: the rig is alive, and safe code does not use its queue pair during
                    // the call.
                    check_returned(unsafe {
                        measured(&mut raw, times, peer_step, (&raw mut *rig).cast())
                    })
                };
                self.repeat(rig, role, times, measured, |_, _, _| Ok(()))
            }
            Run::Many(count, measured) => self.run_many(rig, count, times, measured),
            Run::Lent(role, measured) => {
                let (mut qp, mut cq) = rig.take(role == Sender)?;
                let mut memory = [0; MESSAGE_LEN as usize];
                qp.scope(|scope| {
                    let lent = scope.lend_mut(&mut memory)?;
                    let mut lending = Lending {
                        scope,
                        lent,
                        cq: &mut cq,
                    };
                    let measured = |rig: &mut Rig, times, peer_step| {
                        measured(&mut lending, times, peer_step, (&raw mut *rig).cast())
                    };
                    self.repeat(rig, role, times, measured, |_, _, _| Ok(()))?;
                    scope.wait(&mut cq, Duration::from_secs(1), |_| ())
                })
            }
        }
    }

    /// Runs a measured function that finds the queue pair of each completion among `count`.
    fn run_many(
        &self,
        rig: &mut Rig,
        count: usize,
        times: c_int,
        measured: fn(&mut Many, c_int, PeerStep, *mut c_void) -> Result<usize>,
    ) -> Result<()> {
        let source = rig.source;
        let (sender, cq) = rig.take(true)?;
        let pd = sender.pd().clone();
        let options = QpOptions::new().max_send_wr(1).max_recv_wr(1);
        let mut queue_pairs = QueueMap::default();
        while queue_pairs.len() + 1 < count {
            let qp = pd.create_qp::<Rc>(&cq, &cq, options)?;
            queue_pairs.insert(qp.id(), qp);
        }
        let sender_id = sender.id();
        queue_pairs.insert(sender_id, sender);
        let mut many = Many {
            queue_pairs,
            cq,
            source,
        };
        let mut is_first = true;
        let measured = |rig: &mut Rig, times, peer_step| {
            if replace(&mut is_first, false) {
                let sender = many.queue_pairs.get_mut(&sender_id);
                sender.map_or(Ok(()), |qp| qp.post_send(wr::send(source)))?;
                return Ok(0);
            }
            measured(&mut many, times, peer_step, (&raw mut *rig).cast())
        };
        self.repeat(rig, Sender, times, measured, |_, _, _| Ok(()))
    }

    /// Returns `true` if the measured function posts each completed buffer again. The first
    /// requests must then be posted before the measurement.
    fn reposts_buffers(&self) -> bool {
        self.variant.ends_with("buffers") && self.requests == 1
    }

    fn repeat(
        &self,
        rig: &mut Rig,
        role: Role,
        times: c_int,
        mut measured: impl FnMut(&mut Rig, c_int, PeerStep) -> Result<usize>,
        post_first: impl FnOnce(&mut Rig, bool, usize) -> Result<()>,
    ) -> Result<()> {
        let peer_step = match role {
            Sender => peer_step_receive,
            Receiver => peer_step_send,
        };
        let first = match role {
            Receiver if self.reposts_buffers() => FIRST_RECEIVES,
            Sender | Receiver => 1,
        };
        if self.reposts_buffers() {
            post_first(rig, role == Receiver, first)?;
        } else {
            // Posts the first requests. Nothing has completed yet.
            measured(rig, 1, peer_step_nothing)?;
        }
        let completed = measured(rig, times, peer_step)?;
        let expected = usize::try_from(times).unwrap_or(0) * self.requests;
        if completed != expected {
            return Err(failed(format!(
                "{completed} of {expected} requests completed"
            )));
        }
        // Completes the requests that are still posted. The profiler must not see a step of the
        // peer here.
        for _ in 0..first {
            match role {
                Sender => rig.receive()?,
                Receiver => rig.send()?,
            }
            nic_model::settle();
        }
        rig.retire_all()
    }
}
