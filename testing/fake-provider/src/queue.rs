//! Queues of a queue pair: requests are accepted, deferred, flushed and completed.

use rdma_sys::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_QPS_ERR, IBV_QPS_RTS, IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED, IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_GRH,
    IBV_WC_LOCAL_INV, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM,
    IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, IBV_WC_WR_FLUSH_ERR,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_IMM,
    IBV_WR_SEND_WITH_INV, ibv_wc, ibv_wc__bindgen_ty_1, ibv_wc_opcode, ibv_wc_status,
    ibv_wr_opcode,
};

use crate::handle::qp_num;
use crate::profile::{ErrorStatePosts, Overrun};
use crate::request::{Data, RecvWr, SendWr};
use crate::state::{Cqe, DeviceState, EventSource};

/// The vendor's error code of a failed send.
pub const VENDOR_ERROR: u32 = 0x42;

impl DeviceState {
    /// Accepts a send that was checked. `inline` contains its inline data, if there is any.
    pub(crate) fn enqueue_send(&mut self, qp: usize, send: SendWr, inline: &[u8]) {
        let stalled = self.stalled;
        let error_state_posts = self.profile.error_state_posts;
        let Some(pair) = self.qps.get_mut(qp) else {
            return;
        };
        pair.send_slots_used += 1;
        if pair.state == IBV_QPS_ERR {
            if error_state_posts == ErrorStatePosts::Flush {
                self.complete_send(qp, &send, IBV_WC_WR_FLUSH_ERR);
            }
            return;
        }
        let waits = stalled || pair.state != IBV_QPS_RTS || !pair.pending.is_empty();
        if waits || !self.start(qp, &send, inline) {
            self.defer(qp, send, inline);
        }
        self.disconnect_lost();
    }

    /// Defers a send. Its inline data is copied.
    fn defer(&mut self, qp: usize, mut send: SendWr, inline: &[u8]) {
        let mut own = Vec::new();
        if let Data::Inline { start, length } = &mut send.data {
            own.extend_from_slice(&inline[*start..*start + *length]);
            *start = 0;
        }
        if let Some(pair) = self.qps.get_mut(qp) {
            pair.pending.push_back((send, own));
        }
    }

    /// Accepts a receive that was checked.
    pub(crate) fn enqueue_recv(&mut self, qp: usize, recv: RecvWr) {
        let error_state_posts = self.profile.error_state_posts;
        let Some(pair) = self.qps.get_mut(qp) else {
            return;
        };
        if pair.state == IBV_QPS_ERR {
            if error_state_posts == ErrorStatePosts::Flush {
                self.complete_recv(qp, recv.wr_id, IBV_WC_WR_FLUSH_ERR, 0, None);
            }
            return;
        }
        pair.recvs.push_back(recv);
        if let Some(peer) = pair.peer {
            self.progress(peer);
        }
    }

    /// Executes the pending sends of a queue pair until one must wait.
    pub(crate) fn progress(&mut self, qp: usize) {
        while !self.stalled {
            let Some((send, inline)) = self
                .qps
                .get_mut(qp)
                .and_then(|pair| pair.pending.pop_front())
            else {
                return;
            };
            let done = self.start(qp, &send, &inline);
            self.disconnect_lost();
            if !done {
                if let Some(pair) = self.qps.get_mut(qp) {
                    pair.pending.push_front((send, inline));
                }
                return;
            }
        }
    }

    /// Ends the connections that failed while a request was executed.
    pub(crate) fn disconnect_lost(&mut self) {
        while let Some(qp) = self.to_disconnect.pop() {
            self.enter_error(qp);
        }
    }

    /// Moves a queue pair to the error state and flushes its requests in order.
    pub(crate) fn enter_error(&mut self, qp: usize) {
        if let Some(pair) = self.qps.get_mut(qp) {
            if pair.srq.is_some() && pair.state != IBV_QPS_ERR {
                self.raise(IBV_EVENT_QP_LAST_WQE_REACHED, EventSource::Qp(qp));
            }
        }
        if let Some(pair) = self.qps.get_mut(qp) {
            pair.state = IBV_QPS_ERR;
        }
        self.flush(qp);
    }

