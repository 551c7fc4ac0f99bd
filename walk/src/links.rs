//! Creating, breaking and destroying connected queue pairs.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use ibverbs::{
    AccessFlags, ConnectedDuplexTransport, ProtectionDomain, QpOptions, QueuePair, Rc, Reclaimed,
    RemoteMemory, Uc, qp::QpChange, wr,
};
use rdmacm::{ConnectParams, Connection, Listener, Resolver};
use test_support::random::Random;

use crate::Violation;
use crate::action::Kind;
use crate::any_qp::{AnyQp, with_qp};
use crate::link::{End, Entry, Link};
use crate::memory::{Id, Written};
use crate::objects::pick;
use crate::world::{World, unexpected};

/// Time limit for a connection.
const TIMEOUT: Duration = Duration::from_secs(20);

const MAX_LINKS: usize = 5;

/// The objects on which a queue pair is created.
struct Parts {
    pd: ProtectionDomain,
    pd_id: Id,
    send_cq: usize,
    recv_cq: usize,
    srq: Option<usize>,
    options: QpOptions,
}

/// The model of a queue pair that was destroyed.
pub(crate) struct Removed {
    pub(crate) sends: VecDeque<Entry>,
    pub(crate) recvs: VecDeque<Entry>,
    pub(crate) srq: Option<Id>,
    /// Number of messages that were not received.
    pub(crate) incoming: usize,
    pub(crate) queues: [Id; 2],
}

