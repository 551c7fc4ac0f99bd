//! What is sent without a connection: datagrams and raw frames. It is done when it is sent, whether
//! anybody receives it or not.

use rdma_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_QPS_RTR, IBV_QPS_RTS, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR,
    IBV_WC_LOC_QP_OP_ERR, IBV_WC_SUCCESS, ibv_sge,
};

use crate::copy::{gather_after, peek, scatter_both};
use crate::handle::place_of;
use crate::request::{Data, SendWr, To};
use crate::wire::Outcome::{self, Done};
use crate::wire::{length_of, put};
use crate::world::{Qp, World};

impl World {
    /// A frame is done when it is sent. It arrives at every other raw queue pair that has a rule
    /// for it, and a receive.
    pub(crate) fn frame(&mut self, qp: usize, send: &SendWr, inline: &[u8]) -> Outcome {
        let pd = self.qps.get(qp).map_or(usize::MAX, |pair| pair.pd);
        let mut to = [0; 6];
        match &send.data {
            Data::Registered(sges) if !self.registered(pd, sges, 0) => {
                return Done(IBV_WC_LOC_PROT_ERR);
            }
            _ if length_of(send) < to.len() => return Done(IBV_WC_LOC_LEN_ERR),
            Data::Registered(sges) => peek(sges.as_slice(), &mut to),
            Data::Inline { start, .. } => to.copy_from_slice(&inline[*start..*start + 6]),
            Data::Bind(_) => return Done(IBV_WC_LOC_QP_OP_ERR),
        }
        for peer in self.qp_numbers() {
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
            let Some(recv) = self.pop_posted(peer, None) else {
                continue;
            };
            let length = length_of(send);
            if length <= recv.sges.length()
                && self.registered(pd, &recv.sges, IBV_ACCESS_LOCAL_WRITE)
            {
                put(send, inline, recv.sges.as_slice());
                self.complete_recv(peer, recv.wr_id, IBV_WC_SUCCESS, length, Some(send));
            } else {
                self.complete_recv(peer, recv.wr_id, IBV_WC_LOC_LEN_ERR, 0, None);
            }
        }
        Done(IBV_WC_SUCCESS)
    }

    /// A datagram is done when it is sent. It arrives after room for a header, if there is someone
    /// who knows the key and has a receive.
    pub(crate) fn datagram(&mut self, qp: usize, to: To, send: &SendWr, inline: &[u8]) -> Outcome {
        let pd = self.qps.get(qp).map_or(usize::MAX, |pair| pair.pd);
        if let Data::Registered(sges) = &send.data {
            if !self.registered(pd, sges, 0) {
                return Done(IBV_WC_LOC_PROT_ERR);
            }
        }
        let takes = |pair: &&Qp| {
            pair.qkey == Some(to.qkey) && matches!(pair.state, IBV_QPS_RTR | IBV_QPS_RTS)
        };
        let Some(peer) = place_of(to.qpn) else {
            return Done(IBV_WC_SUCCESS);
        };
        let Some(pd) = self.qps.get(peer).filter(takes).map(|pair| pair.pd) else {
            return Done(IBV_WC_SUCCESS);
        };
        let Some(recv) = self.pop_posted(peer, None) else {
            return Done(IBV_WC_SUCCESS);
        };
        let length = GRH.len() + length_of(send);
        if length > recv.sges.length() {
            self.complete_recv(peer, recv.wr_id, IBV_WC_LOC_LEN_ERR, 0, None);
        } else if self.registered(pd, &recv.sges, IBV_ACCESS_LOCAL_WRITE) {
            put_after(&GRH, send, inline, recv.sges.as_slice());
            self.complete_datagram(peer, qp, recv.wr_id, length, send);
        } else {
            self.complete_recv(peer, recv.wr_id, IBV_WC_LOC_PROT_ERR, 0, None);
        }
        Done(IBV_WC_SUCCESS)
    }
}

/// The header of a datagram that came by no network.
const GRH: [u8; 40] = [0; 40];

/// Moves a header and the bytes of a request into these entries.
fn put_after(header: &[u8], send: &SendWr, inline: &[u8], into: &[ibv_sge]) {
    match &send.data {
        Data::Registered(sges) => gather_after(header, sges.as_slice(), into),
        Data::Inline { start, length } => {
            scatter_both(header, &inline[*start..*start + *length], into);
        }
        Data::Bind(_) => {}
    }
}
