//! Scopes with borrowed memory.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use ibverbs::efa::Srd;
use ibverbs::scope::Scope;
use ibverbs::wr::{self, Destination};
use ibverbs::{Completion, CompletionQueue, DuplexTransport, Rc, RemoteMemory, Retired, Ud};
use test_support::random::Random;

use crate::model::{Arrival, Effect, Message, Pending, QpIndex, Removed, data};
use crate::transport::{AnyCq, AnyQp, with_qp};
use crate::violation::Violation;
use crate::world::{World, choose, pick};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Ways to end a scope.
#[derive(Clone, Copy, Debug, PartialEq)]
enum EndWith {
    Wait,
    Return,
    Panic,
}

impl EndWith {
    fn pick(panics: bool, random: &mut Random) -> Self {
        match random.below(3) {
            _ if panics => Self::Panic,
            0 => Self::Return,
            _ => Self::Wait,
        }
    }
}

/// Requests on borrowed memory. The transport of the scope must have them.
struct Transfer<'a> {
    source: &'a [u8],
    to: Target,
    /// Memory of the peer to read, and its destination.
    read: Option<(RemoteMemory, &'a mut [u8])>,
    end_with: EndWith,
}

/// The destination of borrowed memory: memory of the peer, or a queue pair and immediate data.
#[derive(Clone, Copy)]
enum Target {
    Memory(RemoteMemory),
    Message(Destination, u32),
}

/// Reports the requests of a scope that retired, and completions of other queue pairs.
type Each<'a> = &'a mut dyn FnMut(Result<Retired, Completion<'_>>);

/// A transport whose scopes run a transfer.
trait Scoped: DuplexTransport + Sized {
    fn post<'env>(
        scope: &mut Scope<'_, 'env, Self>,
        transfer: Transfer<'env>,
    ) -> ibverbs::Result<()>;
}

impl Scoped for Rc {
    fn post<'env>(
        scope: &mut Scope<'_, 'env, Self>,
        transfer: Transfer<'env>,
    ) -> ibverbs::Result<()> {
        let Target::Memory(remote) = transfer.to else {
            unreachable!("RC has one peer");
        };
        let lent = scope.lend(transfer.source)?;
        scope.post_send(wr::write(lent, remote))?;
        if let Some((remote, target)) = transfer.read {
            let lent = scope.lend_mut(target)?;
            scope.post_send(wr::read(lent, remote))?;
        }
        Ok(())
    }
}

impl Scoped for Ud {
    fn post<'env>(
        scope: &mut Scope<'_, 'env, Self>,
        transfer: Transfer<'env>,
    ) -> ibverbs::Result<()> {
        let Target::Message(to, imm) = transfer.to else {
            unreachable!("UD sends only");
        };
        let lent = scope.lend(transfer.source)?;
        Ok(scope.post_send(wr::send_with_imm(lent, imm).to(to))?)
    }
}

impl Scoped for Srd {
    fn post<'env>(
        scope: &mut Scope<'_, 'env, Self>,
        transfer: Transfer<'env>,
    ) -> ibverbs::Result<()> {
        let Target::Message(to, imm) = transfer.to else {
            unreachable!("not all devices write");
        };
        let lent = scope.lend(transfer.source)?;
        scope.post_send(wr::send_with_imm(lent, imm).to(to))?;
        if let Some((remote, target)) = transfer.read {
            let lent = scope.lend_mut(target)?;
            scope.post_send(wr::read(lent, remote).to(to))?;
        }
        Ok(())
    }
}

/// Posts the requests of a transfer, and waits for them if it says so.
fn run<'env, T: Scoped>(
    scope: &mut Scope<'_, 'env, T>,
    transfer: Transfer<'env>,
    cq: &mut CompletionQueue,
    each: Each<'_>,
) -> ibverbs::Result<()> {
    let end_with = transfer.end_with;
    T::post(scope, transfer)?;
    match end_with {
        EndWith::Wait => scope.wait(cq, TIMEOUT, each),
        EndWith::Return => Ok(()),
        EndWith::Panic => resume_unwind(Box::new("panic in a scope")),
    }
}

