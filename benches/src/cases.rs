//! What is measured: one function a case and side. The functions whose names begin with `measured_` are the measured part, no more and
//! no less; the C ones are in `c/loop.c`.

#![allow(unsafe_code, reason = "the C loop is called, and measured functions keep their names")]

use std::ffi::c_int;
use std::ptr::NonNull;

use ibverbs::{AsRaw, Error, ErrorKind, Result, wr};

use crate::raw::{
    Raw, measured_raw_batch_classic, measured_raw_batch_extended, measured_raw_batch_extended_poll,
    measured_raw_recv_classic, measured_raw_recv_extended_poll, measured_raw_send_classic, measured_raw_send_extended,
    measured_raw_send_extended_poll,
};
use crate::rig::{BATCH, Form, LENGTH, Rig};

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
    Rust(Role, fn(&mut Rig) -> Result<usize>),
    C(Role, unsafe extern "C" fn(*mut Side) -> c_int),
    Raw(Role, unsafe fn(&mut Raw) -> c_int),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Sends,
    Receives,
}

use Role::{Receives, Sends};

/// The state of the C loop.
#[repr(C)]
#[derive(Debug)]
struct Side {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn c_side_new(qp: *mut QpRaw, cq: *mut CqRaw, extended_cq: c_int, length: u32) -> *mut Side;
    fn c_side_free(side: *mut Side);
    fn measured_c_send_classic(side: *mut Side) -> c_int;
    fn measured_c_send_extended(side: *mut Side) -> c_int;
    fn measured_c_send_extended_poll(side: *mut Side) -> c_int;
    fn measured_c_batch_classic(side: *mut Side) -> c_int;
    fn measured_c_batch_extended(side: *mut Side) -> c_int;
    fn measured_c_batch_extended_poll(side: *mut Side) -> c_int;
    fn measured_c_recv_classic(side: *mut Side) -> c_int;
    fn measured_c_recv_extended_poll(side: *mut Side) -> c_int;
    fn measured_c_send_buf_classic(side: *mut Side) -> c_int;
    fn measured_c_send_buf_extended(side: *mut Side) -> c_int;
    fn measured_c_send_buf_extended_poll(side: *mut Side) -> c_int;
    fn measured_c_batch_buf_classic(side: *mut Side) -> c_int;
    fn measured_c_batch_buf_extended(side: *mut Side) -> c_int;
    fn measured_c_batch_buf_extended_poll(side: *mut Side) -> c_int;
    fn measured_c_recv_buf_classic(side: *mut Side) -> c_int;
    fn measured_c_recv_buf_extended_poll(side: *mut Side) -> c_int;
}

type QpRaw = <ibverbs::QueuePair<ibverbs::Rc> as AsRaw>::Raw;
type CqRaw = <ibverbs::CompletionQueue as AsRaw>::Raw;

