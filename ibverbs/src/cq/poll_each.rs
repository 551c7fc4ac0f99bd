//! Going through completions where the provider shows them.
//!
//! A provider may hold a lock from the beginning of a poll to its end. An iterator could be
//! forgotten, and the lock with it; a call cannot.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use rdma_sys::{ibv_cq_ex, ibv_end_poll, ibv_next_poll, ibv_poll_cq_attr, ibv_start_poll};

use super::extended::unless_empty;
use super::fields::FieldSet;
use super::in_place::CompletionInPlace;
use super::standing;
use super::with_fields::CompletionQueueEx;
use crate::error::Error;
use crate::kind::ErrorKind;

impl<F: FieldSet> CompletionQueueEx<F> {
    /// Calls `each` with what has completed, one after the other, where the provider shows it:
    /// nothing is copied, and no field is read that `each` does not ask for. Returns how many
    /// there were. It takes no more than some at once: unless that is 0, there may be more.
    ///
    /// If `each` fails, the poll ends with the completion that it had; those after it come with the
    /// next poll.
    ///
    /// Meanwhile the provider may hold a lock of the queue. So `each` may post, and retire by
    /// [`QueuePair::retire_in_place`](crate::QueuePair::retire_in_place); a queue pair that it
    /// drops is destroyed when the poll is over, and what cannot wait is refused:
    /// [`QueuePair::destroy`](crate::QueuePair::destroy), going to RESET, and lending memory to a
    /// [`Scope`](crate::scope::Scope). It should not wait for another thread that destroys a queue
    /// pair of the same completion queue, nor sleep.
    ///
    /// # Errors
    /// What `each` returned, or an error of polling, which is not a completion: requests in flight
    /// stay in flight. [`ErrorKind::InvalidInput`] while completions of [`poll`](Self::poll)
    /// are left over: that gives them.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{
    ///     QueuePair, Rc, Result,
    ///     cq_ex::{CompletionQueueEx, CqFields, Enabled},
    ///     wr,
    /// };
    /// fn serve(
    ///     cq: &mut CompletionQueueEx<CqFields<Enabled>>,
    ///     qp: &mut QueuePair<Rc>,
    /// ) -> Result<usize> {
    ///     cq.poll_each(|completion| {
    ///         let at = completion.timestamp();
    ///         let retired = qp.retire_in_place(completion)?;
    ///         retired.ok()?;
    ///         println!("{} bytes at {at}", retired.byte_len());
    ///         if let Some(buf) = retired.into_buf() {
    ///             qp.post_recv(wr::recv(buf))?;
    ///         }
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # References
    /// [`ibv_start_poll(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn poll_each<E: From<Error>>(
        &mut self,
        mut each: impl FnMut(CompletionInPlace<'_, F>) -> std::result::Result<(), E>,
    ) -> std::result::Result<usize, E> {
        if !self.behind.is_nothing() {
            return Err(self.not_yet().into());
        }
        let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
        // SAFETY: the queue is alive and used by one thread, and the attributes are valid during
        // the call.
        let returned = unsafe { ibv_start_poll(self.raw.as_ptr(), &raw mut attr) };
        if returned != 0 {
            return match unless_empty(returned) {
                0 => Ok(0),
                returned => Err(self.failed(returned).into()),
            };
        }
        // SAFETY: the poll was begun, and is ended by nobody else.
        let poll = unsafe { Poll::begun(&self.raw) };
        let mut count = 1;
        loop {
            // SAFETY: an entry is current until the next step, which is after the call; the queue
            // was made with the fields `F`.
            let completion = unsafe { CompletionInPlace::new(*poll.0) };
            if let Err(error) = each(completion) {
                poll.end_early();
                return Err(error);
            }
            if count == self.most {
                return Ok(count);
            }
            // SAFETY: the poll was begun, and what was shown is borrowed by nobody any more.
            match unsafe { ibv_next_poll(poll.0.as_ptr()) } {
                0 => count += 1,
                libc::ENOENT => return Ok(count),
                returned => {
                    poll.end_early();
                    return Err(self.failed(returned).into());
                }
            }
        }
    }

    /// What an earlier poll left behind comes first.
    #[cold]
    #[inline(never)]
    fn not_yet(&mut self) -> Error {
        if self.behind.left() == 0 {
            let error = self.behind.take_error();
            return self.failed(error);
        }
        Error::new(
            ErrorKind::InvalidInput,
            "ibv_start_poll",
            "completions of an earlier poll were not taken",
        )
        .with_hint("CompletionQueueEx::poll gives them")
    }
}

/// A poll that was begun. It lives in [`poll_each`](CompletionQueueEx::poll_each) alone, which
/// nobody can make forget it: so it ends with that call, even if that unwinds.
#[derive(Debug)]
struct Poll<'cq>(&'cq NonNull<ibv_cq_ex>);

impl<'cq> Poll<'cq> {
    /// # Safety
    /// It was, and is ended by this.
    #[inline]
    unsafe fn begun(cq: &'cq NonNull<ibv_cq_ex>) -> Self {
        standing::enter();
        Self(cq)
    }

    /// As dropping it, by a call, so that what goes on is not made ready for what does not.
    #[inline]
    fn end_early(self) {
        #[cold]
        #[inline(never)]
        fn end(cq: NonNull<ibv_cq_ex>) {
            drop(Poll(&cq));
        }
        end(*ManuallyDrop::new(self).0);
    }
}

impl Drop for Poll<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it was begun, and is ended once.
        unsafe { ibv_end_poll(self.0.as_ptr()) };
        standing::leave();
    }
}
