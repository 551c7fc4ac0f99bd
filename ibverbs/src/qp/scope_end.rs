//! How a scope ended.

use super::pair::QueuePair;
use super::retired::Reclaimed;
use super::transport::Sends;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;

/// How a [`QueuePair::scope`] ended.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, ScopeEnd};
/// # fn f(end: ScopeEnd<Rc, u32>) {
/// match end {
///     ScopeEnd {
///         qp: Some(qp),
///         value,
///         ..
///     } => println!("{value}, and {} goes on", qp.qp_num()),
///     ScopeEnd { reclaimed, .. } => {
///         println!("destroyed with {} sends in flight", reclaimed.sends.len())
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it has the queue pair"]
pub struct ScopeEnd<T: Sends, R> {
    /// What the closure returned.
    pub value: R,
    /// The queue pair; `None` if it was destroyed, because requests with borrowed memory were
    /// still in flight.
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
