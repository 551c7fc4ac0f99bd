//! The model of memory: pools, buffers, frozen memory, sinks and shared regions.

use std::ops::Range;

use ibverbs::{Buf, Frozen, Pool, SharedRegion, Sink};
use test_support::random::Random;

use super::data;
use super::message::Message;
use crate::violation::Violation;

/// Identity of an object of the walk. It is never reused.
pub(crate) type Id = u64;

pub(crate) struct PoolModel {
    pub(crate) id: Id,
    pub(crate) pd: Id,
    pub(crate) pool: Pool,
    pub(crate) count: usize,
    /// Number of buffers that are not in the pool.
    pub(crate) taken: usize,
}

/// Contents of a buffer that the program owns or that a request owns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufModel {
    /// The pool that it belongs to, which the walk may have dropped. Memory that peers can read
    /// belongs to none.
    pub(crate) pool: Option<Id>,
    pub(crate) pd: Id,
    /// The whole capacity has this pattern.
    pub(crate) pattern: u64,
    pub(crate) len: usize,
}

pub(crate) struct OwnedBuf {
    pub(crate) buf: Buf,
    pub(crate) model: BufModel,
}

pub(crate) struct FrozenModel {
    pub(crate) id: Id,
    pub(crate) frozen: Frozen,
    pub(crate) model: BufModel,
}

pub(crate) struct SinkModel {
    pub(crate) pd: Id,
    pub(crate) sink: Sink,
}

/// A part of a shared region, which one transfer at a time writes or several read.
pub(crate) struct Cell {
    pub(crate) bytes: Vec<u8>,
    pub(crate) readers: usize,
    /// A request in flight that writes the cell.
    pub(crate) pending: Option<Pending>,
}

/// The effect of a request in flight on a cell.
pub(crate) enum Pending {
    /// It replaces the contents with these.
    Contents(Vec<u8>),
    /// It receives a message, which the model does not know yet.
    Message,
    /// It failed, and the device writes to the cell until its queue pair is destroyed.
    Unknown,
}

pub(crate) struct RegionModel {
    pub(crate) id: Id,
    pub(crate) pd: Id,
    pub(crate) region: SharedRegion,
    pub(crate) zero_based: bool,
    pub(crate) cells: Vec<Cell>,
}

/// The use of a cell by a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads { region: Id, cell: usize },
    Writes { region: Id, cell: usize },
}

impl RegionModel {
    pub(crate) fn range(&self, cell: usize) -> Range<usize> {
        let size = self.cells[cell].bytes.len();
        cell * size..(cell + 1) * size
    }

    fn contents(&self, cell: usize) -> Vec<u8> {
        let range = self.range(cell);
        let mut found = vec![0; range.len()];
        self.region
            .read(range.start, &mut found)
            .expect("within the region");
        found
    }

    /// Returns `true` if a transfer uses the region.
    pub(crate) fn is_busy(&self) -> bool {
        self.cells
            .iter()
            .any(|cell| cell.readers > 0 || cell.pending.is_some())
    }

    /// Returns a cell that a transfer can write.
    pub(crate) fn writable(&self, random: &mut Random) -> Option<usize> {
        let cell = random.below(self.cells.len());
        let Cell {
            readers, pending, ..
        } = &self.cells[cell];
        (*readers == 0 && pending.is_none()).then_some(cell)
    }

    /// Returns a cell that a transfer can read.
    pub(crate) fn readable(&self, random: &mut Random) -> Option<usize> {
        let cell = random.below(self.cells.len());
        self.cells[cell].pending.is_none().then_some(cell)
    }

    fn check(&self) -> Result<(), Violation> {
        for (index, cell) in self.cells.iter().enumerate() {
            let what = format!("cell {index} of region {}", self.id);
            let found = self.contents(index);
            match &cell.pending {
                None => data::check(&what, &found, &cell.bytes)?,
                Some(Pending::Contents(new)) => {
                    data::check_either(&what, &found, &cell.bytes, new)?;
                }
                Some(Pending::Message | Pending::Unknown) => {}
            }
        }
        Ok(())
    }
}

/// All memory of a walk.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) pools: Vec<PoolModel>,
    pub(crate) owned: Vec<OwnedBuf>,
    pub(crate) frozen: Vec<FrozenModel>,
    /// Frozen buffers that only queue pairs hold.
    pub(crate) orphans: Vec<(Id, BufModel)>,
    pub(crate) sinks: Vec<SinkModel>,
    pub(crate) regions: Vec<RegionModel>,
}

impl Memory {
    pub(crate) fn region(&mut self, id: Id) -> Option<&mut RegionModel> {
        self.regions.iter_mut().find(|region| region.id == id)
    }

    fn cell(&mut self, effect: Effect) -> Option<&mut Cell> {
        let (Effect::Reads { region, cell } | Effect::Writes { region, cell }) = effect;
        self.region(region)?.cells.get_mut(cell)
    }

