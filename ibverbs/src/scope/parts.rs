//! The queue pair and the memory registrations of a scope, and how they end.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use rdma_sys::ibv_sge;

use crate::error::{Error, ErrorKind, Result};
use crate::in_flight::{Loans, Reclaimed};
use crate::mr::{AccessFlags, Extras, Registration};
use crate::qp::QueuePair;
use crate::transport::SendTransport;
use crate::unwind::{abort, abort_on_unwind};

/// The queue pair of a scope and the registrations of borrowed memory.
pub(crate) struct ScopeParts<T: SendTransport> {
    pub(crate) qp: QueuePair<T>,
    pub(crate) loans: Loans,
    regions: Vec<Registration>,
}

impl<T: SendTransport> ScopeParts<T> {
    pub(crate) fn new(qp: QueuePair<T>) -> Self {
        Self {
            qp,
            loans: Loans::default(),
            regions: Vec::new(),
        }
    }

    /// Registers memory until [`end`](Self::end).
    ///
    /// # Safety
    /// The memory is borrowed until `end` has returned, exclusively if `access` includes writing.
    pub(crate) unsafe fn register(
        &mut self,
        bytes: NonNull<[u8]>,
        access: AccessFlags,
    ) -> Result<ibv_sge> {
        let Ok(length @ 1..) = u32::try_from(bytes.len()) else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "lend",
                format!("cannot register {} bytes", bytes.len()),
            )
            .with_help("lend 1 to 2^32-1 bytes"));
        };
        let pd = self.qp.pd();
        // SAFETY: the caller guarantees the borrow. `end` deregisters the memory or aborts the
        // process.
        let region = unsafe {
            let none = Extras::default();
            Registration::register(pd, bytes.cast(), bytes.len(), access.into(), false, none)
        }?;
        let sge = ibv_sge {
            addr: region.base(),
            length,
            lkey: region.lkey(),
        };
        self.regions.push(region);
        Ok(sge)
    }

    /// Ends the borrows. Returns the queue pair unless requests were in flight, so that it had to
    /// be destroyed.
    pub(crate) fn end(self) -> (Option<QueuePair<T>>, Reclaimed) {
        abort_on_unwind(|| self.end_or_abort())
    }

    fn end_or_abort(self) -> (Option<QueuePair<T>>, Reclaimed) {
        let Self { qp, loans, regions } = self;
        let (qp, reclaimed) = if loans.count() == 0 {
            (Some(qp), Reclaimed::default())
        } else {
            // Waiting for a flush could block forever. Destroying the queue pair ends the device's
            // access.
            match qp.destroy() {
                Ok(reclaimed) if loans.count() == 0 => (None, reclaimed),
                Ok(_) => abort("a request with borrowed memory outlived its queue pair"),
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
