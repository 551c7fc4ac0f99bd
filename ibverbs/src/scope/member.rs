//! A queue pair in a scope.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::lent::Brand;
use crate::cq::Completion;
use crate::error::Result;
use crate::in_flight::{ForeignCompletion, Retired};
use crate::qp::{Batch, QueuePair};
use crate::transport::{DuplexTransport, SendTransport};
use crate::wr::private::Payload;
use crate::wr::{BatchError, Operation, RecvBatch, RecvPayload, Rejected};
use crate::wr::{RecvRequest, SendRequest};

/// A queue pair in a scope. It can post memory lent to the scope. A [`Scope`](super::Scope)
/// dereferences to the one on which it was started, and [`Scope::join`](super::Scope::join) returns
/// others.
///
/// # Example
/// Each of several peers gets the same bytes, which are registered once:
/// ```no_run
/// use ibverbs::{CompletionQueue, QueuePair, Rc, Result, wr};
/// use std::time::Duration;
/// # fn f(peers: &mut [QueuePair<Rc>], cq: &mut CompletionQueue, block: &[u8]) -> Result<()> {
/// let Some((first, others)) = peers.split_first_mut() else {
///     return Ok(());
/// };
/// first.scope(|scope| {
///     let lent = scope.lend(block)?;
///     let mut members = Vec::new();
///     for qp in others {
///         members.push(scope.join(qp)?);
///     }
///     for member in &mut members {
///         member.post_send(wr::send(lent.clone()))?;
///     }
///     scope.post_send(wr::send(lent))?;
///     scope.wait(cq, Duration::from_secs(5), |each| {
///         if let Err(completion) = each {
///             let queue = completion.queue();
///             if let Some(member) = members.iter_mut().find(|one| one.qp().id() == queue) {
///                 let _ = member.retire(completion);
///             }
///         }
///     })
/// })
/// # }
/// ```
pub struct ScopedQueuePair<'scope, T: SendTransport> {
    /// Not a reference, because the scope uses the queue pair when it ends, and this may be a part
    /// of the scope.
    qp: NonNull<QueuePair<T>>,
    brand: Brand<'scope>,
}

// SAFETY: this is an exclusive borrow of the queue pair.
unsafe impl<T: SendTransport> Send for ScopedQueuePair<'_, T> where QueuePair<T>: Send {}
// SAFETY: as above.
unsafe impl<T: SendTransport> Sync for ScopedQueuePair<'_, T> where QueuePair<T>: Sync {}

impl<T: SendTransport> ScopedQueuePair<'_, T> {
    /// # Safety
    /// Until the last use of this value, the queue pair is exclusively borrowed for it.
    pub(super) unsafe fn new(qp: NonNull<QueuePair<T>>) -> Self {
        Self {
            qp,
            brand: PhantomData,
        }
    }

    #[inline]
    fn qp_mut(&mut self) -> &mut QueuePair<T> {
        // SAFETY: guaranteed by the caller of `new`.
        unsafe { self.qp.as_mut() }
    }

    /// Returns the queue pair.
    #[inline]
    pub fn qp(&self) -> &QueuePair<T> {
        // SAFETY: guaranteed by the caller of `new`.
        unsafe { self.qp.as_ref() }
    }

    /// Posts a send request, which can use memory lent to this scope. See [`QueuePair::post_send`].
    ///
    /// # Errors
    /// Same as [`QueuePair::post_send`].
    #[doc(alias = "ibv_post_send")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn post_send<O: Operation<T, P>, P: Payload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> Result<(), Rejected<P::Returned>> {
        self.qp_mut().post_send(request)
    }

    /// Posts several send requests. See [`QueuePair::batch`].
    ///
    /// # Errors
    /// Same as [`QueuePair::batch`].
    #[doc(alias = "ibv_wr_post")]
    #[inline]
    pub fn batch<R, E: From<BatchError>>(
        &mut self,
        fill: impl FnOnce(&mut Batch<'_, T>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.qp_mut().batch(fill)
    }

    /// Retires a completion. See [`QueuePair::retire`].
    ///
    /// # Errors
    /// Same as [`QueuePair::retire`].
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn retire(&mut self, completion: Completion<'_>) -> Result<Retired, ForeignCompletion> {
        self.qp_mut().retire(completion)
    }

    /// Retires a completion, or returns that of another queue. See [`QueuePair::try_retire`].
    ///
    /// # Errors
    /// Same as [`QueuePair::try_retire`].
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn try_retire<'cq>(
        &mut self,
        completion: Completion<'cq>,
    ) -> Result<Retired, Completion<'cq>> {
        self.qp_mut().try_retire(completion)
    }
}

impl<T: DuplexTransport> ScopedQueuePair<'_, T> {
    /// Posts a receive, which can use memory lent to this scope. See [`QueuePair::post_recv`].
    ///
    /// # Errors
    /// Same as [`QueuePair::post_recv`].
    #[doc(alias = "ibv_post_recv")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn post_recv<P: RecvPayload>(
        &mut self,
        request: RecvRequest<P>,
    ) -> Result<(), Rejected<P::Returned>> {
        self.qp_mut().post_recv(request)
    }

    /// Posts several receives. See [`QueuePair::recv_batch`].
    ///
    /// # Errors
    /// Same as [`QueuePair::recv_batch`].
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn recv_batch<R, E: From<BatchError>>(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.qp_mut().recv_batch(fill)
    }
}

impl<T: SendTransport> fmt::Debug for ScopedQueuePair<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScopedQueuePair").field(self.qp()).finish()
    }
}