    /// Takes a buffer of a domain and fills it with a new pattern.
    pub(crate) fn take(&mut self, pd: Id, random: &mut Random) -> Option<OwnedBuf> {
        self.take_at_least(pd, 0, random)
    }

    /// Like [`take`](Self::take), with a minimum capacity.
    pub(crate) fn take_at_least(
        &mut self,
        pd: Id,
        capacity: usize,
        random: &mut Random,
    ) -> Option<OwnedBuf> {
        let (mut buf, pool) = match self.take_from_pool(pd, capacity, random) {
            Some(taken) => taken,
            None => self.take_owned(pd, capacity)?,
        };
        let pattern = random.next_u64();
        buf.set_len(buf.capacity());
        data::fill(pattern, &mut buf);
        let len = match random.below(8) {
            0 => buf.capacity(),
            1 => 0,
            _ => random.below(buf.capacity() + 1),
        };
        buf.set_len(len);
        let model = BufModel {
            pool,
            pd,
            pattern,
            len,
        };
        Some(OwnedBuf { buf, model })
    }

    /// Takes a buffer with its full length from a pool.
    fn take_from_pool(
        &mut self,
        pd: Id,
        capacity: usize,
        random: &mut Random,
    ) -> Option<(Buf, Option<Id>)> {
        let fits = |model: &PoolModel| {
            model.pd == pd && model.taken < model.count && model.pool.buf_size() >= capacity
        };
        let usable: Vec<usize> = (0..self.pools.len())
            .filter(|&index| fits(&self.pools[index]))
            .collect();
        let index = *usable.get(random.below(usable.len().max(1)))?;
        let pool = &mut self.pools[index];
        let buf = pool.pool.take()?;
        pool.taken += 1;
        Some((buf, Some(pool.id)))
    }

    /// Takes a buffer that a request has returned.
    fn take_owned(&mut self, pd: Id, capacity: usize) -> Option<(Buf, Option<Id>)> {
        let fits = |owned: &OwnedBuf| owned.model.pd == pd && owned.buf.capacity() >= capacity;
        let index = self.owned.iter().position(fits)?;
        let OwnedBuf { buf, model } = self.owned.swap_remove(index);
        Some((buf, model.pool))
    }

    /// Accounts for a buffer that returned to its pool.
    pub(crate) fn released(&mut self, model: &BufModel) {
        if let Some(pool) = self
            .pools
            .iter_mut()
            .find(|pool| Some(pool.id) == model.pool)
        {
            pool.taken -= 1;
        }
    }

    /// Checks a buffer that a request returned and adds it to those of the program. The request may
    /// have written `written` to its start.
    pub(crate) fn returned(
        &mut self,
        what: &str,
        mut buf: Buf,
        model: BufModel,
        written: Written<'_>,
    ) -> Result<(), Violation> {
        let capacity = buf.capacity();
        let expected_len = match written {
            Written::All(bytes) => bytes.len(),
            Written::Message(message) => message.len(),
            _ => model.len,
        };
        if buf.len() != expected_len && !matches!(written, Written::Unknown | Written::Maybe(_)) {
            let len = buf.len();
            return Err(Violation(format!(
                "{what}: the buffer has the length {len}, expected {expected_len}"
            )));
        }
        buf.set_len(capacity);
        let before = data::bytes(model.pattern, capacity);
        let after = |bytes: &[u8]| {
            let mut after = before.clone();
            after[..bytes.len()].copy_from_slice(bytes);
            after
        };
        match written {
            Written::Nothing => data::check(what, &buf, &before)?,
            Written::All(bytes) => data::check(what, &buf, &after(bytes))?,
            Written::Maybe(bytes) => data::check_either(what, &buf, &before, &after(bytes))?,
            Written::Message(message) => {
                let mut after = before.clone();
                after[..message.header].copy_from_slice(&buf[..message.header]);
                after[message.header..message.len()].copy_from_slice(&message.bytes);
                data::check(what, &buf, &after)?;
            }
            Written::Unknown => {}
        }
        data::fill(model.pattern, &mut buf);
        buf.set_len(model.len);
        self.owned.push(OwnedBuf { buf, model });
        Ok(())
    }

    /// Marks a cell as used by a request.
    pub(crate) fn begin(&mut self, effect: Effect, new: Option<Pending>) {
        if let Some(cell) = self.cell(effect) {
            match effect {
                Effect::Reads { .. } => cell.readers += 1,
                Effect::Writes { .. } => cell.pending = new,
            }
        }
    }

    /// Ends the use of a cell by a request that was not posted.
    pub(crate) fn cancel(&mut self, effect: Effect) {
        if let Some(cell) = self.cell(effect) {
            match effect {
                Effect::Reads { .. } => cell.readers -= 1,
                Effect::Writes { .. } => cell.pending = None,
            }
        }
    }