impl World<'_> {
    fn pick_parts(&self, random: &mut Random) -> Option<Parts> {
        let domain = &self.domains[pick(&self.domains, random)?];
        let srq = pick(&self.srqs, random)
            .filter(|&srq| self.srqs[srq].pd == domain.id && random.below(2) == 0);
        let requests = |random: &mut Random| u32::try_from(2 + random.below(15)).expect("small");
        let options = QpOptions::new()
            .max_send_wr(requests(random))
            .max_recv_wr(requests(random))
            .max_send_sge(if random.below(2) == 0 { 3 } else { 1 })
            .max_recv_sge(if random.below(2) == 0 { 2 } else { 1 })
            .max_inline_data(if random.below(2) == 0 { 64 } else { 0 })
            .classic_only(random.below(2) == 0);
        Some(Parts {
            pd: domain.pd.clone(),
            pd_id: domain.id,
            send_cq: pick(&self.cqs, random)?,
            recv_cq: pick(&self.cqs, random)?,
            srq,
            options,
        })
    }

    fn create_qp<T: ConnectedDuplexTransport>(
        &self,
        parts: &Parts,
    ) -> ibverbs::Result<QueuePair<T>> {
        let cq = |index: usize| self.cqs[index].cq.as_ref().expect("not being polled");
        let (send_cq, recv_cq) = (cq(parts.send_cq), cq(parts.recv_cq));
        match parts.srq {
            Some(srq) => {
                let srq = &self.srqs[srq].srq;
                parts
                    .pd
                    .create_qp_with_srq(send_cq, recv_cq, srq, parts.options)
            }
            None => parts.pd.create_qp(send_cq, recv_cq, parts.options),
        }
    }

    pub(crate) fn create_link(&mut self, random: &mut Random) -> Result<bool, Violation> {
        if self.links.len() == MAX_LINKS {
            return Ok(false);
        }
        let (Some(a), Some(b)) = (self.pick_parts(random), self.pick_parts(random)) else {
            return Ok(false);
        };
        let lossy = self.setup.is_ib && random.below(5) == 0;
        let qps = if lossy {
            let (a, b) = self.connected::<Uc>(&a, &b)?;
            (AnyQp::Uc(a), AnyQp::Uc(b))
        } else if let Some(listener) = self
            .listener
            .as_ref()
            .filter(|_| self.setup.path.is_none() || random.below(3) == 0)
        {
            // Soft-iWARP fails to create one in dozens, without an error number.
            let (Ok(qp_a), Ok(qp_b)) = (self.create_qp(&a), self.create_qp(&b)) else {
                return Ok(false);
            };
            let access = self.remote_access();
            let (a, b) = connect_with_cm(listener, qp_a, qp_b, access)?;
            (AnyQp::Cm(a), AnyQp::Cm(b))
        } else {
            let (a, b) = self.connected::<Rc>(&a, &b)?;
            (AnyQp::Rc(a), AnyQp::Rc(b))
        };
        let id = self.new_id();
        self.note(|| {
            let describe =
                |parts: &Parts| format!("{:?}, srq: {}", parts.options, parts.srq.is_some());
            format!("link {id}, UC: {lossy}: {}; {}", describe(&a), describe(&b))
        });
        let ends = [Some(self.new_end(qps.0, &a)), Some(self.new_end(qps.1, &b))];
        self.links.push(Link {
            id,
            ends,
            failed: false,
            lossy,
            landing: Vec::new(),
        });
        Ok(true)
    }

    fn connected<T: ConnectedDuplexTransport>(
        &self,
        a: &Parts,
        b: &Parts,
    ) -> Result<(QueuePair<T>, QueuePair<T>), Violation> {
        let path = self.setup.path.as_ref().expect("a path");
        let (mut a, mut b) = (self.create_qp::<T>(a)?, self.create_qp::<T>(b)?);
        a.init(path)?;
        b.init(path)?;
        a.connect(path, &b.endpoint(path)?)?;
        b.connect(path, &a.endpoint(path)?)?;
        Ok((a, b))
    }

    fn new_end(&self, mut qp: AnyQp, parts: &Parts) -> End {
        let (id, qp_num, caps) = with_qp!(&mut qp, qp => (qp.id(), qp.qp_num().0, qp.caps()));
        End {
            qp,
            id,
            qp_num,
            pd: parts.pd_id,
            send_cq: self.cqs[parts.send_cq].id,
            recv_cq: self.cqs[parts.recv_cq].id,
            srq: parts.srq.map(|srq| self.srqs[srq].id),
            max_sends: caps.max_send_wr as usize,
            max_recvs: caps.max_recv_wr as usize,
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
            unpolled_sends: VecDeque::new(),
            unpolled_recvs: VecDeque::new(),
            incoming: VecDeque::new(),
            held: Vec::new(),
            windows: Vec::new(),
            invalidating: Vec::new(),
            stale: None,
        }
    }

    pub(crate) fn fail_link(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_end(random).filter(|_| random.below(2) == 0) else {
            return Ok(false);
        };
        let name = self.name(at);
        self.note(|| format!("{name} to ERR"));
        // A link that failed can be in RESET, where the transition does not exist.
        let failed = std::mem::replace(&mut self.links[at.0].failed, true);
        match with_qp!(&mut self.end(at).qp, qp => qp.to_error()) {
            Err(error) if !failed => Err(unexpected(&name, error)),
            _ => Ok(true),
        }
    }

    /// Moves both queue pairs to RESET, which is refused while requests are in flight, and connects
    /// them again.
    pub(crate) fn reset(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some((link, _)) = self.pick_end(random) else {
            return Ok(false);
        };
        let mut ends = self.links[link].ends.iter();
        if ends.any(|end| {
            end.as_ref()
                .is_none_or(|end| matches!(end.qp, AnyQp::Cm(_)))
        }) {
            return Ok(false);
        }
        // Drivers differ in whether completions of a shared receive queue survive the reset.
        let mut ends = self.links[link].ends.iter().flatten();
        if ends.any(|end| end.srq.is_some() && !end.incoming.is_empty()) {
            return Ok(false);
        }
        for side in 0..2 {
            // A queue pair without requests has nothing to wait for, and its peer's requests fail.
            let name = self.name((link, side));
            let end = self.end((link, side));
            let idle = end.sends.is_empty() && end.recvs.is_empty();
            let reset = QpChange::to(ibverbs::QpState::RESET);
            let result = with_qp!(&mut end.qp, qp => qp.modify(&reset));
            self.note(|| format!("reset {name}: {result:?}"));
            match result {
                Ok(()) if idle => self.links[link].failed = true,
                Ok(()) => {
                    return Err(Violation(format!(
                        "{name} was reset with requests in flight"
                    )));
                }
                Err(error) if idle => return Err(unexpected("reset", error)),
                Err(_) => return Ok(true),
            }
        }
        let path = self.setup.path.expect("a path");
        let Link {
            ends: [Some(a), Some(b)],
            landing,
            failed,
            ..
        } = &mut self.links[link]
        else {
            return Ok(true);
        };
        for end in [&mut *a, &mut *b] {
            // Messages that were not received are lost.
            end.unpolled_sends.clear();
            end.unpolled_recvs.clear();
            end.windows.clear();
            end.invalidating.clear();
        }
        for effect in std::mem::take(landing) {
            self.memory.ended("a transfer before a reset", effect)?;
        }
        // Completions that were not polled are of no request in flight.
        a.incoming.clear();
        b.incoming.clear();
        match (&mut a.qp, &mut b.qp) {
            (AnyQp::Rc(a), AnyQp::Rc(b)) => reconnect(a, b, &path)?,
            (AnyQp::Uc(a), AnyQp::Uc(b)) => reconnect(a, b, &path)?,
            _ => return Ok(true),
        }
        *failed = false;
        Ok(true)
    }

    /// Posts a WRITE with a key that the peer does not have.
    pub(crate) fn bad_remote(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_working_end(random) else {
            return Ok(false);
        };
        if self.links[at.0].lossy || self.end(at).send_slots_free() == 0 {
            return Ok(false);
        }
        let tag = self.new_id();
        let remote = self.stale_window(at).unwrap_or(RemoteMemory {
            addr: 4096,
            len: 8,
            rkey: 0,
        });
        let end = self.end(at);
        let request = wr::write(wr::Empty, remote).tag(tag);
        let inline = [7; 8];
        let has_inline = with_qp!(&mut end.qp, qp => qp.caps().max_inline_data) >= 8;
        let posted = if has_inline {
            let request = wr::write(wr::Inline(&inline), remote).tag(tag);
            with_qp!(&mut end.qp, qp => qp.post_send(request)).map_err(ibverbs::Error::from)
        } else {
            with_qp!(&mut end.qp, qp => qp.post_send(request)).map_err(ibverbs::Error::from)
        };
        posted.map_err(|error| unexpected("WRITE with an invalid key", error))?;
        end.sends
            .push_back(Entry::without_memory(tag, "invalid WRITE"));
        end.unpolled_sends.push_back(tag);
        self.links[at.0].failed = true;
        Ok(true)
    }

    pub(crate) fn destroy_end(&mut self, random: &mut Random) -> Result<bool, Violation> {
        self.pick_and_remove(random, true)
    }

    pub(crate) fn drop_end(&mut self, random: &mut Random) -> Result<bool, Violation> {
        self.pick_and_remove(random, false)
    }

    fn pick_and_remove(&mut self, random: &mut Random, destroy: bool) -> Result<bool, Violation> {
        let failed = self.links.iter().position(|link| link.failed);
        let remaining = failed.and_then(|link| {
            let side = self.links[link].ends.iter().position(Option::is_some)?;
            Some((link, side))
        });
        let Some(at) = remaining.or_else(|| self.pick_end(random)) else {
            return Ok(false);
        };
        // The rest of a failed link is of little use.
        if !self.links[at.0].failed && random.below(3) > 0 {
            return Ok(false);
        }
        self.remove_end(at, destroy)?;
        Ok(true)
    }

    /// Destroys or drops a queue pair.
    pub(crate) fn remove_end(
        &mut self,
        at: (usize, usize),
        destroy: bool,
    ) -> Result<(), Violation> {
        let name = self.name(at);
        self.note(|| format!("{} {name}", if destroy { "destroy" } else { "drop" }));
        let end = self.links[at.0].ends[at.1]
            .take()
            .expect("a queue pair of `pick_end`");
        self.links[at.0].failed = true;
        let removed = Removed {
            sends: end.sends,
            recvs: end.recvs,
            srq: end.srq,
            incoming: end.incoming.len(),
            queues: [end.send_cq, end.recv_cq],
        };
        match end.qp {
            AnyQp::Rc(qp) if destroy => self.reclaimed(&name, &removed, qp.destroy()?)?,
            AnyQp::Uc(qp) if destroy => self.reclaimed(&name, &removed, qp.destroy()?)?,
            qp => {
                drop(qp);
                self.dropped(&removed);
            }
        }
        self.removed(at.0, &removed)
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

    /// Ends the model of a destroyed queue pair, whose buffers are accounted for.
    pub(crate) fn removed(&mut self, link: usize, removed: &Removed) -> Result<(), Violation> {
        self.links[link].failed = true;
        for entry in &removed.sends {
            self.links[link].landing.extend(&entry.effects);
        }
        // Nothing is received after the queue pair was destroyed.
        for &effect in removed.recvs.iter().flat_map(|entry| &entry.effects) {
            self.memory
                .ended("a receive of a destroyed queue pair", effect)?;
        }
        if let Some(srq) = self.srqs.iter_mut().find(|srq| Some(srq.id) == removed.srq) {
            srq.lost += removed.incoming;
        }
        self.release_orphans();
        if self.links[link].ends.iter().all(Option::is_none) {
            let Link { landing, .. } = self.links.swap_remove(link);
            for effect in landing {
                self.memory
                    .ended("a transfer of a destroyed queue pair", effect)?;
            }
        }
        self.poll_stale(removed.queues)
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
                    Some(bytes) if entry.bufs.len() == 1 => Written::Maybe(bytes),
                    None if direction == "sends" || removed.incoming == 0 => Written::Nothing,
                    _ => Written::Unknown,
                };
                self.memory.returned(&what, buf, *model, written)?;
            }
        }
        Ok(())
    }
}

