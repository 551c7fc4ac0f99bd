//! Completing requests as flushed.

use super::Mlx5;
use super::cqe::{Cqe, Syndrome, kind};
use super::qp::Qp;
use super::streams::Streams;
use super::wqe;
use crate::nic::Shared;
use crate::qp_state::ERR;

impl Mlx5 {
    /// Completes the requests in flight as flushed. Returns `true` if there were any.
    pub(super) fn flush_requester(&mut self, cx: &mut Shared, qp: &mut Qp) -> bool {
        let mut worked = false;
        for entry in std::mem::take(&mut qp.requester.in_flight) {
            worked = true;
            let work = &entry.work;
            self.fail_send(cx, qp, work.counter, work.opcode, Syndrome::Flush);
        }
        worked
    }

    /// Completes all requests of a queue pair in the error state as flushed. Returns `true` if
    /// there were any.
    pub(super) fn flush(&mut self, cx: &mut Shared, qp: &mut Qp) -> bool {
        let mut worked = self.flush_requester(cx, qp);
        let requesters = qp.streams.as_mut().map(Streams::take_requesters);
        for requester in requesters.into_iter().flatten() {
            qp.requester = requester;
            worked |= self.flush_requester(cx, qp);
        }
        let posted = qp.send_posted();
        while let Some((counter, op)) = skip(qp, posted) {
            worked = true;
            self.fail_send(cx, qp, counter, op, Syndrome::Flush);
        }
        let posted = qp.receive_posted();
        while let (Some(ring), Some(cq), None) = (&mut qp.receive, qp.recv_cq, qp.srq) {
            if ring.taken == posted {
                break;
            }
            worked = true;
            let counter = ring.taken;
            ring.taken = counter.wrapping_add(1);
            let cqe = Cqe::error(qp.uidx, qp.number, counter, 0, Syndrome::Flush);
            self.complete(cx, cq, cqe, kind::RESP_ERR, false);
        }
        debug_assert_eq!(qp.state, ERR);
        worked
    }
}

/// Skips a request of the send queue. Returns its counter and operation.
pub(super) fn skip(qp: &mut Qp, posted: u16) -> Option<(u16, u8)> {
    let ring = qp.send.as_mut()?;
    if ring.taken == posted {
        return None;
    }
    let counter = ring.taken;
    let mut first = [0; 16];
    ring.memory.read(ring.offset(counter), &mut first);
    ring.take(wqe::blocks(&first), posted);
    Some((counter, first[3]))
}
