//! Taking what has completed.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;

use rdma_sys::{ibv_poll_cq, ibv_wc};

use super::burst::{BURST, Mode, OVERFLOWED};
use super::completions::Completions;
use super::extended;
use super::queue::CompletionQueue;
use super::shared::Shared;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;

impl CompletionQueue {
    /// Takes what has completed, without waiting.
    ///
    /// The completions live until the next poll. Those that the iterator was not asked for come
    /// first at the next poll: none is lost.
    ///
    /// # Errors
    /// An error is not a completion: requests in flight stay in flight.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{CompletionQueue, QueuePair, Rc};
    /// # fn f(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    /// for completion in cq.poll()? {
    ///     let retired = qp.retire(completion)?;
    ///     println!("request {}: {}", retired.tag(), retired.status());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html),
    /// [`ibv_start_poll(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn poll(&mut self) -> Result<Completions<'_>> {
        if self.rest.is_only(Mode::Classic) {
            // SAFETY: the queue is alive, and there are as many entries as the call is told.
            let returned =
                unsafe { ibv_poll_cq(self.raw.as_ptr(), BURST.into(), self.entries.as_ptr()) };
            let next = self.entries.as_ptr().cast_const();
            if returned <= 0 {
                return match returned {
                    0 => Ok(Completions {
                        next,
                        left: 0,
                        stays: &mut self.rest.left,
                        entries: PhantomData,
                    }),
                    _ => Err(poll_failed(&self.shared, returned)),
                };
            }
            // More than it was told would have been written beyond the end.
            debug_assert!(returned <= BURST.into());
            let filled = returned.unsigned_abs();
            (self.filled, self.rest.left) = (filled, filled);
            return Ok(Completions {
                next,
                left: filled,
                stays: &mut self.rest.left,
                entries: PhantomData,
            });
        }
        match self.more() {
            (Some(next), left) => Ok(Completions {
                next: next.as_ptr(),
                left,
                stays: &mut self.rest.left,
                entries: PhantomData,
            }),
            (None, _) => Err(self.poll_error()),
        }
    }

    /// The entries that were not taken, where there are any; otherwise what the extended verbs
    /// give. None for an error, which is in `deferred`.
    fn more(&mut self) -> (Option<NonNull<ibv_wc>>, u32) {
        if !self.rest.is_only(Mode::Extended) {
            return self.more_otherwise();
        }
        // SAFETY: it is polled by the extended verbs, by one thread; there are `BURST` entries, and
        // no completion refers to one: they end with this poll.
        let (filled, error) = unsafe {
            extended::poll::<_, false>(
                self.raw.cast(),
                self.entries.as_ptr(),
                BURST.into(),
                |cq, entry| {
                    extended::read(cq, entry);
                },
            )
        };
        self.took(filled, error)
    }

    #[cold]
    #[inline(never)]
    fn more_otherwise(&mut self) -> (Option<NonNull<ibv_wc>>, u32) {
        let left = self.rest.left;
        if left > 0 {
            // SAFETY: of the `filled` entries, `left` are left.
            return (
                NonNull::new(unsafe { self.entries.as_ptr().add((self.filled - left) as usize) }),
                left,
            );
        }
        if self.deferred.is_some() {
            return (None, 0);
        }
        // SAFETY: as in `more`.
        let (filled, error) = unsafe {
            extended::poll::<_, true>(
                self.raw.cast(),
                self.entries.as_ptr(),
                BURST.into(),
                |cq, entry| {
                    extended::read(cq, entry);
                },
            )
        };
        self.took(filled, error)
    }

    /// Entries, and the error that came after them. That is kept for the next poll, if there are
    /// any.
    #[inline]
    fn took(&mut self, filled: u32, error: i32) -> (Option<NonNull<ibv_wc>>, u32) {
        (self.filled, self.rest.left) = (filled, filled);
        if error != 0 {
            (self.deferred, self.rest.mode) = (Some(Errno::from_return(error)), Mode::Otherwise);
            if filled == 0 {
                return (None, 0);
            }
        }
        (NonNull::new(self.entries.as_ptr()), filled)
    }

    /// The error that is to be told now.
    #[cold]
    fn poll_error(&mut self) -> Error {
        self.rest.mode = Mode::of(true, self.one_by_one);
        let errno = self.deferred.take().unwrap_or(Errno(0));
        Error::of_verb(
            "ibv_start_poll",
            errno,
            self.shared.context.device_name().to_owned(),
        )
        .with_hint(OVERFLOWED)
    }
}

/// The classic verb reports a failure by some negative number, which is no error number (-1 and -2
/// among providers).
#[cold]
#[inline(never)]
fn poll_failed(queue: &Shared, returned: i32) -> Error {
    let what = format!(
        "{}: the provider returned {returned}",
        queue.context.device_name()
    );
    Error::new(ErrorKind::Os, "ibv_poll_cq", what).with_hint(OVERFLOWED)
}
