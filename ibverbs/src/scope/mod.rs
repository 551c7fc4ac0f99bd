//! Scopes: requests on borrowed memory, while a closure runs.
//!
//! [`QueuePair::scope`] starts one. It ends when the device no longer accesses the memory.

#![allow(unsafe_code)]

mod lent;
mod parts;
mod result;

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use self::lent::Brand;
pub use self::lent::{Lent, LentMut};
use self::parts::ScopeParts;
pub use self::result::ScopeResult;
use crate::cq::{Completion, CompletionQueue};
use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::{ForeignCompletion, Reclaimed, Retired};
use crate::mr::AccessFlags;
use crate::qp::{Batch, QueuePair};
use crate::transport::{DuplexTransport, SendTransport};
use crate::wr::private::Payload;
use crate::wr::{BatchError, Operation, RecvBatch, RecvPayload, Rejected};
use crate::wr::{RecvRequest, SendRequest};

/// A queue pair to which requests with borrowed memory can be posted. [`QueuePair::scope`] creates
/// it.
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
/// # fn f(qp: QueuePair<Rc>, cq: &mut CompletionQueue) -> Result<()> {
/// let (qp, sent) = qp
///     .scope(|scope| send(scope, cq, "not copied"))
///     .into_result()?;
/// sent
/// # }
/// ```
///
/// # References
/// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
pub struct Scope<'scope, 'env, T: SendTransport> {
    /// Taken when the scope ends.
    parts: ManuallyDrop<ScopeParts<T>>,
    brand: Brand<'scope>,
    env: Brand<'env>,
}

