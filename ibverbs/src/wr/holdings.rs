//! The memory and the lists that a queue keeps for its requests, and their release.

use std::collections::{HashMap, HashSet};

use rdma_sys::ibv_sge;

use super::rejected::PostError;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{Direction, QueueId};
use crate::in_flight::RequestTable;
use crate::mr::{Grant, HeldMemory};
use crate::wr_id::WrId;

/// Maximum number of different lists that a queue keeps. The limit bounds the memory that a program
/// uses if it creates a list for each message.
const MAX_LISTS: usize = 1 << 16;

/// An entry of a scatter/gather list as a key.
type Key = (u64, u32, u32);

fn key_of(sge: &ibv_sge) -> Key {
    (sge.addr, sge.length, sge.lkey)
}

/// The memory and the lists that a queue keeps, each with the number of its token.
///
/// A number consists of the index of an entry and the number of its earlier uses, and is never used
/// again. As long as nothing was released, every token of the queue is valid, and a post compares
/// the queue only. After the first release it looks up the number.
#[derive(Debug)]
pub(super) struct Holdings {
    queue: QueueId,
    /// The queue whose tokens are valid without a look at the table: this one, or none.
    unreleased: QueueId,
    entries: Vec<Entry>,
    /// Indices of entries that keep nothing and can be used again.
    vacant: Vec<u32>,
    memories: HashMap<Key, u32>,
    lists: HashMap<Vec<Key>, u32>,
    /// Memory and lists that were released while requests could use them.
    leaving: Vec<Leaving>,
}

/// Memory or a list.
#[derive(Debug)]
struct Entry {
    /// The number of the token, or of the next one if nothing is kept.
    number: u32,
    kept: Option<Kept>,
    /// `true` if the device may read the memory at any later time ([`Hold::may_be_read_late`]).
    ///
    /// [`Hold::may_be_read_late`]: crate::Hold::may_be_read_late
    is_read_late: bool,
}

#[derive(Debug)]
enum Kept {
    Memory {
        memory: HeldMemory,
        key: Key,
        /// Indices of the lists that contain it.
        lists: HashSet<u32>,
    },
    List {
        /// The entries to which the tokens point. A `Vec` and not a boxed slice, because moving a
        /// box would invalidate the pointers.
        sges: Vec<ibv_sge>,
        /// Indices of their memory.
        members: HashSet<u32>,
    },
}

/// Memory or a list whose token is not valid anymore.
#[derive(Debug)]
struct Leaving {
    token: Grant,
    #[allow(dead_code, reason = "kept to be dropped")]
    kept: Vec<Kept>,
    /// The requests that were in flight at the release and may use it.
    users: Vec<WrId>,
}

impl Leaving {
    /// Returns `true` if no request uses it anymore.
    fn is_unused(&mut self, tables: &[&dyn RequestTable]) -> bool {
        let is_in_flight = |user: &WrId| tables.iter().any(|table| table.holds(*user));
        while self.users.last().is_some_and(|user| !is_in_flight(user)) {
            self.users.pop();
        }
        self.users.is_empty()
    }
}

impl Holdings {
    pub(super) fn new(queue: QueueId) -> Self {
        Self {
            queue,
            unreleased: queue,
            entries: Vec::new(),
            vacant: Vec::new(),
            memories: HashMap::new(),
            lists: HashMap::new(),
            leaving: Vec::new(),
        }
    }

    /// Checks that a token belongs to this queue and was not released.
    #[inline]
    pub(super) fn check(&self, token: Grant) -> Result<(), PostError> {
        if token.queue() == self.unreleased || self.is_kept(token) {
            Ok(())
        } else {
            Err(PostError::WrongQueue)
        }
    }

    /// Looks up the number of a token. Most queues never release anything.
    #[cold]
    #[inline(never)]
    fn is_kept(&self, token: Grant) -> bool {
        let is_it = |entry: &Entry| entry.number == token.number() && entry.kept.is_some();
        token.queue() == self.queue && self.entry(token).is_some_and(is_it)
    }

    fn entry(&self, token: Grant) -> Option<&Entry> {
        self.entries.get(token.index() as usize)
    }

    pub(super) fn is_read_late(&self, token: Grant) -> bool {
        self.entry(token).is_some_and(|entry| entry.is_read_late)
    }

    /// Returns the token of memory, which is kept if it is not yet. As long as it is registered, no
    /// other memory has the same key.
    pub(super) fn hold(
        &mut self,
        sge: &ibv_sge,
        is_read_late: bool,
        share: impl FnOnce() -> HeldMemory,
    ) -> Result<Grant> {
        let key = key_of(sge);
        if let Some(&index) = self.memories.get(&key) {
            return Ok(self.token(index));
        }
        let (memory, lists) = (share(), HashSet::new());
        let index = self.insert(Kept::Memory { memory, key, lists }, is_read_late)?;
        self.memories.insert(key, index);
        Ok(self.token(index))
    }

