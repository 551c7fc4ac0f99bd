//! Memory that the device reads after the request has completed.

use rdma_sys::{IBV_SEND_SIGNALED, ibv_sge};

use crate::copy::peek;
use crate::execute::OUTBOUND_OPCODES;
use crate::request::{Data, SendWr};
use crate::state::DeviceState;

/// Memory that the device still reads.
pub(crate) enum InTransit {
    /// Data of an unsignaled request: an entry of its gather list, and the bytes at the post.
    Request(ibv_sge, Vec<u8>),
    /// Data of a response to a READ: the address and the length.
    Response(u64, u64),
}

impl DeviceState {
    /// Keeps a completed request in transit if the profile transmits it late.
    #[inline]
    pub(crate) fn transmit_late(&mut self, qp: usize, send: &SendWr) {
        if !self.profile.transmits_unsignaled_late {
            return;
        }
        let signal_all = self.qps.get(qp).is_some_and(|pair| pair.signal_all);
        let signaled = signal_all || send.flags & IBV_SEND_SIGNALED != 0;
        if signaled || !OUTBOUND_OPCODES.contains(&send.opcode) {
            return;
        }
        if let Data::Registered(sges) = &send.data {
            let entries = sges.as_slice().iter();
            self.in_transit
                .extend(entries.map(|sge| InTransit::Request(*sge, bytes(sge))));
        }
    }

    /// Keeps a response to a READ in transit if the profile transmits it late.
    #[inline]
    pub(crate) fn transmit_response_late(&mut self, source: &[ibv_sge; 1]) {
        if self.profile.transmits_read_responses_late {
            let [sge] = source;
            let response = InTransit::Response(sge.addr, sge.length.into());
            self.in_transit.push(response);
        }
    }

    /// Records a violation if a request in transit uses the region with this key, which is being
    /// deregistered.
    pub(crate) fn check_no_transmission(&mut self, key: u32) {
        let before = self.in_transit.len();
        self.in_transit
            .retain(|entry| !matches!(entry, InTransit::Request(sge, _) if sge.lkey == key));
        if self.in_transit.len() < before {
            self.violation("a region was deregistered while the device transmits from it");
        }
    }

    /// Records a violation if memory that is being registered overlaps a response in transit.
    pub(crate) fn check_no_response(&mut self, address: u64, length: usize) {
        let end = address + length as u64;
        let overlaps = self.in_transit.iter().any(|entry| {
            matches!(entry, InTransit::Response(start, length)
                if *start < end && address < start + length)
        });
        if overlaps {
            self.violation("memory was registered again while the device transmits it to a peer");
        }
    }

    /// Ends all transmissions. Records a violation if the memory of a request was changed.
    pub(crate) fn finish_transmissions(&mut self) {
        for entry in std::mem::take(&mut self.in_transit) {
            if let InTransit::Request(sge, before) = entry {
                if bytes(&sge) != before {
                    self.violation("memory was changed while the device transmits it");
                }
            }
        }
    }
}

/// Returns the bytes of a gather entry within a live region.
fn bytes(sge: &ibv_sge) -> Vec<u8> {
    let mut bytes = vec![0; sge.length as usize];
    peek(std::slice::from_ref(sge), &mut bytes);
    bytes
}
