//! The adapter of libmlx5 (ConnectX) with its kernel driver `mlx5_ib`.
//!
//! The model follows the source of libmlx5 and the kernel's headers, not firmware.

mod caps;
pub(crate) use caps::identity;
mod cq;
mod cqe;
pub mod engine;
mod flush;
mod pages;
mod progress;
mod qp;
mod requester;
mod responder;
mod srq;
mod stream_requester;
mod streams;
mod umr;
mod wqe;

use std::ffi::{c_int, c_void};
use std::os::fd::OwnedFd;

use crate::abi::core::{AhAttr, ExQueryDeviceResp, ModifyQp, QpCap, QueryPortRespEx, QueryQpResp};
use crate::abi::mlx5::{
    CreateAhResp, DEVX_OBJ_MODIFY, DEVX_OTHER, OBJECT_DEVX, OBJECT_DEVX_OBJ, QUERY_CONTEXT_RESP,
    QueryDeviceResp,
};
use crate::attr::{Attrs, Udata};
use crate::errno::{Errno, Result};
use crate::memory::Pinned;
use crate::network::packet::{self, MULTICAST_QPN, Packet};
use crate::nic::{CreateCq, CreateQp, CreateSrq, Destroyed, Nic, Shared, SrqAttr};
use crate::qp_state::ERR;
use crate::table::Table;

/// First index of ordinary queue pairs.
const SPECIAL: u32 = 2;

pub(crate) struct Mlx5 {
    cqs: Table<cq::Cq>,
    qps: Table<qp::Qp>,
    srqs: Table<srq::Srq>,
    pages: pages::Pages,
    /// Indices of the queue pairs with the numbers 0 and 1, which receive management datagrams.
    special: [Option<u32>; 2],
}

impl Mlx5 {
    pub(crate) fn new() -> Self {
        Self {
            cqs: Table::new(caps::MAX_CQ),
            qps: Table::between(SPECIAL, (1 << caps::QPN_BITS) - 1),
            srqs: Table::new(caps::MAX_SRQ),
            pages: pages::Pages::new(),
            special: [None; 2],
        }
    }

    /// Returns the queue pairs that receive a packet.
    fn receivers(&self, cx: &Shared, packet: &Packet) -> Vec<u32> {
        let header = &packet.header;
        if header.destination == MULTICAST_QPN {
            return self
                .qps
                .iter()
                .filter(|(_, qp)| qp.groups.contains(&header.destination_gid))
                .map(|(number, _)| number)
                .collect();
        }
        let index = cx.network.local_index(header.destination);
        let index = index.and_then(|index| match self.special.get(index as usize) {
            Some(special) => *special,
            None => Some(index),
        });
        index.into_iter().collect()
    }
}

impl Nic for Mlx5 {
    fn get_context(&mut self, udata: &Udata) -> Result<()> {
        udata.write(&caps::context())
    }

    fn query_context(&self, attrs: &Attrs) -> Result<()> {
        attrs.write(QUERY_CONTEXT_RESP, &caps::context())
    }

    fn query_device(&self, udata: &Udata) -> Result<ExQueryDeviceResp> {
        udata.write(&QueryDeviceResp {
            response_length: 104,
            dci_streams: streams::CAPS,
            ..QueryDeviceResp::default()
        })?;
        Ok(caps::device())
    }

    fn query_port(&self, cx: &Shared) -> QueryPortRespEx {
        caps::port(cx)
    }

    fn comp_vectors(&self) -> u32 {
        caps::COMP_VECTORS
    }

    fn alloc_pd(&mut self, pd: u32, udata: &Udata) -> Result<()> {
        udata.write(&pd)
    }

    fn create_ah(&mut self, _pd: u32, _attr: &AhAttr, udata: &Udata) -> Result<u32> {
        // All ports of the model are on one host: the address does not select a route.
        udata.write(&CreateAhResp {
            response_length: 10,
            dmac: caps::MAC,
            reserved: [0; 6],
        })?;
        // The adapter does not know address handles.
        Ok(0)
    }

    fn create_cq(&mut self, create: &CreateCq, udata: &Udata) -> Result<u32> {
        self.new_cq(create, udata)
    }

    fn resize_cq(&mut self, cx: &mut Shared, cq: u32, entries: u32, udata: &Udata) -> Result<u32> {
        self.change_cq(cx, cq, entries, udata)
    }

    fn destroy_cq(&mut self, cq: u32) -> Destroyed {
        self.remove_cq(cq)
    }

    fn create_qp(
        &mut self,
        cx: &mut Shared,
        create: &CreateQp,
        udata: &Udata,
    ) -> Result<(u32, u32, QpCap)> {
        self.new_qp(cx, create, udata)
    }

