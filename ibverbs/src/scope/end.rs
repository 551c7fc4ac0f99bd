//! How a scope ended.

use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::Reclaimed;
use crate::qp::QueuePair;
use crate::transport::SendTransport;

/// How a [`QueuePair::scope`] ended.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, scope::ScopeResult};
/// # fn f(end: ScopeResult<Rc, u32>) {
/// match end {
///     ScopeResult {
///         qp: Some(qp),
///         value,
///         ..
///     } => println!("{value}, and {} goes on", qp.qp_num()),
///     ScopeResult { reclaimed, .. } => {
///         println!("destroyed with {} sends in flight", reclaimed.sends.len())
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it has the queue pair"]
pub struct ScopeResult<T: SendTransport, R> {
    /// What the closure returned.
    pub value: R,
    /// The queue pair; `None` if it was destroyed, because requests with borrowed memory were
    /// still in flight.
    pub qp: Option<QueuePair<T>>,
    /// What a destroyed queue pair gave back.
    pub reclaimed: Reclaimed,
}

impl<T: SendTransport, R> ScopeResult<T, R> {
    /// The queue pair and the closure's value.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`] if the queue pair was destroyed.
    pub fn into_result(self) -> Result<(QueuePair<T>, R)> {
        match self.qp {
            Some(qp) => Ok((qp, self.value)),
            None => Err(Error::new(ErrorKind::Disconnected, "scope", "requests with borrowed memory did not complete")
                .with_help("the queue pair was destroyed to end them: let Scope::wait retire them, and allow it time")),
        }
    }
}
