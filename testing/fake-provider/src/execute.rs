//! Execution of requests on connected queue pairs.

use rdma_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_EVENT_SRQ_LIMIT_REACHED, IBV_QPS_RTR, IBV_QPS_RTS,
    IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_INV_REQ_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SUCCESS,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_sge, ibv_wc_status, ibv_wr_opcode,
};

use crate::copy::{fetch, gather, scatter_bytes};
use crate::handle::srq_index;
use crate::profile::{NotReady, Transport};
use crate::request::{Data, RecvWr, SendWr, Sges};
use crate::state::{DeviceState, EventSource, Mr, XrcRole};

/// Operations that transfer bytes to the peer.
pub(crate) const OUTBOUND_OPCODES: [ibv_wr_opcode; 5] = [
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
    IBV_WR_SEND_WITH_INV,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
];

/// Result of an attempt to execute a request.
pub(crate) enum Outcome {
    Done(ibv_wc_status),
    /// The request waits until the peer posts a receive.
    Pending,
}

use Outcome::{Done, Pending};

impl DeviceState {
    /// Executes a request. Returns `false` if it must wait.
    pub(crate) fn execute(&mut self, qp: usize, send: &SendWr, inline: &[u8]) -> bool {
        match self.outcome(qp, send, inline) {
            Pending => return false,
            Done(IBV_WC_SUCCESS) => {
                self.transmit_late(qp, send);
                self.complete_send(qp, send, IBV_WC_SUCCESS);
            }
            Done(status) => {
                self.complete_send(qp, send, status);
                self.enter_error(qp);
            }
        }
        true
    }

    fn outcome(&mut self, qp: usize, send: &SendWr, inline: &[u8]) -> Outcome {
        if let Some(to) = send.to {
            return self.send_datagram(qp, to, send, inline);
        }
        if self.qps.get(qp).is_some_and(|pair| pair.raw) {
            return self.send_frame(qp, send, inline);
        }
        match send.opcode {
            IBV_WR_BIND_MW => return Done(self.bind(qp, send)),
            IBV_WR_LOCAL_INV => return Done(invalidated(self.unbind(qp, send.remote.rkey))),
            _ => {}
        }
        let Some((pd, peer)) = self.peer_of(qp) else {
            return Done(IBV_WC_RETRY_EXC_ERR);
        };
        let fetches = !OUTBOUND_OPCODES.contains(&send.opcode);
        let mut located = *send;
        if let Data::Registered(sges) = &send.data {
            let needed = match fetches {
                // The peer answers an iWARP read with a write, so the sink needs remote write
                // access.
                true if self.profile.transport == Transport::Iwarp => {
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
                }
                true => IBV_ACCESS_LOCAL_WRITE,
                false => 0,
            };
            match self.registered(pd, sges, needed) {
                Some(sges) => located.data = Data::Registered(sges),
                None => return Done(IBV_WC_LOC_PROT_ERR),
            }
        }
        let send = &located;
        match send.opcode {
            _ if self.target(peer, send.srqn).is_none() => {
                self.enter_error(peer);
                Done(IBV_WC_REM_INV_REQ_ERR)
            }
            IBV_WR_SEND | IBV_WR_SEND_WITH_IMM | IBV_WR_SEND_WITH_INV => {
                self.deliver(qp, peer, send, inline)
            }
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => self.write(qp, peer, send, inline),
            _ => self.fetch(peer, send),
        }
    }

    /// Returns the protection domain and the peer of a queue pair, if both ends are connected.
    fn peer_of(&self, qp: usize) -> Option<(usize, usize)> {
        let pair = self.qps.get(qp)?;
        let peer = pair.peer?;
        let other = self.qps.get(peer)?;
        let connected = matches!(other.state, IBV_QPS_RTR | IBV_QPS_RTS) && other.peer == Some(qp);
        let fits = match pair.xrc_role {
            None => other.xrc_role.is_none(),
            Some(_) => matches!(other.xrc_role, Some(XrcRole::Recv { .. })),
        };
        (connected && fits).then_some((pair.pd, peer))
    }

