//! The owner of requests: a queue's identity and protection domain, and the memory it holds.

use super::holdings::Holdings;
use super::payload::{DeviceReads, PostableTo};
use super::rejected::PostError;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::QueueId;
use crate::in_flight::RequestTable;
use crate::mr::{Grant, Held, HeldList, Hold, gather_entries};
use crate::pd::{DomainKey, ProtectionDomain};

/// Remedy for a mismatch of protection domains.
pub(crate) const OWN_DOMAIN: &str = "use the queue pair's own protection domain, `QueuePair::pd`";

/// A queue's identity and protection domain, and the memory that it holds.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) id: QueueId,
    /// The identity of the scope whose lent memory can be posted: that of the queue pair on which
    /// it was started.
    pub(crate) scope: QueueId,
    domain: DomainKey,
    pub(crate) pd: ProtectionDomain,
    /// `true` if the provider copies nothing to or from the addresses of entries.
    device_addresses: bool,
    holdings: Holdings,
}

impl Owner {
    /// `device_addresses` is `true` if the queue can hold memory whose addresses this process does
    /// not have.
    pub(crate) fn new(pd: &ProtectionDomain, device_addresses: bool) -> Result<Self> {
        let id = QueueId::next()?;
        Ok(Self {
            id,
            scope: id,
            domain: pd.key(),
            pd: pd.clone(),
            device_addresses,
            holdings: Holdings::new(id),
        })
    }

    /// Keeps memory alive. Holding the same memory again returns an equal token.
    pub(crate) fn hold<K: Hold>(&mut self, memory: &K) -> Result<Held<K>> {
        let other = memory.domain();
        if !other.is(&self.pd) {
            let what = format!(
                "memory on {} and a queue of another protection domain on {}",
                other.context().device_name(),
                self.pd.context().device_name()
            );
            return Err(Error::new(ErrorKind::Mismatch, "hold", what).with_help(OWN_DOMAIN));
        }
        if !self.device_addresses && !memory.has_process_address() {
            let what = format!(
                "memory on {} whose addresses this process does not have",
                self.pd.context().device_name()
            );
            return Err(Error::new(ErrorKind::InvalidInput, "hold", what).with_help(
                "create the queue with `device_addresses` in QpOptions or SrqOptions, so that the \
                 provider does not copy to them",
            ));
        }
        let token = self
            .holdings
            .hold(&memory.sge(), memory.may_be_read_late(), || memory.share())?;
        Ok(Held::new(memory, token))
    }

    /// Keeps a scatter/gather list of held memory. Holding an equal list again returns an equal
    /// token.
    pub(crate) fn hold_list<K: Hold>(&mut self, pieces: &[Held<K>]) -> Result<HeldList<K>> {
        let is_valid = |piece: &Held<K>| self.holdings.check(piece.token()).is_ok();
        if !pieces.iter().all(is_valid) {
            let what = "a token belongs to another queue pair, or its memory was released";
            return Err(Error::new(ErrorKind::Mismatch, "hold_list", what)
                .with_help("call `hold` on this queue pair"));
        }
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        let sges = gather_entries(pieces.iter().map(Held::sge)).collect();
        let tokens = pieces.iter().map(Held::token);
        let (token, sges) = self.holdings.hold_list(sges, tokens)?;
        Ok(HeldList::new(sges, len, token))
    }

    /// Ends the validity of a token, and drops what it stands for once no request in these tables
    /// may use it. Returns `true` if it is dropped.
    pub(crate) fn release(&mut self, token: Grant, tables: &[&dyn RequestTable]) -> Result<bool> {
        self.holdings.release(token, tables)
    }

    /// Returns `true` if the device may read this memory at any later time. Not inlined, because
    /// few posts call it.
    #[inline(never)]
    pub(crate) fn may_be_read_late(&self, memory: DeviceReads) -> bool {
        match memory {
            DeviceReads::Nothing => true,
            DeviceReads::Held(token) => self.holdings.is_read_late(token),
            DeviceReads::Other => false,
        }
    }

    /// Checks that a payload can be posted to this queue.
    #[inline]
    pub(crate) fn check(&self, postable_to: PostableTo<'_>) -> Result<(), PostError> {
        match postable_to {
            PostableTo::DomainKey(domain) if domain != self.domain => Err(PostError::WrongDomain),
            PostableTo::Domain(pd) if !pd.is(&self.pd) => Err(PostError::WrongDomain),
            PostableTo::Scope(scope) if scope != self.scope => Err(PostError::WrongQueue),
            PostableTo::Held(token) => self.holdings.check(token),
            PostableTo::NoQueue => Err(PostError::WrongDomain),
            _ => Ok(()),
        }
    }
}
