//! Scopes: requests on borrowed memory, while a closure runs.
//!
//! [`QueuePair::scope`] starts one. It ends when the device no longer accesses the memory.
//!
//! A scope borrows its queue pair. So it can be started on a part of a struct, such as
//! `connection.qp_mut()` of the crate `rdmacm`, and other queue pairs can [join](Scope::join) it.
//!
//! # Safety
//! The memory is borrowed until `scope` returns or unwinds. It does so only when no request that
//! uses the memory is in flight and the memory is deregistered. What the closure does cannot change
//! that:
//! - If it returns early or panics, or forgets values of the scope, requests may be in flight. The
//!   scope then destroys their queue pairs, because waiting could block forever. A destroyed queue
//!   pair stays a valid value: it [rejects](crate::PostError::Destroyed) requests, its other verbs
//!   fail, and [`destroy`](QueuePair::destroy) returns the buffers of its other requests.
//! - The closure works with every lifetime `'scope`, so values of the scope cannot leave it, and
//!   those of two scopes are different types.
//! - The closure cannot reach the `&mut QueuePair`, so it cannot replace the queue pair and let it
//!   outlive the borrow. [`Scope::qp`](ScopedQueuePair::qp) is a shared reference.
//! - A nested scope has its own queue pairs. Memory lent to one scope cannot be posted in another:
//!   [`PostError::WrongQueue`](crate::PostError::WrongQueue).
//! - If the driver cannot destroy a queue pair or deregister memory, the process is aborted,
//!   because borrowed memory cannot be leaked.

#![allow(unsafe_code)]

mod lent;
mod member;
mod parts;

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use self::lent::Brand;
pub use self::lent::{Lent, LentMut};
pub use self::member::ScopedQueuePair;
use self::parts::ScopeParts;
use crate::cq::{Completion, CompletionQueue};
use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::Retired;
use crate::mr::AccessFlags;
use crate::qp::QueuePair;
use crate::transport::SendTransport;

/// A scope in which requests can use borrowed memory. [`QueuePair::scope`] creates it.
///
/// It dereferences to the [`ScopedQueuePair`] on which it was started, whose methods post requests
/// and retire completions.
///
/// # Example
/// ```no_run
/// use ibverbs::{CompletionQueue, QueuePair, Rc, Result, scope::Scope, wr};
/// use std::time::Duration;
/// fn send<'env>(
///     scope: &mut Scope<'_, 'env, Rc>,
///     cq: &mut CompletionQueue,
///     text: &'env str,
/// ) -> Result<()> {
///     let text = scope.lend(text.as_bytes())?;
///     scope.post_send(wr::send(text))?;
///     scope.wait(cq, Duration::from_secs(5), |_| ())
/// }
/// # fn f(qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue) -> Result<()> {
/// qp.scope(|scope| send(scope, cq, "not copied"))
/// # }
/// ```
#[doc(alias = "ibv_reg_mr")]
pub struct Scope<'scope, 'env, T: SendTransport> {
    qp: ScopedQueuePair<'scope, T>,
    /// Taken when the scope ends.
    parts: ManuallyDrop<ScopeParts>,
    env: Brand<'env>,
}

impl<T: SendTransport> QueuePair<T> {
    /// Runs a closure that can lend borrowed memory to requests of the queue pair, without copying
    /// it into a [`Buf`](crate::Buf).
    ///
    /// The memory is borrowed until this function returns. It returns or unwinds only when the
    /// device can no longer access the memory: every request that uses it has been
    /// [retired](ScopedQueuePair::retire), or the queue pair has been destroyed, and the memory is
    /// deregistered. If the driver cannot destroy the queue pair or deregister the memory, the
    /// process is aborted, because borrowed memory cannot be leaked.
    ///
    /// If requests with borrowed memory are in flight when the closure returns or panics, the queue
    /// pair is destroyed. [`is_destroyed`](Self::is_destroyed) then returns `true`, and
    /// [`destroy`](Self::destroy) returns the buffers of the other requests. So wait for the
    /// requests, with [`Scope::wait`] or by retiring their completions.
    ///
    /// # Errors
    /// The error of the closure. If it succeeds, but a queue pair had to be destroyed:
    /// [`ErrorKind::Disconnected`], converted into the closure's type of errors.
    ///
    /// # Example
    /// ```no_run
    /// # use std::time::Duration;
    /// # use ibverbs::{wr, CompletionQueue, QueuePair, Rc};
    /// # fn f(qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue) -> ibverbs::Result<()> {
    /// let message = vec![7; 1 << 20];
    /// let mut reply = [0; 16];
    /// qp.scope(|scope| {
    ///     let reply = scope.lend_mut(&mut reply)?;
    ///     let message = scope.lend(&message)?;
    ///     scope.post_recv(wr::recv(reply))?;
    ///     scope.post_send(wr::send(message))?;
    ///     scope.wait(cq, Duration::from_secs(5), |_| ())
    /// })?;
    /// println!("{reply:?}");
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    pub fn scope<'env, R, E: From<Error>>(
        &mut self,
        run: impl for<'scope> FnOnce(&mut Scope<'scope, 'env, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        let qp = NonNull::from(self);
        // SAFETY: the queue pair is exclusively borrowed until this function returns, which is
        // after `end`. The scope uses it through `Scope::qp` in between, and not afterwards.
        let mut scope = unsafe {
            Scope {
                qp: ScopedQueuePair::new(qp),
                parts: ManuallyDrop::new(ScopeParts::new(qp)),
                env: PhantomData,
            }
        };
        let value = run(&mut scope)?;
        if scope.end() {
            let what = "requests with borrowed memory had not completed";
            let error = Error::new(ErrorKind::Disconnected, "scope", what).with_help(
                "the queue pair was destroyed to end them; call Scope::wait with a longer timeout",
            );
            return Err(error.into());
        }
        Ok(value)
    }
}

