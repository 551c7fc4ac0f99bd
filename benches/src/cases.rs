//! What is measured: one function a case and side. The safe ones are in `safe`, the raw ones in
//! `raw`, the C ones in `c/loop.c`.

#![allow(unsafe_code, reason = "the C loop is called")]

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use ibverbs::{AsRaw, Error, ErrorKind, Result};

use crate::raw::{
    Raw, measured_raw_batch_classic, measured_raw_batch_extended, measured_raw_batch_extended_poll,
    measured_raw_recv_classic, measured_raw_recv_extended_poll, measured_raw_send_classic,
    measured_raw_send_extended, measured_raw_send_extended_poll,
};
use crate::rig::{
    AHEAD, Aside, BATCH, Form, LENGTH, Rig, aside_nothing, aside_receive, aside_receive_batch,
    aside_send,
};
use crate::safe::{
    measured_rust_batch_buf, measured_rust_batch_buf_in_place, measured_rust_batch_held,
    measured_rust_batch_held_in_place, measured_rust_recv_buf, measured_rust_recv_buf_in_place,
    measured_rust_recv_held, measured_rust_recv_held_in_place, measured_rust_send_buf,
    measured_rust_send_buf_in_place, measured_rust_send_held, measured_rust_send_held_in_place,
};

/// One measured function.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it does.
    pub what: &'static str,
    /// Which verbs it uses.
    pub form: Form,
    /// Which program: C or raw verbs from Rust, or the safe one with the memory that it uses.
    pub side: &'static str,
    /// The measured function, as a profiler knows it.
    pub function: &'static str,
    /// Requests each time.
    pub requests: usize,
    run: Run,
}

#[derive(Clone, Copy, Debug)]
enum Run {
    Rust(Role, fn(&mut Rig, c_int, c_int, Aside) -> Result<()>),
    C(
        Role,
        unsafe extern "C" fn(*mut Side, c_int, c_int, Aside, *mut c_void) -> c_int,
    ),
    Raw(
        Role,
        unsafe fn(&mut Raw, c_int, c_int, Aside, *mut c_void) -> c_int,
    ),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    SendTransport,
    Receives,
}

use Role::{Receives, SendTransport};

