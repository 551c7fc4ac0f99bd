//! Preparing requests that transfer bytes to a peer: the receiver, the operation and the memory.

use ibverbs::wr::Destination;
use test_support::random::Random;

use crate::model::{Arrival, Effect, Entry, Fate, Id, Message, Pending, QpIndex};
use crate::transport::{Flags, Operation, Outbound, Payload};
use crate::world::{World, choose};

/// A request to be posted, and its model.
pub(crate) struct Prepared {
    pub(crate) outbound: Outbound,
    pub(crate) payload: Payload,
    pub(crate) flags: Flags,
    pub(crate) entry: Entry,
    pub(crate) message: Option<Message>,
}

/// Immediate data of the messages to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Immediate {
    Never,
    Sometimes,
    /// The messages must be identified, because they can be lost or arrive in any order.
    Always,
}

/// The receiver of a request, and the effect that a message to it must have.
pub(crate) struct Receiver {
    /// The domain whose regions the request can write.
    pub(crate) pd: Option<Id>,
    pub(crate) to: Option<(Id, Destination)>,
    /// Number of bytes that a message can have, or `None` if the receiver takes no message.
    pub(crate) credit: Option<usize>,
    /// Send a message that fails: one that is longer than the first number of bytes, which its
    /// receives have, and at most as long as the second.
    pub(crate) too_long: Option<(usize, usize)>,
    pub(crate) immediate: Immediate,
    pub(crate) fate: Fate,
    /// Of a message; `None` if it must not arrive.
    pub(crate) arrival: Option<Arrival>,
    pub(crate) header: usize,
}

