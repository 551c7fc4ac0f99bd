//! Borrowed memory in requests, for as long as a closure runs.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::result::Result as StdResult;
use std::time::{Duration, Instant};

use rdma_sys::ibv_sge;

use super::batch::Batch;
use super::lent::{Brand, Lent, LentMut};
use super::loan::Loans;
use super::operation::Operation;
use super::pair::QueuePair;
use super::payload::RecvPayload;
use super::payload::private::Payload;
use super::posted::BatchError;
use super::receives::RecvBatch;
use super::rejected::Rejected;
use super::retired::{NotMine, Reclaimed, Retired};
use super::transport::{Sends, Transport};
use super::wr::{RecvRequest, SendRequest};
use crate::cq::{Completion, CompletionQueue};
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::mr::{AccessFlags, Registration};

/// A queue pair that requests with borrowed memory can be posted to. See [`QueuePair::scope`].
///
/// # Example
/// ```no_run
/// use std::time::Duration;
/// use ibverbs::{CompletionQueue, QueuePair, Rc, Result, Scope, wr};
/// fn send<'env>(scope: &mut Scope<'_, 'env, Rc>, cq: &mut CompletionQueue, text: &'env str) -> Result<()> {
///     let text = scope.lend(text.as_bytes())?;
///     scope.post_send(wr::send(text))?;
///     scope.wait(cq, Duration::from_secs(5), |_| ())
/// }
/// # fn f(qp: QueuePair<Rc>, cq: &mut CompletionQueue) -> Result<()> {
/// let (qp, sent) = qp.scope(|scope| send(scope, cq, "not copied")).into_result()?;
/// sent
/// # }
/// ```
///
/// # References
/// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
pub struct Scope<'scope, 'env, T: Sends> {
    /// Moved out when the scope ends.
    parts: ManuallyDrop<Parts<T>>,
    brand: Brand<'scope>,
    env: Brand<'env>,
}

/// What a scope has to end.
struct Parts<T: Sends> {
    qp: QueuePair<T>,
    loans: Loans,
    regions: Vec<Registration>,
}

/// How a [`QueuePair::scope`] ended.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, ScopeEnd};
/// # fn f(end: ScopeEnd<Rc, u32>) {
/// match end {
///     ScopeEnd { qp: Some(qp), value, .. } => println!("{value}, and {} goes on", qp.qp_num()),
///     ScopeEnd { reclaimed, .. } => println!("destroyed with {} sends in flight", reclaimed.sends.len()),
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it has the queue pair"]
pub struct ScopeEnd<T: Sends, R> {
    /// What the closure returned.
    pub value: R,
    /// The queue pair; `None` if it was destroyed, because requests with borrowed memory were still in flight.
    pub qp: Option<QueuePair<T>>,
    /// What a destroyed queue pair gave back.
    pub reclaimed: Reclaimed,
}

impl<T: Sends, R> ScopeEnd<T, R> {
    /// The queue pair and the closure's value.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`] if the queue pair was destroyed.
    pub fn into_result(self) -> Result<(QueuePair<T>, R)> {
        match self.qp {
            Some(qp) => Ok((qp, self.value)),
            None => Err(Error::new(ErrorKind::Disconnected, "scope", "requests with borrowed memory did not complete")
                .with_hint("the queue pair was destroyed to end them: let Scope::wait retire them, and allow it time")),
        }
    }
}

impl<T: Sends> QueuePair<T> {
    /// Runs a closure in which borrowed memory can be lent to the queue pair's requests, without copying it into a [`Buf`](crate::Buf).
    ///
    /// The loan lasts until this function returns, and until then the compiler keeps everybody's hands off what was
    /// [lent for writing](Scope::lend_mut). It returns, or goes on unwinding, only when the device can touch none of the memory: all requests
    /// that name it have completed and been [retired](Scope::retire), or else the queue pair is destroyed; then the memory is
    /// deregistered. If the driver refuses either, the process is aborted, as borrowed memory cannot be leaked.
    ///
    /// The queue pair moves in and comes back with the [`ScopeEnd`] if it lived. A panic destroys it.
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
    pub fn scope<'env, R>(self, run: impl for<'scope> FnOnce(&mut Scope<'scope, 'env, T>) -> R) -> ScopeEnd<T, R> {
        let parts = Parts { qp: self, loans: Loans::default(), regions: Vec::new() };
        let mut scope = Scope { parts: ManuallyDrop::new(parts), brand: PhantomData, env: PhantomData };
        let value = run(&mut scope);
        let (qp, reclaimed) = scope.end();
        ScopeEnd { value, qp, reclaimed }
    }
}