/// The state of the C loop.
#[repr(C)]
#[derive(Debug)]
struct Side {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn c_side_new(
        qp: *mut QpRaw,
        cq: *mut CqRaw,
        extended_cq: c_int,
        count: u32,
        length: u32,
    ) -> *mut Side;
    fn c_side_free(side: *mut Side);
    fn c_side_begin(side: *mut Side, receives: c_int, count: c_int) -> c_int;
    fn measured_c_send_classic(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_send_extended(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_send_extended_poll(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_batch_classic(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_batch_extended(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_batch_extended_poll(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_recv_classic(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_recv_extended_poll(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_send_buf_classic(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_send_buf_extended(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_send_buf_extended_poll(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_batch_buf_classic(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_batch_buf_extended(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_batch_buf_extended_poll(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_recv_buf_classic(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
    fn measured_c_recv_buf_extended_poll(
        side: *mut Side,
        times: c_int,
        requests: c_int,
        aside: Aside,
        rig: *mut c_void,
    ) -> c_int;
}

type QpRaw = <ibverbs::QueuePair<ibverbs::Rc> as AsRaw>::Raw;
type CqRaw = <ibverbs::CompletionQueue as AsRaw>::Raw;

macro_rules! cases {
    ($($what:literal $form:ident $side:literal $requests:expr => $kind:ident $role:ident $function:ident;)*) => {
        [$(Case {
            what: $what,
            form: Form::$form,
            side: $side,
            function: stringify!($function),
            requests: $requests,
            run: Run::$kind($role, $function),
        }),*]
    };
}

/// How many cases a step and form has: what C does, the same by raw verbs from Rust, held memory, C
/// with buffers, buffers.
pub const SIDES: usize = 5;

/// Every case, by step and form.
pub const CASES: [Case; 9 * SIDES] = cases! {
    "send" Classic "C" 1 => C SendTransport measured_c_send_classic;
    "send" Classic "raw" 1 => Raw SendTransport measured_raw_send_classic;
    "send" Classic "held" 1 => Rust SendTransport measured_rust_send_held;
    "send" Classic "C, buffers" 1 => C SendTransport measured_c_send_buf_classic;
    "send" Classic "buffers" 1 => Rust SendTransport measured_rust_send_buf;
    "send" Extended "C" 1 => C SendTransport measured_c_send_extended;
    "send" Extended "raw" 1 => Raw SendTransport measured_raw_send_extended;
    "send" Extended "held" 1 => Rust SendTransport measured_rust_send_held;
    "send" Extended "C, buffers" 1 => C SendTransport measured_c_send_buf_extended;
    "send" Extended "buffers" 1 => Rust SendTransport measured_rust_send_buf;
    "send" ExtendedPoll "C" 1 => C SendTransport measured_c_send_extended_poll;
    "send" ExtendedPoll "raw" 1 => Raw SendTransport measured_raw_send_extended_poll;
    "send" ExtendedPoll "held" 1 => Rust SendTransport measured_rust_send_held_in_place;
    "send" ExtendedPoll "C, buffers" 1 => C SendTransport measured_c_send_buf_extended_poll;
    "send" ExtendedPoll "buffers" 1 => Rust SendTransport measured_rust_send_buf_in_place;
    "batch of 32" Classic "C" BATCH => C SendTransport measured_c_batch_classic;
    "batch of 32" Classic "raw" BATCH => Raw SendTransport measured_raw_batch_classic;
    "batch of 32" Classic "held" BATCH => Rust SendTransport measured_rust_batch_held;
    "batch of 32" Classic "C, buffers" BATCH => C SendTransport measured_c_batch_buf_classic;
    "batch of 32" Classic "buffers" BATCH => Rust SendTransport measured_rust_batch_buf;
    "batch of 32" Extended "C" BATCH => C SendTransport measured_c_batch_extended;
    "batch of 32" Extended "raw" BATCH => Raw SendTransport measured_raw_batch_extended;
    "batch of 32" Extended "held" BATCH => Rust SendTransport measured_rust_batch_held;
    "batch of 32" Extended "C, buffers" BATCH => C SendTransport measured_c_batch_buf_extended;
    "batch of 32" Extended "buffers" BATCH => Rust SendTransport measured_rust_batch_buf;
    "batch of 32" ExtendedPoll "C" BATCH => C SendTransport measured_c_batch_extended_poll;
    "batch of 32" ExtendedPoll "raw" BATCH => Raw SendTransport measured_raw_batch_extended_poll;
    "batch of 32" ExtendedPoll "held" BATCH => Rust SendTransport measured_rust_batch_held_in_place;
    "batch of 32" ExtendedPoll "C, buffers" BATCH => C SendTransport measured_c_batch_buf_extended_poll;
    "batch of 32" ExtendedPoll "buffers" BATCH => Rust SendTransport measured_rust_batch_buf_in_place;
    "receive" Classic "C" 1 => C Receives measured_c_recv_classic;
    "receive" Classic "raw" 1 => Raw Receives measured_raw_recv_classic;
    "receive" Classic "held" 1 => Rust Receives measured_rust_recv_held;
    "receive" Classic "C, buffers" 1 => C Receives measured_c_recv_buf_classic;
    "receive" Classic "buffers" 1 => Rust Receives measured_rust_recv_buf;
    "receive" Extended "C" 1 => C Receives measured_c_recv_classic;
    "receive" Extended "raw" 1 => Raw Receives measured_raw_recv_classic;
    "receive" Extended "held" 1 => Rust Receives measured_rust_recv_held;
    "receive" Extended "C, buffers" 1 => C Receives measured_c_recv_buf_classic;
    "receive" Extended "buffers" 1 => Rust Receives measured_rust_recv_buf;
    "receive" ExtendedPoll "C" 1 => C Receives measured_c_recv_extended_poll;
    "receive" ExtendedPoll "raw" 1 => Raw Receives measured_raw_recv_extended_poll;
    "receive" ExtendedPoll "held" 1 => Rust Receives measured_rust_recv_held_in_place;
    "receive" ExtendedPoll "C, buffers" 1 => C Receives measured_c_recv_buf_extended_poll;
    "receive" ExtendedPoll "buffers" 1 => Rust Receives measured_rust_recv_buf_in_place;
};

/// The C loop's state, freed with it.
struct CSide(NonNull<Side>);

impl CSide {
    fn new(rig: &Rig, role: Role) -> Result<Self> {
        let qp = if role == SendTransport {
            &rig.a
        } else {
            &rig.b
        };
        let (cq, count) = (
            rig.raw_cq(role == SendTransport),
            u32::try_from(BATCH).unwrap_or(0),
        );
        // SAFETY: queue pair and queue are alive, and outlive the state (see `run`).
        let side = unsafe { c_side_new(qp.as_raw(), cq, rig.extended_cq.into(), count, LENGTH) };
        NonNull::new(side)
            .map(Self)
            .ok_or_else(|| Error::new(ErrorKind::Os, "benches", "the C loop could not begin"))
    }
}

impl Drop for CSide {
    fn drop(&mut self) {
        // SAFETY: made above, freed once.
        unsafe { c_side_free(self.0.as_ptr()) }
    }
}

/// What a loop says that is none of Rust's.
fn done(returned: c_int) -> Result<()> {
    if returned == 0 {
        Ok(())
    } else {
        Err(Error::new(
            ErrorKind::Os,
            "benches",
            "a loop of raw verbs failed",
        ))
    }
}

impl Case {
    /// A rig on which it can run.
    ///
    /// # Errors
    /// None is expected of a fake device.
    pub fn rig(&self) -> Result<Rig> {
        Rig::new(self.form)
    }

    /// Runs it so many times, with the other side's part before each, which is the same for all.
    ///
    /// # Errors
    /// When a request fails, or not each time all complete.
    pub fn run(&self, rig: &mut Rig, times: usize) -> Result<()> {
        let times = c_int::try_from(times).unwrap_or(c_int::MAX);
        match self.run {
            Run::Rust(role, measured) => self.repeat(rig, role, times, measured, Rig::begin),
            Run::C(role, measured) => {
                let side = CSide::new(rig, role)?;
                self.repeat(
                    rig,
                    role,
                    times,
                    |rig, times, requests, aside| {
                        // SAFETY: the state is alive; it posts to a queue pair that the safe side
                        // leaves alone meanwhile.
                        done(unsafe {
                            measured(
                                side.0.as_ptr(),
                                times,
                                requests,
                                aside,
                                (&raw mut *rig).cast(),
                            )
                        })
                    },
                    |_, receives, count| {
                        let count = c_int::try_from(count).unwrap_or(0);
                        // SAFETY: as above; it has more buffers.
                        done(unsafe { c_side_begin(side.0.as_ptr(), receives.into(), count) })
                    },
                )
            }
            Run::Raw(role, measured) => {
                let qp = if role == SendTransport {
                    &rig.a
                } else {
                    &rig.b
                };
                let cq = rig.raw_cq(role == SendTransport);
                // SAFETY: queue pair and queue are alive until the end of this function.
                let mut raw = unsafe { Raw::new(qp.as_raw(), cq, rig.extended_cq, LENGTH) };
                let measured = |rig: &mut Rig, times, requests, aside| {
                    // SAFETY: the safe side leaves the queue pair alone meanwhile.
                    done(unsafe {
                        measured(&mut raw, times, requests, aside, (&raw mut *rig).cast())
                    })
                };
                self.repeat(rig, role, times, measured, |_, _, _| Ok(()))
            }
        }
    }

    /// Whether what completes is posted again at once, so that the first requests are posted
    /// before.
    fn streams(&self) -> bool {
        self.side.ends_with("buffers") && self.requests == 1
    }

    fn repeat(
        &self,
        rig: &mut Rig,
        role: Role,
        times: c_int,
        mut measured: impl FnMut(&mut Rig, c_int, c_int, Aside) -> Result<()>,
        begin: impl FnOnce(&mut Rig, bool, usize) -> Result<()>,
    ) -> Result<()> {
        let aside = match role {
            SendTransport if self.requests == 1 => aside_receive,
            SendTransport => aside_receive_batch,
            Receives => aside_send,
        };
        let ahead = match role {
            Receives if self.streams() => AHEAD,
            SendTransport | Receives => 1,
        };
        if self.streams() {
            begin(rig, role == Receives, ahead)?; // what is sent waits until the other end has a receive for it
        } else if role == Receives {
            measured(rig, 1, 0, aside_nothing)?; // the first receive is posted, nothing has come
        }
        measured(
            rig,
            times,
            c_int::try_from(self.requests).unwrap_or(-1),
            aside,
        )?;
        if self.streams() || role == Receives {
            for _ in 0..ahead {
                // SAFETY: the rig is alive.
                unsafe { aside((&raw mut *rig).cast()) };
            }
        }
        rig.end()
    }
}