impl World<'_> {
    /// Returns the number of bytes that the next message to the peer of a link can have, or `None`
    /// if the peer has no receive for it. `more` messages to it are prepared already.
    pub(crate) fn credit(&mut self, at: QpIndex, more: usize) -> Option<usize> {
        let waits = self.setup.sends_wait;
        let lossy = self.is_lossy(at);
        let peer = self.peer(at)?;
        let Some(id) = peer.srq else {
            let index = peer.incoming.len() + more;
            if index >= peer.unpolled_recvs.len() {
                return waits.then_some(16);
            }
            // If messages were lost, this one arrives in an earlier receive.
            let first = if lossy { 0 } else { index };
            let tags: Vec<u64> = peer.unpolled_recvs.range(first..=index).copied().collect();
            let recvs = peer.recvs.iter().filter(|entry| tags.contains(&entry.tag));
            return recvs.map(|entry| entry.capacity).min();
        };
        let waiting: usize = self
            .ends()
            .filter(|end| end.srq == Some(id))
            .map(|end| end.incoming.len())
            .sum();
        let srq = self.srqs.iter().find(|srq| srq.id == id)?;
        (srq.unpolled > srq.lost + waiting + more).then_some(())?;
        srq.recvs.iter().map(|entry| entry.capacity).min()
    }

    /// Returns `true` if the transport of a link can lose messages.
    pub(crate) fn is_lossy(&self, at: QpIndex) -> bool {
        matches!(at, QpIndex::Link(link, _) if self.links[link].lossy)
    }

    /// Returns a free cell of a region of a domain, as indices of both.
    pub(crate) fn pick_remote(&self, pd: Id, random: &mut Random) -> Option<(usize, usize)> {
        let regions = &self.memory.regions;
        let usable: Vec<usize> = (0..regions.len())
            .filter(|&region| regions[region].pd == pd)
            .collect();
        let region = choose(&usable, random)?;
        Some((region, regions[region].writable(random)?))
    }

    /// Returns the peer of a link.
    fn receiver(&mut self, at: QpIndex, earlier: &[Prepared]) -> Option<Receiver> {
        let more = earlier.iter().filter(|one| one.message.is_some()).count();
        Some(Receiver {
            pd: Some(self.peer(at)?.pd),
            to: None,
            credit: self.credit(at, more),
            too_long: None,
            immediate: match self.is_lossy(at) {
                true => Immediate::Always,
                false if self.setup.support.immediate_data => Immediate::Sometimes,
                false => Immediate::Never,
            },
            fate: Fate::Succeeds,
            arrival: Some(Arrival::Certain),
            header: 0,
        })
    }

    /// Prepares a request that transfers bytes to a peer. The requests of `earlier` are prepared
    /// already, and `free` slots are left.
    pub(crate) fn prepare(
        &mut self,
        at: QpIndex,
        earlier: &[Prepared],
        free: usize,
        random: &mut Random,
    ) -> Option<Prepared> {
        let receiver = match at {
            QpIndex::Link(..) => self.receiver(at, earlier)?,
            QpIndex::Datagram(index) => self.pick_receiver(index, earlier, random)?,
        };
        let remote = receiver
            .pd
            .filter(|_| receiver.too_long.is_none() && random.below(2) == 0)
            .and_then(|pd| self.pick_remote(pd, random));
        let has_imm = match receiver.immediate {
            Immediate::Never => false,
            Immediate::Sometimes => random.below(3) == 0,
            Immediate::Always => true,
        };
        let imm = has_imm.then(|| self.new_imm());
        let is_message = remote.is_none() || imm.is_some();
        let mut max = match receiver.too_long {
            Some((_, max)) => max,
            None if is_message => receiver.credit?,
            None => usize::MAX,
        };
        if let Some((region, cell)) = remote {
            // A WRITE with immediate data needs a receive of any length.
            max = self.memory.regions[region].cells[cell].bytes.len();
        }
        let (payload, mut entry, bytes) = self.pick_payload(at, max, random)?;
        (entry.fate, entry.to) = (receiver.fate, receiver.to.map(|(id, _)| id));
        if let Some((longest, _)) = receiver.too_long {
            if bytes.len() <= longest {
                self.not_posted(entry, Vec::new());
                return None;
            }
            entry.fate = Fate::Fails;
        }
        let operation = match remote {
            None => imm.map_or(Operation::Send, Operation::SendImm),
            Some(cell) => {
                let write = self.prepare_write(at, cell, &bytes, imm, &mut entry, random);
                let Some(operation) = write else {
                    self.not_posted(entry, Vec::new());
                    return None;
                };
                operation
            }
        };
        let message = receiver.arrival.filter(|_| is_message).map(|arrival| {
            let message = Message::new(entry.tag, bytes);
            Message {
                imm,
                in_buffer: remote.is_none(),
                header: if remote.is_none() { receiver.header } else { 0 },
                arrival,
                is_too_long: receiver.too_long.is_some(),
                ..message
            }
        });
        let flags = Flags {
            tag: entry.tag,
            signaled: free < 2 || random.below(3) > 0,
            fenced: receiver.to.is_none() && random.below(8) == 0,
        };
        Some(Prepared {
            outbound: Outbound {
                operation,
                to: receiver.to.map(|(_, destination)| destination),
            },
            payload,
            flags,
            entry,
            message,
        })
    }

    /// Prepares a WRITE of bytes to a cell, given by the indices of its region and of the cell.
    fn prepare_write(
        &mut self,
        at: QpIndex,
        (index, cell): (usize, usize),
        bytes: &[u8],
        imm: Option<u32>,
        entry: &mut Entry,
        random: &mut Random,
    ) -> Option<Operation> {
        let region = &self.memory.regions[index];
        let id = region.id;
        // The destination must not be the source as well.
        if entry.effects.contains(&Effect::Reads { region: id, cell }) {
            return None;
        }
        let range = region.range(cell);
        let offset = random.below(range.len() - bytes.len() + 1);
        let from = u64::try_from(offset).expect("small");
        let len = u64::try_from(bytes.len()).expect("small");
        let mut after = region.cells[cell].bytes.clone();
        let last = offset + bytes.len().saturating_sub(1);
        if bytes.last() == after.get(last) {
            // Only the contents show that a WRITE has arrived: its last byte must differ.
            return None;
        }
        after[offset..offset + bytes.len()].copy_from_slice(bytes);
        let memory = self.remote_cell(at, index, cell, random);
        let memory = memory.slice(from..from + len).expect("within");
        let effect = Effect::Writes { region: id, cell };
        self.memory.begin(effect, Some(Pending::Contents(after)));
        entry.effects.push(effect);
        entry.what = "WRITE";
        Some(match imm {
            None => Operation::Write(memory),
            Some(imm) => Operation::WriteImm(memory, imm),
        })
    }
}
