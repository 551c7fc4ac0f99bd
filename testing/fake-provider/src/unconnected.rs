//! Execution of sends without a connection: datagrams and raw frames. A send completes whether or
//! not a queue pair receives it.

use rdma_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_QPS_RTR, IBV_QPS_RTS, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR,
    IBV_WC_LOC_QP_OP_ERR, IBV_WC_SUCCESS, ibv_sge,
};

use crate::copy::{gather_with_header, peek, scatter_with_header};
use crate::execute::Outcome::{self, Done};
use crate::execute::{payload_len, write_payload};
use crate::handle::qp_index;
use crate::request::{Data, SendWr, To};
use crate::state::{DeviceState, Qp};

impl DeviceState {
    /// Sends a raw frame to all other queue pairs that have a matching flow rule and a posted
    /// receive.
    pub(crate) fn send_frame(&mut self, qp: usize, send: &SendWr, inline: &[u8]) -> Outcome {
        let pd = self.qps.get(qp).map_or(usize::MAX, |pair| pair.pd);
        let Some(send) = &self.located(pd, send) else {
            return Done(IBV_WC_LOC_PROT_ERR);
        };
        let mut to = [0; 6];
        match &send.data {
            _ if payload_len(send) < to.len() => return Done(IBV_WC_LOC_LEN_ERR),
            Data::Registered(sges) => peek(sges.as_slice(), &mut to),
            Data::Inline { start, .. } => to.copy_from_slice(&inline[*start..*start + 6]),
            Data::Bind(_) => return Done(IBV_WC_LOC_QP_OP_ERR),
        }
        for peer in self.qp_indices() {
            let listens = self
                .flows
                .iter()
                .any(|flow| flow.qp == peer && flow.to.is_none_or(|mac| mac == to));
            let Some(pd) = self
                .qps
                .get(peer)
                .filter(|_| peer != qp && listens)
                .map(|pair| pair.pd)
            else {
                continue;
            };
            let Some(recv) = self.pop_recv(peer, None) else {
                continue;
            };
            let length = payload_len(send);
            let target = if length > recv.sges.length() {
                None
            } else {
                self.registered(pd, &recv.sges, IBV_ACCESS_LOCAL_WRITE)
            };
            if let Some(target) = target {
                write_payload(send, inline, target.as_slice());
                self.complete_recv(peer, recv.wr_id, IBV_WC_SUCCESS, length, Some(send));
            } else {
                self.complete_recv(peer, recv.wr_id, IBV_WC_LOC_LEN_ERR, 0, None);
            }
        }
        Done(IBV_WC_SUCCESS)
    }

    /// Sends a datagram to a queue pair, or to all other members of a multicast group.
    pub(crate) fn send_datagram(
        &mut self,
        qp: usize,
        to: To,
        send: &SendWr,
        inline: &[u8],
    ) -> Outcome {
        let pd = self.qps.get(qp).map_or(usize::MAX, |pair| pair.pd);
        let Some(send) = &self.located(pd, send) else {
            return Done(IBV_WC_LOC_PROT_ERR);
        };
        if to.qpn != MULTICAST_QPN {
            if let Some(peer) = qp_index(to.qpn) {
                self.deliver_datagram(qp, peer, to.qkey, send, inline);
            }
            return Done(IBV_WC_SUCCESS);
        }
        let gid = self.ahs.get(to.ah).map(|ah| ah.gid);
        for index in 0..self.groups.len() {
            let member = self.groups[index];
            if member.qp != qp && Some(member.gid) == gid {
                self.deliver_datagram(qp, member.qp, to.qkey, send, inline);
            }
        }
        Done(IBV_WC_SUCCESS)
    }

    /// Delivers a datagram, after space for a GRH, if the destination exists, has the same Q_Key
    /// and has a posted receive.
    fn deliver_datagram(
        &mut self,
        qp: usize,
        peer: usize,
        qkey: u32,
        send: &SendWr,
        inline: &[u8],
    ) {
        let takes =
            |pair: &&Qp| pair.qkey == Some(qkey) && matches!(pair.state, IBV_QPS_RTR | IBV_QPS_RTS);
        let Some(pd) = self.qps.get(peer).filter(takes).map(|pair| pair.pd) else {
            return;
        };
        let Some(recv) = self.pop_recv(peer, None) else {
            return;
        };
        let length = GRH.len() + payload_len(send);
        if length > recv.sges.length() {
            self.complete_recv(peer, recv.wr_id, IBV_WC_LOC_LEN_ERR, 0, None);
        } else if let Some(target) = self.registered(pd, &recv.sges, IBV_ACCESS_LOCAL_WRITE) {
            write_payload_after(&GRH, send, inline, target.as_slice());
            self.complete_datagram(peer, qp, recv.wr_id, length, send);
        } else {
            self.complete_recv(peer, recv.wr_id, IBV_WC_LOC_PROT_ERR, 0, None);
        }
    }
}

impl DeviceState {
    /// Returns a request whose gather list has the addresses of its bytes in the process, or `None`
    /// if they are not registered.
    fn located(&mut self, pd: usize, send: &SendWr) -> Option<SendWr> {
        let mut located = *send;
        if let Data::Registered(sges) = &mut located.data {
            *sges = self.registered(pd, sges, 0)?;
        }
        Some(located)
    }
}

/// Queue pair number of multicast datagrams.
const MULTICAST_QPN: u32 = 0xff_ffff;

/// Global routing header of a received datagram. Loopback leaves it empty.
const GRH: [u8; 40] = [0; 40];

/// Copies a header followed by the payload of a request to a scatter list.
fn write_payload_after(header: &[u8], send: &SendWr, inline: &[u8], into: &[ibv_sge]) {
    match &send.data {
        Data::Registered(sges) => gather_with_header(header, sges.as_slice(), into),
        Data::Inline { start, length } => {
            scatter_with_header(header, &inline[*start..*start + *length], into);
        }
        Data::Bind(_) => {}
    }
}