impl<T: SendTransport> QueuePair<T> {
    /// Runs a closure that can lend borrowed memory to requests of the queue pair, without copying
    /// it into a [`Buf`](crate::Buf).
    ///
    /// The memory is borrowed until this function returns. It returns or unwinds only when the
    /// device can no longer access the memory: every request that uses it has been
    /// [retired](Scope::retire), or the queue pair has been destroyed, and the memory is
    /// deregistered. If the driver cannot destroy the queue pair or deregister the memory, the
    /// process is aborted, because borrowed memory cannot be leaked.
    ///
    /// The [`ScopeResult`] returns the queue pair unless it was destroyed. A panic destroys it.
    ///
    /// # Example
    /// ```no_run
    /// # use std::time::Duration;
    /// # use ibverbs::{wr, CompletionQueue, Error, QueuePair, Rc};
    /// # fn send(qp: QueuePair<Rc>, cq: &mut CompletionQueue) -> Result<QueuePair<Rc>, Error> {
    /// let message = vec![7; 1 << 20];
    /// let mut reply = [0; 16];
    /// let result = qp.scope(|scope| -> Result<(), Error> {
    ///     let reply = scope.lend_mut(&mut reply)?;
    ///     let message = scope.lend(&message)?;
    ///     scope.post_recv(wr::recv(reply))?;
    ///     scope.post_send(wr::send(message))?;
    ///     scope.wait(cq, Duration::from_secs(5), |_| ())
    /// });
    /// let (qp, sent) = result.into_result()?;
    /// sent?;
    /// println!("{reply:?}");
    /// # Ok(qp) }
    /// ```
    pub fn scope<'env, R>(
        self,
        run: impl for<'scope> FnOnce(&mut Scope<'scope, 'env, T>) -> R,
    ) -> ScopeResult<T, R> {
        let parts = ScopeParts::new(self);
        let mut scope = Scope {
            parts: ManuallyDrop::new(parts),
            brand: PhantomData,
            env: PhantomData,
        };
        let value = run(&mut scope);
        let (qp, reclaimed) = scope.end();
        ScopeResult {
            value,
            qp,
            reclaimed,
        }
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
    ///     scope.post_send(wr::send(whole.clone().slice(0..4096).expect("within")).unsignaled())?;
    ///     scope.post_send(wr::send(whole.slice(4096..8192).expect("within")))?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # References
    /// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    pub fn lend(&mut self, bytes: &'env [u8]) -> Result<Lent<'scope>> {
        // SAFETY: the memory is borrowed for 'env, which outlives the scope. The scope deregisters
        // the memory before it ends.
        let sge = unsafe {
            self.parts
                .register(NonNull::from(bytes), AccessFlags::empty())
        }?;
        Ok(Lent::new(sge, self.parts.qp.id(), self.parts.loans.clone()))
    }

    /// Registers memory that requests of this scope can read and write. The caller can access it
    /// again after the scope.
    ///
    /// # Errors
    /// Same as [`lend`](Self::lend).
    ///
    /// # References
    /// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    pub fn lend_mut(&mut self, bytes: &'env mut [u8]) -> Result<LentMut<'scope>> {
        // SAFETY: the memory is exclusively borrowed for 'env, which outlives the scope. The scope
        // deregisters the memory before it ends.
        let sge = unsafe {
            self.parts
                .register(NonNull::from(bytes), AccessFlags::LOCAL_WRITE)
        }?;
        Ok(LentMut::new(
            sge,
            self.parts.qp.id(),
            self.parts.loans.clone(),
        ))
    }

    /// Posts a send request, which can use memory lent to this scope. See [`QueuePair::post_send`].
    ///
    /// # Errors
    /// Same as [`QueuePair::post_send`].
    ///
    /// # References
    /// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    pub fn post_send<O: Operation<T, P>, P: Payload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> Result<(), Rejected<P>> {
        self.parts.qp.post_send(request)
    }

    /// Posts several send requests. See [`QueuePair::batch`].
    ///
    /// # Errors
    /// Same as [`QueuePair::batch`].
    ///
    /// # References
    /// [`ibv_wr_post(3)`](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    pub fn batch<R, E: From<BatchError>>(
        &mut self,
        fill: impl FnOnce(&mut Batch<'_, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.parts.qp.batch(fill)
    }

    /// Retires a completion. See [`QueuePair::retire`].
    ///
    /// # Errors
    /// Same as [`QueuePair::retire`].
    ///
    /// # References
    /// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
    pub fn retire(&mut self, completion: Completion<'_>) -> Result<Retired, ForeignCompletion> {
        self.parts.qp.retire(completion)
    }

    /// Polls `cq` until no request with borrowed memory is in flight. `each` receives every retired
    /// request, successful or failed, and the completions of other queue pairs, which it has to
    /// retire.
    ///
    /// If sends and receives complete on two queues, poll them and [`retire`](Self::retire) their
    /// completions instead.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`], and errors of polling. The requests are then still in flight, and
    /// the scope destroys the queue pair when it ends.
    ///
    /// # References
    /// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
    pub fn wait(
        &mut self,
        cq: &mut CompletionQueue,
        timeout: Duration,
        mut each: impl FnMut(Result<Retired, Completion<'_>>),
    ) -> Result<()> {
        let start = Instant::now();
        while self.lent_in_flight() > 0 {
            for completion in cq.poll()? {
                if completion.queue() == self.parts.qp.id() {
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

    /// Returns the queue pair.
    pub fn qp(&self) -> &QueuePair<T> {
        &self.parts.qp
    }

    /// Ends the scope. Returns the queue pair unless it had to be destroyed.
    fn end(self) -> (Option<QueuePair<T>>, Reclaimed) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the parts are taken once.
        unsafe { ManuallyDrop::take(&mut this.parts) }.end()
    }
}

impl<T: DuplexTransport> Scope<'_, '_, T> {
    /// Posts a receive, which can use memory lent to this scope. See [`QueuePair::post_recv`].
    ///
    /// # Errors
    /// Same as [`QueuePair::post_recv`].
    ///
    /// # References
    /// [`ibv_post_recv(3)`](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    pub fn post_recv<P: RecvPayload>(
        &mut self,
        request: RecvRequest<P>,
    ) -> Result<(), Rejected<P>> {
        self.parts.qp.post_recv(request)
    }

    /// Posts several receives. See [`QueuePair::recv_batch`].
    ///
    /// # Errors
    /// Same as [`QueuePair::recv_batch`].
    ///
    /// # References
    /// [`ibv_post_recv(3)`](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    pub fn recv_batch<R, E: From<BatchError>>(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.parts.qp.recv_batch(fill)
    }
}

impl<T: SendTransport> Drop for Scope<'_, '_, T> {
    /// Runs only if the closure panics. Ends the scope and destroys the queue pair.
    fn drop(&mut self) {
        // SAFETY: `end` forgets the scope, so the parts are taken once.
        drop(unsafe { ManuallyDrop::take(&mut self.parts) }.end());
    }
}

impl<T: SendTransport> fmt::Debug for Scope<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("qp", &self.parts.qp)
            .field("lent_in_flight", &self.lent_in_flight())
            .finish()
    }
}
