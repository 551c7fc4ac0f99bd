//! The owner of requests: a queue's identity and protection domain, and the memory it holds.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use rdma_sys::ibv_sge;

use super::payload::{DeviceReads, PostableTo};
use super::rejected::PostError;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::QueueId;
use crate::mr::{Held, HeldList, HeldMemory, Hold, gather_entries};
use crate::pd::{DomainKey, ProtectionDomain};

/// Remedy for a mismatch of protection domains.
pub(crate) const OWN_DOMAIN: &str = "use the queue pair's own protection domain, `QueuePair::pd`";

/// Maximum number of different lists that a queue keeps. The limit bounds the memory that a program
/// uses if it creates a list for each message.
const MAX_LISTS: usize = 1 << 16;

/// A queue's identity and protection domain, and the memory that it holds until it is destroyed.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) id: QueueId,
    domain: DomainKey,
    pub(crate) pd: ProtectionDomain,
    held: Vec<HeldMemory>,
    /// Local keys of the held memory that the device may read at any later time
    /// ([`Hold::may_be_read_late`]).
    late_keys: HashSet<u32>,
    /// Entries to which the tokens of [`hold_list`](Self::hold_list) point.
    lists: HashSet<Entries>,
}

/// The entries of a list. Two lists with the same entries are equal.
///
/// A `Vec` and not a boxed slice, because moving a box would invalidate the pointers of the tokens.
#[derive(Debug)]
struct Entries(Vec<ibv_sge>);

impl Entries {
    fn keys(&self) -> impl Iterator<Item = (u64, u32, u32)> {
        self.0.iter().map(|sge| (sge.addr, sge.length, sge.lkey))
    }
}

impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        self.keys().eq(other.keys())
    }
}

impl Eq for Entries {}

impl Hash for Entries {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.keys().for_each(|key| key.hash(state));
    }
}

impl Owner {
    pub(crate) fn new(pd: &ProtectionDomain) -> Result<Self> {
        Ok(Self {
            id: QueueId::next()?,
            domain: pd.key(),
            pd: pd.clone(),
            held: Vec::new(),
            late_keys: HashSet::new(),
            lists: HashSet::new(),
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
        if !self.held.iter().any(|kept| memory.is(kept)) {
            self.held.push(memory.share());
            if memory.may_be_read_late() {
                self.late_keys.insert(memory.sge().lkey);
            }
        }
        Ok(Held::new(memory, self.id))
    }

    /// Keeps a scatter/gather list of held memory. Holding an equal list again returns an equal
    /// token.
    pub(crate) fn hold_list<K: Hold>(&mut self, pieces: &[Held<K>]) -> Result<HeldList<K>> {
        if pieces.iter().any(|piece| piece.queue() != self.id) {
            let what = "a token belongs to another queue pair";
            return Err(Error::new(ErrorKind::Mismatch, "hold_list", what)
                .with_help("call `hold` on this queue pair"));
        }
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        let entries = Entries(gather_entries(pieces.iter().map(Held::sge)).collect());
        if let Some(Entries(sges)) = self.lists.get(&entries) {
            return Ok(HeldList::new(sges, len, self.id));
        }
        if self.lists.len() == MAX_LISTS {
            let what = format!("the queue holds {MAX_LISTS} different lists, the maximum");
            return Err(Error::new(ErrorKind::InvalidInput, "hold_list", what)
                .with_help("use the same lists again, or post a `BufList` for each message"));
        }
        let list = HeldList::new(&entries.0, len, self.id);
        self.lists.insert(entries);
        Ok(list)
    }

    /// Returns `true` if the device may read this memory at any later time. Not inlined, because
    /// few posts call it.
    #[inline(never)]
    pub(crate) fn may_be_read_late(&self, memory: DeviceReads) -> bool {
        match memory {
            DeviceReads::Nothing => true,
            DeviceReads::Held(lkey) => self.late_keys.contains(&lkey),
            DeviceReads::Other => false,
        }
    }

    /// Checks that a payload can be posted to this queue.
    #[inline]
    pub(crate) fn check(&self, postable_to: PostableTo<'_>) -> Result<(), PostError> {
        match postable_to {
            PostableTo::DomainKey(domain) if domain != self.domain => Err(PostError::WrongDomain),
            PostableTo::Domain(pd) if !pd.is(&self.pd) => Err(PostError::WrongDomain),
            PostableTo::Queue(queue) if queue != self.id => Err(PostError::WrongQueue),
            PostableTo::NoQueue => Err(PostError::WrongDomain),
            _ => Ok(()),
        }
    }
}