impl<'scope, 'env, T: SendTransport> Scope<'scope, 'env, T> {
    /// Registers memory that requests of this scope can read.
    ///
    /// # Errors
    /// Same as [`ProtectionDomain::pool`](crate::ProtectionDomain::pool).
    ///
    /// # Example
    /// Requests can use slices of it:
    /// ```no_run
    /// use ibverbs::{Rc, Result, scope::Scope, wr};
    /// fn send_halves<'env>(scope: &mut Scope<'_, 'env, Rc>, bytes: &'env [u8; 8192]) -> Result<()> {
    ///     let whole = scope.lend(bytes)?;
    ///     scope.post_send(wr::send(whole.clone().slice(0..4096).expect("within")).signaled(false))?;
    ///     scope.post_send(wr::send(whole.slice(4096..8192).expect("within")))?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    pub fn lend(&mut self, bytes: &'env [u8]) -> Result<Lent<'scope>> {
        let (memory, access) = (NonNull::from(bytes), AccessFlags::empty());
        // SAFETY: the memory is borrowed for 'env, which outlives the scope. The scope deregisters
        // the memory before it ends.
        let sge = unsafe { self.parts.register(memory, access) }?;
        Ok(Lent::new(sge, self.parts.id, self.parts.loans.counter()))
    }

    /// Registers memory that requests of this scope can read and write. The caller can access it
    /// again after the scope.
    ///
    /// # Errors
    /// Same as [`lend`](Self::lend).
    #[doc(alias = "ibv_reg_mr")]
    pub fn lend_mut(&mut self, bytes: &'env mut [u8]) -> Result<LentMut<'scope>> {
        let (memory, access) = (NonNull::from(bytes), AccessFlags::LOCAL_WRITE);
        // SAFETY: the memory is exclusively borrowed for 'env, which outlives the scope. The scope
        // deregisters the memory before it ends.
        let sge = unsafe { self.parts.register(memory, access) }?;
        Ok(LentMut::new(sge, self.parts.id, self.parts.loans.counter()))
    }

    /// Adds another queue pair of the same protection domain. It can post memory lent to this scope
    /// until the scope ends, and is destroyed if such requests are then in flight.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if the queue pair belongs to another protection domain.
    pub fn join<U: SendTransport>(
        &mut self,
        qp: &'env mut QueuePair<U>,
    ) -> Result<ScopedQueuePair<'scope, U>> {
        if !qp.pd().is(self.parts.pd()) {
            let (own, other) = (self.parts.pd().context(), qp.pd().context());
            let names = (own.device_name(), other.device_name());
            let what = format!(
                "a scope on {} and a queue pair of another protection domain on {}",
                names.0, names.1
            );
            let help = "create the queue pairs in one protection domain, or nest scopes and lend \
                        the memory to each";
            return Err(Error::new(ErrorKind::Mismatch, "join", what).with_help(help));
        }
        let qp = NonNull::from(qp);
        // SAFETY: the queue pair is exclusively borrowed for 'env, which outlives the scope. It is
        // used through the returned value, which cannot leave the closure, and then by `end`.
        unsafe {
            self.parts.add(qp);
            Ok(ScopedQueuePair::new(qp))
        }
    }

    /// Polls `cq` until no request with borrowed memory is in flight. `each` receives every retired
    /// request of the queue pair on which the scope was started, successful or failed. It also
    /// receives the completions of other queue pairs, which it has to retire.
    ///
    /// If requests complete on several queues, poll them and
    /// [`retire`](ScopedQueuePair::retire) their completions instead.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`], and errors of polling. The requests are then still in flight, and
    /// the scope destroys their queue pairs when it ends.
    #[doc(alias = "ibv_poll_cq")]
    pub fn wait(
        &mut self,
        cq: &mut CompletionQueue,
        timeout: Duration,
        mut each: impl FnMut(Result<Retired, Completion<'_>>),
    ) -> Result<()> {
        let start = Instant::now();
        while self.lent_in_flight() > 0 {
            for completion in cq.poll()? {
                if completion.queue() == self.qp.qp().id() {
                    // A stale completion matches no request and is ignored.
                    if let Ok(retired) = self.retire(completion) {
                        each(Ok(retired));
                    }
                } else {
                    each(Err(completion));
                }
            }
            if self.lent_in_flight() > 0 && start.elapsed() > timeout {
                let what = format!(
                    "{} requests with borrowed memory are still in flight",
                    self.lent_in_flight()
                );
                return Err(Error::new(ErrorKind::TimedOut, "scope", what));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Returns the number of requests with borrowed memory in flight.
    pub fn lent_in_flight(&self) -> usize {
        self.parts.loans.count()
    }

    /// Ends the scope. Returns `true` if a queue pair had to be destroyed.
    fn end(self) -> bool {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the parts are taken once.
        unsafe { ManuallyDrop::take(&mut this.parts) }.end()
    }
}

impl<'scope, T: SendTransport> Deref for Scope<'scope, '_, T> {
    type Target = ScopedQueuePair<'scope, T>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.qp
    }
}

impl<T: SendTransport> DerefMut for Scope<'_, '_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.qp
    }
}

impl<T: SendTransport> Drop for Scope<'_, '_, T> {
    /// Runs if the closure fails or panics.
    fn drop(&mut self) {
        // SAFETY: `end` forgets the scope, so the parts are taken once.
        unsafe { ManuallyDrop::take(&mut self.parts) }.end();
    }
}

impl<T: SendTransport> fmt::Debug for Scope<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("qp", self.qp.qp())
            .field("lent_in_flight", &self.lent_in_flight())
            .finish()
    }
}
