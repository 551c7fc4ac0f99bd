//! Requests that complete after later ones ([`SendOrder`]).

use rdma_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_SEND_FENCE, IBV_WC_SUCCESS, IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, ibv_wc_status,
};

use crate::copy::scatter_bytes;
use crate::profile::SendOrder;
use crate::request::{Data, SendWr};
use crate::state::{Cqe, DeviceState, LateWrite};

impl DeviceState {
    /// Starts a request: executes it, or lets later requests overtake it. Returns `false` if it
    /// must wait.
    pub(crate) fn start(&mut self, qp: usize, send: &SendWr, inline: &[u8]) -> bool {
        if self.profile.send_order != SendOrder::ReadsLate {
            return self.execute(qp, send, inline);
        }
        let armed = self
            .qps
            .get(qp)
            .is_some_and(|pair| self.is_armed(pair.send_cq));
        if armed || send.flags & IBV_SEND_FENCE != 0 {
            self.execute_late_reads(qp);
        }
        let fetches = matches!(
            send.opcode,
            IBV_WR_RDMA_READ | IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD
        );
        if !fetches || armed {
            return self.execute(qp, send, inline);
        }
        if let Some(pair) = self.qps.get_mut(qp) {
            pair.late_reads.push_back(*send);
        }
        true
    }

    /// Returns `true` if a completion with this status is reported late.
    pub(crate) fn is_reported_late(&self, cq: usize, status: ibv_wc_status) -> bool {
        self.profile.send_order == SendOrder::Reversed
            && status == IBV_WC_SUCCESS
            && !self.is_armed(cq)
    }

    pub(crate) fn add_late_completion(&mut self, qp: usize, cqe: Cqe) {
        if let Some(pair) = self.qps.get_mut(qp) {
            pair.late_completions.push(cqe);
        }
    }

    /// Reports the late completions of a queue pair, the newest first.
    pub(crate) fn report_late_completions(&mut self, qp: usize) {
        while let Some((cq, cqe)) = self
            .qps
            .get_mut(qp)
            .and_then(|pair| Some((pair.send_cq, pair.late_completions.pop()?)))
        {
            self.complete(cq, cqe, false);
        }
    }

    /// Calls [`finish_late`](Self::finish_late) if the completion queue is empty.
    #[inline]
    pub(crate) fn finish_late_if_empty(&mut self, cq: usize) {
        if self.profile.send_order != SendOrder::InOrder
            && self
                .cqs
                .get(cq)
                .is_some_and(|queue| queue.entries.is_empty())
        {
            self.finish_late(cq);
        }
    }

    /// Executes the late READs and reports the late completions of all queue pairs that send with
    /// this completion queue.
    pub(crate) fn finish_late(&mut self, cq: usize) {
        if self.profile.send_order == SendOrder::InOrder {
            return;
        }
        for qp in self.qp_indices() {
            if self.qps.get(qp).is_some_and(|pair| pair.send_cq == cq) {
                self.execute_late_reads(qp);
                self.report_late_completions(qp);
            }
        }
    }

    fn execute_late_reads(&mut self, qp: usize) {
        while !self.stalled {
            let Some(read) = self
                .qps
                .get_mut(qp)
                .and_then(|pair| pair.late_reads.pop_front())
            else {
                return;
            };
            self.execute(qp, &read, &[]);
            self.disconnect_lost();
        }
    }

    /// Executes the late READs that wait only because the device was stalled.
    pub(crate) fn resume_late(&mut self, qp: usize) {
        if self
            .qps
            .get(qp)
            .is_some_and(|pair| self.is_armed(pair.send_cq))
        {
            self.execute_late_reads(qp);
        }
    }

    /// Lets the device write to the memory of a failed request, if the profile does.
    pub(crate) fn keep_writing(&mut self, qp: usize, data: &Data) {
        let pd = self.qps.get(qp).map(|pair| pair.pd);
        if let (Data::Registered(sges), Some(pd)) = (data, pd) {
            if self.profile.writes_after_failures {
                let sges = *sges;
                self.late_writes.push(LateWrite { qp, pd, sges });
            }
        }
    }

    /// Writes to the memory of failed requests. Records a violation if it is not registered.
    #[inline]
    pub(crate) fn write_late(&mut self) {
        for write in std::mem::take(&mut self.late_writes) {
            let LateWrite { pd, sges, .. } = &write;
            if let Some(sges) = self.registered(*pd, sges, IBV_ACCESS_LOCAL_WRITE) {
                scatter_bytes(&vec![0xee; sges.length()], sges.as_slice());
                self.late_writes.push(write);
            }
        }
    }

    fn is_armed(&self, cq: usize) -> bool {
        self.cqs.get(cq).is_some_and(|queue| queue.armed.is_some())
    }
}