impl World<'_> {
    /// Runs a scope on a queue pair without requests in flight that would complete in it.
    pub(crate) fn scope(&mut self, random: &mut Random, panics: bool) -> Result<bool, Violation> {
        let working = self.working_ends();
        let usable: Vec<_> = working
            .into_iter()
            .filter_map(|at| Some((at, self.scope_cq(at)?)))
            .collect();
        let Some((at, cq)) = choose(&usable, random) else {
            return Ok(false);
        };
        let end_with = match EndWith::pick(panics, random) {
            // Requests in flight would end the process.
            EndWith::Return if self.setup.leaks_busy => EndWith::Wait,
            end_with => end_with,
        };
        match at {
            QpIndex::Link(link, _) => self.link_scope(at, link, cq, end_with, random),
            QpIndex::Datagram(index) => self.datagram_scope(index, cq, end_with, random),
        }
    }

    /// Returns the index of the completion queue on which a scope of a queue pair can wait.
    fn scope_cq(&self, at: QpIndex) -> Option<usize> {
        let end = self.find(at)?;
        // A scope would retire receives without the model.
        let no_receives = end.incoming.is_empty() || end.recv_cq != end.send_cq;
        let idle = end.sends.is_empty() && no_receives && end.kept.iter().all(Vec::is_empty);
        let cq = self.cqs.iter().position(|model| model.id == end.send_cq)?;
        // A scope waits on the calling thread.
        let can_wait = matches!(self.cqs[cq].cq, Some(AnyCq::Plain(_)));
        (idle && can_wait && end.max_sends > 1 && !self.is_lossy(at)).then_some(cq)
    }

    /// Writes borrowed memory to a cell of the peer and reads it back.
    fn link_scope(
        &mut self,
        at: QpIndex,
        link: usize,
        cq: usize,
        end_with: EndWith,
        random: &mut Random,
    ) -> Result<bool, Violation> {
        let Some(peer) = self.peer(at) else {
            return Ok(false);
        };
        let peer_waits = peer.srq.is_none() && peer.incoming.len() > peer.unpolled_recvs.len();
        let pd = peer.pd;
        let Some((index, cell)) = self.pick_remote(pd, random).filter(|_| !peer_waits) else {
            return Ok(false);
        };
        let region = &self.memory.regions[index];
        let effect = Effect::Writes {
            region: region.id,
            cell,
        };
        let source = data::bytes(random.next_u64(), region.range(cell).len());
        let remote = self.remote_cell(at, index, cell, random);
        let mut target = vec![0; source.len()];
        let is_iwarp = self.setup.support.is_iwarp;
        let transfer = Transfer {
            source: &source,
            to: Target::Memory(remote),
            // The destination of a READ over iWARP must be a shared region.
            read: (!is_iwarp).then_some((remote, &mut target[..])),
            end_with,
        };
        self.memory
            .begin(effect, Some(Pending::Contents(source.clone())));
        self.links[link].landing.push(effect);
        let survived = self.run_scope(at, cq, transfer)?;
        if survived && !is_iwarp {
            self.memory.arrived("a WRITE in a scope", effect)?;
            self.links[link].landing.retain(|&other| other != effect);
            if end_with == EndWith::Wait {
                data::check("borrowed memory", &target, &source)?;
            }
        }
        Ok(true)
    }

    /// Sends borrowed memory to another queue pair, and with SRD also reads a cell.
    fn datagram_scope(
        &mut self,
        from: usize,
        cq: usize,
        end_with: EndWith,
        random: &mut Random,
    ) -> Result<bool, Violation> {
        let Some(to) = pick(&self.datagrams, random).filter(|&to| to != from) else {
            return Ok(false);
        };
        let (sender, receiver) = (&self.datagrams[from], &self.datagrams[to]);
        let is_same = sender.is_srd() == receiver.is_srd() && !receiver.failed;
        let (is_srd, id) = (sender.is_srd(), receiver.id);
        let (Some(destination), Some(own), Some(peer)) =
            (self.destination(from, to), &sender.end, &receiver.end)
        else {
            return Ok(false);
        };
        let has_receive = peer.unpolled_recvs.len() > peer.incoming.len();
        if !is_same || !has_receive {
            return Ok(false);
        }
        let max = (peer.min_recv - peer.header).min(self.setup.support.max_datagram);
        let (pd, header, source) = (peer.pd, peer.header, Some(own.qp_num));
        let bytes = data::bytes(random.next_u64(), 1 + random.below(max));
        let (tag, imm) = (self.new_id(), self.new_imm());
        let regions = self.memory.regions.iter().filter(|region| region.pd == pd);
        let readable = regions.filter_map(|region| Some((region, region.readable(random)?)));
        let readable: Vec<_> = readable.map(|(region, cell)| (region.id, cell)).collect();
        let cell = choose(&readable, random).filter(|_| is_srd && self.setup.support.srd_reads);
        let cell = cell.and_then(|(region, cell)| {
            let region = self.memory.region(region)?;
            let (range, whole) = (region.range(cell), region.region.remote());
            let number = |number: usize| u64::try_from(number).expect("small");
            let remote = whole.slice(number(range.start)..number(range.end))?;
            Some((remote, region.cells[cell].bytes.clone()))
        });
        let expected = cell.as_ref().map_or(Vec::new(), |(_, bytes)| bytes.clone());
        let mut target = vec![0; expected.len()];
        let transfer = Transfer {
            source: &bytes,
            to: Target::Message(destination, imm),
            read: cell.map(|(remote, _)| (remote, &mut target[..])),
            end_with,
        };
        let message = Message {
            imm: Some(imm),
            header,
            arrival: Arrival::Possible,
            source,
            ..Message::new(tag, bytes.clone())
        };
        let receiver = self.datagram(Some(id)).expect("it has receives");
        receiver.incoming.push_back(message);
        let survived = self.run_scope(QpIndex::Datagram(from), cq, transfer)?;
        if end_with == EndWith::Wait && survived {
            data::check("borrowed memory", &target, &expected)?;
            let is_certain = is_srd || self.setup.loses_no_datagrams;
            let receiver = self.datagram(Some(id)).expect("only the sender was in use");
            let sent = receiver.incoming.iter_mut().find(|one| one.tag == tag);
            if let Some(message) = sent.filter(|_| is_certain) {
                message.arrival = Arrival::Certain;
            }
        }
        Ok(true)
    }

    /// Runs a scope. Returns `false` if it destroyed the queue pair.
    fn run_scope(
        &mut self,
        at: QpIndex,
        cq: usize,
        transfer: Transfer<'_>,
    ) -> Result<bool, Violation> {
        let (name, end_with) = (self.name(at), transfer.end_with);
        self.note(|| format!("{name}: scope, {end_with:?}"));
        let mut end = self.take_end(at);
        let Some(AnyCq::Plain(mut queue)) = self.cqs[cq].cq.take() else {
            unreachable!("excluded by the caller");
        };
        let queue_id = self.cqs[cq].id;
        let mut removed = Removed::take(&mut end, false);
        let mut result = Ok(());
        let each: Each<'_> = &mut |polled| {
            let next = match polled {
                Ok(retired) if retired.is_success() => Ok(()),
                Ok(retired) => Err(Violation(format!("{name}, in a scope: {retired:?}"))),
                Err(completion) => self.route(completion, queue_id),
            };
            if result.is_ok() {
                result = next;
            }
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            macro_rules! run {
                ($qp:expr) => {
                    $qp.scope(|scope| run(scope, transfer, &mut queue, each))
                };
            }
            match &mut end.qp {
                AnyQp::Rc(qp) => run!(qp),
                AnyQp::Ud(qp) => run!(qp),
                AnyQp::Srd(qp) => run!(qp),
                AnyQp::Cm(connection) => run!(connection.qp_mut()),
                AnyQp::Uc(_) => unreachable!("excluded by the caller"),
            }
        }));
        self.cqs[cq].cq = Some(AnyCq::Plain(queue));
        result?;
        if !with_qp!(&mut end.qp, qp => qp.is_destroyed()) {
            end.recvs = removed.recvs;
            self.put_end(at, end);
            return match outcome {
                Ok(ended) => Ok(ended.map(|()| true)?),
                Err(_) => Ok(true),
            };
        }
        if let (Ok(ended), EndWith::Wait) = (&outcome, end_with) {
            return Err(Violation(format!(
                "{name}: the scope destroyed the queue pair: {ended:?}"
            )));
        }
        let reclaimed = end.qp.destroy()?;
        self.reclaimed(&name, &removed, reclaimed)?;
        removed.sends.clear();
        self.set_failed(at);
        // Keeps the link until the effect of the WRITE is known.
        self.removed(at, &removed)?;
        Ok(false)
    }
}
