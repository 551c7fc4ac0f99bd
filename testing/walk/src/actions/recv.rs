//! Holding memory, and posting receives.

use ibverbs::wr::{self, RecvPayload, RecvRequest};
use ibverbs::{
    BufList, DuplexTransport, ErrorKind, Held, HeldList, QueuePair, RecvBatch, Rejected,
    SharedReceiveQueue, SharedRegion, Sink,
};
use test_support::random::Random;

use crate::model::{
    Effect, End, Entry, HeldModel, Id, Message, OwnedBuf, Pending, QpIndex, SrqModel,
};
use crate::transport::with_qp;
use crate::violation::{Violation, unexpected};
use crate::world::{World, pick};

/// Memory of a receive to be posted.
enum Target {
    Buf(OwnedBuf),
    List(OwnedBuf),
    Sink(Held<Sink>),
    Shared(Cells),
    Empty,
}

/// Cells of shared regions that a message is received into.
struct Cells {
    pieces: Vec<Held<SharedRegion>>,
    effects: Vec<Effect>,
    /// Created before the receive is posted, if there are several.
    list: Option<HeldList<SharedRegion>>,
}

impl Cells {
    fn capacity(&self) -> usize {
        self.pieces.iter().map(Held::len).sum()
    }
}

impl World<'_> {
    pub(crate) fn hold(&mut self, random: &mut Random) -> Result<bool, Violation> {
        if random.below(8) == 0 {
            return self.hold_shared(random);
        }
        let Some(at) = self.pick_end(random) else {
            return Ok(false);
        };
        let mut end = self.take_end(at);
        let held = self.hold_some(&mut end, random);
        self.put_end(at, end);
        held
    }

    /// Holds memory for a queue pair.
    fn hold_some(&mut self, end: &mut End, random: &mut Random) -> Result<bool, Violation> {
        if end.held.len() == 6 {
            return Ok(false);
        }
        let held = match random.below(3) {
            0 => pick(&self.memory.frozen, random).map(|index| {
                let frozen = &self.memory.frozen[index];
                let token = with_qp!(&mut end.qp, qp => qp.hold(&frozen.frozen));
                let model = frozen.model;
                (
                    model.pd,
                    token.map(|token| HeldModel::Frozen(token, frozen.id, model)),
                )
            }),
            1 => pick(&self.memory.sinks, random).map(|index| {
                let sink = &self.memory.sinks[index];
                let token = with_qp!(&mut end.qp, qp => qp.hold(&sink.sink));
                (sink.pd, token.map(HeldModel::Sink))
            }),
            _ => pick(&self.memory.regions, random).map(|index| {
                let region = &self.memory.regions[index];
                let token = with_qp!(&mut end.qp, qp => qp.hold(&region.region));
                (
                    region.pd,
                    token.map(|token| HeldModel::Shared(token, region.id)),
                )
            }),
        };
        let Some((pd, held)) = held else {
            return Ok(false);
        };
        let held = self.check_held(held, pd == end.pd, end.device_addresses)?;
        end.held.extend(held);
        Ok(true)
    }

    /// Checks the result of holding memory: memory of another domain is refused, and so is that
    /// with addresses of the device, unless the queue was created for them.
    fn check_held(
        &self,
        held: ibverbs::Result<HeldModel>,
        own_domain: bool,
        device_addresses: bool,
    ) -> Result<Option<HeldModel>, Violation> {
        let regions = &self.memory.regions;
        let is_zero_based =
            |region: Id| regions.iter().any(|one| one.id == region && one.zero_based);
        match held {
            Ok(_) if !own_domain => Err(Violation("held memory of another domain".to_owned())),
            Ok(HeldModel::Shared(_, region)) if !device_addresses && is_zero_based(region) => Err(
                Violation("held memory with addresses of the device".to_owned()),
            ),
            Ok(held) => Ok(Some(held)),
            Err(error) if !own_domain && error.kind() == ErrorKind::Mismatch => Ok(None),
            Err(error) if !device_addresses && error.kind() == ErrorKind::InvalidInput => Ok(None),
            Err(error) => Err(unexpected("hold", error)),
        }
    }

    /// Releases memory that a queue pair holds. Its tokens are invalid then. What uses the memory
    /// afterwards changes or loses bytes, which the receiver of a message finds.
    pub(crate) fn release(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_end(random) else {
            return Ok(false);
        };
        let (name, works) = (self.name(at), self.working_ends().contains(&at));
        let end = self.end(at);
        let Some(released) = pick(&end.held, random).map(|index| end.held[index]) else {
            return Ok(false);
        };
        end.held.retain(|held| !held.is_same(&released));
        end.releasing.push(released);
        let is_idle = end.is_done();
        let mut kept = Vec::new();
        for held in std::mem::take(&mut end.releasing) {
            let is_released = with_qp!(&mut end.qp, qp => match held {
                HeldModel::Frozen(token, ..) => qp.release(token),
                HeldModel::Shared(token, _) => qp.release(token),
                HeldModel::Sink(token) => qp.release(token),
            });
            match is_released {
                Ok(true) => {}
                Ok(false) if is_idle && works => {
                    return Err(Violation(format!("{name}: memory in use by no request")));
                }
                Ok(false) => kept.push(held),
                Err(error) => return Err(unexpected("release", error)),
            }
        }
        end.releasing = kept;
        let list = match released {
            HeldModel::Frozen(token, ..) => {
                with_qp!(&mut end.qp, qp => qp.hold_list(&[token]).map(drop))
            }
            HeldModel::Shared(token, _) => {
                with_qp!(&mut end.qp, qp => qp.hold_list(&[token]).map(drop))
            }
            HeldModel::Sink(token) => {
                with_qp!(&mut end.qp, qp => qp.hold_list(&[token]).map(drop))
            }
        };
        self.release_orphans();
        match list.map_err(|error| error.kind()) {
            Err(ErrorKind::Mismatch) => Ok(true),
            other => Err(Violation(format!("{name}: a released token: {other:?}"))),
        }
    }

    /// Holds a sink or a shared region for a shared receive queue.
    fn hold_shared(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(srq) = pick(&self.srqs, random) else {
            return Ok(false);
        };
        let model = &mut self.srqs[srq];
        let (pd, held) = if random.below(2) == 0 {
            let Some(sink) = pick(&self.memory.sinks, random) else {
                return Ok(false);
            };
            let sink = &self.memory.sinks[sink];
            (sink.pd, model.srq.hold(&sink.sink).map(HeldModel::Sink))
        } else {
            let Some(region) = pick(&self.memory.regions, random) else {
                return Ok(false);
            };
            let region = &self.memory.regions[region];
            let held = model.srq.hold(&region.region);
            (
                region.pd,
                held.map(|token| HeldModel::Shared(token, region.id)),
            )
        };
        let (own_domain, device_addresses) = (pd == model.pd, model.device_addresses);
        let held = self.check_held(held, own_domain, device_addresses)?;
        self.srqs[srq].held.extend(held);
        Ok(true)
    }

    /// Picks at most `count` cells of held regions with at least `needed` bytes.
    fn pick_cells(
        &mut self,
        held: &[HeldModel],
        needed: usize,
        count: usize,
        random: &mut Random,
    ) -> Option<Cells> {
        let mut cells = Cells {
            pieces: Vec::new(),
            effects: Vec::new(),
            list: None,
        };
        for _ in 0..count {
            let Some(HeldModel::Shared(token, id)) = pick(held, random).map(|index| held[index])
            else {
                continue;
            };
            let region = self.memory.region(id)?;
            if let Some(cell) = region.writable(random) {
                cells.pieces.push(token.slice(region.range(cell))?);
                let effect = Effect::Writes { region: id, cell };
                self.memory.begin(effect, Some(Pending::Message));
                cells.effects.push(effect);
            }
        }
        if cells.pieces.is_empty() || cells.capacity() < needed {
            for effect in cells.effects {
                self.memory.cancel(effect);
            }
            return None;
        }
        Some(cells)
    }

    /// Returns memory for a receive of at least `needed` bytes.
    fn pick_target(
        &mut self,
        pd: u64,
        needed: usize,
        (held, max_sge): (&[HeldModel], usize),
        random: &mut Random,
    ) -> Option<Target> {
        // Soft-iWARP refuses a receive without memory, and the library does on EFA.
        if needed == 0 && self.setup.support.empty_receives && random.below(20) == 0 {
            return Some(Target::Empty);
        }
        match pick(held, random).map(|index| held[index]) {
            Some(HeldModel::Sink(sink)) if sink.len() >= needed && random.below(4) == 0 => {
                return Some(Target::Sink(sink));
            }
            Some(HeldModel::Shared(..)) if random.below(2) == 0 => {
                let count = 1 + random.below(max_sge);
                if let Some(cells) = self.pick_cells(held, needed, count, random) {
                    return Some(Target::Shared(cells));
                }
            }
            _ => {}
        }
        let owned = self.memory.take_at_least(pd, needed, random)?;
        Some(match random.below(3) {
            0 => Target::List(owned),
            _ => Target::Buf(owned),
        })
    }

    pub(crate) fn post_recv(&mut self, random: &mut Random) -> Result<bool, Violation> {
        self.post_recvs(1, random)
    }

    pub(crate) fn recv_batch(&mut self, random: &mut Random) -> Result<bool, Violation> {
        self.post_recvs(2 + random.below(4), random)
    }

    /// Posts receives to a queue pair or to a shared receive queue.
    fn post_recvs(&mut self, count: usize, random: &mut Random) -> Result<bool, Violation> {
        if random.below(4) == 0 && !self.srqs.is_empty() {
            return self.post_shared_recvs(count, random);
        }
        let at = self.pick_working_end(random);
        let has_srq = |at: &QpIndex| self.find(*at).is_some_and(|end| end.srq.is_some());
        let Some(at) = at.filter(|at| !has_srq(at)) else {
            return Ok(false);
        };
        let end = self.end(at);
        // A message that is too long for the receives must not find a longer one.
        if end.incoming.iter().any(|message| message.is_too_long) {
            return Ok(false);
        }
        let (pd, min) = (end.pd, end.min_recv);
        let held = end.held.clone();
        let max_sge = with_qp!(&mut end.qp, qp => qp.caps().max_recv_sge).min(2) as usize;
        let (free, first) = (end.recv_slots_free(), end.unpolled_recvs.len());
        if first > 4 && random.below(8) > 0 {
            return Ok(false); // leaves buffers for sends
        }
        let mut targets = Vec::new();
        for index in 0..count.min(free) {
            // The messages of a link arrive in order, and those of datagrams are limited.
            let waiting = self.end(at).incoming.get(first + index);
            let waiting = waiting.filter(|message| message.in_buffer);
            let needed = waiting.map_or(0, Message::len).max(min);
            targets.extend(self.pick_target(pd, needed, (&held, max_sge), random));
            if targets.len() == index {
                break;
            }
        }
        let name = self.name(at);
        let Some((targets, entries)) = self.prepare_recvs(&name, targets) else {
            return Ok(false);
        };
        let end = self.end(at);
        if with_qp!(&mut end.qp, qp => post_all(&name, qp, targets, &entries, random))? {
            end.unpolled_recvs
                .extend(entries.iter().map(|entry| entry.tag));
            end.recvs.extend(entries);
        } else {
            self.recvs_aborted(&entries);
        }
        Ok(true)
    }

    fn post_shared_recvs(&mut self, count: usize, random: &mut Random) -> Result<bool, Violation> {
        let index = random.below(self.srqs.len());
        let SrqModel {
            id,
            pd,
            capacity,
            ref recvs,
            ref held,
            ..
        } = self.srqs[index];
        let (free, held) = (capacity - recvs.len(), held.clone());
        // Queue pairs take receives in any order. Each message in transit must fit into each
        // receive.
        let waiting = self.ends().filter(|end| end.srq == Some(id));
        let messages = waiting.flat_map(|end| &end.incoming);
        let messages = messages.filter(|message| message.in_buffer);
        let needed = messages.map(Message::len).max().unwrap_or(0);
        let mut targets = Vec::new();
        for _ in 0..count.min(free) {
            targets.extend(self.pick_target(pd, needed, (&held, 2), random));
        }
        let name = format!("shared receive queue {id}");
        let Some((targets, entries)) = self.prepare_recvs(&name, targets) else {
            return Ok(false);
        };
        let model = &mut self.srqs[index];
        if post_all(&name, &mut model.srq, targets, &entries, random)? {
            model.unpolled += entries.len();
            model.recvs.extend(entries);
        } else {
            self.recvs_aborted(&entries);
        }
        Ok(true)
    }

    /// Creates the models of receives. Returns `None` if there are none.
    fn prepare_recvs(
        &mut self,
        name: &str,
        targets: Vec<Target>,
    ) -> Option<(Vec<Target>, Vec<Entry>)> {
        let entry_of = |target| entry_of(target, self.new_id());
        let entries: Vec<Entry> = targets.iter().map(entry_of).collect();
        if entries.is_empty() {
            return None;
        }
        self.note(|| format!("{name}: receives {entries:?}"));
        Some((targets, entries))
    }

    /// Accounts for the buffers of a batch that was not posted.
    fn recvs_aborted(&mut self, entries: &[Entry]) {
        for model in entries.iter().flat_map(|entry| &entry.bufs) {
            self.memory.released(model);
        }
        for &effect in entries.iter().flat_map(|entry| &entry.effects) {
            self.memory.cancel(effect);
        }
    }
}

