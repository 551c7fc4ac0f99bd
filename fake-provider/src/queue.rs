//! The queues of a queue pair: requests come in, wait, are flushed, and leave completions.

use rdma_sys::{
    IBV_EVENT_QP_LAST_WQE_REACHED, IBV_QPS_ERR, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_GRH, IBV_WC_LOCAL_INV,
    IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SEND,
    IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, IBV_WC_WR_FLUSH_ERR,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_IMM,
    IBV_WR_SEND_WITH_INV, ibv_wc, ibv_wc__bindgen_ty_1, ibv_wc_opcode, ibv_wc_status,
    ibv_wr_opcode,
};

use crate::event_kind::Of;
use crate::handle::number_of;
use crate::profile::DeadPosts;
use crate::request::{Data, RecvWr, SendWr};
use crate::world::{Cqe, World};

impl World {
    /// Takes a send that was checked; `inline` has its bytes, if it has any inline.
    pub(crate) fn take_send(&mut self, qp: usize, send: SendWr, inline: &[u8]) {
        let stalled = self.stalled;
        let dead_posts = self.profile.dead_posts;
        let Some(pair) = self.qps.get_mut(qp) else {
            return;
        };
        pair.sends_used += 1;
        if pair.state == IBV_QPS_ERR {
            if dead_posts == DeadPosts::Flush {
                self.complete_send(qp, &send, IBV_WC_WR_FLUSH_ERR);
            }
            return;
        }
        if stalled || !pair.waiting.is_empty() || !self.execute(qp, &send, inline) {
            self.wait(qp, send, inline);
        }
        self.drop_lost();
    }

    /// Lets a send wait, with a copy of its inline bytes.
    fn wait(&mut self, qp: usize, mut send: SendWr, inline: &[u8]) {
        let mut own = Vec::new();
        if let Data::Inline { start, length } = &mut send.data {
            own.extend_from_slice(&inline[*start..*start + *length]);
            *start = 0;
        }
        if let Some(pair) = self.qps.get_mut(qp) {
            pair.waiting.push_back((send, own));
        }
    }

    /// Takes a receive that was checked.
    pub(crate) fn take_recv(&mut self, qp: usize, recv: RecvWr) {
        let dead_posts = self.profile.dead_posts;
        let Some(pair) = self.qps.get_mut(qp) else {
            return;
        };
        if pair.state == IBV_QPS_ERR {
            if dead_posts == DeadPosts::Flush {
                self.complete_recv(qp, recv.wr_id, IBV_WC_WR_FLUSH_ERR, 0, None);
            }
            return;
        }
        pair.recvs.push_back(recv);
        if let Some(peer) = pair.peer {
            self.progress(peer);
        }
    }

    /// Executes what waits on this queue pair, as far as it can be.
    pub(crate) fn progress(&mut self, qp: usize) {
        while !self.stalled {
            let Some((send, inline)) = self
                .qps
                .get_mut(qp)
                .and_then(|pair| pair.waiting.pop_front())
            else {
                return;
            };
            let done = self.execute(qp, &send, &inline);
            self.drop_lost();
            if !done {
                if let Some(pair) = self.qps.get_mut(qp) {
                    pair.waiting.push_front((send, inline));
                }
                return;
            }
        }
    }

    /// Ends connections that were lost.
    fn drop_lost(&mut self) {
        while let Some(qp) = self.lost.pop() {
            self.enter_error(qp);
        }
    }

    /// Puts a queue pair into the error state and flushes what is in flight, in order.
    pub(crate) fn enter_error(&mut self, qp: usize) {
        if let Some(pair) = self.qps.get_mut(qp) {
            if pair.srq.is_some() && pair.state != IBV_QPS_ERR {
                self.raise(IBV_EVENT_QP_LAST_WQE_REACHED, Of::Qp(qp));
            }
        }
        if let Some(pair) = self.qps.get_mut(qp) {
            pair.state = IBV_QPS_ERR;
        }
        self.flush(qp);
    }

    pub(crate) fn flush(&mut self, qp: usize) {
        while let Some((send, _)) = self
            .qps
            .get_mut(qp)
            .and_then(|pair| pair.waiting.pop_front())
        {
            self.complete_send(qp, &send, IBV_WC_WR_FLUSH_ERR);
        }
        while let Some(recv) = self.qps.get_mut(qp).and_then(|pair| pair.recvs.pop_front()) {
            self.complete_recv(qp, recv.wr_id, IBV_WC_WR_FLUSH_ERR, 0, None);
        }
    }

    pub(crate) fn complete_send(&mut self, qp: usize, send: &SendWr, status: ibv_wc_status) {
        let Some(pair) = self.qps.get_mut(qp) else {
            return;
        };
        pair.unreported += 1;
        if status == IBV_WC_SUCCESS && send.flags & IBV_SEND_SIGNALED == 0 && !pair.signal_all {
            return;
        }
        let releases = std::mem::take(&mut pair.unreported);
        let opcode = completed(send.opcode);
        let wc = ibv_wc {
            wr_id: send.wr_id,
            status,
            opcode,
            qp_num: number_of(qp),
            ..Default::default()
        };
        let (cq, uid) = (pair.send_cq, pair.uid);
        self.complete(
            cq,
            Cqe {
                wc,
                qp,
                uid,
                releases,
            },
            false,
        );
    }

