//! Posting READs and atomics.

use test_support::random::Random;

use crate::model::{Effect, Entry, HeldModel, OwnedBuf, Pending, QpIndex};
use crate::transport::{self, Fetch, Flags};
use crate::violation::{Violation, unexpected};
use crate::world::{World, choose};

impl World<'_> {
    pub(crate) fn post_fetch(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let mut able = self.working_ends();
        able.retain(|&at| self.can_fetch(at));
        let Some(at) = choose(&able, random) else {
            return Ok(false);
        };
        let free = self.end(at).send_slots_free();
        let prepared = match at {
            QpIndex::Link(..) => self.prepare_fetch(at, random),
            QpIndex::Datagram(index) => self.prepare_read(index, random),
        };
        let Some((operation, entry)) = prepared else {
            return Ok(false);
        };
        let flags = Flags {
            tag: entry.tag,
            signaled: free < 2 || random.below(3) > 0,
            fenced: false,
        };
        self.fetch_into(at, operation, flags, entry, random)
    }

    /// Returns `true` if a queue pair has READs and a free slot.
    fn can_fetch(&self, at: QpIndex) -> bool {
        let has_reads = match at {
            QpIndex::Link(..) => !self.is_lossy(at),
            QpIndex::Datagram(index) => {
                self.datagrams[index].is_srd() && self.setup.support.srd_reads
            }
        };
        has_reads && self.find(at).is_some_and(|end| end.send_slots_free() > 0)
    }

    /// Prepares a READ or an atomic of the peer's memory.
    fn prepare_fetch(&mut self, at: QpIndex, random: &mut Random) -> Option<(Fetch, Entry)> {
        let pd = self.peer(at)?.pd;
        let (index, cell) = self.pick_remote(pd, random)?;
        let region = &self.memory.regions[index];
        let (id, bytes) = (region.id, region.cells[cell].bytes.clone());
        let remote = self.remote_cell(at, index, cell, random);
        let atomic = self.setup.support.atomics && random.below(3) == 0;
        let operand = random.next_u64();
        if !atomic {
            let entry = self.begin_read(Effect::Reads { region: id, cell }, bytes);
            return Some((Fetch::Read(remote), entry));
        }
        let mut entry = Entry::without_memory(self.new_id(), "atomic");
        let word = remote.slice(0..8).expect("a cell has a word");
        let before = u64::from_ne_bytes(bytes[..8].try_into().expect("8 bytes"));
        let (operation, value) = match random.below(3) {
            0 => (Fetch::Add(word, operand), before.wrapping_add(operand)),
            1 => (Fetch::Swap(word, before, operand), operand),
            _ => (Fetch::Swap(word, before.wrapping_add(1), operand), before),
        };
        let mut after = bytes.clone();
        after[..8].copy_from_slice(&value.to_ne_bytes());
        let effect = Effect::Writes { region: id, cell };
        self.memory.begin(effect, Some(Pending::Contents(after)));
        entry.effects.push(effect);
        entry.fetched = Some(bytes[..8].to_vec());
        Some((operation, entry))
    }

    /// Begins a READ of a cell with these bytes.
    pub(crate) fn begin_read(&mut self, effect: Effect, bytes: Vec<u8>) -> Entry {
        self.memory.begin(effect, None);
        Entry {
            effects: vec![effect],
            fetched: Some(bytes),
            ..Entry::without_memory(self.new_id(), "READ")
        }
    }

    /// Posts a READ or an atomic into a buffer or into a cell of a held region.
    fn fetch_into(
        &mut self,
        at: QpIndex,
        operation: Fetch,
        flags: Flags,
        mut entry: Entry,
        random: &mut Random,
    ) -> Result<bool, Violation> {
        let name = self.name(at);
        let bytes = entry.fetched.clone().unwrap_or_default();
        let end = self.end(at);
        let pd = end.pd;
        let held = end.held.iter().find_map(|held| match held {
            HeldModel::Shared(token, id) => Some((*token, *id)),
            _ => None,
        });
        let is_iwarp = self.setup.support.is_iwarp;
        if let Some((token, id)) = held.filter(|_| is_iwarp || random.below(2) == 0) {
            let cell = self.memory.region(id).and_then(|region| {
                let cell = region.writable(random)?;
                (region.cells[cell].bytes.len() >= bytes.len()).then_some(cell)
            });
            let Some((cell, region)) = cell.zip(self.memory.region(id)) else {
                self.not_posted(entry, Vec::new());
                return Ok(false);
            };
            let start = region.range(cell).start;
            let token = token
                .slice(start..start + bytes.len())
                .expect("within the region");
            let mut after = region.cells[cell].bytes.clone();
            after[..bytes.len()].copy_from_slice(&bytes);
            let effect = Effect::Writes { region: id, cell };
            self.memory.begin(effect, Some(Pending::Contents(after)));
            entry.effects.push(effect);
            self.note(|| format!("{name}: {operation:?} {flags:?} {entry:?}"));
            transport::fetch(&mut self.end(at).qp, operation, token, flags)
                .map_err(|error| unexpected(&name, error))?;
        } else {
            // The destination of a READ over iWARP must be a shared region.
            let owned = if is_iwarp {
                None
            } else {
                self.memory.take_at_least(pd, bytes.len(), random)
            };
            let Some(OwnedBuf { buf, model }) = owned else {
                self.not_posted(entry, Vec::new());
                return Ok(false);
            };
            entry.bufs.push(model);
            self.note(|| format!("{name}: {operation:?} {flags:?} {entry:?}"));
            transport::fetch(&mut self.end(at).qp, operation, buf, flags)
                .map_err(|error| unexpected(&name, error))?;
        }
        self.posted(at, flags, entry, None);
        Ok(true)
    }
}
