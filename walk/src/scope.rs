//! Scopes with borrowed memory.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use ibverbs::scope::Scope;
use ibverbs::{Completion, CompletionQueue, Rc, RemoteMemory, Retired, wr};
use test_support::random::Random;

use crate::any_cq::AnyCq;
use crate::any_qp::AnyQp;
use crate::links::Removed;
use crate::memory::{Effect, Pending};
use crate::world::World;
use crate::{Violation, data};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Ways to end a scope.
#[derive(Clone, Copy, Debug, PartialEq)]
enum EndWith {
    Wait,
    Return,
    Panic,
}

/// A WRITE and a READ of borrowed memory, of the same cell.
struct Transfer<'a> {
    source: &'a [u8],
    target: Option<&'a mut [u8]>,
    remote: RemoteMemory,
    end_with: EndWith,
}

impl<'env> Transfer<'env> {
    fn run(
        self,
        scope: &mut Scope<'_, 'env, Rc>,
        cq: &mut CompletionQueue,
        each: impl FnMut(Result<Retired, Completion<'_>>),
    ) -> ibverbs::Result<()> {
        let lent = scope.lend(self.source)?;
        scope.post_send(wr::write(lent, self.remote))?;
        if let Some(target) = self.target {
            let lent = scope.lend_mut(target)?;
            scope.post_send(wr::read(lent, self.remote))?;
        }
        match self.end_with {
            EndWith::Wait => scope.wait(cq, TIMEOUT, each),
            EndWith::Return => Ok(()),
            EndWith::Panic => resume_unwind(Box::new("panic in a scope")),
        }
    }
}

impl World<'_> {
    /// Runs a scope on a queue pair without sends in flight.
    pub(crate) fn scope(&mut self, random: &mut Random, panics: bool) -> Result<bool, Violation> {
        let Some(at) = self.pick_working_end(random) else {
            return Ok(false);
        };
        let end = self.end(at);
        let (pd, cq) = (end.pd, end.send_cq);
        let busy = !end.sends.is_empty() || end.max_sends < 2 || !end.incoming.is_empty();
        let peer_waits = self.links[at.0].ends[1 - at.1]
            .as_ref()
            .is_some_and(|peer| {
                peer.srq.is_none() && peer.incoming.len() > peer.unpolled_recvs.len()
            });
        let peer_pd = self.links[at.0].ends[1 - at.1]
            .as_ref()
            .map_or(pd, |peer| peer.pd);
        let cq = self.cqs.iter().position(|model| model.id == cq);
        let cq = cq.expect("alive");
        // A scope waits on the calling thread.
        let can_wait = matches!(self.cqs[cq].cq, Some(AnyCq::Plain(_)));
        let region = crate::objects::pick(&self.memory.regions, random);
        let Some(index) = region.filter(|_| can_wait) else {
            return Ok(false);
        };
        let region = &self.memory.regions[index];
        let cell = region.writable(random).filter(|_| region.pd == peer_pd);
        let (Some(cell), false, false) = (cell, busy || peer_waits, self.links[at.0].lossy) else {
            return Ok(false);
        };
        let (id, range) = (region.id, region.range(cell));
        let remote = self.remote_cell(at, index, cell, random);
        let source = data::bytes(random.next_u64(), range.len());
        let mut target = vec![0; range.len()];
        let end_with = match random.below(3) {
            _ if panics => EndWith::Panic,
            0 => EndWith::Return,
            _ => EndWith::Wait,
        };
        let name = self.name(at);
        self.note(|| format!("{name}: scope, {end_with:?}"));
        let transfer = Transfer {
            source: &source,
            // The destination of a READ over iWARP must be a shared region.
            target: self.setup.is_ib.then_some(&mut target[..]),
            remote,
            end_with,
        };
        let effect = Effect::Writes { region: id, cell };
        self.memory
            .begin(effect, Some(Pending::Contents(source.clone())));
        self.links[at.0].landing.push(effect);
        let survived = self.run_scope(at, cq, transfer)?;
        if survived && self.setup.is_ib {
            self.memory.arrived(&name, effect)?;
            self.links[at.0].landing.retain(|&other| other != effect);
        }
        if end_with == EndWith::Wait {
            if !survived {
                return Err(Violation(format!(
                    "{name}: the scope destroyed the queue pair"
                )));
            }
            if self.setup.is_ib {
                data::check("borrowed memory", &target, &source)?;
            }
        }
        Ok(true)
    }

    /// Runs a scope. Returns `false` if it destroyed the queue pair.
    fn run_scope(
        &mut self,
        at: (usize, usize),
        cq: usize,
        transfer: Transfer<'_>,
    ) -> Result<bool, Violation> {
        let name = self.name(at);
        let mut end = self.links[at.0].ends[at.1]
            .take()
            .expect("a queue pair of `pick_end`");
        let Some(AnyCq::Plain(mut queue)) = self.cqs[cq].cq.take() else {
            unreachable!("excluded by the caller");
        };
        let queue_id = self.cqs[cq].id;
        let mut foreign = Ok(());
        let each = |polled: Result<Retired, Completion<'_>>| {
            if let (Err(completion), Ok(())) = (polled, &foreign) {
                foreign = self.route(completion, queue_id);
            }
        };
        let qp = end.qp;
        let outcome = catch_unwind(AssertUnwindSafe(|| match qp {
            AnyQp::Rc(qp) => {
                let result = qp.scope(|scope| transfer.run(scope, &mut queue, each));
                let qp = result.qp.map(AnyQp::Rc).ok_or(result.reclaimed);
                (result.value, qp)
            }
            AnyQp::Cm(connection) => {
                let (value, connection) =
                    connection.scope(|scope| transfer.run(scope, &mut queue, each));
                (value, connection.map(AnyQp::Cm))
            }
            AnyQp::Uc(_) => unreachable!("excluded by the caller"),
        }));
        self.cqs[cq].cq = Some(AnyCq::Plain(queue));
        foreign?;
        let mut removed = Removed {
            sends: std::mem::take(&mut end.sends),
            recvs: std::mem::take(&mut end.recvs),
            srq: end.srq,
            incoming: end.incoming.len(),
            queues: [end.send_cq, end.recv_cq],
        };
        match outcome {
            Ok((value, Ok(qp))) => {
                value?;
                end.qp = qp;
                end.recvs = removed.recvs;
                self.links[at.0].ends[at.1] = Some(end);
                return Ok(true);
            }
            Ok((_, Err(reclaimed))) => {
                self.reclaimed(&name, &removed, reclaimed)?;
            }
            Err(_) => self.dropped(&removed),
        }
        removed.sends.clear();
        self.links[at.0].failed = true;
        // Keeps the link until the effect of the WRITE is known.
        self.removed(at.0, &removed)?;
        Ok(false)
    }
}
