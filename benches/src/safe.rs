//! The measured programs in safe Rust. Exactly the functions whose names begin with `measured_` are
//! measured.

#![allow(
    unsafe_code,
    reason = "unmangled names for the profiler, and calls of the peer's step through a C pointer"
)]

use std::ffi::{c_int, c_void};

use ibverbs::{
    CompletionQueue, Error, ErrorKind, Frozen, Held, QueueMap, QueuePair, Rc, Result,
    scope::LentMut, scope::Scope, wr,
};

use crate::rig::{BATCH, PeerStep, Rig};

macro_rules! measured {
    ($($(#[$doc:meta])* fn $name:ident($rig:ident) $body:block)*) => {$(
        $(#[$doc])*
        // SAFETY: no other symbol has this name.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub(crate) fn $name($rig: &mut Rig, times: c_int, peer_step: PeerStep) -> Result<usize> {
            $rig.completed = 0;
            for _ in 0..times {
                // SAFETY: the rig is alive, and no part of it is borrowed.
                unsafe { peer_step((&raw mut *$rig).cast()) };
                $body
            }
            Ok($rig.completed)
        }
    )*};
}

measured! {
    /// Retires one send from held memory and posts the next.
    fn measured_rust_send_held(rig) {
        let completions = rig.cq_a.poll()?;
        rig.completed += completions.len();
        for completion in completions {
            rig.a.retire(completion)?.check()?;
        }
        rig.a.post_send(wr::send(rig.source))?;
    }

    /// Retires one send and sends its buffer again.
    fn measured_rust_send_buf(rig) {
        let completions = rig.cq_a.poll()?;
        rig.completed += completions.len();
        for completion in completions {
            let retired = rig.a.retire(completion)?;
            retired.check()?;
            if let Some(buf) = retired.into_buf() {
                rig.a.post_send(wr::send(buf))?;
            }
        }
    }

    /// Retires a batch of sends from held memory and posts the next.
    fn measured_rust_batch_held(rig) {
        let completions = rig.cq_a.poll()?;
        rig.completed += completions.len();
        for completion in completions {
            rig.a.retire(completion)?.check()?;
        }
        let source = rig.source;
        rig.a.batch(|batch| -> Result<()> {
            for _ in 0..BATCH {
                batch.send(wr::send(source))?;
            }
            Ok(())
        })?;
    }

    /// Polls an empty completion queue.
    fn measured_rust_poll_empty(rig) {
        rig.completed += rig.cq_a.poll()?.len();
    }

    /// Retires a batch of sends of buffers, and posts a batch of all buffers.
    fn measured_rust_batch_buf(rig) {
        let completions = rig.cq_a.poll()?;
        rig.completed += completions.len();
        for completion in completions {
            let retired = rig.a.retire(completion)?;
            retired.check()?;
            if let Some(buf) = retired.into_buf() {
                rig.bufs.push(buf);
            }
        }
        let bufs = &mut rig.bufs;
        rig.a.batch(|batch| -> Result<()> {
            while let Some(buf) = bufs.pop() {
                batch.send(wr::send(buf))?;
            }
            Ok(())
        })?;
    }

    /// Retires one receive into held memory and posts the next.
    fn measured_rust_recv_held(rig) {
        let completions = rig.cq_b.poll()?;
        rig.completed += completions.len();
        for completion in completions {
            rig.b.retire(completion)?.check()?;
        }
        rig.b.post_recv(wr::recv(rig.sink))?;
    }

    /// Retires one receive and posts its buffer again.
    fn measured_rust_recv_buf(rig) {
        let completions = rig.cq_b.poll()?;
        rig.completed += completions.len();
        for completion in completions {
            let retired = rig.b.retire(completion)?;
            retired.check()?;
            if let Some(buf) = retired.into_buf() {
                rig.b.post_recv(wr::recv(buf))?;
            }
        }
    }
}

// The same steps on completion queues with timestamps.
measured! {
    /// Like `measured_rust_send_held`.
    fn measured_rust_stamped_send_held(rig) {
        let completions = rig.stamped[0].poll()?;
        rig.completed += completions.len();
        for completion in completions {
            rig.timestamp = completion.timestamp();
            rig.a.retire(completion.into())?.check()?;
        }
        rig.a.post_send(wr::send(rig.source))?;
    }

    /// Like `measured_rust_send_buf`.
    fn measured_rust_stamped_send_buf(rig) {
        let completions = rig.stamped[0].poll()?;
        rig.completed += completions.len();
        for completion in completions {
            rig.timestamp = completion.timestamp();
            let retired = rig.a.retire(completion.into())?;
            retired.check()?;
            if let Some(buf) = retired.into_buf() {
                rig.a.post_send(wr::send(buf))?;
            }
        }
    }

    /// Like `measured_rust_batch_held`.
    fn measured_rust_stamped_batch_held(rig) {
        let completions = rig.stamped[0].poll()?;
        rig.completed += completions.len();
        for completion in completions {
            rig.timestamp = completion.timestamp();
            rig.a.retire(completion.into())?.check()?;
        }
        let source = rig.source;
        rig.a.batch(|batch| -> Result<()> {
            for _ in 0..BATCH {
                batch.send(wr::send(source))?;
            }
            Ok(())
        })?;
    }

    /// Like `measured_rust_batch_buf`.
    fn measured_rust_stamped_batch_buf(rig) {
        let completions = rig.stamped[0].poll()?;
        rig.completed += completions.len();
        for completion in completions {
            rig.timestamp = completion.timestamp();
            let retired = rig.a.retire(completion.into())?;
            retired.check()?;
            if let Some(buf) = retired.into_buf() {
                rig.bufs.push(buf);
            }
        }
        let bufs = &mut rig.bufs;
        rig.a.batch(|batch| -> Result<()> {
            while let Some(buf) = bufs.pop() {
                batch.send(wr::send(buf))?;
            }
            Ok(())
        })?;
    }

    /// Like `measured_rust_recv_held`.
    fn measured_rust_stamped_recv_held(rig) {
        let completions = rig.stamped[1].poll()?;
        rig.completed += completions.len();
        for completion in completions {
            rig.timestamp = completion.timestamp();
            rig.b.retire(completion.into())?.check()?;
        }
        rig.b.post_recv(wr::recv(rig.sink))?;
    }

    /// Like `measured_rust_recv_buf`.
    fn measured_rust_stamped_recv_buf(rig) {
        let completions = rig.stamped[1].poll()?;
        rig.completed += completions.len();
        for completion in completions {
            rig.timestamp = completion.timestamp();
            let retired = rig.b.retire(completion.into())?;
            retired.check()?;
            if let Some(buf) = retired.into_buf() {
                rig.b.post_recv(wr::recv(buf))?;
            }
        }
    }
}

// Smaller batches.
macro_rules! measured_batches {
    ($($name:ident $count:literal)*) => {measured! {$(
        /// Like `measured_rust_batch_held`.
        fn $name(rig) {
            let completions = rig.cq_a.poll()?;
            rig.completed += completions.len();
            for completion in completions {
                rig.a.retire(completion)?.check()?;
            }
            let source = rig.source;
            rig.a.batch(|batch| -> Result<()> {
                for _ in 0..$count {
                    batch.send(wr::send(source))?;
                }
                Ok(())
            })?;
        }
    )*}};
}

measured_batches! {
    measured_rust_batch_of_1 1
    measured_rust_batch_of_2 2
    measured_rust_batch_of_4 4
    measured_rust_batch_of_8 8
}

/// Queue pairs that share a completion queue. One of them sends.
pub(crate) struct Many {
    pub(crate) queue_pairs: QueueMap<QueuePair<Rc>>,
    pub(crate) cq: CompletionQueue,
    pub(crate) source: Held<Frozen>,
}

macro_rules! measured_of_many {
    ($($name:ident $count:literal)*) => {$(
        /// Like `measured_rust_send_held`, and finds the queue pair of each completion.
        // SAFETY: no other symbol has this name.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub(crate) fn $name(
            many: &mut Many,
            times: c_int,
            peer_step: PeerStep,
            rig: *mut c_void,
        ) -> Result<usize> {
            let mut completed = 0;
            for _ in 0..times {
                // SAFETY: the rig is alive, and no part of it is borrowed.
                unsafe { peer_step(rig) };
                for completion in many.cq.poll()? {
                    completed += 1;
                    let Some(qp) = many.queue_pairs.get_mut(&completion.queue()) else {
                        return Err(Error::new(ErrorKind::NotFound, "poll", stringify!($count)));
                    };
                    qp.retire(completion)?.check()?;
                    qp.post_send(wr::send(many.source))?;
                }
            }
            Ok(completed)
        }
    )*};
}

