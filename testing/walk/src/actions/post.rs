//! Posting requests that transfer bytes to a peer, one at a time and in batches.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ibverbs::{Batch, BatchError, Buf, Error, ErrorKind, QueuePair, wr};
use test_support::random::Random;

use super::prepare::Prepared;
use crate::model::{Entry, Message, OwnedBuf, QpIndex};
use crate::transport::{Flags, Operation, Outbound, Payload, Transport, post, with_qp};
use crate::violation::{Violation, unexpected};
use crate::world::{World, pick};

impl World<'_> {
    /// Adds a request to the model after it was posted.
    pub(crate) fn posted(
        &mut self,
        at: QpIndex,
        flags: Flags,
        mut entry: Entry,
        message: Option<Message>,
    ) {
        // Where sends complete in any order, the library signals those with other memory.
        let is_iwarp = self.setup.support.is_iwarp;
        entry.unsignaled &= is_iwarp && !flags.signaled;
        let signaled = flags.signaled || !self.setup.in_order && !entry.unsignaled;
        let to = entry.to;
        let end = self.end(at);
        let number = end.qp_num;
        if signaled {
            end.unpolled_sends.push_back(entry.tag);
        }
        end.sends.push_back(entry);
        let Some(message) = message else { return };
        let receiver = match at {
            QpIndex::Link(link, side) => self.links[link].ends[1 - side].as_mut(),
            QpIndex::Datagram(_) => self.datagram(to),
        };
        let source = to.map(|_| number);
        if let Some(receiver) = receiver {
            receiver.incoming.push_back(Message { source, ..message });
            self.check_load(to);
        }
    }

    /// Removes a request from the model that was not posted, with its buffers.
    pub(crate) fn not_posted(&mut self, entry: Entry, bufs: Vec<Buf>) {
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
        let Some(prepared) = self.prepare(at, &[], free, random) else {
            return Ok(false);
        };
        let Prepared {
            outbound,
            payload,
            flags,
            entry,
            message,
        } = prepared;
        let name = self.name(at);
        self.note(|| format!("{name}: {outbound:?} {flags:?} {entry:?}"));
        let result = with_qp!(&mut self.end(at).qp, qp => post(qp, outbound, payload, flags));
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

    /// Posts a batch, whose closure may fail or panic.
    pub(crate) fn post_batch(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_working_end(random) else {
            return Ok(false);
        };
        let free = self.end(at).send_slots_free();
        let mut requests = Vec::new();
        for index in 0..free.min(random.below(5)) {
            requests.extend(self.prepare(at, &requests, free - index, random));
        }
        if requests.is_empty() {
            return Ok(false);
        }
        let (mut to_post, mut models) = (Vec::new(), Vec::new());
        for Prepared {
            outbound,
            payload,
            flags,
            entry,
            message,
        } in requests
        {
            to_post.push((outbound, payload, flags));
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

    /// Posts a request or a receive that the library refuses.
    pub(crate) fn post_refused(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let Some(at) = self.pick_working_end(random) else {
            return Ok(false);
        };
        if let QpIndex::Datagram(index) = at
            && random.below(2) == 0
        {
            return self.post_refused_datagram(index, random);
        }
        let pd = self.end(at).pd;
        let index = pick(&self.memory.owned, random);
        let Some(index) = index.filter(|&index| self.memory.owned[index].model.pd != pd) else {
            return Ok(false);
        };
        let to = match at {
            QpIndex::Link(..) => None,
            QpIndex::Datagram(index) => match self.destination(index, index) {
                None => return Ok(false),
                destination => destination,
            },
        };
        let end = self.end(at);
        let (has_srq, sends) = (end.srq.is_some(), random.below(2) == 0);
        if !sends && has_srq {
            return Ok(false);
        }
        // A buffer of another protection domain.
        let OwnedBuf { buf, model } = self.memory.owned.swap_remove(index);
        let end = self.end(at);
        let rejected = if sends {
            let outbound = Outbound {
                operation: Operation::Send,
                to,
            };
            let (payload, flags) = (Payload::Buf(buf), Flags::plain(0));
            with_qp!(&mut end.qp, qp => post(qp, outbound, payload, flags))
                .map_err(|(error, mut bufs)| (error.kind(), bufs.pop()))
        } else {
            with_qp!(&mut end.qp, qp => qp.post_recv(wr::recv(buf)))
                .map_err(|rejected| (rejected.error().kind(), rejected.into_payload()))
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
fn batch<T: Transport>(
    qp: &mut QueuePair<T>,
    requests: Vec<(Outbound, Payload, Flags)>,
    end_with: usize,
) -> Result<(), Option<Error>> {
    let posted = qp.batch(|batch: &mut Batch<'_, T>| {
        for (outbound, payload, flags) in requests {
            post(batch, outbound, payload, flags).map_err(|(error, _)| Failed::Library(error))?;
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