fn reconnect<T: ConnectedDuplexTransport>(
    a: &mut QueuePair<T>,
    b: &mut QueuePair<T>,
    path: &ibverbs::RcPath,
) -> Result<(), Violation> {
    a.init(path)?;
    b.init(path)?;
    a.connect(path, &b.endpoint(path)?)?;
    b.connect(path, &a.endpoint(path)?)?;
    Ok(())
}

fn connect_with_cm(
    listener: &Listener,
    a: QueuePair<Rc>,
    b: QueuePair<Rc>,
    access: AccessFlags,
) -> Result<(Connection, Connection), Violation> {
    let params = ConnectParams::default();
    let failed = |error: rdmacm::ConnectError| Violation(format!("connect: {error}"));
    thread::scope(|scope| {
        let passive = scope.spawn(|| {
            let request = listener.accept(Some(TIMEOUT))?;
            let request = request.ok_or_else(|| Violation("no connection request".to_owned()))?;
            let ready = request.access(access).with_qp(b)?;
            ready.accept(&params, TIMEOUT).map_err(failed)
        });
        let resolver = Resolver::new(listener.local_addr()).timeout(TIMEOUT);
        let active = resolver.resolve()?.access(access).with_qp(a)?;
        let active = active.connect(&params, TIMEOUT).map_err(failed)?;
        Ok((active, passive.join().expect("no panic")?))
    })
}