/// A queue of receives.
trait RecvQueue {
    fn hold_pieces(
        &mut self,
        pieces: &[Held<SharedRegion>],
    ) -> ibverbs::Result<HeldList<SharedRegion>>;

    fn post<P: RecvPayload>(
        &mut self,
        request: RecvRequest<P>,
    ) -> Result<(), Rejected<P::Returned>>;

    fn batch(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> ibverbs::Result<()>,
    ) -> ibverbs::Result<()>;
}

macro_rules! recv_queues {
    ($($queue:ty $(: $transport:ident)?),*) => {$(
        impl$(<$transport: DuplexTransport>)? RecvQueue for $queue {
            fn hold_pieces(
                &mut self,
                pieces: &[Held<SharedRegion>],
            ) -> ibverbs::Result<HeldList<SharedRegion>> {
                self.hold_list(pieces)
            }

            fn post<P: RecvPayload>(&mut self, request: RecvRequest<P>) -> Result<(), Rejected<P::Returned>> {
                self.post_recv(request)
            }

            fn batch(
                &mut self,
                fill: impl FnOnce(&mut RecvBatch<'_>) -> ibverbs::Result<()>,
            ) -> ibverbs::Result<()> {
                self.recv_batch(fill)
            }
        }
    )*};
}

recv_queues!(QueuePair<T>: T, SharedReceiveQueue);

/// Posts one receive, or a batch of several, whose closure may fail. Returns `false` if it failed.
fn post_all(
    name: &str,
    queue: &mut impl RecvQueue,
    mut targets: Vec<Target>,
    entries: &[Entry],
    random: &mut Random,
) -> Result<bool, Violation> {
    for target in &mut targets {
        if let Target::Shared(cells) = target
            && cells.pieces.len() > 1
        {
            let list = queue.hold_pieces(&cells.pieces);
            cells.list = Some(list.map_err(|error| unexpected(name, error))?);
        }
    }
    let posted = if targets.len() == 1 {
        let (tag, target) = (entries[0].tag, targets.swap_remove(0));
        match target {
            Target::Buf(owned) => queue.post(wr::recv(owned.buf).tag(tag)).map_err(Into::into),
            Target::List(owned) => {
                let list = BufList::new(vec![owned.buf]);
                queue.post(wr::recv(list).tag(tag)).map_err(Into::into)
            }
            Target::Sink(sink) => queue.post(wr::recv(sink).tag(tag)).map_err(Into::into),
            Target::Shared(Cells {
                list: Some(list), ..
            }) => queue.post(wr::recv(list).tag(tag)).map_err(Into::into),
            Target::Shared(cells) => {
                let piece = cells.pieces[0];
                queue.post(wr::recv(piece).tag(tag)).map_err(Into::into)
            }
            Target::Empty => queue.post(wr::recv(wr::Empty).tag(tag)).map_err(Into::into),
        }
    } else {
        let fails = random.below(6) == 0;
        let posted = queue.batch(|batch| {
            for (target, tag) in targets
                .into_iter()
                .zip(entries.iter().map(|entry| entry.tag))
            {
                match target {
                    Target::Buf(owned) => batch.recv(wr::recv(owned.buf).tag(tag))?,
                    Target::List(owned) => {
                        batch.recv(wr::recv(BufList::new(vec![owned.buf])).tag(tag))?;
                    }
                    Target::Sink(sink) => batch.recv(wr::recv(sink).tag(tag))?,
                    Target::Shared(Cells {
                        list: Some(list), ..
                    }) => batch.recv(wr::recv(list).tag(tag))?,
                    Target::Shared(cells) => {
                        batch.recv(wr::recv(cells.pieces[0]).tag(tag))?;
                    }
                    Target::Empty => batch.recv(wr::recv(wr::Empty).tag(tag))?,
                }
            }
            if fails {
                let error = ibverbs::Error::new(ErrorKind::TimedOut, "walk", "on purpose");
                return Err(error);
            }
            Ok(())
        });
        match posted {
            Ok(()) if fails => return Err(Violation(format!("{name}: a failed batch was posted"))),
            Err(error) if fails && error.kind() == ErrorKind::TimedOut => return Ok(false),
            posted => posted,
        }
    };
    posted.map_err(|error| unexpected(name, error))?;
    Ok(true)
}

fn entry_of(target: &Target, tag: u64) -> Entry {
    let mut entry = Entry::without_memory(tag, "receive");
    match target {
        Target::Buf(owned) | Target::List(owned) => {
            entry.capacity = owned.buf.capacity();
            entry.bufs.push(owned.model);
            entry.is_list = matches!(target, Target::List(_));
        }
        Target::Sink(sink) => entry.capacity = sink.len(),
        Target::Shared(cells) => {
            entry.capacity = cells.capacity();
            entry.effects.clone_from(&cells.effects);
        }
        Target::Empty => {}
    }
    entry
}
