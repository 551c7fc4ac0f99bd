//! Read-only memory that many requests send at once.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::pool::Buf;

/// A buffer that is read-only from now on. Clones share it.
///
/// To send from it, let a queue pair [`hold`](crate::QueuePair::hold) it once; each request then names the [`Held`](crate::Held)
/// token, which costs nothing to copy.
#[derive(Clone)]
pub struct Frozen(Arc<Buf>);

impl Buf {
    /// Makes the buffer read-only and shareable: it can then be sent by any number of requests at once.
    pub fn freeze(self) -> Frozen {
        Frozen::new(self)
    }
}

impl Frozen {
    fn new(buf: Buf) -> Self {
        Self(Arc::new(buf))
    }

    /// Gives the buffer back if this is the last share of it: no clone, and no queue pair that holds it.
    ///
    /// # Errors
    /// Returns itself while it is shared.
    pub fn try_thaw(self) -> Result<Buf, Self> {
        Arc::try_unwrap(self.0).map_err(Self)
    }

    pub(crate) fn buf(&self) -> &Buf {
        &self.0
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Frozen {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen").field("len", &self.len()).finish()
    }
}
