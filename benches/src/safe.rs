//! The measured programs that are safe: the functions whose names begin with `measured_` are the
//! measured part, no more and no less.

#![allow(
    unsafe_code,
    reason = "measured functions keep their names, and what is between the steps is called as by C"
)]

use std::ffi::c_int;

use ibverbs::{Error, ErrorKind, Result, wr};

use crate::rig::{Aside, BATCH, Rig};

macro_rules! measured {
    ($($(#[$doc:meta])* fn $name:ident($rig:ident) $body:block)*) => {$(
        $(#[$doc])*
        // SAFETY: no other function has this name.
        #[unsafe(no_mangle)]
        #[inline(never)]
        #[allow(clippy::cast_sign_loss, reason = "never negative")]
        pub(crate) fn $name($rig: &mut Rig, times: c_int, requests: c_int, aside: Aside) -> Result<()> {
            for _ in 0..times {
                // SAFETY: the rig is alive, and nothing of it is borrowed.
                if unsafe { aside((&raw mut *$rig).cast()) } != 0 {
                    return Err(failed());
                }
                let count: usize = $body;
                if count != requests as usize {
                    return Err(failed());
                }
            }
            Ok(())
        }
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
        count
    }

    /// A buffer that was sent comes back and is sent again.
    fn measured_rust_send_buf(rig) {
        let completions = rig.cq_a.poll()?;
        let count = completions.len();
        for completion in completions {
            let retired = rig.a.retire(completion)?;
            retired.ok()?;
            if let Some(buf) = retired.into_buf() {
                rig.a.post_send(wr::send(buf))?;
            }
        }
        count
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
        count
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
        count
    }

    /// One message received into a sink, the receive posted again.
    fn measured_rust_recv_held(rig) {
        let completions = rig.cq_b.poll()?;
        let count = completions.len();
        for completion in completions {
            rig.b.retire(completion)?.ok()?;
        }
        rig.b.post_recv(wr::recv(rig.sink))?;
        count
    }

    /// A buffer into which a message was received is posted again.
    fn measured_rust_recv_buf(rig) {
        let completions = rig.cq_b.poll()?;
        let count = completions.len();
        for completion in completions {
            let retired = rig.b.retire(completion)?;
            retired.ok()?;
            if let Some(buf) = retired.into_buf() {
                rig.b.post_recv(wr::recv(buf))?;
            }
        }
        count
    }

    /// As `measured_rust_send_held`, the completion read where the provider shows it.
    fn measured_rust_send_held_in_place(rig) {
        rig.a.post_send(wr::send(rig.source))?;
        rig.cq_ex_a.poll_each(|completion| -> Result<()> {
            rig.a.retire_in_place(completion)?.ok()?;
            Ok(())
        })?
    }

    /// As `measured_rust_send_buf`.
    fn measured_rust_send_buf_in_place(rig) {
        rig.cq_ex_a.poll_each(|completion| -> Result<()> {
            let retired = rig.a.retire_in_place(completion)?;
            retired.ok()?;
            if let Some(buf) = retired.into_buf() {
                rig.a.post_send(wr::send(buf))?;
            }
            Ok(())
        })?
    }

    /// As `measured_rust_batch_held`.
    fn measured_rust_batch_held_in_place(rig) {
        let source = rig.source;
        rig.a.batch(|batch| -> Result<()> {
            for _ in 0..BATCH {
                batch.send(wr::send(source))?;
            }
            Ok(())
        })?;
        rig.cq_ex_a.poll_each(|completion| -> Result<()> {
            rig.a.retire_in_place(completion)?.ok()?;
            Ok(())
        })?
    }

    /// As `measured_rust_batch_buf`.
    fn measured_rust_batch_buf_in_place(rig) {
        let bufs = &mut rig.bufs;
        rig.a.batch(|batch| -> Result<()> {
            while let Some(buf) = bufs.pop() {
                batch.send(wr::send(buf))?;
            }
            Ok(())
        })?;
        rig.cq_ex_a.poll_each(|completion| -> Result<()> {
            let retired = rig.a.retire_in_place(completion)?;
            retired.ok()?;
            if let Some(buf) = retired.into_buf() {
                bufs.push(buf);
            }
            Ok(())
        })?
    }

    /// As `measured_rust_recv_held`.
    fn measured_rust_recv_held_in_place(rig) {
        let count = rig.cq_ex_b.poll_each(|completion| -> Result<()> {
            rig.b.retire_in_place(completion)?.ok()?;
            Ok(())
        })?;
        rig.b.post_recv(wr::recv(rig.sink))?;
        count
    }

    /// As `measured_rust_recv_buf`.
    fn measured_rust_recv_buf_in_place(rig) {
        rig.cq_ex_b.poll_each(|completion| -> Result<()> {
            let retired = rig.b.retire_in_place(completion)?;
            retired.ok()?;
            if let Some(buf) = retired.into_buf() {
                rig.b.post_recv(wr::recv(buf))?;
            }
            Ok(())
        })?
    }
}

#[cold]
fn failed() -> Error {
    Error::new(
        ErrorKind::Os,
        "benches",
        "the other end failed, or not all completed",
    )
}
