//! Polling, retiring completions in every way, and comparing the results with the model.

use std::time::Instant;

use ibverbs::{Completion, Direction, ForeignCompletion, Retired};
use test_support::random::Random;

use crate::Violation;
use crate::action::Kind;
use crate::any_cq::AnyCq;
use crate::any_qp::with_qp;
use crate::link::{Entry, Link, Message, take_in_flight};
use crate::memory::{Id, Written};
use crate::objects::pick;
use crate::windows::WindowRequest;
use crate::world::World;

/// A completion that was polled, and its request according to the model.
pub(crate) struct Arrived<'cq> {
    completion: Completion<'cq>,
    at: Option<(usize, usize)>,
    srq: Option<usize>,
    datagram: Option<usize>,
    /// The request, where the order of completions determines it.
    tag: Option<u64>,
    message: Option<Message>,
}

impl World<'_> {
    pub(crate) fn poll_one(&mut self, how: Kind, random: &mut Random) -> Result<bool, Violation> {
        match pick(&self.cqs, random) {
            Some(index) => Ok(self.poll_cq(index, how, random)? > 0),
            None => Ok(false),
        }
    }

    /// Polls a completion queue once. Returns the number of completions.
    pub(crate) fn poll_cq(
        &mut self,
        index: usize,
        how: Kind,
        random: &mut Random,
    ) -> Result<usize, Violation> {
        let id = self.cqs[index].id;
        let mut cq = self.cqs[index].cq.take().expect("not being polled");
        let result = self.poll(&mut cq, id, how, random);
        self.cqs[index].cq = Some(cq);
        result
    }

    fn poll(
        &mut self,
        cq: &mut AnyCq,
        id: Id,
        how: Kind,
        random: &mut Random,
    ) -> Result<usize, Violation> {
        let limit = if how == Kind::PollPartly {
            random.below(4)
        } else {
            usize::MAX
        };
        let mut arrived = Vec::new();
        for completion in cq.poll()?.take(limit) {
            arrived.push(self.assign(completion, id)?);
        }
        let count = arrived.len();
        let mut special = count.checked_sub(1).map(|last| random.below(last + 1));
        while !arrived.is_empty() {
            let next = if how == Kind::PollShuffled {
                random.below(arrived.len())
            } else {
                0
            };
            let completion = arrived.remove(next);
            let is_special = special == Some(0);
            special = special.and_then(|left| left.checked_sub(1));
            match how {
                Kind::DropCompletion if is_special => {
                    let Arrived {
                        at,
                        srq,
                        tag,
                        message,
                        ..
                    } = completion;
                    self.lose(at, srq, tag, message);
                }
                Kind::RetireWrong if is_special => self.retire_wrong(completion, random)?,
                _ => self.retire(completion)?,
            }
        }
        Ok(count)
    }

    /// Retires a completion that was polled in a scope of another queue pair.
    pub(crate) fn route(&mut self, completion: Completion<'_>, cq: Id) -> Result<(), Violation> {
        let arrived = self.assign(completion, cq)?;
        self.retire(arrived)
    }

    /// Finds the request of a completion in the model. Completions are assigned in the order of
    /// polling.
    pub(crate) fn assign<'cq>(
        &mut self,
        completion: Completion<'cq>,
        cq: Id,
    ) -> Result<Arrived<'cq>, Violation> {
        let queue = completion.queue();
        let srq = self.srqs.iter().position(|model| model.srq.id() == queue);
        let srq_id = srq.map(|srq| self.srqs[srq].id);
        let at = self.links.iter().enumerate().find_map(|(link, model)| {
            let side = model.ends.iter().position(|end| {
                end.as_ref().is_some_and(|end| match srq_id {
                    None => end.id == queue,
                    Some(srq) => {
                        let number = completion.qp_num().0;
                        end.srq == Some(srq) && end.recv_cq == cq && end.qp_num == number
                    }
                })
            })?;
            Some((link, side))
        });
        if let Some(srq) = srq {
            let model = &mut self.srqs[srq];
            model.unpolled = model.unpolled.saturating_sub(1);
            if at.is_none() {
                model.lost = model.lost.saturating_sub(1);
            }
        }
        let mut arrived = Arrived {
            completion,
            at,
            srq,
            datagram: None,
            tag: None,
            message: None,
        };
        let datagram = self.datagrams.iter().position(|model| model.queue == queue);
        if let Some(index) = datagram {
            arrived.datagram = datagram;
            (arrived.tag, arrived.message) = self.assign_datagram(index, &arrived.completion)?;
            return Ok(arrived);
        }
        let Some(at) = at else {
            return Ok(arrived);
        };
        let (failed, lossy) = (self.links[at.0].failed, self.links[at.0].lossy);
        let in_order = self.setup.in_order;
        let name = self.name(at);
        let end = self.end(at);
        let Arrived {
            completion,
            tag,
            message,
            ..
        } = &mut arrived;
        if !completion.is_success() && !failed {
            let (direction, status) = (completion.direction(), completion.status());
            return Err(Violation(format!(
                "{name}: a {direction:?} failed: {status}"
            )));
        }
        if completion.direction() == Direction::Send {
            let polled = end.unpolled_sends.pop_front();
            match polled {
                None if !failed => {
                    return Err(Violation(format!("{name}: a send completed twice")));
                }
                Some(_) if in_order && !failed => *tag = polled,
                _ => {}
            }
            return Ok(arrived);
        }
        if srq.is_none() {
            *tag = end.unpolled_recvs.pop_front();
            if tag.is_none() {
                return Err(Violation(format!("{name}: a receive completed twice")));
            }
        }
        if completion.is_success() {
            let found = (completion.byte_len(), completion.imm_data());
            let mut skipped = 0;
            let expected = loop {
                let Some(expected) = end.incoming.pop_front() else {
                    return Err(Violation(format!(
                        "{name}: received what was not sent: {found:?}"
                    )));
                };
                if !lossy || expected.imm == found.1 {
                    break expected;
                }
                skipped += 1;
            };
            if let Some(srq) = srq {
                // The first part of a lost message can have taken a receive.
                self.srqs[srq].lost += skipped;
            }
            if (expected.len, expected.imm) != found {
                let expected = (expected.len, expected.imm);
                return Err(Violation(format!(
                    "{name}: received {found:?} (bytes, immediate data), expected {expected:?}"
                )));
            }
            *message = Some(expected);
        }
        Ok(arrived)
    }

    pub(crate) fn retire(&mut self, arrived: Arrived<'_>) -> Result<(), Violation> {
        let Arrived {
            completion,
            at,
            srq,
            datagram,
            tag,
            message,
        } = arrived;
        if let Some(index) = datagram {
            return self.retire_datagram(index, completion, tag, message.as_ref());
        }
        if let Some(srq) = srq {
            let retired = self.srqs[srq].srq.retire(completion);
            let retired =
                retired.map_err(|foreign| Violation(format!("shared receive: {foreign}")))?;
            return self.retired_shared(srq, retired, at, message.as_ref());
        }
        let Some(at) = at else {
            return self.retire_stale(completion);
        };
        let direction = completion.direction();
        let result = with_qp!(&mut self.end(at).qp, qp => qp.retire(completion));
        self.retired(at, direction, tag, message.as_ref(), result)
    }

    /// Compares the result of a retirement with the model.
    pub(crate) fn retired(
        &mut self,
        at: (usize, usize),
        direction: Direction,
        tag: Option<u64>,
        message: Option<&Message>,
        result: Result<Retired, ForeignCompletion>,
    ) -> Result<(), Violation> {
        let name = self.name(at);
        let failed = self.links[at.0].failed;
        let end = self.end(at);
        let entries = if direction == Direction::Send {
            &end.sends
        } else {
            &end.recvs
        };
        let is_in_flight = |tag: u64| {
            entries
                .iter()
                .any(|entry| entry.tag == tag && entry.in_flight)
        };
        let retired = match result {
            Ok(retired) => retired,
            // Retired already with a later request, or flushed.
            Err(_) if failed || tag.is_some_and(|tag| !is_in_flight(tag)) => return Ok(()),
            Err(foreign) => return Err(Violation(format!("{name}: {tag:?}: {foreign}"))),
        };
        let found = retired.tag();
        self.note(|| {
            format!(
                "{name}: retired {direction:?} {found}: {}",
                retired.status()
            )
        });
        if tag.is_some_and(|tag| tag != found) {
            return Err(Violation(format!(
                "{name}: {found} retired, expected {tag:?}"
            )));
        }
        if direction == Direction::Send {
            self.retired_send(at, retired)
        } else {
            self.retired_recv(at, retired, message)
        }
    }

    fn retired_send(&mut self, at: (usize, usize), retired: Retired) -> Result<(), Violation> {
        let (name, tag) = (self.name(at), retired.tag());
        let in_order = self.setup.in_order;
        let end = self.end(at);
        let position = end
            .sends
            .iter()
            .position(|entry| entry.tag == tag && entry.in_flight);
        let Some(position) = position else {
            return Err(Violation(format!(
                "{name}: send {tag} retired, but was not in flight"
            )));
        };
        let success = retired.is_success();
        if in_order {
            for entry in end.sends.drain(..position).collect::<Vec<_>>() {
                for model in &entry.bufs {
                    self.memory.released(model);
                }
                self.complete(at, &entry, success)?;
            }
            let entry = self.end(at).sends.pop_front().expect("the retired request");
            return self.take_back(at, &entry, retired);
        }
        let entry = take_in_flight(&mut end.sends, position);
        self.take_back(at, &entry, retired)
    }

    /// Checks the buffers of a retired send.
    fn take_back(
        &mut self,
        at: (usize, usize),
        entry: &Entry,
        retired: Retired,
    ) -> Result<(), Violation> {
        let name = format!("{}: {} {}", self.name(at), entry.what, entry.tag);
        self.complete(at, entry, retired.is_success())?;
        let Some(retired) = self.retired_window(at, entry, retired)? else {
            return Ok(());
        };
        let written = match &entry.fetched {
            Some(bytes) if retired.is_success() => Written::All(bytes),
            Some(bytes) => Written::Maybe(bytes),
            None => Written::Nothing,
        };
        let bufs: Vec<_> = if entry.is_list {
            retired
                .into_list()
                .map(ibverbs::BufList::into_bufs)
                .unwrap_or_default()
        } else {
            retired.into_buf().into_iter().collect()
        };
        if bufs.len() != entry.bufs.len() {
            let (found, expected) = (bufs.len(), entry.bufs.len());
            return Err(Violation(format!(
                "{name}: returned {found} buffers, expected {expected}"
            )));
        }
        for (buf, model) in bufs.into_iter().zip(&entry.bufs) {
            self.memory.returned(&name, buf, *model, written)?;
        }
        Ok(())
    }

    /// Ends the effects of a completed send.
    fn complete(
        &mut self,
        at: (usize, usize),
        entry: &Entry,
        success: bool,
    ) -> Result<(), Violation> {
        // A READ and an atomic prove their effect. A WRITE over iWARP has arrived only when a later
        // READ returns, and one over UC may be lost.
        let proven = entry.fetched.is_some() || self.setup.is_ib && !self.links[at.0].lossy;
        let what = format!("{}: {} {}", self.name(at), entry.what, entry.tag);
        if entry.window == Some(WindowRequest::Bind) {
            self.bound(at, entry.tag, success);
        }
        for &effect in &entry.effects {
            if success && proven {
                self.memory.arrived(&what, effect)?;
            } else if !self.memory.has_arrived(effect) {
                self.links[at.0].landing.push(effect);
            }
        }
        Ok(())
    }

    fn retired_recv(
        &mut self,
        at: (usize, usize),
        retired: Retired,
        message: Option<&Message>,
    ) -> Result<(), Violation> {
        let (name, tag) = (self.name(at), retired.tag());
        let end = self.end(at);
        let position = end
            .recvs
            .iter()
            .position(|entry| entry.tag == tag && entry.in_flight);
        let Some(position) = position else {
            return Err(Violation(format!(
                "{name}: receive {tag} was not in flight"
            )));
        };
        let entry = take_in_flight(&mut end.recvs, position);
        self.received(Some(at), &entry, retired, message)
    }

    fn retired_shared(
        &mut self,
        srq: usize,
        retired: Retired,
        at: Option<(usize, usize)>,
        message: Option<&Message>,
    ) -> Result<(), Violation> {
        let recvs = &mut self.srqs[srq].recvs;
        let Some(position) = recvs.iter().position(|entry| entry.tag == retired.tag()) else {
            let tag = retired.tag();
            return Err(Violation(format!("shared receive {tag} was not in flight")));
        };
        let entry = recvs.swap_remove(position);
        self.received(at, &entry, retired, message)
    }

    /// Checks the buffer of a retired receive.
    fn received(
        &mut self,
        at: Option<(usize, usize)>,
        entry: &Entry,
        retired: Retired,
        message: Option<&Message>,
    ) -> Result<(), Violation> {
        let name = at.map_or("a destroyed queue pair".to_owned(), |at| self.name(at));
        let name = format!("{name}: receive {}", entry.tag);
        if let Some((at, message)) = at.zip(message) {
            self.check_invalidation(at, message, &retired)?;
        }
        match message {
            Some(message) => {
                let bytes: &[u8] = if message.in_buffer {
                    &message.bytes
                } else {
                    &[]
                };
                self.memory.received(&name, &entry.effects, bytes)?;
            }
            None => {
                for &effect in &entry.effects {
                    self.memory.ended(&name, effect)?;
                }
            }
        }
        let written = match message {
            Some(message) if message.in_buffer => Written::All(&message.bytes),
            Some(_) => Written::Maybe(&[]),
            // Failed in the middle of a message, or of a queue pair without a model.
            None => Written::Unknown,
        };
        let buf = if entry.is_list {
            retired.into_list().and_then(|list| list.into_bufs().pop())
        } else {
            retired.into_buf()
        };
        match (buf, entry.bufs.first()) {
            (Some(buf), Some(model)) => self.memory.returned(&name, buf, *model, written),
            (None, None) => Ok(()),
            (found, _) => {
                let found = found.map_or("no buffer", |_| "a buffer");
                Err(Violation(format!(
                    "{name}: returned {found}, which was not posted so"
                )))
            }
        }
    }

    /// Retires a completion of a destroyed queue pair, which matches no request.
    fn retire_stale(&mut self, completion: Completion<'_>) -> Result<(), Violation> {
        let Some(end) = self
            .links
            .iter_mut()
            .flat_map(|link| &mut link.ends)
            .flatten()
            .next()
        else {
            return Ok(());
        };
        match with_qp!(&mut end.qp, qp => qp.retire(completion)) {
            Err(_) => Ok(()),
            Ok(retired) => Err(Violation(format!("a stale completion retired {retired:?}"))),
        }
    }

    /// Drops a completion: its request keeps its slot.
    fn lose(
        &mut self,
        at: Option<(usize, usize)>,
        srq: Option<usize>,
        tag: Option<u64>,
        message: Option<Message>,
    ) {
        let (Some(at), None, Some(tag)) = (at, srq, tag) else {
            return;
        };
        if let Some(entry) = self.end(at).recvs.iter_mut().find(|entry| entry.tag == tag) {
            let bytes = |message: Message| message.in_buffer.then_some(message.bytes);
            entry.fetched = message.map(|message| bytes(message).unwrap_or_default());
        }
    }

    /// Retires a completion on another queue pair than its own, which loses it.
    fn retire_wrong(&mut self, arrived: Arrived<'_>, random: &mut Random) -> Result<(), Violation> {
        let other = self.pick_end(random).filter(|&at| Some(at) != arrived.at);
        let Some(other) = other else {
            return self.retire(arrived);
        };
        let Arrived {
            completion,
            at,
            srq,
            tag,
            message,
            ..
        } = arrived;
        let queue = completion.queue();
        match with_qp!(&mut self.end(other).qp, qp => qp.retire(completion)) {
            Err(foreign) if foreign.queue == queue => {}
            other => return Err(Violation(format!("retired on the wrong queue: {other:?}"))),
        }
        self.lose(at, srq, tag, message);
        Ok(())
    }

    /// Returns `true` if sends of a queue pair will complete without another action.
    pub(crate) fn sends_are_due(&self, (link, side): (usize, usize)) -> bool {
        let Link { ends, failed, .. } = &self.links[link];
        let (Some(end), Some(peer)) = (&ends[side], &ends[1 - side]) else {
            return false;
        };
        let waits = peer.incoming.len() > peer.unpolled_recvs.len() && peer.srq.is_none();
        !failed && !waits && !end.unpolled_sends.is_empty()
    }

    /// Returns `true` if a message to a queue pair will arrive without another action.
    fn message_is_due(&self, (link, side): (usize, usize)) -> bool {
        let Link { ends, failed, .. } = &self.links[link];
        let Some(end) = &ends[side] else {
            return false;
        };
        let certain = !failed && !self.links[link].lossy && ends[1 - side].is_some();
        let has_receive = end.srq.is_some() || !end.unpolled_recvs.is_empty();
        certain && has_receive && !end.incoming.is_empty()
    }

    /// Returns the queue pairs of working links whose requests should have completed.
    fn unsettled(&self) -> Vec<(usize, usize)> {
        let ends = (0..self.links.len()).flat_map(|link| [(link, 0), (link, 1)]);
        ends.filter(|&at| self.sends_are_due(at) || self.message_is_due(at))
            .collect()
    }

    /// Waits until the requests of all working queue pairs have completed.
    pub(crate) fn settle(&mut self) -> Result<bool, Violation> {
        let start = Instant::now();
        loop {
            for index in 0..self.cqs.len() {
                while self.poll_cq(index, Kind::Poll, &mut Random::new(1))? > 0 {}
            }
            let unsettled = self.unsettled();
            if unsettled.is_empty() {
                self.check_deliveries()?;
                return Ok(true);
            }
            if start.elapsed() > self.setup.timeout {
                let unsettled: Vec<String> = unsettled
                    .into_iter()
                    .map(|at| self.describe_end(at))
                    .collect();
                let unsettled = unsettled.join("; ");
                return Err(Violation(format!("requests did not complete: {unsettled}")));
            }
            std::thread::yield_now();
        }
    }
}