    fn qp_state(&self, qp: u32) -> u8 {
        self.qps.get(qp).map_or(ERR, |qp| qp.state)
    }

    fn modify_qp(
        &mut self,
        cx: &mut Shared,
        qp: u32,
        modify: &ModifyQp,
        udata: &Udata,
    ) -> Result<()> {
        self.change_qp(cx, qp, modify, udata)
    }

    fn query_qp(&self, qp: u32, _mask: u32) -> Result<QueryQpResp> {
        self.qp_attr(qp)
    }

    fn destroy_qp(&mut self, qp: u32) -> Destroyed {
        self.remove_qp(qp)
    }

    fn is_multicast_member(&self, qp: u32) -> bool {
        self.qps.get(qp).is_some_and(|qp| !qp.groups.is_empty())
    }

    fn attach_multicast(&mut self, qp: u32, gid: [u8; 16]) -> Result<()> {
        let qp = self.qps.get_mut(qp).ok_or(Errno::EINVAL)?;
        if !qp.groups.contains(&gid) {
            qp.groups.push(gid);
        }
        Ok(())
    }

    fn detach_multicast(&mut self, qp: u32, gid: [u8; 16]) -> Result<()> {
        let qp = self.qps.get_mut(qp).ok_or(Errno::EINVAL)?;
        let all = qp.groups.len();
        qp.groups.retain(|group| *group != gid);
        (qp.groups.len() < all).then_some(()).ok_or(Errno::EINVAL)
    }

    fn create_srq(&mut self, create: &CreateSrq, udata: &Udata) -> Result<u32> {
        self.new_srq(create, udata)
    }

    fn modify_srq(&mut self, srq: u32, limit: u32) -> Result<()> {
        self.srqs
            .get_mut(srq)
            .ok_or(Errno::EINVAL)?
            .set_limit(limit)
    }

    fn query_srq(&self, srq: u32) -> Result<SrqAttr> {
        Ok(self.srqs.get(srq).ok_or(Errno::EINVAL)?.attr())
    }

    fn destroy_srq(&mut self, srq: u32) -> Destroyed {
        self.remove_srq(srq)
    }

    fn alloc_dm(&mut self, length: u64, attrs: &Attrs) -> Result<u32> {
        self.pages.alloc_dm(length, attrs)
    }

    fn dm(&self, dm: u32) -> Result<Pinned> {
        self.pages.dm(dm)
    }

    fn free_dm(&mut self, dm: u32) {
        self.pages.free_dm(dm);
    }

    fn query_dm(&self, dm: u32, attrs: &Attrs) -> Result<()> {
        self.pages.query_dm(dm, attrs)
    }

    fn export(&self, offset: u64) -> Result<OwnedFd> {
        self.pages.export(offset)
    }

    fn has_dma_handles(&self) -> bool {
        true
    }

    fn driver_method(&mut self, object: u16, method: u16, attrs: &Attrs) -> Result<()> {
        match (object, method) {
            (OBJECT_DEVX, DEVX_OTHER) => caps::answer_query(attrs),
            (OBJECT_DEVX_OBJ, DEVX_OBJ_MODIFY) => self.modify_by_command(attrs),
            _ => self.pages.driver_method(object, method, attrs),
        }
    }

    fn mmap(&mut self, length: usize, protection: c_int, offset: u64) -> Result<*mut c_void> {
        self.pages.mmap(length, protection, offset)
    }

    fn receive(&mut self, cx: &mut Shared, packet: Packet) {
        for number in self.receivers(cx, &packet) {
            self.with_qp(number, |nic, qp| {
                if packet.header.kind == packet::RESPONSE {
                    nic.receive_response(cx, qp, &packet);
                } else {
                    nic.receive_request(cx, qp, &packet);
                }
            });
        }
    }

    fn has_completions(&self, cq: u32) -> bool {
        self.cqs.get(cq).is_some_and(cq::Cq::has_unread)
    }

    fn is_idle(&self) -> bool {
        self.qps.iter().all(|(_, qp)| qp.has_finished_sends())
    }

    fn step(&mut self, cx: &mut Shared) -> bool {
        self.pages.update_clock(cx.clock.now());
        let mut worked = false;
        for number in self.qps.numbers() {
            worked |= self
                .with_qp(number, |nic, qp| {
                    if qp.state == ERR {
                        nic.flush(cx, qp)
                    } else {
                        nic.run_requester(cx, qp)
                    }
                })
                .unwrap_or(false);
        }
        self.notify_all(cx);
        worked
    }
}