    pub(crate) fn complete_recv(
        &mut self,
        qp: usize,
        wr_id: u64,
        status: ibv_wc_status,
        length: usize,
        from: Option<&SendWr>,
    ) {
        let cq = self.qps.get(qp).map_or(usize::MAX, |pair| pair.recv_cq);
        self.complete_recv_on(cq, qp, wr_id, status, length, from);
    }

    /// As `complete_recv`, on this completion queue.
    pub(crate) fn complete_recv_on(
        &mut self,
        cq: usize,
        qp: usize,
        wr_id: u64,
        status: ibv_wc_status,
        length: usize,
        from: Option<&SendWr>,
    ) {
        let Some(pair) = self.qps.get(qp) else { return };
        let written = from.is_some_and(|send| send.opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
        let flags = |send: &SendWr| match send.opcode {
            IBV_WR_SEND_WITH_IMM | IBV_WR_RDMA_WRITE_WITH_IMM => IBV_WC_WITH_IMM,
            IBV_WR_SEND_WITH_INV => IBV_WC_WITH_INV,
            _ => 0,
        };
        // A key that was invalidated comes in the place of immediate data.
        let wc_flags = from.map_or(0, flags);
        let imm_data = from.map_or(0, |send| if wc_flags == 0 { 0 } else { send.imm_be });
        let wc = ibv_wc {
            wr_id,
            status,
            opcode: if written {
                IBV_WC_RECV_RDMA_WITH_IMM
            } else {
                IBV_WC_RECV
            },
            byte_len: u32::try_from(length).unwrap_or(u32::MAX),
            qp_num: number_of(qp),
            wc_flags,
            __bindgen_anon_1: ibv_wc__bindgen_ty_1 { imm_data },
            ..Default::default()
        };
        let solicited = from.is_some_and(|send| send.flags & IBV_SEND_SOLICITED != 0);
        let uid = pair.uid;
        self.complete(
            cq,
            Cqe {
                wc,
                qp,
                uid,
                releases: 0,
            },
            solicited,
        );
    }

    /// The completion of a receive that a datagram of the queue pair `from` came into.
    pub(crate) fn complete_datagram(
        &mut self,
        qp: usize,
        from: usize,
        wr_id: u64,
        length: usize,
        send: &SendWr,
    ) {
        let Some(pair) = self.qps.get(qp) else { return };
        let with_imm = send.opcode == IBV_WR_SEND_WITH_IMM;
        let wc = ibv_wc {
            wr_id,
            status: IBV_WC_SUCCESS,
            opcode: IBV_WC_RECV,
            byte_len: u32::try_from(length).unwrap_or(u32::MAX),
            qp_num: number_of(qp),
            src_qp: number_of(from),
            wc_flags: IBV_WC_GRH | if with_imm { IBV_WC_WITH_IMM } else { 0 },
            __bindgen_anon_1: ibv_wc__bindgen_ty_1 {
                imm_data: send.imm_be,
            },
            ..Default::default()
        };
        let (cq, uid) = (pair.recv_cq, pair.uid);
        self.complete(
            cq,
            Cqe {
                wc,
                qp,
                uid,
                releases: 0,
            },
            send.flags & IBV_SEND_SOLICITED != 0,
        );
    }

    fn complete(&mut self, cq: usize, cqe: Cqe, solicited: bool) {
        let Some(queue) = self.cqs.get_mut(cq) else {
            return;
        };
        let depth = queue.depth;
        if queue.entries.len() == depth {
            self.violation(format!("a completion queue of {depth} entries overflowed"));
            return;
        }
        queue.entries.push_back(cqe);
        let wakes = solicited || cqe.wc.status != IBV_WC_SUCCESS;
        if queue
            .armed
            .is_some_and(|solicited_only| wakes || !solicited_only)
        {
            queue.armed = None;
            self.notify(cq);
        }
    }
}

/// What a completion calls an operation.
fn completed(opcode: ibv_wr_opcode) -> ibv_wc_opcode {
    match opcode {
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => IBV_WC_RDMA_WRITE,
        IBV_WR_RDMA_READ => IBV_WC_RDMA_READ,
        IBV_WR_BIND_MW => IBV_WC_BIND_MW,
        IBV_WR_LOCAL_INV => IBV_WC_LOCAL_INV,
        IBV_WR_ATOMIC_CMP_AND_SWP => IBV_WC_COMP_SWAP,
        IBV_WR_ATOMIC_FETCH_AND_ADD => IBV_WC_FETCH_ADD,
        _ => IBV_WC_SEND,
    }
}