    pub(crate) fn flush(&mut self, qp: usize) {
        self.report_late_completions(qp);
        self.report_spurious_flushes(qp);
        while let Some(read) = self
            .qps
            .get_mut(qp)
            .and_then(|pair| pair.late_reads.pop_front())
        {
            self.keep_writing(qp, &read.data);
            self.complete_send(qp, &read, IBV_WC_WR_FLUSH_ERR);
        }
        while let Some((send, _)) = self
            .qps
            .get_mut(qp)
            .and_then(|pair| pair.pending.pop_front())
        {
            if send.opcode == IBV_WR_RDMA_READ {
                self.keep_writing(qp, &send.data);
            }
            self.complete_send(qp, &send, IBV_WC_WR_FLUSH_ERR);
        }
        while let Some(recv) = self.qps.get_mut(qp).and_then(|pair| pair.recvs.pop_front()) {
            self.keep_writing(qp, &Data::Registered(recv.sges));
            self.complete_recv(qp, recv.wr_id, IBV_WC_WR_FLUSH_ERR, 0, None);
            if self.profile.completes_flushed_receives {
                self.complete_recv(qp, recv.wr_id, IBV_WC_SUCCESS, 0, None);
            }
        }
    }

    /// Keeps the first successful completion of each direction.
    fn keep_first(&mut self, cqe: Cqe) {
        if let Some(pair) = self.qps.get_mut(cqe.qp) {
            let received = usize::from(cqe.wc.opcode & IBV_WC_RECV != 0);
            pair.first_completions[received].get_or_insert(cqe);
        }
    }

    /// Reports completed requests again, as flushed.
    fn report_spurious_flushes(&mut self, qp: usize) {
        let Some(pair) = self.qps.get_mut(qp) else {
            return;
        };
        let first = std::mem::take(&mut pair.first_completions);
        for (cq, cqe) in [pair.send_cq, pair.recv_cq].into_iter().zip(first) {
            if let Some(mut cqe) = cqe {
                (cqe.wc.status, cqe.releases) = (IBV_WC_WR_FLUSH_ERR, 0);
                self.complete(cq, cqe, false);
            }
        }
    }

    pub(crate) fn complete_send(&mut self, qp: usize, send: &SendWr, status: ibv_wc_status) {
        let Some(pair) = self.qps.get_mut(qp) else {
            return;
        };
        pair.unreported_sends += 1;
        if status == IBV_WC_SUCCESS && send.flags & IBV_SEND_SIGNALED == 0 && !pair.signal_all {
            return;
        }
        let releases = std::mem::take(&mut pair.unreported_sends);
        let opcode = completed(send.opcode);
        let wc = ibv_wc {
            wr_id: send.wr_id,
            status,
            opcode,
            vendor_err: if status == IBV_WC_SUCCESS {
                0
            } else {
                VENDOR_ERROR
            },
            qp_num: qp_num(qp),
            ..Default::default()
        };
        let (cq, uid) = (pair.send_cq, pair.uid);
        let cqe = Cqe {
            wc,
            qp,
            uid,
            releases,
        };
        if self.is_reported_late(cq, status) {
            self.add_late_completion(qp, cqe);
        } else {
            self.complete(cq, cqe, false);
        }
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

    /// Completes a receive on this completion queue.
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
        // The invalidated key shares a union with the immediate data.
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
            qp_num: qp_num(qp),
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

    /// Completes a receive that was filled by a datagram of queue pair `from`.
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
            qp_num: qp_num(qp),
            src_qp: qp_num(from),
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

    pub(crate) fn complete(&mut self, cq: usize, cqe: Cqe, solicited: bool) {
        let Some(queue) = self.cqs.get_mut(cq) else {
            return;
        };
        let depth = queue.depth;
        if queue.entries.len() == depth && self.profile.overrun == Overrun::Lose {
            self.raise(IBV_EVENT_CQ_ERR, EventSource::Cq(cq));
            return;
        }
        if queue.entries.len() == depth {
            self.violation(format!("a completion queue of {depth} entries overflowed"));
            return;
        }
        queue.entries.push_back(cqe);
        if self.profile.spurious_flushes && cqe.wc.status == IBV_WC_SUCCESS {
            self.keep_first(cqe);
        }
        let Some(queue) = self.cqs.get_mut(cq) else {
            return;
        };
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

/// Returns the completion opcode of an operation.
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
