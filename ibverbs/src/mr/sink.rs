//! Memory that receives write to and that is never read.

use std::fmt;
use std::sync::Arc;

use rdma_sys::ibv_sge;

use super::access::AccessFlags;
use super::options::MemoryOptions;
use super::region::Region;
use crate::error::{Error, ErrorKind, Result};
use crate::pd::ProtectionDomain;

/// Memory that any number of receives can write to concurrently, because it can never be read. It
/// is useful for bandwidth tests.
///
/// To receive into it, let a queue pair [`hold`](crate::QueuePair::hold) it once and post the
/// [`Held`](crate::Held) token.
///
/// # Example
/// ```no_run
/// # use ibverbs::{Error, QueuePair, Rc, wr};
/// fn receive_all(qp: &mut QueuePair<Rc>) -> Result<(), Error> {
///     let sink = qp.pd().sink(1 << 20)?;
///     let held = qp.hold(&sink)?;
///     while qp.recv_slots_free() > 0 {
///         qp.post_recv(wr::recv(held))?;
///     }
///     Ok(())
/// }
/// ```
#[doc(alias = "ibv_reg_mr")]
#[derive(Clone)]
pub struct Sink(Arc<Region>);

impl ProtectionDomain {
    /// Registers `size` bytes that any number of receives can write to and that cannot be read.
    ///
    /// # Errors
    /// Those of [`pool`](Self::pool).
    #[doc(alias = "ibv_reg_mr")]
    pub fn sink(&self, size: usize) -> Result<Sink> {
        self.sink_with(size, MemoryOptions::default())
    }

    /// Like [`sink`](Self::sink), with options for allocating and registering the memory.
    ///
    /// # Errors
    /// Those of [`pool_with`](Self::pool_with).
    #[doc(alias = "ibv_reg_mr")]
    pub fn sink_with(&self, size: usize, options: MemoryOptions) -> Result<Sink> {
        Sink::register(self, size, options)
    }
}

impl Sink {
    fn register(pd: &ProtectionDomain, size: usize, options: MemoryOptions) -> Result<Self> {
        options.reject_zero_based("sink")?;
        if u32::try_from(size).is_err() {
            return Err(
                Error::new(ErrorKind::InvalidInput, "sink", format!("{size} bytes"))
                    .with_help("use at most 2^32-1 bytes, the maximum length of a scatter entry"),
            );
        }
        Region::register(pd, size, AccessFlags::LOCAL_WRITE, options)
            .map(|region| Self(Arc::new(region)))
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn sge(&self) -> ibv_sge {
        ibv_sge {
            addr: self.0.base(),
            length: u32::try_from(self.0.len()).unwrap_or(u32::MAX),
            lkey: self.0.lkey(),
        }
    }

    /// Returns the protection domain in which the memory is registered.
    pub fn pd(&self) -> &ProtectionDomain {
        self.0.pd()
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("size", &self.size()).finish()
    }
}
