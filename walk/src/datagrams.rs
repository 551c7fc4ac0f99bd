//! Datagram queue pairs, address handles, and the model of datagrams in transit.

use std::collections::VecDeque;

use ibverbs::wr::{self, Destination, HeldAddress};
use ibverbs::{
    AhAttr, Completion, Direction, ErrorKind, GRH_LEN, PostError, Psn, Qkey, QpOptions, QueueId,
    QueuePair, Retired, Ud,
};
use test_support::random::Random;

use crate::link::{Entry, Message, take_in_flight};
use crate::links::Removed;
use crate::memory::{Id, OwnedBuf, Written};
use crate::objects::pick;
use crate::world::{World, unexpected};
use crate::{Violation, data};

const QKEY: Qkey = Qkey(0x1111_1111);

/// Number of datagram queue pairs.
const MAX_DATAGRAMS: usize = 3;

/// Size of the smallest receive. Under Miri, buffers are small.
const MIN_RECV: usize = if cfg!(miri) { 64 } else { 256 };

/// A datagram queue pair.
pub(crate) struct DatagramModel {
    id: Id,
    qp: QueuePair<Ud>,
    pub(crate) queue: QueueId,
    pub(crate) pd: Id,
    pub(crate) cqs: [Id; 2],
    address: Option<HeldAddress>,
    /// An address that was released.
    released: Option<HeldAddress>,
    max_sends: usize,
    max_recvs: usize,
    sends: VecDeque<Entry>,
    recvs: VecDeque<Entry>,
    unpolled_sends: VecDeque<u64>,
    unpolled_recvs: VecDeque<u64>,
}

/// A datagram that was sent, and that can be lost.
pub(crate) struct InTransit {
    to: Id,
    from: u32,
    message: Message,
    /// The datagram must arrive: the device loses none, and a receive was posted.
    is_certain: bool,
    /// The datagram must not arrive, because its key is wrong.
    is_invalid: bool,
}