impl<'scope, 'env, T: Sends> Scope<'scope, 'env, T> {
    /// Registers memory that requests of this scope may read.
    ///
    /// # Errors
    /// As [`ProtectionDomain::pool`](crate::ProtectionDomain::pool).
    ///
    /// # Example
    /// Requests may name parts of it:
    /// ```no_run
    /// use ibverbs::{Rc, Result, Scope, wr};
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
        let sge = self.register(NonNull::from(bytes), AccessFlags::empty())?;
        Ok(Lent::new(sge, self.parts.qp.id(), self.parts.loans.clone()))
    }

    /// Registers memory that requests of this scope may write and read. What they wrote can be read when the scope has ended.
    ///
    /// # Errors
    /// As [`lend`](Self::lend).
    ///
    /// # References
    /// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    pub fn lend_mut(&mut self, bytes: &'env mut [u8]) -> Result<LentMut<'scope>> {
        let sge = self.register(NonNull::from(bytes), AccessFlags::LOCAL_WRITE)?;
        Ok(LentMut::new(sge, self.parts.qp.id(), self.parts.loans.clone()))
    }

    fn register(&mut self, bytes: NonNull<[u8]>, access: AccessFlags) -> Result<ibv_sge> {
        let Ok(length @ 1..) = u32::try_from(bytes.len()) else {
            return Err(Error::new(ErrorKind::InvalidInput, "lend", format!("{} bytes", bytes.len()))
                .with_hint("1 to 2^32-1 bytes can be lent"));
        };
        let pd = self.parts.qp.pd();
        // SAFETY: the memory is borrowed for 'env, for writing if `access` has it, which outlasts the scope; the scope deregisters it before it
        // ends, or aborts the process.
        let region = unsafe { Registration::of_memory(pd, bytes.cast(), bytes.len(), access.into(), false) }?;
        let sge = ibv_sge { addr: region.base(), length, lkey: region.lkey() };
        self.parts.regions.push(region);
        Ok(sge)
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
    pub fn retire(&mut self, completion: Completion<'_>) -> StdResult<Retired, NotMine> {
        self.parts.qp.retire(completion)
    }

    /// Polls `cq` until no request with borrowed memory is in flight. `each` gets what is retired, failures too, and the completions of
    /// other queue pairs on `cq`, for it to retire.
    ///
    /// Where sends and receives complete on two queues, [`retire`](Self::retire) what they yield instead.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`], and errors of polling. Neither ends a request: the scope then ends by destroying the queue pair.
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
                let what = format!("{} requests with borrowed memory are in flight", self.lent_in_flight());
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

impl<T: Transport> Scope<'_, '_, T> {
    /// As [`QueuePair::post_recv`]; memory lent to this scope can be posted too.
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_post_recv(3)`](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    pub fn post_recv<P: RecvPayload>(&mut self, request: RecvRequest<P>) -> StdResult<(), Rejected<P>> {
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

impl<T: Sends> Drop for Scope<'_, '_, T> {
    /// Only when the closure panics: as in order, and the queue pair goes.
    fn drop(&mut self) {
        // SAFETY: taken once: `end` forgets the scope.
        drop(unsafe { ManuallyDrop::take(&mut self.parts) }.end());
    }
}

impl<T: Sends> Parts<T> {
    fn end(self) -> (Option<QueuePair<T>>, Reclaimed) {
        let Self { qp, loans, regions } = self;
        let (qp, reclaimed) = if loans.count() == 0 {
            (Some(qp), Reclaimed::default())
        } else {
            // Not by waiting for a flush, which may never come. Destroying is the barrier.
            match qp.destroy() {
                Ok(reclaimed) if loans.count() == 0 => (None, reclaimed),
                Ok(_) => abort("a request with borrowed memory is in flight on no queue pair"),
                Err(error) => abort(&error.to_string()),
            }
        };
        for region in regions {
            if let Err((_, error)) = region.end() {
                abort(&error.to_string());
            }
        }
        (qp, reclaimed)
    }
}

/// The device may yet touch memory that is about to be its owner's again: nothing can go on.
fn abort(why: &str) -> ! {
    eprintln!("ibverbs: borrowed memory cannot be taken back from the device: {why}");
    std::process::abort();
}

impl<T: Sends> fmt::Debug for Scope<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("qp", &self.parts.qp).field("lent_in_flight", &self.lent_in_flight()).finish()
    }
}
