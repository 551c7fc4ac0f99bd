//! Requests and accesses that must be refused.

use ibverbs::{ErrorKind, wr};
use test_support::random::Random;

use crate::model::{HeldModel, QpIndex};
use crate::transport::{Flags, Operation, Outbound, Payload, post, with_qp};
use crate::violation::Violation;
use crate::world::{World, choose, pick};

impl World<'_> {
    /// Posts memory that another queue pair holds, also one of the same domain.
    pub(crate) fn post_foreign(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let mut links = self.working_ends();
        links.retain(|at| matches!(at, QpIndex::Link(..)));
        let (Some(at), Some(other)) = (choose(&links, random), self.pick_end(random)) else {
            return Ok(false);
        };
        let held = &self.end(other).held;
        let Some(&held) = pick(held, random).map(|index| &held[index]) else {
            return Ok(false);
        };
        if at == other {
            return Ok(false);
        }
        let (name, end) = (self.name(at), self.end(at));
        let has_srq = end.srq.is_some();
        let mut send = |payload| {
            let outbound = Outbound {
                operation: Operation::Send,
                to: None,
            };
            with_qp!(&mut end.qp, qp => post(qp, outbound, payload, Flags::plain(0)))
                .map_err(|(error, _)| error.kind())
        };
        let result = match held {
            HeldModel::Frozen(token, ..) => send(Payload::Frozen(token)),
            HeldModel::Shared(token, _) => send(Payload::Shared(token)),
            HeldModel::Sink(_) if has_srq => return Ok(false),
            HeldModel::Sink(token) => with_qp!(&mut end.qp, qp => qp.post_recv(wr::recv(token)))
                .map_err(|rejected| rejected.error().kind()),
        };
        match result {
            Err(ErrorKind::Mismatch | ErrorKind::QueueFull) => Ok(true),
            other => Err(Violation(format!(
                "{name}: memory of another queue pair: {other:?}"
            ))),
        }
    }

    /// Uses ranges and lengths beyond the end of memory.
    pub(crate) fn use_out_of_bounds(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let beyond = |len: usize, random: &mut Random| match random.below(3) {
            0 => len + 1,
            1 => len + 1 + random.below(1 << 20),
            _ => usize::MAX,
        };
        let violation = |what: &str| Err(Violation(format!("{what} beyond the end")));
        if let Some(index) = pick(&self.memory.owned, random) {
            let buf = &mut self.memory.owned[index].buf;
            let (len, capacity) = (buf.len(), buf.capacity());
            buf.set_len(beyond(capacity, random));
            let found = buf.len();
            buf.set_len(len);
            if found != capacity {
                return violation("a buffer");
            }
        }
        if let Some(index) = pick(&self.memory.regions, random) {
            let region = &self.memory.regions[index].region;
            let end = beyond(region.len(), random);
            if region.slice(0..end).is_some() || region.write(end, &[0]).is_ok() {
                return violation("an access to a region");
            }
            if region.write(region.len(), &[0]).is_ok() {
                return violation("a write to a region");
            }
        }
        let Some(at) = self.pick_end(random) else {
            return Ok(true);
        };
        let found = self.end(at).held.iter().any(|held| match *held {
            HeldModel::Frozen(token, ..) => token.slice(0..beyond(token.len(), random)).is_some(),
            HeldModel::Shared(token, _) => token.slice(0..beyond(token.len(), random)).is_some(),
            HeldModel::Sink(token) => token.slice(0..beyond(token.len(), random)).is_some(),
        });
        if found {
            return violation("a part of held memory");
        }
        Ok(true)
    }
}
