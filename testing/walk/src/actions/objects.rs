//! Actions on protection domains, memory and completion queues.

use ibverbs::{AccessFlags, AsyncCompletionQueue, CqOptions, MemoryOptions, SrqOptions};
use test_support::random::Random;

use crate::model::{
    BufModel, Cell, CqModel, DomainModel, FrozenModel, HeldModel, Id, OwnedBuf, PoolModel,
    RegionModel, SinkModel, SrqModel, data,
};
use crate::transport::{AnyCq, new_runtime};
use crate::violation::Violation;
use crate::world::{World, choose, pick};

/// Entries of a completion queue, more than twice the requests of all queues of a walk.
const CQ_DEPTH: u32 = 2000;

/// Receives of a shared receive queue.
const SRQ_RECVS: u32 = 15;

/// Cells of a shared region.
const CELLS: usize = 8;

impl World<'_> {
    /// Returns the access rights of peers.
    pub(crate) fn remote_access(&self) -> AccessFlags {
        let support = &self.setup.support;
        let mut access = AccessFlags::REMOTE_READ;
        access.set(AccessFlags::REMOTE_WRITE, support.remote_writes);
        access.set(AccessFlags::REMOTE_ATOMIC, support.atomics);
        access
    }

    pub(crate) fn alloc_pd(&mut self) -> Result<bool, Violation> {
        if self.domains.len() == 2 {
            return Ok(false);
        }
        let (id, pd) = (self.new_id(), self.setup.context.alloc_pd()?);
        self.domains.push(DomainModel { id, pd });
        Ok(true)
    }

    pub(crate) fn drop_pd(&mut self, random: &mut Random) -> bool {
        // The memory and queue pairs of the domain continue to work.
        if self.domains.len() < 2 || random.below(4) > 0 {
            return false;
        }
        self.domains.swap_remove(random.below(self.domains.len()));
        true
    }

    pub(crate) fn create_pool(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(domain) = pick(&self.domains, random) else {
            return Ok(false);
        };
        if self.memory.pools.len() == 9 {
            return Ok(false);
        }
        let DomainModel { id: pd, pd: domain } = &self.domains[domain];
        let sizes = self.setup.buf_sizes;
        let (size, count) = (sizes[random.below(sizes.len())], 1 + random.below(30));
        let (pd, pool) = (*pd, domain.pool(count, size)?);
        let id = self.new_id();
        self.note(|| format!("pool {id} of {count} buffers of {size} bytes"));
        self.memory.pools.push(PoolModel {
            id,
            pd,
            pool,
            count,
            taken: 0,
        });
        Ok(true)
    }

    pub(crate) fn drop_pool(&mut self, random: &mut Random) -> bool {
        let Some(pool) = pick(&self.memory.pools, random).filter(|_| random.below(2) == 0) else {
            return false;
        };
        self.memory.pools.swap_remove(pool);
        true
    }

    pub(crate) fn create_region(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(domain) = pick(&self.domains, random) else {
            return Ok(false);
        };
        if self.memory.regions.len() == 6 {
            return Ok(false);
        }
        let mut access = self.remote_access();
        access.set(AccessFlags::MW_BIND, self.setup.support.windows);
        let sizes = self.setup.buf_sizes;
        let size = sizes[random.below(sizes.len())];
        let DomainModel { id: pd, pd: domain } = &self.domains[domain];
        let zero_based = self.setup.support.device_addresses && random.below(3) == 0;
        let options = MemoryOptions::new().zero_based(zero_based);
        let (pd, region) = (*pd, domain.shared_with(size * CELLS, access, options)?);
        let id = self.new_id();
        self.note(|| format!("region {id} with cells of {size} bytes, from 0: {zero_based}"));
        let cell = || Cell {
            bytes: vec![0; size],
            readers: 0,
            pending: None,
        };
        let cells = (0..CELLS).map(|_| cell()).collect();
        self.memory.regions.push(RegionModel {
            id,
            pd,
            region,
            zero_based,
            cells,
        });
        Ok(true)
    }

    fn pick_idle_region(&self, random: &mut Random) -> Option<usize> {
        pick(&self.memory.regions, random).filter(|&index| !self.memory.regions[index].is_busy())
    }

    /// Removes the tokens and windows of a region, because its cells have no model anymore.
    fn forget_tokens(&mut self, region: Id) {
        for end in self.ends_mut() {
            end.held
                .retain(|held| !matches!(held, HeldModel::Shared(_, id) if *id == region));
            end.windows.retain(|window| window.region != region);
            end.invalidating.retain(|window| window.region != region);
        }
        for srq in &mut self.srqs {
            srq.held
                .retain(|held| !matches!(held, HeldModel::Shared(_, id) if *id == region));
        }
        self.windows
            .retain(|free| free.bound_to.is_none_or(|id| id != region));
    }

    pub(crate) fn drop_region(&mut self, random: &mut Random) -> bool {
        let Some(index) = self.pick_idle_region(random) else {
            return false;
        };
        let region = self.memory.regions.swap_remove(index);
        self.forget_tokens(region.id);
        true
    }

    pub(crate) fn reclaim_region(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(index) = self.pick_idle_region(random) else {
            return Ok(false);
        };
        let RegionModel {
            id,
            pd,
            region,
            zero_based,
            cells,
        } = self.memory.regions.swap_remove(index);
        let is_held = |held: &HeldModel| matches!(held, HeldModel::Shared(_, held) if *held == id);
        let refused = self.setup.support.is_iwarp
            || self.ends().any(|end| end.pd == pd)
            || self.leaked.iter().any(|leaked| leaked.pd == pd)
            || self.srqs.iter().any(|srq| srq.held.iter().any(is_held))
            || self.windows.iter().any(|free| free.bound_to == Some(id));
        match region.try_into_buf() {
            Ok(buf) if !refused => {
                let expected: Vec<u8> = cells.into_iter().flat_map(|cell| cell.bytes).collect();
                data::check("a converted region", &buf, &expected)?;
            }
            Ok(_) => return Err(Violation(format!("region {id} was converted while in use"))),
            Err(failed) if refused => {
                let region = failed.into_region();
                self.memory.regions.push(RegionModel {
                    id,
                    pd,
                    region,
                    zero_based,
                    cells,
                });
            }
            Err(failed) => return Err(Violation(format!("region {id}: {failed}"))),
        }
        Ok(true)
    }

    pub(crate) fn write_region(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(index) = pick(&self.memory.regions, random) else {
            return Ok(false);
        };
        let region = &mut self.memory.regions[index];
        let Some(cell) = region.writable(random) else {
            return Ok(false);
        };
        let range = region.range(cell);
        let (from, pattern) = (random.below(range.len()), random.next_u64());
        let new = data::bytes(pattern, random.below(range.len() - from + 1));
        region.region.write(range.start + from, &new)?;
        region.cells[cell].bytes[from..from + new.len()].copy_from_slice(&new);
        Ok(true)
    }

    pub(crate) fn create_frozen(&mut self, random: &mut Random) -> Result<bool, Violation> {
        if self.memory.frozen.len() == 6 {
            return Ok(false);
        }
        if random.below(2) == 0 {
            return self.create_frozen_shared(random);
        }
        let Some(index) = pick(&self.memory.owned, random) else {
            return Ok(false);
        };
        let OwnedBuf { buf, model } = self.memory.owned.swap_remove(index);
        let id = self.new_id();
        self.memory.frozen.push(FrozenModel {
            id,
            frozen: buf.freeze(),
            model,
        });
        Ok(true)
    }

    /// Creates frozen memory that peers can read.
    fn create_frozen_shared(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(domain) = pick(&self.domains, random) else {
            return Ok(false);
        };
        let DomainModel { id: pd, pd: domain } = &self.domains[domain];
        let Some(size) = choose(self.setup.buf_sizes, random) else {
            return Ok(false);
        };
        let model = BufModel {
            pool: None,
            pd: *pd,
            pattern: random.next_u64(),
            len: 1 + random.below(size),
        };
        let fill = |bytes: &mut [u8]| bytes.copy_from_slice(&data::bytes(model.pattern, model.len));
        let frozen = domain.frozen_shared(model.len, MemoryOptions::new(), fill)?;
        let id = self.new_id();
        self.memory.frozen.push(FrozenModel { id, frozen, model });
        Ok(true)
    }

    /// Returns `true` if a queue pair holds the frozen memory.
    pub(crate) fn is_held(&self, frozen: Id) -> bool {
        let ends = self
            .ends()
            .flat_map(|end| end.held.iter().chain(&end.releasing));
        let leaked = self.leaked.iter().flat_map(|leaked| &leaked.held);
        ends.chain(leaked)
            .any(|held| matches!(held, HeldModel::Frozen(_, id, _) if *id == frozen))
    }

    pub(crate) fn drop_frozen(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(index) = pick(&self.memory.frozen, random) else {
            return Ok(false);
        };
        let FrozenModel { id, frozen, model } = self.memory.frozen.swap_remove(index);
        let held = self.is_held(id);
        let frozen = match frozen.try_thaw() {
            Ok(buf) if !held && model.pool.is_some() => {
                self.memory.owned.push(OwnedBuf { buf, model });
                return Ok(true);
            }
            Ok(_) => {
                return Err(Violation(format!(
                    "frozen {id} was thawed while it is held, or while peers can read it"
                )));
            }
            Err(_) if !held && model.pool.is_some() => {
                return Err(Violation(format!(
                    "frozen {id} is not held but cannot be thawed"
                )));
            }
            Err(frozen) => frozen,
        };
        if random.below(2) == 0 {
            self.memory.frozen.push(FrozenModel { id, frozen, model });
        } else {
            drop(frozen);
            self.memory.orphans.push((id, model));
        }
        Ok(true)
    }

    /// Accounts for frozen buffers that no queue pair holds anymore.
    pub(crate) fn release_orphans(&mut self) {
        for (id, model) in std::mem::take(&mut self.memory.orphans) {
            if self.is_held(id) {
                self.memory.orphans.push((id, model));
            } else {
                self.memory.released(&model);
            }
        }
    }

    pub(crate) fn create_sink(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(domain) = pick(&self.domains, random) else {
            return Ok(false);
        };
        if self.memory.sinks.len() == 3 {
            return Ok(false);
        }
        let DomainModel { id: pd, pd: domain } = &self.domains[domain];
        let size = *self.setup.buf_sizes.last().expect("a size");
        self.memory.sinks.push(SinkModel {
            pd: *pd,
            sink: domain.sink(size)?,
        });
        Ok(true)
    }

    pub(crate) fn drop_sink(&mut self, random: &mut Random) -> bool {
        let Some(index) = pick(&self.memory.sinks, random) else {
            return false;
        };
        self.memory.sinks.swap_remove(index);
        true
    }

    pub(crate) fn take_buf(&mut self, random: &mut Random) -> bool {
        let Some(domain) = pick(&self.memory.pools, random) else {
            return false;
        };
        let pd = self.memory.pools[domain].pd;
        let Some(owned) = self.memory.take(pd, random) else {
            return false;
        };
        self.memory.owned.push(owned);
        true
    }

    pub(crate) fn drop_buf(&mut self, random: &mut Random) -> bool {
        let Some(index) = pick(&self.memory.owned, random) else {
            return false;
        };
        let OwnedBuf { buf, model } = self.memory.owned.swap_remove(index);
        drop(buf);
        self.memory.released(&model);
        true
    }

    pub(crate) fn forget_buf(&mut self, random: &mut Random) -> bool {
        // Each one leaks its pool.
        if self.forgotten == 0 {
            return false;
        }
        let Some(index) = pick(&self.memory.owned, random) else {
            return false;
        };
        self.forgotten -= 1;
        test_support::leak_check::forget(self.memory.owned.swap_remove(index).buf);
        true
    }

    pub(crate) fn create_cq(&mut self, random: &mut Random) -> Result<bool, Violation> {
        if self.cqs.len() == 4 {
            return Ok(false);
        }
        let options = CqOptions::new().depth(CQ_DEPTH);
        // Under Miri, the runtime has no descriptors to wait for.
        let cq = if random.below(3) == 0 && !cfg!(miri) {
            let runtime = self.runtime.get_or_insert_with(new_runtime);
            let _entered = runtime.enter();
            AnyCq::Async(AsyncCompletionQueue::new(&self.setup.context, options)?)
        } else {
            AnyCq::Plain(self.setup.context.create_cq(options)?)
        };
        let id = self.new_id();
        let awaited = matches!(cq, AnyCq::Async(_));
        self.note(|| format!("completion queue {id}, async: {awaited}"));
        self.cqs.push(CqModel { id, cq: Some(cq) });
        Ok(true)
    }

    pub(crate) fn drop_cq(&mut self, random: &mut Random) -> bool {
        let used = |id| {
            self.ends()
                .any(|end| [end.send_cq, end.recv_cq].contains(&id))
        };
        let unused: Vec<usize> = (0..self.cqs.len())
            .filter(|&index| !used(self.cqs[index].id))
            .collect();
        let Some(index) = choose(&unused, random) else {
            return false;
        };
        self.cqs.swap_remove(index);
        true
    }

    pub(crate) fn resize_cq(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(index) = pick(&self.cqs, random) else {
            return Ok(false);
        };
        let depth = CQ_DEPTH / 2 + u32::try_from(random.below(1500)).expect("below 1500");
        let cq = self.cqs[index].cq.as_mut().expect("not being polled");
        match cq.resize(depth) {
            Ok(()) if cq.depth() >= depth as usize => Ok(true),
            Ok(()) => Err(Violation(format!("resized to {}: {depth}", cq.depth()))),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn create_srq(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(domain) = pick(&self.domains, random) else {
            return Ok(false);
        };
        if self.srqs.len() == 2 {
            return Ok(false);
        }
        let DomainModel { id: pd, pd: domain } = &self.domains[domain];
        let device_addresses = self.setup.support.device_addresses && random.below(2) == 0;
        let options = SrqOptions::new()
            .max_wr(SRQ_RECVS)
            .max_sge(2)
            .device_addresses(device_addresses);
        let srq = domain.create_srq(options)?;
        let (pd, id, capacity) = (*pd, self.new_id(), srq.recv_slots_free());
        self.note(|| format!("shared receive queue {id}"));
        self.srqs.push(SrqModel {
            id,
            pd,
            srq,
            device_addresses,
            capacity,
            recvs: Vec::new(),
            kept: Vec::new(),
            held: Vec::new(),
            unpolled: 0,
            lost: 0,
        });
        Ok(true)
    }

    pub(crate) fn drop_srq(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let used = |id| self.ends().any(|end| end.srq == Some(id));
        let unused: Vec<usize> = (0..self.srqs.len())
            .filter(|&index| !used(self.srqs[index].id))
            .collect();
        let Some(index) = choose(&unused, random) else {
            return Ok(false);
        };
        let SrqModel {
            srq, recvs, kept, ..
        } = self.srqs.swap_remove(index);
        let recvs: Vec<_> = recvs.into_iter().chain(kept).collect();
        drop(srq);
        for model in recvs.iter().flat_map(|entry| &entry.bufs) {
            self.memory.released(model);
        }
        for &effect in recvs.iter().flat_map(|entry| &entry.effects) {
            self.memory
                .ended("a receive of a destroyed queue", effect)?;
        }
        Ok(true)
    }
}
