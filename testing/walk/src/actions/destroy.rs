//! Moving queue pairs to ERR, and destroying them.

use ibverbs::{ErrorKind, Reclaimed, wr};
use test_support::random::Random;

use crate::action::Kind;
use crate::model::{End, Entry, Id, Leaked, QpIndex, Removed, Written};
use crate::transport::{with_connected, with_qp};
use crate::violation::{Violation, unexpected};
use crate::world::{World, choose};

/// Number of queue pairs that are leaked on purpose between two starts of the walk. Their memory
/// stays allocated.
const MAX_LEAKED: usize = 2;

impl World<'_> {
    pub(crate) fn fail_end(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_end(random).filter(|_| random.below(2) == 0) else {
            return Ok(false);
        };
        let name = self.name(at);
        self.note(|| format!("{name} to ERR"));
        // A link that failed can be in RESET, where the transition does not exist.
        let failed = self.has_failed(at);
        self.set_failed(at);
        if let QpIndex::Datagram(index) = at {
            self.detach_datagram(index);
        }
        match with_qp!(&mut self.end(at).qp, qp => qp.to_error()) {
            Err(error) if !failed => Err(unexpected(&name, error)),
            _ => Ok(true),
        }
    }

    /// Destroys or drops a queue pair.
    pub(crate) fn destroy_end(
        &mut self,
        random: &mut Random,
        destroy: bool,
    ) -> Result<bool, Violation> {
        let indices = self.indices();
        let failed = indices.into_iter().find(|&at| self.has_failed(at));
        let Some(at) = failed.or_else(|| self.pick_end(random)) else {
            return Ok(false);
        };
        // The rest of a failed link is of little use.
        if failed.is_none() && random.below(3) > 0 {
            return Ok(false);
        }
        self.remove_end(at, destroy)?;
        Ok(true)
    }

    /// Destroys a queue pair and creates others, which can get its number, while its completions
    /// are in the queues.
    pub(crate) fn replace_end(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let mut links = self.indices();
        // The receives of a shared receive queue are found by the number of the queue pair.
        links.retain(|&at| matches!(at, QpIndex::Link(..)) && self.end(at).srq.is_none());
        let Some(at) = choose(&links, random) else {
            return Ok(false);
        };
        if self.would_leak(at) && self.leaked.len() >= MAX_LEAKED {
            return Ok(false);
        }
        let queues = self.remove_unpolled(at, random.below(2) == 0)?;
        self.create_link(random)?;
        for _ in 0..4 {
            self.post_recv(random)?;
        }
        self.poll_stale(queues)?;
        Ok(true)
    }

    /// Destroys or drops a queue pair.
    pub(crate) fn remove_end(&mut self, at: QpIndex, destroy: bool) -> Result<(), Violation> {
        if self.would_leak(at) && self.leaked.len() >= MAX_LEAKED {
            self.drain(at)?;
        }
        let queues = self.remove_unpolled(at, destroy)?;
        self.poll_stale(queues)
    }

    /// Destroys or drops a queue pair. Returns its completion queues, in which its completions can
    /// remain.
    fn remove_unpolled(&mut self, at: QpIndex, destroy: bool) -> Result<[Id; 2], Violation> {
        let name = self.name(at);
        self.note(|| format!("{} {name}", if destroy { "destroy" } else { "drop" }));
        let leaks = self.would_leak(at);
        let overwritten = self.setup.keeps_failed && self.has_failed(at);
        self.set_failed(at);
        let mut end = self.take_end(at);
        let removed = Removed::take(&mut end, overwritten);
        if leaks {
            self.leak(&name, end, destroy)?;
            self.forget_end(at, &removed)?;
            return Ok(removed.queues);
        }
        if destroy {
            let reclaimed = end.qp.destroy()?;
            self.reclaimed(&name, &removed, reclaimed)?;
        } else {
            drop(end.qp);
            self.dropped(&removed);
        }
        self.forget_end(at, &removed)?;
        Ok(removed.queues)
    }

    /// Returns `true` if a queue pair cannot be destroyed now.
    fn would_leak(&self, at: QpIndex) -> bool {
        self.setup.leaks_busy && self.find(at).is_some_and(|end| !end.is_done())
    }

    /// Destroys or drops a queue pair with requests in flight, on a device where this is refused.
    fn leak(&mut self, name: &str, end: End, destroy: bool) -> Result<(), Violation> {
        let End {
            qp,
            pd,
            mut held,
            releasing,
            ..
        } = end;
        held.extend(releasing);
        self.leaked.push(Leaked { pd, held });
        if !destroy {
            drop(qp);
            return Ok(());
        }
        match qp.destroy() {
            Err(error) if error.kind() == ErrorKind::WrongState => Ok(()),
            Err(error) => Err(unexpected(name, error)),
            Ok(_) => Err(Violation(format!(
                "{name} was destroyed with requests in flight"
            ))),
        }
    }

    /// Moves a queue pair to ERR and polls until its requests have completed. Those whose
    /// completion was dropped stay in flight, and so do unsignaled datagrams.
    fn drain(&mut self, at: QpIndex) -> Result<(), Violation> {
        let tag = self.new_id();
        self.set_failed(at);
        if let QpIndex::Datagram(index) = at {
            self.detach_datagram(index);
        }
        let end = self.end(at);
        let queues = [end.send_cq, end.recv_cq];
        // A queue pair of a link that failed can be in RESET, without requests in flight.
        let _ = with_qp!(&mut end.qp, qp => qp.to_error());
        if matches!(at, QpIndex::Link(..)) && end.send_slots_free() > 0 {
            let last = wr::send(wr::Empty).tag(tag);
            with_connected!(&mut end.qp, qp => qp.post_send(last))
                .map_err(|error| unexpected("drain", error))?;
            end.sends
                .push_back(Entry::without_memory(tag, "last request"));
            end.unpolled_sends.push_back(tag);
        }
        self.poll_stale(queues)
    }

    /// Accounts for the buffers of a dropped queue pair.
    pub(crate) fn dropped(&mut self, removed: &Removed) {
        for model in removed
            .sends
            .iter()
            .chain(&removed.recvs)
            .flat_map(|entry| &entry.bufs)
        {
            self.memory.released(model);
        }
    }

    /// Ends the model of a destroyed queue pair, whose buffers are accounted for, and polls its
    /// completion queues.
    pub(crate) fn removed(&mut self, at: QpIndex, removed: &Removed) -> Result<(), Violation> {
        self.forget_end(at, removed)?;
        self.poll_stale(removed.queues)
    }

    fn forget_end(&mut self, at: QpIndex, removed: &Removed) -> Result<(), Violation> {
        // Nothing is received after the queue pair was destroyed.
        for &effect in removed.recvs.iter().flat_map(|entry| &entry.effects) {
            self.memory
                .ended("a receive of a destroyed queue pair", effect)?;
        }
        if let Some(srq) = self.srqs.iter_mut().find(|srq| Some(srq.id) == removed.srq) {
            srq.lost += removed.incoming;
        }
        self.release_orphans();
        let effects = removed.sends.iter().flat_map(|entry| &entry.effects);
        let ended = match at {
            QpIndex::Datagram(index) => {
                self.remove_datagram(index, removed);
                effects.copied().collect()
            }
            QpIndex::Link(index, _) => {
                let link = &mut self.links[index];
                link.failed = true;
                link.landing.extend(effects);
                if link.ends.iter().any(Option::is_some) {
                    Vec::new()
                } else {
                    self.links.swap_remove(index).landing
                }
            }
        };
        for effect in ended {
            self.memory
                .ended("a transfer of a destroyed queue pair", effect)?;
        }
        Ok(())
    }

    /// Polls the completion queues of a destroyed queue pair, in which its completions can remain.
    pub(crate) fn poll_stale(&mut self, queues: [Id; 2]) -> Result<(), Violation> {
        for index in 0..self.cqs.len() {
            while queues.contains(&self.cqs[index].id)
                && self.cqs[index].cq.is_some()
                && self.poll_cq(index, Kind::Poll, &mut Random::new(1))? > 0
            {}
        }
        Ok(())
    }

    /// Compares the buffers of a destroyed queue pair with the model.
    pub(crate) fn reclaimed(
        &mut self,
        name: &str,
        removed: &Removed,
        reclaimed: Reclaimed,
    ) -> Result<(), Violation> {
        for (direction, bufs, entries) in [
            ("sends", reclaimed.sends, &removed.sends),
            ("receives", reclaimed.recvs, &removed.recvs),
        ] {
            let expected: Vec<_> = entries
                .iter()
                .flat_map(|entry| entry.bufs.iter().map(move |model| (entry, model)))
                .collect();
            let tags: Vec<u64> = bufs.iter().map(|(tag, _)| *tag).collect();
            if tags
                != expected
                    .iter()
                    .map(|(entry, _)| entry.tag)
                    .collect::<Vec<_>>()
            {
                let expected: Vec<u64> = expected.iter().map(|(entry, _)| entry.tag).collect();
                return Err(Violation(format!(
                    "{name}: destroy returned the {direction} {tags:?}, expected {expected:?}"
                )));
            }
            for ((_, buf), (entry, model)) in bufs.into_iter().zip(expected) {
                let what = format!("{name}: reclaimed {} {}", entry.what, entry.tag);
                let written = match &entry.fetched {
                    Some(_) if removed.overwritten => Written::Unknown,
                    Some(bytes) if entry.bufs.len() == 1 => Written::Maybe(bytes),
                    None if direction == "sends" => Written::Nothing,
                    None if removed.incoming == 0 && !removed.overwritten => Written::Nothing,
                    _ => Written::Unknown,
                };
                self.memory.returned(&what, buf, *model, written)?;
            }
        }
        Ok(())
    }
}