    /// Returns `true` if a transfer has arrived as a whole, and ends its use of the cell then.
    pub(crate) fn has_arrived(&mut self, effect: Effect) -> bool {
        let Effect::Writes { region, cell } = effect else {
            self.cancel(effect);
            return true;
        };
        let Some(region) = self.region(region) else {
            return true;
        };
        let found = region.contents(cell);
        let Cell { bytes, pending, .. } = &mut region.cells[cell];
        let arrived = match pending {
            Some(Pending::Contents(new)) => *new == found,
            Some(Pending::Message) | None => true,
            Some(Pending::Unknown) => false,
        };
        if arrived {
            *bytes = found;
            *pending = None;
        }
        arrived
    }

    /// Marks a cell to which the device may write at any time.
    pub(crate) fn set_unknown(&mut self, effect: Effect) {
        if let (Effect::Writes { .. }, Some(cell)) = (effect, self.cell(effect))
            && cell.pending.is_some()
        {
            cell.pending = Some(Pending::Unknown);
        }
    }

    /// Checks that a transfer has arrived as a whole.
    pub(crate) fn arrived(&mut self, what: &str, effect: Effect) -> Result<(), Violation> {
        if let (false, Effect::Writes { region, cell }) = (self.has_arrived(effect), effect) {
            let Some(region) = self.region(region) else {
                return Ok(());
            };
            let found = region.contents(cell);
            let Cell { bytes, pending, .. } = &mut region.cells[cell];
            if let Some(Pending::Contents(expected)) = pending {
                let what = format!("{what}: cell {cell} of region {}", region.id);
                data::check(&what, &found, expected)?;
            } else {
                (*bytes, *pending) = (found, None);
            }
        }
        Ok(())
    }

    /// Checks that a message was received into the start of the cells of a receive, and ends the
    /// use of these.
    pub(crate) fn received(
        &mut self,
        what: &str,
        effects: &[Effect],
        message: &Message,
    ) -> Result<(), Violation> {
        let mut header = message.header;
        let mut rest: &[u8] = if message.in_buffer {
            &message.bytes
        } else {
            &[]
        };
        for &effect in effects {
            let Effect::Writes { region, cell } = effect else {
                continue;
            };
            let Some(region) = self.region(region) else {
                continue;
            };
            let (what, found) = (
                format!("{what}: cell {cell} of region {}", region.id),
                region.contents(cell),
            );
            let Cell { bytes, pending, .. } = &mut region.cells[cell];
            let start = header.min(bytes.len());
            bytes[..start].copy_from_slice(&found[..start]);
            let (here, later) = rest.split_at(rest.len().min(bytes.len() - start));
            bytes[start..start + here.len()].copy_from_slice(here);
            *pending = None;
            (header, rest) = (header - start, later);
            data::check(&what, &found, bytes)?;
        }
        Ok(())
    }

    /// Ends the use of a cell by a transfer that may have happened in part.
    pub(crate) fn ended(&mut self, what: &str, effect: Effect) -> Result<(), Violation> {
        if self.has_arrived(effect) {
            return Ok(());
        }
        let Effect::Writes { region, cell } = effect else {
            return Ok(());
        };
        let Some(region) = self.region(region) else {
            return Ok(());
        };
        let found = region.contents(cell);
        let Cell { bytes, pending, .. } = &mut region.cells[cell];
        if let Some(Pending::Contents(new)) = pending.take() {
            data::check_either(what, &found, bytes, &new)?;
        }
        *bytes = found;
        Ok(())
    }

    /// Checks the number of buffers in each pool.
    pub(crate) fn check_pools(&self) -> Result<(), Violation> {
        for PoolModel {
            id,
            pool,
            count,
            taken,
            ..
        } in &self.pools
        {
            let (found, expected) = (pool.available(), count - taken);
            if found != expected {
                return Err(Violation(format!(
                    "pool {id}: {found} of {count} buffers are available, expected {expected}"
                )));
            }
        }
        Ok(())
    }

    /// Checks every byte that the program can read.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        for OwnedBuf { buf, model } in &self.owned {
            data::check(
                "a buffer of the program",
                buf,
                &data::bytes(model.pattern, model.len),
            )?;
        }
        for FrozenModel { frozen, model, .. } in &self.frozen {
            data::check(
                "frozen memory",
                frozen,
                &data::bytes(model.pattern, model.len),
            )?;
        }
        self.regions.iter().try_for_each(RegionModel::check)
    }
}

/// The effect of a request on the start of its buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Written<'a> {
    Nothing,
    All(&'a [u8]),
    /// A message after its header, whose bytes the model does not know.
    Message(&'a Message),
    /// Each byte may have been written.
    Maybe(&'a [u8]),
    Unknown,
}
