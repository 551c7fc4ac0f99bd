//! Polling, retiring completions in every way, and comparing the results with the model.

use ibverbs::{Completion, Direction, ForeignCompletion, Retired, WcStatus};
use test_support::random::Random;

use crate::action::Kind;
use crate::model::{
    Entry, Fate, Id, Message, QpIndex, WindowRequest, Written, position_in_flight, take_in_flight,
};
use crate::transport::{AnyCq, with_qp};
use crate::violation::Violation;
use crate::world::{World, pick};

/// A completion that was polled, and its request according to the model.
pub(crate) struct Arrived<'cq> {
    completion: Completion<'cq>,
    at: Option<QpIndex>,
    srq: Option<usize>,
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
                    self.lose(completion);
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
        let at = self.indices().into_iter().find(|&at| {
            self.find(at).is_some_and(|end| match srq_id {
                None => end.id == queue,
                Some(srq) => {
                    let number = completion.qp_num().0;
                    end.srq == Some(srq) && end.recv_cq == cq && end.qp_num == number
                }
            })
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
            tag: None,
            message: None,
        };
        let Some(at) = at else {
            return Ok(arrived);
        };
        let (failed, lossy) = (self.has_failed(at), self.is_lossy(at));
        let name = self.name(at);
        let end = self.end(at);
        let Arrived {
            completion,
            tag,
            message,
            ..
        } = &mut arrived;
        if completion.direction() == Direction::Send {
            let polled = end.unpolled_sends.pop_front();
            match polled {
                None if !failed => {
                    return Err(Violation(format!("{name}: a send completed twice")));
                }
                Some(_) if end.in_order && !failed => *tag = polled,
                _ => {}
            }
            return Ok(arrived);
        }
        if srq.is_none() {
            let polled = end.unpolled_recvs.pop_front();
            if polled.is_none() {
                return Err(Violation(format!("{name}: a receive completed twice")));
            }
            *tag = polled.filter(|_| end.receives_in_order);
        }
        if let QpIndex::Datagram(index) = at {
            *message = self.assign_datagram(index, completion)?;
            return Ok(arrived);
        }
        if !completion.is_success() && !failed {
            let status = completion.status();
            return Err(Violation(format!("{name}: a receive failed: {status}")));
        }
        if completion.is_success() {
            let found = (completion.received_len(), completion.imm_data());
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
            if (expected.len(), expected.imm) != found {
                let expected = (expected.len(), expected.imm);
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
            tag,
            message,
        } = arrived;
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
        at: QpIndex,
        direction: Direction,
        tag: Option<u64>,
        message: Option<&Message>,
        result: Result<Retired, ForeignCompletion>,
    ) -> Result<(), Violation> {
        let name = self.name(at);
        let failed = self.has_failed(at);
        let end = self.end(at);
        let entries = if direction == Direction::Send {
            &end.sends
        } else {
            &end.recvs
        };
        let is_in_flight = |tag: u64| position_in_flight(entries, tag).is_some();
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

    fn retired_send(&mut self, at: QpIndex, retired: Retired) -> Result<(), Violation> {
        let (name, tag) = (self.name(at), retired.tag());
        let failed = self.has_failed(at);
        let end = self.end(at);
        let Some(position) = position_in_flight(&end.sends, tag) else {
            return Err(Violation(format!(
                "{name}: send {tag} retired, but was not in flight"
            )));
        };
        let (fate, status) = (end.sends[position].fate, retired.status());
        let is_right = match fate {
            Fate::Succeeds => status == WcStatus::SUCCESS,
            Fate::Fails => status != WcStatus::SUCCESS,
            Fate::Either => true,
        };
        if !is_right && !failed {
            let entry = &end.sends[position];
            return Err(Violation(format!(
                "{name}: {entry:?} completed with {status}, expected: {fate:?}"
            )));
        }
        if !end.in_order {
            let older = end.sends.range(..position);
            let unsignaled = older.filter(|entry| entry.in_flight && entry.unsignaled);
            let mut tags: Vec<u64> = unsignaled.map(|entry| entry.tag).collect();
            while let Some(tag) = tags.pop() {
                let sends = &mut self.end(at).sends;
                let position = position_in_flight(sends, tag).expect("an older request");
                let entry = take_in_flight(sends, position);
                self.complete(at, &entry, status)?;
            }
            let sends = &mut self.end(at).sends;
            let position = position_in_flight(sends, tag).expect("the retired request");
            let entry = take_in_flight(sends, position);
            return self.take_back(at, &entry, retired);
        }
        for entry in end.sends.drain(..position).collect::<Vec<_>>() {
            self.complete(at, &entry, status)?;
            if self.is_kept(status) {
                self.keep_send(at, entry);
                continue;
            }
            for model in &entry.bufs {
                self.memory.released(model);
            }
        }
        let entry = self.end(at).sends.pop_front().expect("the retired request");
        if !self.is_kept(status) {
            return self.take_back(at, &entry, retired);
        }
        self.complete(at, &entry, status)?;
        check_kept(&self.name(at), retired)?;
        self.keep_send(at, entry);
        Ok(())
    }

    /// Returns `true` if the device may still access the memory of a completed request.
    fn is_kept(&self, status: WcStatus) -> bool {
        self.setup.keeps_failed && status != WcStatus::SUCCESS
    }

    /// Keeps the buffers of a failed send until its queue pair is destroyed. Its effects have ended
    /// or are those of its link.
    fn keep_send(&mut self, at: QpIndex, mut entry: Entry) {
        entry.effects.clear();
        self.end(at).kept[0].extend((!entry.bufs.is_empty()).then_some(entry));
    }

    /// Checks the buffers of a retired send.
    fn take_back(&mut self, at: QpIndex, entry: &Entry, retired: Retired) -> Result<(), Violation> {
        let name = format!("{}: {} {}", self.name(at), entry.what, entry.tag);
        self.complete(at, entry, retired.status())?;
        let Some(retired) = self.retired_window(at, entry, retired)? else {
            return Ok(());
        };
        let written = match &entry.fetched {
            Some(bytes) if retired.is_success() => Written::All(bytes),
            // The length of the buffer is that of the READ nevertheless.
            Some(_) if entry.fate == Fate::Fails => Written::Maybe(&[]),
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
    fn complete(&mut self, at: QpIndex, entry: &Entry, status: WcStatus) -> Result<(), Violation> {
        let success = status == WcStatus::SUCCESS;
        // A READ and an atomic prove their effect. A WRITE over iWARP has arrived only when a later
        // READ returns, and one over UC may be lost.
        let proven = entry.fetched.is_some() || !self.setup.support.is_iwarp && !self.is_lossy(at);
        let what = format!("{}: {} {}", self.name(at), entry.what, entry.tag);
        if entry.window == Some(WindowRequest::Bind) {
            self.bound(at, entry.tag, success);
        }
        self.datagram_sent(entry, status);
        for &effect in &entry.effects {
            if success && proven {
                self.memory.arrived(&what, effect)?;
            } else if !self.memory.has_arrived(effect) {
                match at {
                    QpIndex::Link(link, _) => self.links[link].landing.push(effect),
                    QpIndex::Datagram(_) => self.memory.ended(&what, effect)?,
                }
            }
        }
        Ok(())
    }

    fn retired_recv(
        &mut self,
        at: QpIndex,
        retired: Retired,
        message: Option<&Message>,
    ) -> Result<(), Violation> {
        let (name, tag) = (self.name(at), retired.tag());
        let end = self.end(at);
        let Some(position) = position_in_flight(&end.recvs, tag) else {
            return Err(Violation(format!(
                "{name}: receive {tag} was not in flight"
            )));
        };
        let entry = take_in_flight(&mut end.recvs, position);
        if self.is_kept(retired.status()) {
            check_kept(&name, retired)?;
            self.end(at).kept[1].push(entry);
            return Ok(());
        }
        self.received(Some(at), &entry, retired, message)
    }

    fn retired_shared(
        &mut self,
        srq: usize,
        retired: Retired,
        at: Option<QpIndex>,
        message: Option<&Message>,
    ) -> Result<(), Violation> {
        let recvs = &mut self.srqs[srq].recvs;
        let Some(position) = recvs.iter().position(|entry| entry.tag == retired.tag()) else {
            let tag = retired.tag();
            return Err(Violation(format!("shared receive {tag} was not in flight")));
        };
        let entry = recvs.swap_remove(position);
        if self.is_kept(retired.status()) {
            check_kept("shared receive queue", retired)?;
            for &effect in &entry.effects {
                self.memory.set_unknown(effect);
            }
            self.srqs[srq].kept.push(entry);
            return Ok(());
        }
        self.received(at, &entry, retired, message)
    }

    /// Checks the buffer of a retired receive.
    fn received(
        &mut self,
        at: Option<QpIndex>,
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
            Some(message) => self.memory.received(&name, &entry.effects, message)?,
            None => {
                for &effect in &entry.effects {
                    self.memory.ended(&name, effect)?;
                }
            }
        }
        let written = match message {
            Some(message) if message.in_buffer => Written::Message(message),
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
        let Some(end) = self.ends_mut().next() else {
            return Ok(());
        };
        match with_qp!(&mut end.qp, qp => qp.retire(completion)) {
            Err(_) => Ok(()),
            Ok(retired) => Err(Violation(format!("a stale completion retired {retired:?}"))),
        }
    }

    /// Drops a completion: its request keeps its slot.
    fn lose(&mut self, arrived: Arrived<'_>) {
        let Arrived {
            completion,
            at: Some(at),
            srq: None,
            tag,
            message,
        } = arrived
        else {
            return;
        };
        let direction = completion.direction();
        drop(completion);
        self.lost(at, direction, tag, message);
    }

    /// Notes that a completion was not retired.
    fn lost(
        &mut self,
        at: QpIndex,
        direction: Direction,
        tag: Option<u64>,
        message: Option<Message>,
    ) {
        let name = self.name(at);
        self.note(|| format!("{name}: dropped the completion of a {direction:?}"));
        if direction == Direction::Send {
            return;
        }
        let end = self.end(at);
        let entry = end.recvs.iter_mut().find(|entry| Some(entry.tag) == tag);
        match (entry, message) {
            (Some(entry), Some(message)) if message.header == 0 => {
                let bytes = message.in_buffer.then_some(message.bytes);
                entry.fetched = Some(bytes.unwrap_or_default());
            }
            _ => end.lost_recvs += 1,
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
        } = arrived;
        let (queue, direction) = (completion.queue(), completion.direction());
        match with_qp!(&mut self.end(other).qp, qp => qp.retire(completion)) {
            Err(foreign) if foreign.queue == queue => {}
            other => return Err(Violation(format!("retired on the wrong queue: {other:?}"))),
        }
        if let (Some(at), None) = (at, srq) {
            self.lost(at, direction, tag, message);
        }
        Ok(())
    }
}

/// Checks that a failed request returned no buffer.
fn check_kept(name: &str, retired: Retired) -> Result<(), Violation> {
    let tag = retired.tag();
    if retired.into_buf().is_some() {
        return Err(Violation(format!(
            "{name}: the failed request {tag} returned its buffer"
        )));
    }
    Ok(())
}
