//! What a scope has to end: a queue pair that may name borrowed memory, and the memory's
//! registrations.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use rdma_sys::ibv_sge;

use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::{Loans, Reclaimed};
use crate::mr::{AccessFlags, Registration};
use crate::qp::QueuePair;
use crate::transport::SendTransport;

/// What a scope has to end.
pub(crate) struct Parts<T: SendTransport> {
    pub(crate) qp: QueuePair<T>,
    pub(crate) loans: Loans,
    regions: Vec<Registration>,
}

impl<T: SendTransport> Parts<T> {
    pub(crate) fn of(qp: QueuePair<T>) -> Self {
        Self {
            qp,
            loans: Loans::default(),
            regions: Vec::new(),
        }
    }

    /// Registers memory until the [end](Self::end).
    ///
    /// # Safety
    /// It is borrowed until after that, for writing if `access` has it.
    pub(crate) unsafe fn register(
        &mut self,
        bytes: NonNull<[u8]>,
        access: AccessFlags,
    ) -> Result<ibv_sge> {
        let Ok(length @ 1..) = u32::try_from(bytes.len()) else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "lend",
                format!("{} bytes", bytes.len()),
            )
            .with_help("1 to 2^32-1 bytes can be lent"));
        };
        let pd = self.qp.pd();
        // SAFETY: the caller's promise; `end` deregisters it, or aborts the process.
        let region =
            unsafe { Registration::register(pd, bytes.cast(), bytes.len(), access.into(), false) }?;
        let sge = ibv_sge {
            addr: region.base(),
            length,
            lkey: region.lkey(),
        };
        self.regions.push(region);
        Ok(sge)
    }

    /// Ends what is borrowed, in order; the queue pair comes back if it need not be destroyed.
    pub(crate) fn end(self) -> (Option<QueuePair<T>>, Reclaimed) {
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
            if let Err((_, error)) = region.deregister() {
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
