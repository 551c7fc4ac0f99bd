//! The result of a scope.

use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::Reclaimed;
use crate::qp::QueuePair;
use crate::transport::SendTransport;

/// The result of [`QueuePair::scope`]: the closure's value, and the queue pair unless it was
/// destroyed.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, scope::ScopeResult};
/// # fn f(result: ScopeResult<Rc, u32>) {
/// match result {
///     ScopeResult {
///         qp: Some(qp),
///         value,
///         ..
///     } => println!("{value}; queue pair {} is still connected", qp.qp_num()),
///     ScopeResult { reclaimed, .. } => {
///         println!("destroyed with {} sends in flight", reclaimed.sends.len())
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it contains the queue pair"]
#[non_exhaustive]
pub struct ScopeResult<T: SendTransport, R> {
    /// Return value of the closure.
    pub value: R,
    /// The queue pair, or `None` if it was destroyed because requests with borrowed memory were
    /// still in flight.
    pub qp: Option<QueuePair<T>>,
    /// Buffers that destroying the queue pair returned.
    pub reclaimed: Reclaimed,
}

impl<T: SendTransport, R> ScopeResult<T, R> {
    /// Returns the queue pair and the closure's value.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`] if the queue pair was destroyed.
    pub fn into_result(self) -> Result<(QueuePair<T>, R)> {
        match self.qp {
            Some(qp) => Ok((qp, self.value)),
            None => Err(Error::new(
                ErrorKind::Disconnected,
                "scope",
                "requests with borrowed memory did not complete",
            )
            .with_help(
                "the queue pair was destroyed to end them; call Scope::wait with a longer timeout",
            )),
        }
    }
}