impl World<'_> {
    pub(crate) fn create_datagram(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let domain = pick(&self.domains, random).filter(|_| self.setup.is_ib);
        let (Some(domain), Some(send), Some(recv)) =
            (domain, pick(&self.cqs, random), pick(&self.cqs, random))
        else {
            return Ok(false);
        };
        if self.datagrams.len() == MAX_DATAGRAMS {
            return Ok(false);
        }
        let (pd, domain) = (self.domains[domain].id, self.domains[domain].pd.clone());
        let cq = |index: usize| self.cqs[index].cq.as_ref().expect("not being polled");
        let options = QpOptions::new()
            .max_send_wr(2 + u32::try_from(random.below(10)).expect("small"))
            .max_recv_wr(2 + u32::try_from(random.below(10)).expect("small"))
            .max_inline_data(if random.below(2) == 0 { 64 } else { 0 })
            .classic_only(random.below(2) == 0);
        let mut qp = domain.create_qp::<Ud>(cq(send), cq(recv), options)?;
        qp.start(1, 0, QKEY, Psn(0))?;
        let (queue, caps) = (qp.id(), qp.caps());
        let (id, cqs) = (self.new_id(), [self.cqs[send].id, self.cqs[recv].id]);
        self.note(|| format!("datagram queue pair {id}: {options:?}"));
        self.datagrams.push(DatagramModel {
            id,
            qp,
            queue,
            pd,
            cqs,
            address: None,
            released: None,
            max_sends: caps.max_send_wr as usize,
            max_recvs: caps.max_recv_wr as usize,
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
            unpolled_sends: VecDeque::new(),
            unpolled_recvs: VecDeque::new(),
        });
        Ok(true)
    }

    /// Holds or releases the address of the device, which is that of every destination.
    pub(crate) fn change_address(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(index) = pick(&self.datagrams, random) else {
            return Ok(false);
        };
        let model = &mut self.datagrams[index];
        if model.address.is_some() {
            match model.qp.release_addresses() {
                Ok(()) if model.sends.is_empty() => model.released = model.address.take(),
                Err(error) if error.kind() == ErrorKind::QueueFull && !model.sends.is_empty() => {}
                Ok(()) => return Err(Violation("addresses in use were released".to_owned())),
                Err(error) => return Err(error.into()),
            }
            return Ok(true);
        }
        let gids = self.setup.context.gids(1)?;
        let own = gids.iter().find(|entry| !entry.gid.is_link_local());
        let own = own.or(gids.first()).expect("an address");
        let handle = model
            .qp
            .pd()
            .create_ah(&AhAttr::for_gid(1, own.index, own.gid))?;
        model.address = Some(model.qp.hold_address(&handle)?);
        Ok(true)
    }

    pub(crate) fn post_datagram(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let (Some(from), Some(to)) = (pick(&self.datagrams, random), pick(&self.datagrams, random))
        else {
            return Ok(false);
        };
        let tag = self.new_id();
        let target = &self.datagrams[to];
        let (to, qpn, receives) = (target.id, target.qp.qp_num(), target.unpolled_recvs.len());
        let waiting = self
            .in_transit
            .iter()
            .filter(|sent| sent.to == to && !sent.is_invalid);
        let is_certain = self.setup.sends_wait && receives > waiting.count();
        let is_invalid = random.below(10) == 0;
        let qkey = if is_invalid { Qkey(1) } else { QKEY };
        let model = &mut self.datagrams[from];
        let (address, is_released) = match (model.address, model.released) {
            (Some(address), _) => (address, false),
            (None, Some(released)) => (released, true),
            (None, None) => return Ok(false),
        };
        if model.sends.len() == model.max_sends {
            return Ok(false);
        }
        let destination = Destination { address, qpn, qkey };
        let imm = u32::try_from(tag & 0xffff_ffff).unwrap_or(0);
        let inline = model.qp.caps().max_inline_data as usize;
        let max = MIN_RECV - GRH_LEN;
        let is_unsignaled = model.sends.len() + 2 < model.max_sends && random.below(3) == 0;
        let mut entry = Entry::without_memory(tag, "datagram");
        let bytes;
        let posted = if inline > 0 && random.below(2) == 0 {
            bytes = data::bytes(random.next_u64(), random.below(inline.min(max) + 1));
            let request = wr::send_to_with_imm(wr::Inline(&bytes), destination, imm).tag(tag);
            let request = if is_unsignaled {
                request.unsignaled()
            } else {
                request
            };
            let posted = model.qp.post_send(request);
            posted.map_err(|rejected| (rejected.error(), None))
        } else {
            let Some(OwnedBuf { mut buf, mut model }) = self.memory.take(model.pd, random) else {
                return Ok(false);
            };
            model.len = model.len.min(max);
            buf.set_len(model.len);
            bytes = buf.to_vec();
            entry.bufs.push(model);
            let request = wr::send_to_with_imm(buf, destination, imm).tag(tag);
            let request = if is_unsignaled {
                request.unsignaled()
            } else {
                request
            };
            let posted = self.datagrams[from].qp.post_send(request);
            posted.map_err(|rejected| (rejected.error(), rejected.into_payload()))
        };
        let name = format!("datagram queue pair {}", self.datagrams[from].id);
        match posted {
            Ok(()) if is_released => {
                return Err(Violation(format!("{name}: posted to a released address")));
            }
            Err((PostError::WrongQueue, buf)) if is_released => {
                for (buf, model) in buf.into_iter().zip(entry.bufs) {
                    self.memory.owned.push(OwnedBuf { buf, model });
                }
                return Ok(true);
            }
            Err((error, _)) => return Err(Violation(format!("{name}: {error}"))),
            Ok(()) => {}
        }
        self.note(|| format!("{name}: {entry:?} to {to}, unsignaled: {is_unsignaled}"));
        let model = &mut self.datagrams[from];
        model.sends.push_back(entry);
        if !is_unsignaled || !self.setup.in_order {
            model.unpolled_sends.push_back(tag);
        }
        self.in_transit.push(InTransit {
            to,
            from: model.qp.qp_num().0,
            message: Message {
                len: bytes.len() + GRH_LEN,
                bytes,
                imm: Some(imm),
                in_buffer: true,
                invalidates: None,
            },
            is_certain,
            is_invalid,
        });
        Ok(true)
    }

    pub(crate) fn post_datagram_recv(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(index) = pick(&self.datagrams, random) else {
            return Ok(false);
        };
        let model = &self.datagrams[index];
        if model.recvs.len() == model.max_recvs {
            return Ok(false);
        }
        let pd = model.pd;
        let Some(OwnedBuf { buf, model }) = self.memory.take_at_least(pd, MIN_RECV, random) else {
            return Ok(false);
        };
        let tag = self.new_id();
        let mut entry = Entry::without_memory(tag, "receive");
        entry.bufs.push(model);
        let model = &mut self.datagrams[index];
        let posted = model.qp.post_recv(wr::recv(buf).tag(tag));
        posted.map_err(|error| unexpected("a receive of datagrams", error))?;
        model.recvs.push_back(entry);
        model.unpolled_recvs.push_back(tag);
        Ok(true)
    }

    /// Finds the request of a completion of a datagram queue pair: its tag, and the datagram.
    pub(crate) fn assign_datagram(
        &mut self,
        index: usize,
        completion: &Completion<'_>,
    ) -> Result<(Option<u64>, Option<Message>), Violation> {
        let model = &mut self.datagrams[index];
        let name = format!("datagram queue pair {}", model.id);
        if !completion.is_success() {
            let status = completion.status();
            return Err(Violation(format!("{name}: a request failed: {status}")));
        }
        let is_send = completion.direction() == Direction::Send;
        let unpolled = if is_send {
            &mut model.unpolled_sends
        } else {
            &mut model.unpolled_recvs
        };
        let Some(tag) = unpolled.pop_front() else {
            return Err(Violation(format!("{name}: a request completed twice")));
        };
        if is_send {
            return Ok((self.setup.in_order.then_some(tag), None));
        }
        let (id, from) = (model.id, completion.source().qpn.0);
        let found = (completion.byte_len(), completion.imm_data());
        let sent = self.in_transit.iter().position(|sent| {
            let Message { len, imm, .. } = sent.message;
            sent.to == id && sent.from == from && (len, imm) == found && !sent.is_invalid
        });
        let Some(sent) = sent else {
            let what = format!("{name}: received what was not sent: {found:?} from {from:#x}");
            return Err(Violation(what));
        };
        Ok((Some(tag), Some(self.in_transit.remove(sent).message)))
    }

    /// Retires a completion of a datagram queue pair.
    pub(crate) fn retire_datagram(
        &mut self,
        index: usize,
        completion: Completion<'_>,
        tag: Option<u64>,
        message: Option<&Message>,
    ) -> Result<(), Violation> {
        let in_order = self.setup.in_order;
        let model = &mut self.datagrams[index];
        let name = format!("datagram queue pair {}", model.id);
        let is_send = completion.direction() == Direction::Send;
        let result = model.qp.retire(completion);
        let queue = if is_send {
            &mut model.sends
        } else {
            &mut model.recvs
        };
        let in_flight = |tag: u64| {
            let mut entries = queue.iter();
            entries.position(|entry| entry.tag == tag && entry.in_flight)
        };
        let retired: Retired = match result {
            Ok(retired) => retired,
            // Retired already with a later request.
            Err(_) if tag.is_some_and(|tag| in_flight(tag).is_none()) => return Ok(()),
            Err(foreign) => return Err(Violation(format!("{name}: {tag:?}: {foreign}"))),
        };
        let found = retired.tag();
        let position = in_flight(found).filter(|_| tag.is_none_or(|tag| tag == found));
        let Some(position) = position else {
            return Err(Violation(format!(
                "{name}: {found} retired, expected {tag:?}"
            )));
        };
        let earlier = if is_send && in_order { position } else { 0 };
        let earlier: Vec<Entry> = queue.drain(..earlier).collect();
        let entry = take_in_flight(queue, position - earlier.len());
        for model in earlier.iter().flat_map(|entry| &entry.bufs) {
            self.memory.released(model);
        }
        let what = format!("{name}: {} {found}", entry.what);
        let written = match message {
            Some(message) => Written::AfterHeader(&message.bytes),
            None => Written::Nothing,
        };
        match (retired.into_buf(), entry.bufs.first()) {
            (Some(buf), Some(model)) => self.memory.returned(&what, buf, *model, written),
            (None, None) => Ok(()),
            _ => Err(Violation(format!("{what}: returned what was not posted"))),
        }
    }

    pub(crate) fn drop_datagram(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(index) = pick(&self.datagrams, random) else {
            return Ok(false);
        };
        self.remove_datagram(index, random.below(2) == 0)?;
        Ok(true)
    }

    pub(crate) fn remove_datagram(&mut self, index: usize, destroy: bool) -> Result<(), Violation> {
        let model = self.datagrams.swap_remove(index);
        let name = format!("datagram queue pair {}", model.id);
        self.in_transit.retain(|sent| sent.to != model.id);
        let removed = Removed {
            sends: model.sends,
            recvs: model.recvs,
            srq: None,
            // Receives can have been written.
            incoming: 1,
            queues: model.cqs,
        };
        if destroy {
            self.reclaimed(&name, &removed, model.qp.destroy()?)?;
        } else {
            drop(model.qp);
            self.dropped(&removed);
        }
        self.poll_stale(removed.queues)
    }

    /// Checks the free slots of all datagram queue pairs.
    pub(crate) fn check_datagrams(&self) -> Result<(), Violation> {
        for model in &self.datagrams {
            let found = (model.qp.send_slots_free(), model.qp.recv_slots_free());
            let expected = (
                model.max_sends - model.sends.len(),
                model.max_recvs - model.recvs.len(),
            );
            if found != expected {
                let id = model.id;
                return Err(Violation(format!(
                    "datagram queue pair {id}: {found:?} free slots, expected {expected:?}"
                )));
            }
        }
        Ok(())
    }

    /// Checks that no datagram is missing that must have arrived. All completions are polled.
    pub(crate) fn check_deliveries(&self) -> Result<(), Violation> {
        match self
            .in_transit
            .iter()
            .find(|sent| sent.is_certain && !sent.is_invalid)
        {
            None => Ok(()),
            Some(sent) => Err(Violation(format!(
                "datagram queue pair {}: {:?} did not arrive",
                sent.to, sent.message
            ))),
        }
    }
}
