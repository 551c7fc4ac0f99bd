//! The queue pairs and the memory registrations of a scope, and how they end.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use rdma_sys::ibv_sge;

use crate::error::{Error, ErrorKind, Result};
use crate::identity::QueueId;
use crate::in_flight::Loans;
use crate::mr::{AccessFlags, Extras, Registration};
use crate::pd::ProtectionDomain;
use crate::qp::QueuePair;
use crate::transport::SendTransport;
use crate::unwind::{abort, abort_on_unwind};

/// A queue pair in a scope, of any transport.
trait Member {
    /// Lets the queue pair post memory lent to this scope, or to none but its own.
    fn enter(&mut self, scope: Option<QueueId>);

    /// Destroys the queue pair if requests with borrowed memory are in flight. The process is
    /// aborted if that fails.
    fn end(&mut self);
}

impl<T: SendTransport> Member for QueuePair<T> {
    fn enter(&mut self, scope: Option<QueueId>) {
        let own = self.id();
        self.tables.owner.scope = scope.unwrap_or(own);
    }

    fn end(&mut self) {
        if self.tables.has_lent() {
            // Waiting for a flush could block forever. Destroying the queue pair ends the device's
            // access.
            if let Err(error) = self.destroy_in_place() {
                abort(&error.to_string());
            }
        }
    }
}

/// The queue pairs of a scope and its registrations of borrowed memory.
pub(crate) struct ScopeParts {
    pub(crate) id: QueueId,
    pub(crate) loans: Loans,
    pd: ProtectionDomain,
    members: Vec<NonNull<dyn Member>>,
    regions: Vec<Registration>,
}

impl ScopeParts {
    /// Starts the scope of a queue pair.
    ///
    /// # Safety
    /// Same as [`add`](Self::add).
    pub(crate) unsafe fn new<T: SendTransport>(mut first: NonNull<QueuePair<T>>) -> Self {
        // SAFETY: guaranteed by the caller.
        let qp = unsafe { first.as_mut() };
        let mut parts = Self {
            id: qp.id(),
            loans: Loans::default(),
            pd: qp.pd().clone(),
            members: Vec::new(),
            regions: Vec::new(),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { parts.add(first) };
        parts
    }

    /// Adds a queue pair, which can then post lent memory.
    ///
    /// # Safety
    /// The queue pair is exclusively borrowed until [`end`](Self::end) has returned, and other
    /// pointers to it are not used during these two calls.
    pub(crate) unsafe fn add<T: SendTransport>(&mut self, qp: NonNull<QueuePair<T>>) {
        let mut member: NonNull<dyn Member> = qp;
        // SAFETY: guaranteed by the caller.
        unsafe { member.as_mut() }.enter(Some(self.id));
        self.members.push(member);
    }

    /// Returns the protection domain of the scope.
    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.pd
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
        let (none, start) = (Extras::default(), bytes.cast());
        // SAFETY: the caller guarantees the borrow. `end` deregisters the memory or aborts the
        // process.
        let region = unsafe {
            Registration::register(&self.pd, start, bytes.len(), access.into(), false, none)
        }?;
        let sge = ibv_sge {
            addr: region.base(),
            length,
            lkey: region.lkey(),
        };
        self.regions.push(region);
        Ok(sge)
    }

    /// Ends the borrows. Returns `true` if requests were in flight, whose queue pairs had to be
    /// destroyed.
    pub(crate) fn end(self) -> bool {
        abort_on_unwind(|| self.end_or_abort())
    }

    fn end_or_abort(self) -> bool {
        let unfinished = self.loans.count() > 0;
        for mut member in self.members {
            // SAFETY: see `add`.
            let member = unsafe { member.as_mut() };
            if unfinished {
                member.end();
            }
            member.enter(None);
        }
        if self.loans.count() > 0 {
            abort("a request with borrowed memory outlived its queue pair");
        }
        for region in self.regions {
            if let Err((_, error)) = region.deregister() {
                abort(&error.to_string());
            }
        }
        unfinished
    }
}