    /// Returns the destination of a message to a queue pair. For XRC, the message names a shared
    /// receive queue, which must be in the same XRC domain.
    pub(crate) fn target(&self, peer: usize, srqn: Option<u32>) -> Option<Target> {
        let other = self.qps.get(peer)?;
        let Some(XrcRole::Recv { xrcd, .. }) = other.xrc_role else {
            return Some(Target {
                pd: other.pd,
                srq: other.srq,
                cq: other.recv_cq,
            });
        };
        let index = srq_index(srqn?)?;
        let srq = self.srqs.get(index)?;
        let (srq_xrcd, cq) = srq.xrc?;
        (srq_xrcd == xrcd).then_some(Target {
            pd: srq.pd,
            srq: Some(index),
            cq,
        })
    }

    /// Removes the oldest receive from the receive queue or the shared receive queue of a queue
    /// pair.
    pub(crate) fn pop_recv(&mut self, qp: usize, srqn: Option<u32>) -> Option<RecvWr> {
        match self.target(qp, srqn)?.srq {
            None => self.qps.get_mut(qp)?.recvs.pop_front(),
            Some(srq) => {
                let queue = self.srqs.get_mut(srq)?;
                let recv = queue.recvs.pop_front();
                if queue.recvs.len() < queue.limit as usize {
                    queue.limit = 0;
                    self.raise(IBV_EVENT_SRQ_LIMIT_REACHED, EventSource::Srq(srq));
                }
                recv
            }
        }
    }

    fn deliver(&mut self, qp: usize, peer: usize, send: &SendWr, inline: &[u8]) -> Outcome {
        let recv = match self.take_recv(qp, peer, send.srqn) {
            Ok(recv) => recv,
            Err(outcome) => return outcome,
        };
        let length = payload_len(send);
        let (pd, cq) = self
            .target(peer, send.srqn)
            .map_or((usize::MAX, usize::MAX), |target| (target.pd, target.cq));
        let invalid =
            send.opcode == IBV_WR_SEND_WITH_INV && self.unbind(peer, send.imm_be).is_none();
        let target = if invalid {
            Err(IBV_WC_LOC_QP_OP_ERR)
        } else if length > recv.sges.length() {
            Err(IBV_WC_LOC_LEN_ERR)
        } else {
            let sges = self.registered(pd, &recv.sges, IBV_ACCESS_LOCAL_WRITE);
            sges.ok_or(IBV_WC_LOC_PROT_ERR)
        };
        let target = match target {
            Ok(target) => target,
            Err(status) => {
                self.complete_recv_on(cq, peer, recv.wr_id, status, 0, None);
                self.enter_error(peer);
                return Done(IBV_WC_REM_INV_REQ_ERR);
            }
        };
        write_payload(send, inline, target.as_slice());
        self.complete_recv_on(cq, peer, recv.wr_id, IBV_WC_SUCCESS, length, Some(send));
        Done(IBV_WC_SUCCESS)
    }

    fn write(&mut self, qp: usize, peer: usize, send: &SendWr, inline: &[u8]) -> Outcome {
        let length = payload_len(send);
        let Some(target) = self.remote(peer, send, length, IBV_ACCESS_REMOTE_WRITE) else {
            self.enter_error(peer);
            return Done(IBV_WC_REM_ACCESS_ERR);
        };
        if send.opcode == IBV_WR_RDMA_WRITE {
            write_payload(send, inline, &target);
            return Done(IBV_WC_SUCCESS);
        }
        let cq = self
            .target(peer, send.srqn)
            .map_or(usize::MAX, |target| target.cq);
        match self.take_recv(qp, peer, send.srqn) {
            Ok(recv) => {
                write_payload(send, inline, &target);
                self.complete_recv_on(cq, peer, recv.wr_id, IBV_WC_SUCCESS, length, Some(send));
                Done(IBV_WC_SUCCESS)
            }
            Err(outcome) => outcome,
        }
    }

