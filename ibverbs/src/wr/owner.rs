//! Whom memory belongs to, and what a queue keeps alive for it.

use rdma_sys::ibv_sge;

use super::payload::Belongs;
use super::rejected::PostError;
use crate::error::{Error, ErrorKind, Result};
use crate::fixed::Fixed;
use crate::identity::QueueId;
use crate::mr::{Held, HeldList, HeldMemory, Hold};
use crate::pd::{DomainKey, ProtectionDomain};

/// What mends a mismatch of domains.
pub(crate) const OWN_DOMAIN: &str =
    "make it of the queue pair's own domain, which is QueuePair::pd";

/// A queue's identity, its domain, and the memory that it holds until it is destroyed.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) id: QueueId,
    domain: DomainKey,
    pub(crate) pd: ProtectionDomain,
    held: Vec<HeldMemory>,
    lists: Vec<Fixed<ibv_sge>>,
}

impl Owner {
    pub(crate) fn new(pd: &ProtectionDomain) -> Result<Self> {
        Ok(Self {
            id: QueueId::next()?,
            domain: pd.key(),
            pd: pd.clone(),
            held: Vec::new(),
            lists: Vec::new(),
        })
    }

    /// Keeps memory alive; holding the same memory again gives an equal token.
    pub(crate) fn hold<K: Hold>(&mut self, memory: &K) -> Result<Held<K>> {
        let (mine, its) = (&self.pd, memory.domain());
        if !its.is(mine) {
            let (its, mine) = (its.context().device_name(), mine.context().device_name());
            let what =
                format!("memory of a domain on {its} for a queue of another domain on {mine}");
            return Err(Error::new(ErrorKind::Mismatch, "hold", what).with_help(OWN_DOMAIN));
        }
        if !self.held.iter().any(|kept| memory.is(kept)) {
            self.held.push(memory.share());
        }
        Ok(Held::new(memory, self.id))
    }

    /// Keeps a description of several pieces of held memory.
    pub(crate) fn hold_list<K: Hold>(&mut self, pieces: &[Held<K>]) -> Result<HeldList<K>> {
        if pieces.iter().any(|piece| piece.queue() != self.id) {
            let what = "a token of another queue pair";
            return Err(Error::new(ErrorKind::Mismatch, "hold_list", what)
                .with_help("call `hold` on this one"));
        }
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        // A box that moves would end pointers into it.
        let sges = Fixed::from(pieces.iter().map(Held::sge).collect::<Box<[ibv_sge]>>());
        let list = HeldList::new(&sges, len, self.id);
        self.lists.push(sges);
        Ok(list)
    }

    /// Whether a payload may be posted here; `id` is this queue's identity, which those who ask
    /// have at hand.
    #[inline]
    pub(crate) fn check(
        &self,
        belongs: Belongs<'_>,
        id: QueueId,
    ) -> std::result::Result<(), PostError> {
        match belongs {
            Belongs::Of(domain) if domain != self.domain => Err(PostError::WrongDomain),
            Belongs::To(pd) if !pd.is(&self.pd) => Err(PostError::WrongDomain),
            Belongs::HeldBy(queue) if queue != id => Err(PostError::WrongQueue),
            Belongs::Nowhere => Err(PostError::WrongDomain),
            _ => Ok(()),
        }
    }
}
