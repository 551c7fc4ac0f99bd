//! Whom memory belongs to, and what a queue keeps alive for it.

use super::payload::Belongs;
use super::rejected::PostError;
use crate::error::{Error, Result};
use crate::identity::QueueId;
use crate::kind::ErrorKind;
use crate::mr::{Held, Hold, Keep};
use crate::pd::ProtectionDomain;

/// A queue's identity, its domain, and the memory that it holds until it is destroyed.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) id: QueueId,
    pub(super) pd: ProtectionDomain,
    held: Vec<Keep>,
}

impl Owner {
    pub(super) fn new(pd: &ProtectionDomain) -> Result<Self> {
        Ok(Self { id: QueueId::next()?, pd: pd.clone(), held: Vec::new() })
    }

    /// Keeps memory alive; holding the same memory again gives an equal token.
    pub(super) fn hold<K: Hold>(&mut self, memory: &K) -> Result<Held<K>> {
        let (mine, its) = (&self.pd, memory.domain());
        if !its.is(mine) {
            let (its, mine) = (its.context().device_name(), mine.context().device_name());
            let what = format!("memory of a domain on {its} for a queue of another domain on {mine}");
            return Err(Error::new(ErrorKind::Mismatch, "hold", what));
        }
        if !self.held.iter().any(|kept| memory.is(kept)) {
            self.held.push(memory.keep());
        }
        Ok(Held::new(memory, self.id))
    }

    /// Whether a payload may be posted here.
    #[inline]
    pub(super) fn check(&self, belongs: Belongs<'_>) -> std::result::Result<(), PostError> {
        match belongs {
            Belongs::To(pd) if !pd.is(&self.pd) => Err(PostError::WrongDomain),
            Belongs::HeldBy(queue) if queue != self.id => Err(PostError::WrongQueue),
            _ => Ok(()),
        }
    }
}
