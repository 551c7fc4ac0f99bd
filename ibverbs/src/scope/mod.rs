//! Borrowed memory in requests, for as long as a closure runs.

#![allow(unsafe_code)]

mod end;
mod lent;
mod parts;

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::result::Result as StdResult;
use std::time::{Duration, Instant};

pub use self::end::ScopeResult;
use self::lent::Brand;
pub use self::lent::{Lent, LentMut};
use self::parts::Parts;
use crate::cq::{Completion, CompletionQueue};
use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::{ForeignCompletion, Reclaimed, Retired};
use crate::mr::AccessFlags;
use crate::qp::{Batch, QueuePair};
use crate::transport::{DuplexTransport, SendTransport};
use crate::wr::private::Payload;
use crate::wr::{BatchError, Operation, RecvBatch, RecvPayload, Rejected};
use crate::wr::{RecvRequest, SendRequest};

/// A queue pair that requests with borrowed memory can be posted to. See [`QueuePair::scope`].
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
    /// Moved out when the scope ends.
    parts: ManuallyDrop<Parts<T>>,
    brand: Brand<'scope>,
    env: Brand<'env>,
}

impl<T: SendTransport> QueuePair<T> {
    /// Runs a closure in which borrowed memory can be lent to the queue pair's requests, without
    /// copying it into a [`Buf`](crate::Buf).
    ///
    /// The loan lasts until this function returns, and until then the compiler keeps everybody's
    /// hands off what was [lent for writing](Scope::lend_mut). It returns, or goes on
    /// unwinding, only when the device can touch none of the memory: all requests that name it
    /// have completed and been [retired](Scope::retire), or else the queue pair is destroyed; then
    /// the memory is deregistered. If the driver refuses either, the process is aborted, as
    /// borrowed memory cannot be leaked.
    ///
    /// The queue pair moves in and comes back with the [`ScopeResult`] if it lived. A panic
    /// destroys it.
    ///
    /// # Example
    /// ```no_run
    /// # use std::time::Duration;
    /// # use ibverbs::{wr, CompletionQueue, Error, QueuePair, Rc};
    /// # fn send(qp: QueuePair<Rc>, cq: &mut CompletionQueue) -> Result<QueuePair<Rc>, Error> {
    /// let message = vec![7; 1 << 20];
    /// let mut reply = [0; 16];
    /// let end = qp.scope(|scope| -> Result<(), Error> {
    ///     let reply = scope.lend_mut(&mut reply)?;
    ///     let message = scope.lend(&message)?;
    ///     scope.post_recv(wr::recv(reply))?;
    ///     scope.post_send(wr::send(message))?;
    ///     scope.wait(cq, Duration::from_secs(5), |_| ())
    /// });
    /// let (qp, outcome) = end.into_result()?;
    /// outcome?;
    /// println!("{reply:?}");
    /// # Ok(qp) }
    /// ```
    pub fn scope<'env, R>(
        self,
        run: impl for<'scope> FnOnce(&mut Scope<'scope, 'env, T>) -> R,
    ) -> ScopeResult<T, R> {
        let parts = Parts::of(self);
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
    /// Registers memory that requests of this scope may read.
    ///
    /// # Errors
    /// Those of [`ProtectionDomain::pool`](crate::ProtectionDomain::pool).
    ///
    /// # Example
    /// Requests may name parts of it:
    /// ```no_run
    /// use ibverbs::{Rc, Result, scope::Scope, wr};
    /// fn send_in_two<'env>(scope: &mut Scope<'_, 'env, Rc>, bytes: &'env [u8; 8192]) -> Result<()> {
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
        // SAFETY: it is borrowed for 'env, which outlasts the scope, and that ends its parts before
        // it is over.
        let sge = unsafe {
            self.parts
                .register(NonNull::from(bytes), AccessFlags::empty())
        }?;
        Ok(Lent::new(sge, self.parts.qp.id(), self.parts.loans.clone()))
    }

    /// Registers memory that requests of this scope may write and read. What they wrote can be read
    /// when the scope has ended.
    ///
    /// # Errors
    /// As [`lend`](Self::lend).
    ///
    /// # References
    /// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    pub fn lend_mut(&mut self, bytes: &'env mut [u8]) -> Result<LentMut<'scope>> {
        // SAFETY: as above, for writing.
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

    /// As [`QueuePair::post_send`]; memory lent to this scope can be posted too.
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    pub fn post_send<O: Operation<T, P>, P: Payload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> StdResult<(), Rejected<P>> {
        self.parts.qp.post_send(request)
    }

    /// As [`QueuePair::batch`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_wr_post(3)`](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    pub fn batch<R, E: From<BatchError>>(
        &mut self,
        fill: impl FnOnce(&mut Batch<'_, T>) -> StdResult<R, E>,
    ) -> StdResult<R, E> {
        self.parts.qp.batch(fill)
    }

    /// As [`QueuePair::retire`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
    pub fn retire(&mut self, completion: Completion<'_>) -> StdResult<Retired, ForeignCompletion> {
        self.parts.qp.retire(completion)
    }

    /// Polls `cq` until no request with borrowed memory is in flight. `each` gets what is retired,
    /// failures too, and the completions of other queue pairs on `cq`, for it to retire.
    ///
    /// Where sends and receives complete on two queues, [`retire`](Self::retire) what they yield
    /// instead.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`], and errors of polling. Neither ends a request: the scope then ends
    /// by destroying the queue pair.
    ///
    /// # References
    /// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
    pub fn wait(
        &mut self,
        cq: &mut CompletionQueue,
        timeout: Duration,
        mut each: impl FnMut(StdResult<Retired, Completion<'_>>),
    ) -> Result<()> {
        let start = Instant::now();
        while self.lent_in_flight() > 0 {
            for completion in cq.poll()? {
                if completion.queue() == self.parts.qp.id() {
                    // One that is stale changes nothing.
                    if let Ok(retired) = self.retire(completion) {
                        each(Ok(retired));
                    }
                } else {
                    each(Err(completion));
                }
            }
            if self.lent_in_flight() > 0 && start.elapsed() > timeout {
                let what = format!(
                    "{} requests with borrowed memory are in flight",
                    self.lent_in_flight()
                );
                return Err(Error::new(ErrorKind::TimedOut, "scope", what));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// How many requests with borrowed memory are in flight.
    pub fn lent_in_flight(&self) -> usize {
        self.parts.loans.count()
    }

    /// The queue pair, to ask things of.
    pub fn qp(&self) -> &QueuePair<T> {
        &self.parts.qp
    }

    /// Ends the scope in order; the queue pair comes back if it need not be destroyed.
    fn end(self) -> (Option<QueuePair<T>>, Reclaimed) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once: `this` is not dropped.
        unsafe { ManuallyDrop::take(&mut this.parts) }.end()
    }
}

impl<T: DuplexTransport> Scope<'_, '_, T> {
    /// As [`QueuePair::post_recv`]; memory lent to this scope can be posted too.
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_post_recv(3)`](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    pub fn post_recv<P: RecvPayload>(
        &mut self,
        request: RecvRequest<P>,
    ) -> StdResult<(), Rejected<P>> {
        self.parts.qp.post_recv(request)
    }

    /// As [`QueuePair::recv_batch`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_post_recv(3)`](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    pub fn recv_batch<R, E: From<BatchError>>(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> StdResult<R, E>,
    ) -> StdResult<R, E> {
        self.parts.qp.recv_batch(fill)
    }
}

impl<T: SendTransport> Drop for Scope<'_, '_, T> {
    /// Only when the closure panics: as in order, and the queue pair goes.
    fn drop(&mut self) {
        // SAFETY: taken once: `end` forgets the scope.
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
