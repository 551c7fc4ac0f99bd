//! Holding memory, and posting receives.

use ibverbs::wr::{self, RecvPayload, RecvRequest};
use ibverbs::{
    BufList, ConnectedDuplexTransport, ErrorKind, Held, QueuePair, RecvBatch, Rejected,
    SharedReceiveQueue, Sink,
};
use test_support::random::Random;

use crate::Violation;
use crate::any_qp::with_qp;
use crate::link::{Entry, HeldModel, SrqModel};
use crate::memory::OwnedBuf;
use crate::objects::pick;
use crate::world::{World, unexpected};

/// Memory of a receive to be posted.
enum Target {
    Buf(OwnedBuf),
    List(OwnedBuf),
    Sink(Held<Sink>),
    Empty,
}

impl World<'_> {
    pub(crate) fn hold(&mut self, random: &mut Random) -> Result<bool, Violation> {
        if random.below(8) == 0 {
            return self.hold_shared(random);
        }
        let Some((link, side)) = self.pick_end(random) else {
            return Ok(false);
        };
        let end = self.links[link].ends[side]
            .as_mut()
            .expect("a queue pair of `pick_end`");
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
        match held {
            None => return Ok(false),
            Some((pd, Ok(token))) if pd == end.pd => end.held.push(token),
            Some((pd, Err(error))) if pd != end.pd && error.kind() == ErrorKind::Mismatch => {}
            Some((_, Ok(_))) => return Err(Violation("held memory of another domain".to_owned())),
            Some((_, Err(error))) => return Err(unexpected("hold", error)),
        }
        Ok(true)
    }

    /// Holds a sink for a shared receive queue.
    fn hold_shared(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let srq = pick(&self.srqs, random);
        let Some((srq, sink)) = srq.zip(pick(&self.memory.sinks, random)) else {
            return Ok(false);
        };
        let (model, sink) = (&mut self.srqs[srq], &self.memory.sinks[sink]);
        match model.srq.hold(&sink.sink) {
            Ok(token) if sink.pd == model.pd => model.sinks.push(token),
            Err(error) if sink.pd != model.pd && error.kind() == ErrorKind::Mismatch => {}
            Ok(_) => return Err(Violation("held memory of another domain".to_owned())),
            Err(error) => return Err(unexpected("hold", error)),
        }
        Ok(true)
    }

    /// Returns memory for a receive of at least `needed` bytes.
    fn pick_target(
        &mut self,
        pd: u64,
        needed: usize,
        sinks: &[Held<Sink>],
        random: &mut Random,
    ) -> Option<Target> {
        // Soft-iWARP refuses a receive without memory.
        if needed == 0 && self.setup.is_ib && random.below(20) == 0 {
            return Some(Target::Empty);
        }
        let sink = pick(sinks, random).map(|sink| sinks[sink]);
        if let Some(sink) = sink.filter(|sink| sink.len() >= needed && random.below(4) == 0) {
            return Some(Target::Sink(sink));
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
        let Some(at) = at.filter(|&(link, side)| {
            self.links[link].ends[side]
                .as_ref()
                .is_some_and(|end| end.srq.is_none())
        }) else {
            return Ok(false);
        };
        let end = self.end(at);
        let pd = end.pd;
        let sinks: Vec<Held<Sink>> = end.held.iter().filter_map(HeldModel::sink).collect();
        let (free, first) = (end.recv_slots_free(), end.unpolled_recvs.len());
        if first > 4 && random.below(8) > 0 {
            return Ok(false); // leaves buffers for sends
        }
        let mut targets = Vec::new();
        for index in 0..count.min(free) {
            let waiting = self.end(at).incoming.get(first + index);
            let needed =
                waiting.map_or(0, |message| if message.in_buffer { message.len } else { 0 });
            targets.extend(self.pick_target(pd, needed, &sinks, random));
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
            ref sinks,
            ..
        } = self.srqs[index];
        let (free, sinks) = (capacity - recvs.len(), sinks.clone());
        // Queue pairs take receives in any order. Each message in transit must fit into each
        // receive.
        let ends = self.links.iter().flat_map(|link| &link.ends).flatten();
        let waiting = ends.filter(|end| end.srq == Some(id));
        let messages = waiting.flat_map(|end| &end.incoming);
        let lens = messages
            .filter(|message| message.in_buffer)
            .map(|message| message.len);
        let needed = lens.max().unwrap_or(0);
        let mut targets = Vec::new();
        for _ in 0..count.min(free) {
            targets.extend(self.pick_target(pd, needed, &sinks, random));
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
        self.note(|| format!("{name}: receives {entries:?}"));
        (!entries.is_empty()).then_some((targets, entries))
    }

    /// Accounts for the buffers of a batch that was not posted.
    fn recvs_aborted(&mut self, entries: &[Entry]) {
        for model in entries.iter().flat_map(|entry| &entry.bufs) {
            self.memory.released(model);
        }
    }
}

/// A queue of receives.
trait RecvQueue {
    fn post<P: RecvPayload>(&mut self, request: RecvRequest<P>) -> Result<(), Rejected<P>>;

    fn batch(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> ibverbs::Result<()>,
    ) -> ibverbs::Result<()>;
}

macro_rules! recv_queues {
    ($($queue:ty $(: $transport:ident)?),*) => {$(
        impl$(<$transport: ConnectedDuplexTransport>)? RecvQueue for $queue {
            fn post<P: RecvPayload>(&mut self, request: RecvRequest<P>) -> Result<(), Rejected<P>> {
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
    let posted = if targets.len() == 1 {
        let (tag, target) = (entries[0].tag, targets.swap_remove(0));
        match target {
            Target::Buf(owned) => queue.post(wr::recv(owned.buf).tag(tag)).map_err(Into::into),
            Target::List(owned) => {
                let list = BufList::new(vec![owned.buf]);
                queue.post(wr::recv(list).tag(tag)).map_err(Into::into)
            }
            Target::Sink(sink) => queue.post(wr::recv(sink).tag(tag)).map_err(Into::into),
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
        Target::Empty => {}
    }
    entry
}
