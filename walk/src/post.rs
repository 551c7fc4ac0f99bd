//! Posting sends, READs and atomics, one at a time and in batches.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ibverbs::{Batch, BatchError, Buf, ConnectedDuplexTransport, Error, ErrorKind, QueuePair, wr};
use test_support::random::Random;

use crate::Violation;
use crate::any_qp::{self, Fetch, Flags, Outbound, with_qp};
use crate::link::{Entry, HeldModel, Message};
use crate::memory::{Effect, OwnedBuf, Pending};
use crate::payload::{Payload, post};
use crate::world::{World, unexpected};

/// A request to be posted, and its model.
pub(crate) struct Prepared {
    pub(crate) operation: Outbound,
    payload: Payload,
    flags: Flags,
    pub(crate) entry: Entry,
    pub(crate) message: Option<Message>,
}

impl World<'_> {
    /// Returns the number of bytes that the next message of a queue pair can have, or `None` if the
    /// peer has no receive for it.
    pub(crate) fn credit(&mut self, at: (usize, usize), more: usize) -> Option<usize> {
        let waits = self.setup.sends_wait;
        let peer = self.links[at.0].ends[1 - at.1].as_ref()?;
        let Some(id) = peer.srq else {
            let index = peer.incoming.len() + more;
            if index >= peer.unpolled_recvs.len() {
                return waits.then_some(16);
            }
            // If messages were lost, this one arrives in an earlier receive.
            let first = if self.links[at.0].lossy { 0 } else { index };
            let tags: Vec<u64> = peer.unpolled_recvs.range(first..=index).copied().collect();
            let recvs = peer.recvs.iter().filter(|entry| tags.contains(&entry.tag));
            return recvs.map(|entry| entry.capacity).min();
        };
        let ends = self.links.iter().flat_map(|link| &link.ends).flatten();
        let waiting: usize = ends
            .filter(|end| end.srq == Some(id))
            .map(|end| end.incoming.len())
            .sum();
        let srq = self.srqs.iter().find(|srq| srq.id == id)?;
        (srq.unpolled > srq.lost + waiting + more).then_some(())?;
        srq.recvs.iter().map(|entry| entry.capacity).min()
    }

    /// Returns a region of the peer's domain with a free cell.
    fn pick_remote(&self, at: (usize, usize), random: &mut Random) -> Option<(usize, usize)> {
        let pd = self.links[at.0].ends[1 - at.1].as_ref()?.pd;
        let regions = &self.memory.regions;
        let usable: Vec<usize> = (0..regions.len())
            .filter(|&region| regions[region].pd == pd)
            .collect();
        let region = usable[crate::objects::pick(&usable, random)?];
        Some((region, regions[region].writable(random)?))
    }

    /// Prepares a request that transfers bytes to the peer; `more` messages are prepared already,
    /// and `free` slots are left.
    pub(crate) fn prepare(
        &mut self,
        at: (usize, usize),
        more: usize,
        free: usize,
        random: &mut Random,
    ) -> Option<Prepared> {
        let lossy = self.links[at.0].lossy;
        let remote = (random.below(2) == 0)
            .then(|| self.pick_remote(at, random))
            .flatten();
        // Every message of a lossy transport has immediate data, so that it can be identified. The
        // iWARP driver has no immediate data.
        let imm = (lossy || self.setup.is_ib && random.below(3) == 0)
            .then(|| u32::try_from(self.next_id & 0xffff_ffff).unwrap_or(0));
        let is_message = remote.is_none() || imm.is_some();
        let mut max = if is_message {
            self.credit(at, more)?
        } else {
            usize::MAX
        };
        if let Some((region, cell)) = remote {
            // A WRITE with immediate data needs a receive of any length.
            max = self.memory.regions[region].cells[cell].bytes.len();
        }
        let (payload, mut entry, bytes) = self.pick_payload(at, max, random)?;
        if let Some((region, cell)) = remote {
            // The destination must not be the source as well.
            let source = Effect::Reads {
                region: self.memory.regions[region].id,
                cell,
            };
            if entry.effects.contains(&source) {
                self.not_posted(entry, Vec::new());
                return None;
            }
        }
        let operation = match (remote, imm) {
            (None, None) => Outbound::Send,
            (None, Some(imm)) => Outbound::SendImm(imm),
            (Some((index, cell)), imm) => {
                let region = &self.memory.regions[index];
                let range = region.range(cell);
                let offset = random.below(range.len() - bytes.len() + 1);
                let from = u64::try_from(offset).expect("small");
                let len = u64::try_from(bytes.len()).expect("small");
                let memory = self.remote_cell(at, index, cell, random);
                let memory = memory.slice(from, len).expect("within");
                let mut after = region.cells[cell].bytes.clone();
                let last = offset + bytes.len().saturating_sub(1);
                if bytes.last() == after.get(last) {
                    // Only the contents show that a WRITE has arrived: its last byte must differ.
                    self.not_posted(entry, Vec::new());
                    return None;
                }
                after[offset..offset + bytes.len()].copy_from_slice(&bytes);
                let effect = Effect::Writes {
                    region: region.id,
                    cell,
                };
                self.memory.begin(effect, Some(Pending::Contents(after)));
                entry.effects.push(effect);
                entry.what = "WRITE";
                imm.map_or(Outbound::Write(memory), |imm| {
                    Outbound::WriteImm(memory, imm)
                })
            }
        };
        let message = is_message.then(|| Message {
            in_buffer: remote.is_none(),
            invalidates: None,
            imm,
            len: bytes.len(),
            bytes,
        });
        let flags = Flags {
            tag: entry.tag,
            signaled: free < 2 || random.below(3) > 0,
            fenced: random.below(8) == 0,
        };
        Some(Prepared {
            operation,
            payload,
            flags,
            entry,
            message,
        })
    }

    /// Adds a request to the model after it was posted.
    pub(crate) fn posted(
        &mut self,
        at: (usize, usize),
        flags: Flags,
        entry: Entry,
        message: Option<Message>,
    ) {
        // Where sends complete in any order, the library signals all of them.
        let signaled = flags.signaled || !self.setup.in_order;
        let end = self.end(at);
        if signaled {
            end.unpolled_sends.push_back(entry.tag);
        }
        end.sends.push_back(entry);
        if let (Some(message), Some(peer)) = (message, &mut self.links[at.0].ends[1 - at.1]) {
            peer.incoming.push_back(message);
        }
    }

    /// Removes a request from the model that was not posted, with its buffers.
    fn not_posted(&mut self, entry: Entry, bufs: Vec<Buf>) {
        for effect in entry.effects {
            self.memory.cancel(effect);
        }
        if bufs.is_empty() {
            for model in &entry.bufs {
                self.memory.released(model);
            }
        }
        for (buf, model) in bufs.into_iter().zip(entry.bufs) {
            self.memory.owned.push(OwnedBuf { buf, model });
        }
    }

    pub(crate) fn post(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_working_end(random) else {
            return Ok(false);
        };
        let free = self.end(at).send_slots_free();
        let Some(prepared) = self.prepare(at, 0, free, random) else {
            return Ok(false);
        };
        let Prepared {
            operation,
            payload,
            flags,
            entry,
            message,
        } = prepared;
        let name = self.name(at);
        self.note(|| format!("{name}: {operation:?} {flags:?} {entry:?}"));
        let result = with_qp!(&mut self.end(at).qp, qp => post(qp, operation, payload, flags));
        match result {
            Ok(()) if free > 0 => self.posted(at, flags, entry, message),
            Ok(()) => return Err(Violation(format!("{name}: posted to a full queue"))),
            Err((error, bufs)) if free == 0 && error.kind() == ErrorKind::QueueFull => {
                self.not_posted(entry, bufs);
            }
            Err((error, _)) => return Err(unexpected(&name, error)),
        }
        Ok(true)
    }

    pub(crate) fn post_fetch(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_working_end(random) else {
            return Ok(false);
        };
        let free = self.end(at).send_slots_free();
        let Some((index, cell)) = self.pick_remote(at, random).filter(|_| free > 0) else {
            return Ok(false);
        };
        if self.links[at.0].lossy {
            return Ok(false);
        }
        let region = &self.memory.regions[index];
        let (id, bytes) = (region.id, region.cells[cell].bytes.clone());
        let remote = self.remote_cell(at, index, cell, random);
        let tag = self.new_id();
        let mut entry = Entry::without_memory(tag, "READ");
        let operand = random.next_u64();
        let atomic = self.setup.is_ib && random.below(3) == 0;
        let operation = if atomic {
            let word = remote.slice(0, 8).expect("a cell has a word");
            let before = u64::from_ne_bytes(bytes[..8].try_into().expect("8 bytes"));
            let (operation, value) = match random.below(3) {
                0 => (Fetch::Add(word, operand), before.wrapping_add(operand)),
                1 => (Fetch::Swap(word, before, operand), operand),
                _ => (Fetch::Swap(word, before.wrapping_add(1), operand), before),
            };
            let mut after = bytes.clone();
            after[..8].copy_from_slice(&value.to_ne_bytes());
            let effect = Effect::Writes { region: id, cell };
            self.memory.begin(effect, Some(Pending::Contents(after)));
            entry.effects.push(effect);
            entry.what = "atomic";
            entry.fetched = Some(bytes[..8].to_vec());
            operation
        } else {
            let effect = Effect::Reads { region: id, cell };
            self.memory.begin(effect, None);
            entry.effects.push(effect);
            entry.fetched = Some(bytes.clone());
            Fetch::Read(remote)
        };
        let flags = Flags {
            tag,
            signaled: free < 2 || random.below(3) > 0,
            fenced: false,
        };
        self.fetch_into(at, operation, flags, entry, random)
    }

    /// Posts a READ or an atomic into a buffer or into a cell of a held region.
    fn fetch_into(
        &mut self,
        at: (usize, usize),
        operation: Fetch,
        flags: Flags,
        mut entry: Entry,
        random: &mut Random,
    ) -> Result<bool, Violation> {
        let name = self.name(at);
        let bytes = entry.fetched.clone().unwrap_or_default();
        let end = self.end(at);
        let pd = end.pd;
        let held = end.held.iter().find_map(|held| match held {
            HeldModel::Shared(token, id) => Some((*token, *id)),
            _ => None,
        });
        if let Some((token, id)) = held.filter(|_| !self.setup.is_ib || random.below(2) == 0) {
            let cell = self.memory.region(id).and_then(|region| {
                let cell = region.writable(random)?;
                (region.cells[cell].bytes.len() >= bytes.len()).then_some(cell)
            });
            let Some((cell, region)) = cell.zip(self.memory.region(id)) else {
                self.not_posted(entry, Vec::new());
                return Ok(false);
            };
            let start = region.range(cell).start;
            let token = token
                .slice(start..start + bytes.len())
                .expect("within the region");
            let mut after = region.cells[cell].bytes.clone();
            after[..bytes.len()].copy_from_slice(&bytes);
            let effect = Effect::Writes { region: id, cell };
            self.memory.begin(effect, Some(Pending::Contents(after)));
            entry.effects.push(effect);
            self.note(|| format!("{name}: {operation:?} {flags:?} {entry:?}"));
            let qp = self.end(at).qp.rc().expect("not lossy");
            any_qp::post_fetch(qp, operation, token, flags)
                .map_err(|error| unexpected(&name, error))?;
        } else {
            // The destination of a READ over iWARP must be a shared region.
            let owned = if self.setup.is_ib {
                self.memory.take_at_least(pd, bytes.len(), random)
            } else {
                None
            };
            let Some(OwnedBuf { buf, model }) = owned else {
                self.not_posted(entry, Vec::new());
                return Ok(false);
            };
            entry.bufs.push(model);
            self.note(|| format!("{name}: {operation:?} {flags:?} {entry:?}"));
            let qp = self.end(at).qp.rc().expect("not lossy");
            any_qp::post_fetch(qp, operation, buf, flags)
                .map_err(|error| unexpected(&name, error))?;
        }
        self.posted(at, flags, entry, None);
        Ok(true)
    }

    /// Posts a batch, whose closure may fail or panic.
    pub(crate) fn post_batch(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_working_end(random) else {
            return Ok(false);
        };
        let free = self.end(at).send_slots_free();
        let mut requests = Vec::new();
        let mut messages = 0;
        for index in 0..free.min(random.below(5)) {
            if let Some(prepared) = self.prepare(at, messages, free - index, random) {
                messages += usize::from(prepared.message.is_some());
                requests.push(prepared);
            }
        }
        if requests.is_empty() {
            return Ok(false);
        }
        let (mut to_post, mut models) = (Vec::new(), Vec::new());
        for Prepared {
            operation,
            payload,
            flags,
            entry,
            message,
        } in requests
        {
            to_post.push((operation, payload, flags));
            models.push((flags, entry, message));
        }
        let end_with = random.below(6);
        let name = self.name(at);
        self.note(|| format!("{name}: batch (ends with {end_with}) {models:?}"));
        let qp = &mut self.end(at).qp;
        let posted = catch_unwind(AssertUnwindSafe(
            || with_qp!(qp, qp => batch(qp, to_post, end_with)),
        ));
        match posted {
            Ok(Ok(())) if end_with > 1 => {
                for (flags, entry, message) in models {
                    self.posted(at, flags, entry, message);
                }
            }
            Ok(Err(None)) if end_with == 0 => self.batch_aborted(models),
            Err(_) if end_with == 1 => self.batch_aborted(models),
            Ok(Err(Some(error))) => return Err(unexpected(&name, error)),
            _ => return Err(Violation(format!("{name}: the batch ended differently"))),
        }
        Ok(true)
    }

    fn batch_aborted(&mut self, models: Vec<(Flags, Entry, Option<Message>)>) {
        for (_, entry, _) in models.into_iter().rev() {
            self.not_posted(entry, Vec::new());
        }
    }

    /// Posts requests that the library or the model refuses.
    pub(crate) fn post_refused(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_working_end(random) else {
            return Ok(false);
        };
        let pd = self.end(at).pd;
        let pick = crate::objects::pick(&self.memory.owned, random);
        let Some(index) = pick.filter(|&index| self.memory.owned[index].model.pd != pd) else {
            return Ok(false);
        };
        // A buffer of another protection domain.
        let OwnedBuf { buf, model } = self.memory.owned.swap_remove(index);
        let end = self.end(at);
        let rejected = if random.below(2) == 0 {
            with_qp!(&mut end.qp, qp => qp.post_send(wr::send(buf)))
                .map_err(|rejected| (rejected.error().kind(), rejected.into_payload()))
        } else if end.srq.is_none() {
            with_qp!(&mut end.qp, qp => qp.post_recv(wr::recv(buf)))
                .map_err(|rejected| (rejected.error().kind(), rejected.into_payload()))
        } else {
            self.memory.owned.push(OwnedBuf { buf, model });
            return Ok(false);
        };
        match rejected {
            Err((ErrorKind::Mismatch | ErrorKind::QueueFull, Some(buf))) => {
                self.memory.owned.push(OwnedBuf { buf, model });
                Ok(true)
            }
            Err((kind, _)) => Err(Violation(format!(
                "a foreign buffer was refused as {kind:?}"
            ))),
            Ok(()) => Err(Violation(
                "a buffer of another domain was posted".to_owned(),
            )),
        }
    }
}

enum Failed {
    Closure,
    Library(Error),
}

impl From<BatchError> for Failed {
    fn from(error: BatchError) -> Self {
        Self::Library(error.into())
    }
}

/// Posts a batch. Returns `None` if the closure failed on purpose.
fn batch<T: ConnectedDuplexTransport>(
    qp: &mut QueuePair<T>,
    requests: Vec<(Outbound, Payload, Flags)>,
    end_with: usize,
) -> Result<(), Option<Error>> {
    let posted = qp.batch(|batch: &mut Batch<'_, T>| {
        for (operation, payload, flags) in requests {
            post(batch, operation, payload, flags).map_err(|(error, _)| Failed::Library(error))?;
        }
        match end_with {
            0 => Err(Failed::Closure),
            // Not `panic!`, which prints a message.
            1 => resume_unwind(Box::new("panic in a batch")),
            _ => Ok(()),
        }
    });
    posted.map_err(|failed| match failed {
        Failed::Closure => None,
        Failed::Library(error) => Some(error),
    })
}
