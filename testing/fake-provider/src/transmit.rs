//! Memory that the device reads after the request has completed.

use std::ffi::c_void;
use std::ptr;

use rdma_sys::{IBV_ACCESS_REMOTE_READ, IBV_SEND_SIGNALED, ibv_sge};

use crate::copy::peek;
use crate::execute::OUTBOUND_OPCODES;
use crate::request::{Data, SendWr};
use crate::state::{DeviceState, InTransit};

impl DeviceState {
    /// Keeps a completed request in transit if the profile transmits it late.
    #[inline]
    pub(crate) fn transmit_late(&mut self, qp: usize, send: &SendWr) {
        if !self.profile.transmits_unsignaled_late {
            return;
        }
        let (pd, signal_all) = match self.qps.get(qp) {
            Some(pair) => (pair.pd, pair.signal_all),
            None => return,
        };
        let signaled = signal_all || send.flags & IBV_SEND_SIGNALED != 0;
        if signaled || !OUTBOUND_OPCODES.contains(&send.opcode) {
            return;
        }
        let Data::Registered(sges) = &send.data else {
            return;
        };
        if let Some(sges) = self.registered(pd, sges, 0) {
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
            mark(sge.addr, sge.length.into());
            let response = InTransit::Response(sge.addr, sge.length.into());
            self.in_transit.push(response);
        }
    }

    /// Records a violation if a request in transit uses the region with this key, which is being
    /// deregistered. If peers can read the region, this is allowed as long as its memory was not
    /// changed, and is not used again, like that of a response.
    pub(crate) fn check_no_transmission(&mut self, key: u32, access: u32) {
        let uses =
            |entry: &InTransit| matches!(entry, InTransit::Request(sge, _) if sge.lkey == key);
        let (requests, others) = std::mem::take(&mut self.in_transit)
            .into_iter()
            .partition::<Vec<_>, _>(uses);
        self.in_transit = others;
        for request in requests {
            let InTransit::Request(sge, before) = request else {
                continue;
            };
            if bytes(&sge) != before {
                self.violation("memory was changed while the device transmits it");
            } else if access & IBV_ACCESS_REMOTE_READ == 0 {
                self.violation("a region was deregistered while the device transmits from it");
            } else {
                self.transmit_response_late(&[sge]);
            }
        }
    }

    /// Records a violation if memory that is being registered overlaps a response in transit.
    /// Pages that were returned to the kernel are not used again, although their address can be.
    pub(crate) fn check_no_response(&mut self, address: u64, length: usize) {
        let end = address + length as u64;
        let overlap = |entry: &InTransit| match *entry {
            InTransit::Response(start, length) if start < end && address < start + length => {
                Some(start.max(address))
            }
            _ => None,
        };
        self.in_transit
            .retain(|entry| overlap(entry).is_none_or(is_marked));
        let reported = self.in_transit.iter().any(|entry| overlap(entry).is_some());
        if reported {
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

/// Marks the pages of a range: they are excluded from core dumps. A new mapping at the same address
/// has other pages, without the mark. Miri has no such mark: there, the address identifies the
/// pages.
fn mark(address: u64, length: u64) {
    const PAGE: u64 = 4096;
    let start = address / PAGE * PAGE;
    let size = usize::try_from((address + length - start).next_multiple_of(PAGE));
    let start = ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(start).unwrap_or(0));
    if !cfg!(miri) {
        // SAFETY: the range is mapped, and the flag does not change its contents.
        unsafe { libc::madvise(start, size.unwrap_or(0), libc::MADV_DONTDUMP) };
    }
}

/// Returns `true` if the page at an address has the mark, or if this is unknown.
fn is_marked(address: u64) -> bool {
    if cfg!(miri) {
        return true;
    }
    let Ok(mappings) = std::fs::read_to_string("/proc/self/smaps") else {
        return true;
    };
    let contains = |line: &str| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((number(start)?..number(end)?).contains(&address))
    };
    let mut lines = mappings.lines();
    lines.any(|line| contains(line) == Some(true))
        && lines
            .find_map(|line| line.strip_prefix("VmFlags:"))
            .is_none_or(|flags| flags.split_whitespace().any(|flag| flag == "dd"))
}
