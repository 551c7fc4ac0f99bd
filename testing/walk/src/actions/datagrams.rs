//! Queue pairs of UD and SRD, and what their requests and messages must do.

use ibverbs::{Completion, DatagramAttr, GRH_LEN, Psn, Qkey, QpState, WcStatus, qp::QpChange};
use test_support::random::Random;

use super::prepare::{Immediate, Prepared, Receiver};
use crate::model::{
    Arrival, Datagram, DatagramKind, Effect, End, Entry, Fate, Id, Message, QpIndex, Removed,
};
use crate::transport::{AnyQp, Fetch, with_datagram, with_qp};
use crate::violation::{Violation, unexpected};
use crate::world::{World, choose, pick};

/// Number of queue pairs of each transport.
const MAX_DATAGRAMS: usize = 4;

/// Number of receiver-not-ready retries that means "forever".
const RETRY_FOREVER: u8 = 7;

impl World<'_> {
    pub(crate) fn create_datagram(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let support = &self.setup.support;
        let is_srd = support.srd && (!support.ud || random.below(2) == 0);
        let waits = support.srd_retries && random.below(2) == 0;
        let kind = if is_srd {
            DatagramKind::Srd { waits }
        } else {
            DatagramKind::Ud
        };
        let same = self.datagrams.iter().filter(|one| one.is_srd() == is_srd);
        let (Some(domain), Some(send), Some(recv)) = (
            pick(&self.domains, random),
            pick(&self.cqs, random),
            pick(&self.cqs, random),
        ) else {
            return Ok(false);
        };
        if same.count() == MAX_DATAGRAMS {
            return Ok(false);
        }
        let (pd, domain) = (self.domains[domain].id, self.domains[domain].pd.clone());
        let options = self.pick_options(random);
        let id = self.new_id();
        let qkey = Qkey(0x1000_0000 + u32::try_from(id & 0xff_ffff).unwrap_or(0));
        let cq = |index: usize| self.cqs[index].cq.as_ref().expect("not being polled");
        let (send_cq, recv_cq) = (cq(send), cq(recv));
        let mut qp = if is_srd {
            AnyQp::Srd(domain.create_qp(send_cq, recv_cq, options)?)
        } else {
            AnyQp::Ud(domain.create_qp(send_cq, recv_cq, options)?)
        };
        start(&mut qp, qkey, kind)?;
        let header = if is_srd { 0 } else { GRH_LEN };
        let mut sizes = self.setup.buf_sizes.to_vec();
        sizes.retain(|&size| size >= header + 16);
        let min_recv = choose(&sizes, random).expect("a size for a header");
        let cqs = [self.cqs[send].id, self.cqs[recv].id];
        let end = End {
            in_order: self.setup.in_order && !is_srd,
            receives_in_order: self.setup.in_order,
            header,
            min_recv,
            device_addresses: options.device_addresses,
            ..End::new(qp, pd, cqs)
        };
        self.datagrams.push(Datagram {
            id,
            end: Some(end),
            kind,
            qkey,
            is_overloaded: random.below(3) == 0,
            failed: false,
            address: None,
            released: None,
        });
        let index = self.datagrams.len() - 1;
        if random.below(4) > 0 {
            self.hold_address(index)?;
        }
        let name = self.name(QpIndex::Datagram(index));
        self.note(|| format!("{name}: {kind:?}, receives from {min_recv}, {options:?}"));
        Ok(true)
    }

    /// Returns the queue pair with this identity.
    pub(crate) fn datagram(&mut self, id: Option<Id>) -> Option<&mut End> {
        let mut all = self.datagrams.iter_mut();
        all.find(|one| Some(one.id) == id)?.end.as_mut()
    }

    /// Moves a queue pair to RESET, which is refused while requests are in flight, and starts it
    /// again.
    pub(crate) fn reset_datagram(&mut self, index: usize) -> Result<bool, Violation> {
        let name = self.name(QpIndex::Datagram(index));
        let Datagram { qkey, kind, .. } = self.datagrams[index];
        let end = self.end(QpIndex::Datagram(index));
        let idle = end.is_done();
        let reset = QpChange::to(QpState::RESET);
        let result = with_qp!(&mut end.qp, qp => qp.modify(&reset));
        self.note(|| format!("reset {name}: {result:?}"));
        match result {
            Ok(()) if idle => {}
            Ok(()) => {
                return Err(Violation(format!(
                    "{name} was reset with requests in flight"
                )));
            }
            Err(error) if idle => return Err(unexpected("reset", error)),
            Err(_) => return Ok(true),
        }
        self.detach_datagram(index);
        let end = self.end(QpIndex::Datagram(index));
        end.unpolled_sends.clear();
        end.unpolled_recvs.clear();
        start(&mut end.qp, qkey, kind)?;
        self.datagrams[index].failed = false;
        Ok(true)
    }

    /// Notes that a queue pair has stopped: its messages, and requests to it, can fail.
    pub(crate) fn detach_datagram(&mut self, index: usize) {
        let id = self.datagrams[index].id;
        let Some(end) = &mut self.datagrams[index].end else {
            return;
        };
        for message in &mut end.incoming {
            message.arrival = Arrival::Possible;
        }
        let in_flight = end.sends.iter().filter(|entry| entry.in_flight);
        let sent: Vec<u64> = in_flight.map(|entry| entry.tag).collect();
        self.messages_are_uncertain(&sent);
        self.requests_are_uncertain(id);
    }

    /// Notes that messages may never have been sent.
    fn messages_are_uncertain(&mut self, tags: &[u64]) {
        let ends = self.datagrams.iter_mut().filter_map(|one| one.end.as_mut());
        let messages = ends.flat_map(|end| &mut end.incoming);
        for message in messages.filter(|message| tags.contains(&message.tag)) {
            message.arrival = Arrival::Possible;
        }
    }

    /// Notes that requests to a queue pair can fail.
    fn requests_are_uncertain(&mut self, to: Id) {
        for entry in self.ends_mut().flat_map(|end| &mut end.sends) {
            if entry.to == Some(to) && entry.fate == Fate::Succeeds {
                entry.fate = Fate::Either;
            }
        }
    }

    /// Ends the model of a queue pair that was destroyed with these requests.
    pub(crate) fn remove_datagram(&mut self, index: usize, removed: &Removed) {
        let id = self.datagrams.swap_remove(index).id;
        let in_flight = removed.sends.iter().filter(|entry| entry.in_flight);
        let sent: Vec<u64> = in_flight.map(|entry| entry.tag).collect();
        self.messages_are_uncertain(&sent);
        self.requests_are_uncertain(id);
    }

    /// Returns the receiver of the next request of a queue pair. The requests of `earlier` are
    /// prepared already.
    pub(crate) fn pick_receiver(
        &mut self,
        from: usize,
        earlier: &[Prepared],
        random: &mut Random,
    ) -> Option<Receiver> {
        let index = pick(&self.datagrams, random)?;
        let mut destination = self.destination(from, index)?;
        let (sender, receiver) = (&self.datagrams[from], &self.datagrams[index]);
        let (own, end) = (sender.end.as_ref()?, receiver.end.as_ref()?);
        let to_it: Vec<&Message> = earlier
            .iter()
            .filter(|one| one.entry.to == Some(receiver.id))
            .filter_map(|one| one.message.as_ref())
            .collect();
        let has_receive = end.unpolled_recvs.len() > end.incoming.len() + to_it.len();
        let mut is_valid = sender.is_srd() == receiver.is_srd();
        if random.below(12) == 0 {
            destination.qkey = Qkey(1);
            is_valid = false;
        }
        if is_valid && !has_receive && (!receiver.is_overloaded || random.below(4) > 0) {
            return None;
        }
        let is_certain = !receiver.failed && (sender.is_srd() || self.setup.loses_no_datagrams);
        let fate = match (is_valid, sender.is_srd()) {
            (false, true) => Fate::Fails,
            (true, true) if receiver.failed => Fate::Either,
            _ => Fate::Succeeds,
        };
        let arrival = is_valid.then_some(if is_certain {
            Arrival::Certain
        } else {
            Arrival::Possible
        });
        // Of two messages of the same length without immediate data, the model could not tell
        // which one arrived.
        let from_here = |message: &&Message| message.source.is_none_or(|one| one == own.qp_num);
        let mut others = end.incoming.iter().chain(to_it).filter(from_here);
        let is_ambiguous = others.any(|message| message.imm.is_none());
        let writes = sender.is_srd() && self.setup.support.srd_writes;
        let max = self.setup.support.max_datagram;
        // A request that fails at the receiver.
        let can_be_too_long = arrival == Some(Arrival::Certain) && has_receive;
        let has_long = end.incoming.iter().any(|message| message.is_too_long);
        let is_first = !has_long && earlier.is_empty();
        let recvs = end.recvs.iter().filter(|entry| entry.in_flight);
        let too_long = recvs.map(|entry| entry.capacity).max().filter(|&longest| {
            let is_possible = sender.is_srd() && can_be_too_long && is_first;
            is_possible && longest < max && random.below(8) == 0
        });
        Some(Receiver {
            pd: (is_valid && writes).then_some(end.pd),
            to: Some((receiver.id, destination)),
            credit: Some((end.min_recv - end.header).min(max)),
            too_long: too_long.map(|longest| (longest, max)),
            immediate: if is_ambiguous || random.below(4) > 0 {
                Immediate::Always
            } else {
                Immediate::Never
            },
            fate,
            arrival,
            header: end.header,
        })
    }

    /// Prepares a READ of a region of the domain of a peer, which fails if its key or its range is
    /// wrong.
    pub(crate) fn prepare_read(
        &mut self,
        from: usize,
        random: &mut Random,
    ) -> Option<(Fetch, Entry)> {
        let index = pick(&self.datagrams, random)?;
        let destination = self.destination(from, index)?;
        let receiver = &self.datagrams[index];
        let (id, pd) = (receiver.id, receiver.end.as_ref()?.pd);
        let mut fate = match (receiver.is_srd(), receiver.failed) {
            (false, _) => Fate::Fails,
            (true, true) => Fate::Either,
            (true, false) => Fate::Succeeds,
        };
        let is_foreign = random.below(8) == 0;
        let regions = self.memory.regions.iter();
        let regions: Vec<_> = regions
            .filter(|region| (region.pd != pd) == is_foreign)
            .collect();
        let region = choose(&regions, random)?;
        let cell = region.readable(random)?;
        let (range, whole) = (region.range(cell), region.region.remote());
        let number = |number: usize| u64::try_from(number).expect("small");
        let remote = whole.slice(number(range.start)..number(range.end));
        let mut remote = remote.expect("within the region");
        if is_foreign {
            fate = Fate::Fails;
        }
        match random.below(16) {
            0 => (remote.rkey, fate) = (0, Fate::Fails),
            1 => (remote.addr, fate) = (whole.addr + whole.len - 1, Fate::Fails),
            _ => {}
        }
        let bytes = region.cells[cell].bytes.clone();
        let effect = Effect::Reads {
            region: region.id,
            cell,
        };
        let entry = Entry {
            fate,
            to: Some(id),
            ..self.begin_read(effect, bytes)
        };
        Some((Fetch::ReadFrom(remote, destination), entry))
    }

    /// Finds the message of a receive of a queue pair.
    pub(crate) fn assign_datagram(
        &mut self,
        index: usize,
        completion: &Completion<'_>,
    ) -> Result<Option<Message>, Violation> {
        let name = self.name(QpIndex::Datagram(index));
        let failed = self.datagrams[index].failed;
        let end = self.end(QpIndex::Datagram(index));
        if !completion.is_success() {
            let too_long = end.incoming.iter().position(|one| one.is_too_long);
            if let Some(message) = too_long {
                end.incoming.remove(message);
                return Ok(None);
            }
            if failed {
                return Ok(None);
            }
            let status = completion.status();
            return Err(Violation(format!("{name}: a receive failed: {status}")));
        }
        let source = Some(completion.source().qpn.0);
        let found = (completion.received_len(), completion.imm_data());
        let message = end.incoming.iter().position(|message| {
            let is_same = (message.len(), message.imm) == found;
            is_same && message.source == source && !message.is_too_long
        });
        match message.and_then(|message| end.incoming.remove(message)) {
            Some(message) => Ok(Some(message)),
            None => Err(Violation(format!(
                "{name}: received what was not sent: {found:?} from {source:?}, expected {:?}",
                end.incoming
            ))),
        }
    }

    /// Notes that messages can be lost if a queue pair has more of them than receives: any of them
    /// can be the one without a receive.
    pub(crate) fn check_load(&mut self, to: Option<Id>) {
        let Some(end) = self.datagram(to) else {
            return;
        };
        if end.incoming.len() <= end.unpolled_recvs.len() {
            return;
        }
        let is_ud = end.header > 0;
        let certain = end.incoming.iter();
        let certain = certain.filter(|message| message.arrival == Arrival::Certain);
        for tag in certain.map(|message| message.tag).collect::<Vec<_>>() {
            let arrival = match self.sender_of(tag) {
                Some((DatagramKind::Srd { waits: true }, _)) => Arrival::Waiting,
                Some((DatagramKind::Srd { waits: false }, entry)) => {
                    if entry.fate == Fate::Succeeds {
                        entry.fate = Fate::Either;
                    }
                    Arrival::Possible
                }
                // The completion of a datagram of UD does not prove that it arrived.
                Some((DatagramKind::Ud, _)) => Arrival::Possible,
                None if is_ud => Arrival::Possible,
                // Acknowledged.
                None => continue,
            };
            let end = self.datagram(to).expect("found before");
            for message in end.incoming.iter_mut().filter(|one| one.tag == tag) {
                message.arrival = arrival;
            }
        }
    }

    /// Returns the request in flight that sent a message, and the kind of its queue pair.
    fn sender_of(&mut self, tag: u64) -> Option<(DatagramKind, &mut Entry)> {
        self.datagrams.iter_mut().find_map(|datagram| {
            let mut sends = datagram.end.as_mut()?.sends.iter_mut();
            let entry = sends.find(|entry| entry.tag == tag && entry.in_flight)?;
            Some((datagram.kind, entry))
        })
    }

    /// Draws conclusions about a message from the completion of its request.
    pub(crate) fn datagram_sent(&mut self, entry: &Entry, status: WcStatus) {
        let Some(end) = self.datagram(entry.to) else {
            return;
        };
        let position = end.incoming.iter().position(|one| one.tag == entry.tag);
        let Some(position) = position else {
            return;
        };
        match status {
            // A datagram of UD may still be lost.
            WcStatus::SUCCESS if end.header > 0 => {}
            WcStatus::SUCCESS => end.incoming[position].arrival = Arrival::Certain,
            // The peer may have received it nevertheless.
            WcStatus::WR_FLUSH_ERR | WcStatus::RESP_TIMEOUT_ERR => {
                end.incoming[position].arrival = Arrival::Possible;
            }
            // Its receive fails.
            WcStatus::REM_INV_REQ_ERR if end.incoming[position].is_too_long => {
                end.incoming[position].arrival = Arrival::Certain;
            }
            _ => drop(end.incoming.remove(position)),
        }
    }

    /// Returns the number of messages of a queue pair that can wait for a receive.
    pub(crate) fn waiting_messages(&self, index: usize) -> usize {
        let datagram = &self.datagrams[index];
        let end = datagram.end.as_ref().filter(|_| datagram.waits());
        let source = end.map(|end| end.qp_num);
        let ends = self.datagrams.iter().filter_map(|one| one.end.as_ref());
        let messages = ends.flat_map(|end| &end.incoming);
        let waiting = messages.filter(|message| message.arrival != Arrival::Certain);
        waiting
            .filter(|one| source.is_some() && one.source == source)
            .count()
    }
}

/// Moves a queue pair from RESET to RTS.
fn start(qp: &mut AnyQp, qkey: Qkey, kind: DatagramKind) -> ibverbs::Result<()> {
    match qp {
        AnyQp::Srd(qp) if kind == DatagramKind::Srd { waits: true } => {
            let init = QpChange::to(QpState::INIT).port_num(1).pkey_index(0);
            qp.modify(&init.qkey(qkey))?;
            qp.modify(&QpChange::to(QpState::RTR))?;
            let rts = QpChange::to(QpState::RTS).sq_psn(Psn(0));
            qp.modify(&rts.rnr_retry(RETRY_FOREVER))
        }
        _ => with_datagram!(qp, qp => qp.start(&DatagramAttr::new(1, qkey))),
    }
}