measured_of_many! {
    measured_rust_send_of_16 16
    measured_rust_send_of_256 256
    measured_rust_send_of_4096 4096
}

/// A scope in which a queue pair sends or receives memory lent to it.
pub(crate) struct Lending<'a, 'scope, 'env> {
    pub(crate) scope: &'a mut Scope<'scope, 'env, Rc>,
    pub(crate) lent: LentMut<'scope>,
    pub(crate) cq: &'a mut CompletionQueue,
}

macro_rules! measured_in_scope {
    ($($(#[$doc:meta])* fn $name:ident($lending:ident) $body:block)*) => {$(
        $(#[$doc])*
        // SAFETY: no other symbol has this name.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub(crate) fn $name(
            $lending: &mut Lending<'_, '_, '_>,
            times: c_int,
            peer_step: PeerStep,
            rig: *mut c_void,
        ) -> Result<usize> {
            let mut completed = 0;
            for _ in 0..times {
                // SAFETY: the rig is alive, and no part of it is borrowed.
                unsafe { peer_step(rig) };
                completed += $lending.retire()?;
                $body
            }
            Ok(completed)
        }
    )*};
}

impl Lending<'_, '_, '_> {
    /// Retires all requests that have completed, and returns their number.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a part of the measured functions")]
    fn retire(&mut self) -> Result<usize> {
        let completions = self.cq.poll()?;
        let count = completions.len();
        for completion in completions {
            self.scope.retire(completion)?.check()?;
        }
        Ok(count)
    }
}

// The steps with held memory, with a slice that was lent to a scope.
measured_in_scope! {
    /// Like `measured_rust_send_held`.
    fn measured_rust_send_lent(lending) {
        let message = lending.lent.clone();
        lending.scope.post_send(wr::send(message))?;
    }

    /// Like `measured_rust_batch_held`.
    fn measured_rust_batch_lent(lending) {
        let message = &lending.lent;
        lending.scope.batch(|batch| -> Result<()> {
            for _ in 0..BATCH {
                batch.send(wr::send(message.clone()))?;
            }
            Ok(())
        })?;
    }

    /// Like `measured_rust_recv_held`.
    fn measured_rust_recv_lent(lending) {
        let memory = lending.lent.clone();
        lending.scope.post_recv(wr::recv(memory))?;
    }
}
