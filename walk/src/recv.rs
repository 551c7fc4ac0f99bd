//! Holding memory, and posting receives.

use ibverbs::{BufList, ErrorKind, Held, RecvBatch, Sink, wr};
use test_support::random::Random;

use crate::Violation;
use crate::any_qp::with_qp;
use crate::link::{Entry, HeldModel};
use crate::memory::OwnedBuf;
use crate::objects::pick;
use crate::world::{World, unexpected};

/// Memory of a receive to be posted.
enum Target {
    Buf(OwnedBuf),
    Sink(Held<Sink>, usize),
    Empty,
}

impl World<'_> {
    pub(crate) fn hold(&mut self, random: &mut Random) -> Result<bool, Violation> {
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

    /// Returns memory for a receive of at least `needed` bytes.
    fn pick_target(
        &mut self,
        pd: u64,
        needed: usize,
        sink: Option<Held<Sink>>,
        random: &mut Random,
    ) -> Option<Target> {
        // Soft-iWARP refuses a receive without memory.
        if needed == 0 && self.setup.is_ib && random.below(20) == 0 {
            return Some(Target::Empty);
        }
        if let Some(sink) = sink.filter(|sink| sink.len() >= needed && random.below(4) == 0) {
            return Some(Target::Sink(sink, sink.len()));
        }
        self.memory
            .take_at_least(pd, needed, random)
            .map(Target::Buf)
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
            return self.post_srq_recv(random);
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
        let sink = end.held.iter().find_map(|held| match held {
            HeldModel::Sink(sink) => Some(*sink),
            _ => None,
        });
        let (free, first) = (end.recv_slots_free(), end.unpolled_recvs.len());
        if first > 4 && random.below(8) > 0 {
            return Ok(false); // leaves buffers for sends
        }
        let mut targets = Vec::new();
        for index in 0..count.min(free) {
            let waiting = self.end(at).incoming.get(first + index);
            let needed =
                waiting.map_or(0, |message| if message.in_buffer { message.len } else { 0 });
            match self.pick_target(pd, needed, sink, random) {
                Some(target) => targets.push(target),
                None => break,
            }
        }
        if targets.is_empty() {
            return Ok(false);
        }
        let (mut entries, mut tags) = (Vec::new(), Vec::new());
        for target in &targets {
            let tag = self.new_id();
            tags.push(tag);
            entries.push(entry_of(target, tag));
        }
        let name = self.name(at);
        self.note(|| format!("{name}: receives {entries:?}"));
        let fail = count > 1 && random.below(6) == 0;
        let as_list = random.below(3) == 0;
        let end = self.end(at);
        let posted: ibverbs::Result<()> = if count == 1 {
            let (tag, target) = (tags[0], targets.swap_remove(0));
            with_qp!(&mut end.qp, qp => match target {
                Target::Buf(owned) if as_list => {
                    entries[0].is_list = true;
                    let list = BufList::new(vec![owned.buf]);
                    qp.post_recv(wr::recv(list).tag(tag)).map_err(Into::into)
                }
                Target::Buf(owned) => qp.post_recv(wr::recv(owned.buf).tag(tag)).map_err(Into::into),
                Target::Sink(sink, _) => qp.post_recv(wr::recv(sink).tag(tag)).map_err(Into::into),
                Target::Empty => qp.post_recv(wr::recv(wr::Empty).tag(tag)).map_err(Into::into),
            })
        } else {
            let fill = |batch: &mut RecvBatch<'_>| -> ibverbs::Result<()> {
                for (target, tag) in targets.into_iter().zip(tags.iter().copied()) {
                    match target {
                        Target::Buf(owned) => batch.recv(wr::recv(owned.buf).tag(tag))?,
                        Target::Sink(sink, _) => batch.recv(wr::recv(sink).tag(tag))?,
                        Target::Empty => batch.recv(wr::recv(wr::Empty).tag(tag))?,
                    }
                }
                if fail {
                    let error = ibverbs::Error::new(ErrorKind::TimedOut, "walk", "on purpose");
                    return Err(error);
                }
                Ok(())
            };
            with_qp!(&mut end.qp, qp => qp.recv_batch(fill))
        };
        match posted {
            Ok(()) if !fail => {
                end.recvs.extend(entries);
                end.unpolled_recvs.extend(tags);
            }
            Err(error) if fail && error.kind() == ErrorKind::TimedOut => {
                for model in entries.iter().flat_map(|entry| &entry.bufs) {
                    self.memory.released(model);
                }
            }
            Ok(()) => return Err(Violation(format!("{name}: a failed batch was posted"))),
            Err(error) => return Err(unexpected(&name, error)),
        }
        Ok(true)
    }

    fn post_srq_recv(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let index = random.below(self.srqs.len());
        let pd = self.srqs[index].pd;
        if self.srqs[index].recvs.len() == self.srqs[index].capacity {
            return Ok(false);
        }
        // Queue pairs take receives in any order. Each message in transit must fit into each
        // receive.
        let id = self.srqs[index].id;
        let ends = self.links.iter().flat_map(|link| &link.ends).flatten();
        let waiting = ends.filter(|end| end.srq == Some(id));
        let messages = waiting.flat_map(|end| &end.incoming);
        let lens = messages
            .filter(|message| message.in_buffer)
            .map(|message| message.len);
        let needed = lens.max().unwrap_or(0);
        let Some(OwnedBuf { buf, model }) = self.memory.take_at_least(pd, needed, random) else {
            return Ok(false);
        };
        let tag = self.new_id();
        let mut entry = Entry::without_memory(tag, "receive");
        entry.capacity = buf.capacity();
        entry.bufs.push(model);
        let srq = &mut self.srqs[index];
        srq.srq
            .post_recv(wr::recv(buf).tag(tag))
            .map_err(|error| unexpected("a shared receive", error))?;
        srq.recvs.push(entry);
        srq.unpolled += 1;
        Ok(true)
    }
}

fn entry_of(target: &Target, tag: u64) -> Entry {
    let mut entry = Entry::without_memory(tag, "receive");
    match target {
        Target::Buf(owned) => {
            entry.capacity = owned.buf.capacity();
            entry.bufs.push(owned.model);
        }
        Target::Sink(_, len) => entry.capacity = *len,
        Target::Empty => {}
    }
    entry
}