macro_rules! measured {
    ($($(#[$doc:meta])* fn $name:ident($rig:ident) $body:block)*) => {$(
        $(#[$doc])*
        // SAFETY: no other function has this name.
        #[unsafe(no_mangle)]
        #[inline(never)]
        fn $name($rig: &mut Rig) -> Result<usize> $body
    )*};
}

measured! {
    /// One send from held memory, its completion retired.
    fn measured_rust_send_held(rig) {
        rig.a.post_send(wr::send(rig.source))?;
        let completions = rig.cq_a.poll()?;
        let count = completions.len();
        for completion in completions {
            rig.a.retire(completion)?.ok()?;
        }
        Ok(count)
    }

    /// One send of a buffer, which comes back.
    fn measured_rust_send_buf(rig) {
        if let Some(buf) = rig.bufs.pop() {
            rig.a.post_send(wr::send(buf))?;
        }
        let completions = rig.cq_a.poll()?;
        let count = completions.len();
        for completion in completions {
            let retired = rig.a.retire(completion)?;
            retired.ok()?;
            if let Some(buf) = retired.into_buf() {
                rig.bufs.push(buf);
            }
        }
        Ok(count)
    }

    /// A batch of sends from held memory.
    fn measured_rust_batch_held(rig) {
        let source = rig.source;
        rig.a.batch(|batch| -> Result<()> {
            for _ in 0..BATCH {
                batch.send(wr::send(source))?;
            }
            Ok(())
        })?;
        let completions = rig.cq_a.poll()?;
        let count = completions.len();
        for completion in completions {
            rig.a.retire(completion)?.ok()?;
        }
        Ok(count)
    }

    /// A batch of sends of buffers, which come back.
    fn measured_rust_batch_buf(rig) {
        let bufs = &mut rig.bufs;
        rig.a.batch(|batch| -> Result<()> {
            while let Some(buf) = bufs.pop() {
                batch.send(wr::send(buf))?;
            }
            Ok(())
        })?;
        let completions = rig.cq_a.poll()?;
        let count = completions.len();
        for completion in completions {
            let retired = rig.a.retire(completion)?;
            retired.ok()?;
            if let Some(buf) = retired.into_buf() {
                rig.bufs.push(buf);
            }
        }
        Ok(count)
    }

    /// One message received into a sink, the receive posted again.
    fn measured_rust_recv_held(rig) {
        let completions = rig.cq_b.poll()?;
        let count = completions.len();
        for completion in completions {
            rig.b.retire(completion)?.ok()?;
        }
        rig.b.post_recv(wr::recv(rig.sink))?;
        Ok(count)
    }

    /// One message received into a buffer, which is posted again.
    fn measured_rust_recv_buf(rig) {
        let completions = rig.cq_b.poll()?;
        let count = completions.len();
        for completion in completions {
            let retired = rig.b.retire(completion)?;
            retired.ok()?;
            if let Some(buf) = retired.into_buf() {
                rig.bufs.push(buf);
            }
        }
        if let Some(buf) = rig.bufs.pop() {
            rig.b.post_recv(wr::recv(buf))?;
        }
        Ok(count)
    }
}

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

/// How many cases a step and form has: what C does, the same by raw verbs from Rust, held memory, C with buffers, buffers.
pub const SIDES: usize = 5;

/// Every case, by step and form.
pub const CASES: [Case; 9 * SIDES] = cases! {
    "send" Classic "C" 1 => C Sends measured_c_send_classic;
    "send" Classic "raw" 1 => Raw Sends measured_raw_send_classic;
    "send" Classic "held" 1 => Rust Sends measured_rust_send_held;
    "send" Classic "C, buffers" 1 => C Sends measured_c_send_buf_classic;
    "send" Classic "buffers" 1 => Rust Sends measured_rust_send_buf;
    "send" Extended "C" 1 => C Sends measured_c_send_extended;
    "send" Extended "raw" 1 => Raw Sends measured_raw_send_extended;
    "send" Extended "held" 1 => Rust Sends measured_rust_send_held;
    "send" Extended "C, buffers" 1 => C Sends measured_c_send_buf_extended;
    "send" Extended "buffers" 1 => Rust Sends measured_rust_send_buf;
    "send" ExtendedPoll "C" 1 => C Sends measured_c_send_extended_poll;
    "send" ExtendedPoll "raw" 1 => Raw Sends measured_raw_send_extended_poll;
    "send" ExtendedPoll "held" 1 => Rust Sends measured_rust_send_held;
    "send" ExtendedPoll "C, buffers" 1 => C Sends measured_c_send_buf_extended_poll;
    "send" ExtendedPoll "buffers" 1 => Rust Sends measured_rust_send_buf;
    "batch of 32" Classic "C" BATCH => C Sends measured_c_batch_classic;
    "batch of 32" Classic "raw" BATCH => Raw Sends measured_raw_batch_classic;
    "batch of 32" Classic "held" BATCH => Rust Sends measured_rust_batch_held;
    "batch of 32" Classic "C, buffers" BATCH => C Sends measured_c_batch_buf_classic;
    "batch of 32" Classic "buffers" BATCH => Rust Sends measured_rust_batch_buf;
    "batch of 32" Extended "C" BATCH => C Sends measured_c_batch_extended;
    "batch of 32" Extended "raw" BATCH => Raw Sends measured_raw_batch_extended;
    "batch of 32" Extended "held" BATCH => Rust Sends measured_rust_batch_held;
    "batch of 32" Extended "C, buffers" BATCH => C Sends measured_c_batch_buf_extended;
    "batch of 32" Extended "buffers" BATCH => Rust Sends measured_rust_batch_buf;
    "batch of 32" ExtendedPoll "C" BATCH => C Sends measured_c_batch_extended_poll;
    "batch of 32" ExtendedPoll "raw" BATCH => Raw Sends measured_raw_batch_extended_poll;
    "batch of 32" ExtendedPoll "held" BATCH => Rust Sends measured_rust_batch_held;
    "batch of 32" ExtendedPoll "C, buffers" BATCH => C Sends measured_c_batch_buf_extended_poll;
    "batch of 32" ExtendedPoll "buffers" BATCH => Rust Sends measured_rust_batch_buf;
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
    "receive" ExtendedPoll "held" 1 => Rust Receives measured_rust_recv_held;
    "receive" ExtendedPoll "C, buffers" 1 => C Receives measured_c_recv_buf_extended_poll;
    "receive" ExtendedPoll "buffers" 1 => Rust Receives measured_rust_recv_buf;
};

/// The C loop's state, freed with it.
struct CSide(NonNull<Side>);

impl CSide {
    fn new(rig: &Rig, role: Role) -> Result<Self> {
        let (qp, cq) = match role {
            Sends => (&rig.a, &rig.cq_a),
            Receives => (&rig.b, &rig.cq_b),
        };
        // SAFETY: queue pair and queue are alive, and outlive the state (see `run`).
        let side = unsafe { c_side_new(qp.as_raw(), cq.as_raw(), rig.extended_cq.into(), LENGTH) };
        NonNull::new(side).map(Self).ok_or_else(|| Error::new(ErrorKind::Os, "benches", "the C loop could not begin"))
    }
}

impl Drop for CSide {
    fn drop(&mut self) {
        // SAFETY: made above, freed once.
        unsafe { c_side_free(self.0.as_ptr()) }
    }
}

/// How many requests a loop says it has done.
fn done(count: c_int) -> Result<usize> {
    usize::try_from(count).map_err(|_| Error::new(ErrorKind::Os, "benches", "a loop of raw verbs failed"))
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
        match self.run {
            Run::Rust(role, measured) => self.repeat(rig, role, times, measured),
            Run::C(role, measured) => {
                let side = CSide::new(rig, role)?;
                self.repeat(rig, role, times, |_| {
                    // SAFETY: the state is alive; it posts to a queue pair that the safe side leaves alone meanwhile.
                    done(unsafe { measured(side.0.as_ptr()) })
                })
            }
            Run::Raw(role, measured) => {
                let (qp, cq) = if role == Sends { (&rig.a, &rig.cq_a) } else { (&rig.b, &rig.cq_b) };
                // SAFETY: queue pair and queue are alive until the end of this function.
                let mut raw = unsafe { Raw::new(qp.as_raw(), cq.as_raw(), rig.extended_cq, LENGTH) };
                self.repeat(rig, role, times, |_| {
                    // SAFETY: the safe side leaves the queue pair alone meanwhile.
                    done(unsafe { measured(&mut raw) })
                })
            }
        }
    }

    fn repeat(
        &self,
        rig: &mut Rig,
        role: Role,
        times: usize,
        mut measured: impl FnMut(&mut Rig) -> Result<usize>,
    ) -> Result<()> {
        if role == Receives {
            measured(rig)?; // the first receive is posted, nothing has come
        }
        for _ in 0..times {
            match role {
                Sends => rig.receiver(self.requests)?,
                Receives => rig.sender()?,
            }
            let done = measured(rig)?;
            if done != self.requests {
                let text = format!("{}: {done} of {} requests completed", self.function, self.requests);
                return Err(Error::new(ErrorKind::Os, "benches", text));
            }
        }
        if role == Receives {
            rig.sender()?;
            for completion in rig.cq_b.poll()? {
                // What the C loop posted is none of the safe side's.
                rig.bufs.extend(rig.b.retire(completion).ok().and_then(ibverbs::Retired::into_buf));
            }
        }
        Ok(())
    }
}