    fn fetch(&mut self, peer: usize, send: &SendWr) -> Outcome {
        let Data::Registered(sges) = &send.data else {
            return Done(IBV_WC_LOC_PROT_ERR);
        };
        let (length, access) = match send.opcode {
            IBV_WR_RDMA_READ => (sges.length(), IBV_ACCESS_REMOTE_READ),
            _ => (8, IBV_ACCESS_REMOTE_ATOMIC),
        };
        let Some(source) = self.remote(peer, send, length, access) else {
            self.enter_error(peer);
            return Done(IBV_WC_REM_ACCESS_ERR);
        };
        if send.opcode == IBV_WR_RDMA_READ {
            gather(&source, sges.as_slice());
            self.transmit_response_late(&source);
            return Done(IBV_WC_SUCCESS);
        }
        let before = fetch(&source);
        let after = match send.opcode {
            IBV_WR_ATOMIC_FETCH_AND_ADD => before.wrapping_add(send.remote.compare_add),
            IBV_WR_ATOMIC_CMP_AND_SWP if before == send.remote.compare_add => send.remote.swap,
            _ => before,
        };
        scatter_bytes(&after.to_ne_bytes(), &source);
        scatter_bytes(&before.to_ne_bytes(), sges.as_slice());
        Done(IBV_WC_SUCCESS)
    }

    /// Removes the peer's oldest receive. Without one, returns the outcome for the sender.
    fn take_recv(&mut self, qp: usize, peer: usize, srqn: Option<u32>) -> Result<RecvWr, Outcome> {
        if let Some(recv) = self.pop_recv(peer, srqn) {
            return Ok(recv);
        }
        Err(match self.profile.not_ready {
            NotReady::Wait => Pending,
            NotReady::Fail => Done(IBV_WC_RNR_RETRY_EXC_ERR),
            NotReady::Disconnect => {
                self.to_disconnect.extend([qp, peer]);
                Done(IBV_WC_SUCCESS)
            }
        })
    }

    /// Returns the entries by their addresses in the process, if live regions of the domain cover
    /// all of them and grant `access`. If not, records a violation: the program under test used an
    /// invalid key.
    pub(crate) fn registered(&mut self, pd: usize, sges: &Sges, access: u32) -> Option<Sges> {
        let mut located = *sges;
        for sge in &mut located.all[..sges.count] {
            let region = self.region(pd, sge.lkey);
            let granted = |region: &&Mr| region.covers(sge) && region.access & access == access;
            let Some(region) = region.filter(granted) else {
                self.violation(format!(
                    "a request uses memory that is not registered for it: {sge:?}"
                ));
                return None;
            };
            *sge = region.in_memory(sge);
        }
        Some(located)
    }

    /// Returns the peer's memory that a request names by its address in the process, if the peer
    /// grants `access` to it.
    fn remote(&self, peer: usize, send: &SendWr, length: usize, access: u32) -> Option<Piece> {
        let other = self.qps.get(peer)?;
        let length = u32::try_from(length).ok()?;
        let sge = ibv_sge {
            addr: send.remote.addr,
            length,
            lkey: send.remote.rkey,
        };
        let pd = self.target(peer, send.srqn)?.pd;
        let (granted, sge) = self.remote_access(peer, pd, &sge)?;
        (granted & other.access & access == access).then_some([sge])
    }
}

/// Returns the completion status of a request that invalidates a memory window.
fn invalidated(unbound: Option<()>) -> ibv_wc_status {
    unbound.map_or(IBV_WC_LOC_QP_OP_ERR, |()| IBV_WC_SUCCESS)
}

/// Destination of a message: the protection domain of the receive buffer, the shared receive queue
/// if there is one, and the completion queue.
pub(crate) struct Target {
    pub(crate) pd: usize,
    pub(crate) srq: Option<usize>,
    pub(crate) cq: usize,
}

/// Remote memory of a request. A request names one contiguous range.
type Piece = [ibv_sge; 1];

/// Returns the number of bytes that a request transfers to the peer.
pub(crate) fn payload_len(send: &SendWr) -> usize {
    match &send.data {
        Data::Registered(sges) => sges.length(),
        Data::Inline { length, .. } => *length,
        Data::Bind(_) => 0,
    }
}

/// Copies the payload of a request to a scatter list.
pub(crate) fn write_payload(send: &SendWr, inline: &[u8], into: &[ibv_sge]) {
    match &send.data {
        Data::Registered(sges) => gather(sges.as_slice(), into),
        Data::Inline { start, length } => scatter_bytes(&inline[*start..*start + *length], into),
        Data::Bind(_) => {}
    }
}