    /// Returns the token of a list of the memory with these tokens, and the entries. The list is
    /// kept if it is not yet.
    pub(super) fn hold_list(
        &mut self,
        sges: Vec<ibv_sge>,
        tokens: impl Iterator<Item = Grant>,
    ) -> Result<(Grant, &[ibv_sge])> {
        let keys: Vec<Key> = sges.iter().map(key_of).collect();
        let index = match self.lists.get(&keys).copied() {
            Some(index) => index,
            None if self.lists.len() == MAX_LISTS => {
                let what = format!("the queue holds {MAX_LISTS} different lists, the maximum");
                return Err(Error::new(ErrorKind::LimitReached, "hold_list", what)
                    .with_help("use the same lists again, release them, or post a `BufList`"));
            }
            None => {
                let members: HashSet<u32> = tokens.map(Grant::index).collect();
                let list = Kept::List {
                    sges,
                    members: members.clone(),
                };
                let index = self.insert(list, false)?;
                for member in members {
                    if let Some(lists) = self.lists_with(member) {
                        lists.insert(index);
                    }
                }
                self.lists.insert(keys, index);
                index
            }
        };
        let sges = match &self.entries[index as usize].kept {
            Some(Kept::List { sges, .. }) => sges.as_slice(),
            _ => &[],
        };
        Ok((self.token(index), sges))
    }

    /// Ends the validity of a token, and drops what it stands for once the requests that may use it
    /// have completed. Returns `true` if it is dropped.
    pub(super) fn release(&mut self, token: Grant, tables: &[&dyn RequestTable]) -> Result<bool> {
        if token.queue() != self.queue {
            let what = "the token belongs to another queue pair";
            return Err(Error::new(ErrorKind::Mismatch, "release", what)
                .with_help("call `release` on the queue that returned the token"));
        }
        if self.check(token).is_ok() {
            self.revoke(token, tables);
        }
        // The device may still access the memory of such a request.
        if !tables.iter().any(|table| table.has_failed_unowned()) {
            self.leaving
                .retain_mut(|leaving| !leaving.is_unused(tables));
        }
        Ok(!self.leaving.iter().any(|leaving| leaving.token == token))
    }

    /// Ends the validity of a token, and of the lists that contain its memory.
    fn revoke(&mut self, token: Grant, tables: &[&dyn RequestTable]) {
        // Before the memory can be dropped: every token is looked up from now on.
        self.unreleased = QueueId::NONE;
        let mut kept = Vec::new();
        self.remove(token.index(), &mut kept);
        let mut users = Vec::new();
        for table in tables {
            table.unowned(&mut users);
        }
        if matches!(
            kept.first(),
            Some(Kept::Memory {
                memory: HeldMemory::Frozen(_),
                ..
            })
        ) {
            users.retain(|user| user.direction() == Direction::Send);
        }
        let leaving = Leaving { token, kept, users };
        self.leaving.push(leaving);
    }

    /// Removes an entry. If it is memory, the lists that contain it are removed too.
    fn remove(&mut self, index: u32, removed: &mut Vec<Kept>) {
        let entry = &mut self.entries[index as usize];
        let Some(kept) = entry.kept.take() else {
            return;
        };
        // An entry whose numbers are used up stays empty.
        if let Some(next) = entry.number.checked_add(1 << Grant::INDEX_BITS) {
            entry.number = next;
            self.vacant.push(index);
        }
        let mut lists = HashSet::new();
        match &kept {
            Kept::Memory {
                key,
                lists: with_it,
                ..
            } => {
                self.memories.remove(key);
                lists.clone_from(with_it);
            }
            Kept::List { sges, members } => {
                self.lists
                    .remove(&sges.iter().map(key_of).collect::<Vec<_>>());
                for &member in members {
                    if let Some(lists) = self.lists_with(member) {
                        lists.remove(&index);
                    }
                }
            }
        }
        removed.push(kept);
        for list in lists {
            self.remove(list, removed);
        }
    }

    /// Adds an entry and returns its index.
    fn insert(&mut self, kept: Kept, is_read_late: bool) -> Result<u32> {
        let index = match (self.vacant.pop(), u32::try_from(self.entries.len())) {
            (Some(index), _) => index,
            (None, Ok(index)) if index < 1 << Grant::INDEX_BITS => {
                self.entries.push(Entry {
                    number: index,
                    kept: None,
                    is_read_late,
                });
                index
            }
            _ => {
                let what = "the queue holds 2^20 pieces of memory, or has held 2^32";
                return Err(Error::new(ErrorKind::LimitReached, "hold", what)
                    .with_help("release memory, or use a new queue"));
            }
        };
        let entry = &mut self.entries[index as usize];
        (entry.kept, entry.is_read_late) = (Some(kept), is_read_late);
        Ok(index)
    }

    fn token(&self, index: u32) -> Grant {
        Grant::new(self.queue, self.entries[index as usize].number)
    }

    /// Returns the indices of the lists that contain this memory.
    fn lists_with(&mut self, index: u32) -> Option<&mut HashSet<u32>> {
        match &mut self.entries[index as usize].kept {
            Some(Kept::Memory { lists, .. }) => Some(lists),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri is slow")]
    fn an_index_fits_into_its_bits() {
        let queue = QueueId::next().expect("identity");
        let mut holdings = Holdings::new(queue);
        let used = (0..(1 << Grant::INDEX_BITS) - 1).map(|number| Entry {
            number,
            kept: None,
            is_read_late: false,
        });
        holdings.entries.extend(used);
        let mut list = |length| {
            let sge = ibv_sge {
                length,
                ..Default::default()
            };
            holdings
                .hold_list(vec![sge], std::iter::empty())
                .map(|list| list.0)
        };
        let last = list(1).expect("the last index");
        assert_eq!(last.index(), (1 << Grant::INDEX_BITS) - 1);
        let error = list(2).expect_err("no index");
        assert_eq!(error.kind(), ErrorKind::LimitReached);
    }
}
