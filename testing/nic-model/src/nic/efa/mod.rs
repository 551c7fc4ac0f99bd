//! The adapter of libefa (Elastic Fabric Adapter) with its kernel driver `efa`.
//!
//! The model follows the source of libefa and of the driver, not firmware. Scalable reliable
//! datagrams (SRD) arrive in any order, and so do their completions.

mod caps;
pub(crate) use caps::identity;
mod counter;
mod cq;
mod descriptor;
mod progress;
mod qp;
mod transfer;

use std::ffi::{c_int, c_void};

use crate::abi::core::{AhAttr, ExQueryDeviceResp, ModifyQp, QpCap, QueryPortRespEx, QueryQpResp};
use crate::abi::efa::{AllocUcontext, COMP_MIN_SQ_WR, COMP_TX_BATCH, NumberResp};
use crate::attr::{Attrs, Udata};
use crate::errno::{Errno, Result};
use crate::memory::{PAGE, Pinned};
use crate::network::packet::{self, Packet};
use crate::nic::{CompCntrCaps, CounterChange, CreateCq, CreateQp, Destroyed, Nic, Shared};
use crate::qp_state::ERR;
use crate::syscall::SharedMemory;
use crate::table::Table;

/// Maximum number of mappings: the rings and doorbells of all queues.
const MAX_SHARED: u32 = 1 << 16;

pub(crate) struct Efa {
    cqs: Table<cq::Cq>,
    qps: Table<qp::Qp>,
    ahs: Table<Ah>,
    counters: Table<counter::Counter>,
    /// Memory of the adapter that the program maps.
    shared: Table<SharedMemory>,
    /// State of the generator that chooses the order of messages.
    random: u64,
}

/// An address handle.
#[derive(Clone, Copy)]
struct Ah {
    pd: u32,
    gid: [u8; 16],
}

/// Returns the offset at which the program maps shared memory.
fn offset(number: u32) -> u64 {
    u64::from(number) * PAGE
}

impl Efa {
    pub(crate) fn new() -> Self {
        Self {
            cqs: Table::new(caps::MAX_CQ),
            qps: Table::new(caps::MAX_QP),
            ahs: Table::new(caps::MAX_AH),
            counters: Table::new(counter::MAX_COUNTERS),
            shared: Table::new(MAX_SHARED),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Allocates memory that the program can map, and returns its number.
    fn share(&mut self, size: u64) -> Result<(u32, Pinned)> {
        let size = usize::try_from(size).map_err(|_| Errno::ENOMEM)?;
        let memory = SharedMemory::new(size.max(1))?;
        let pinned = memory.pinned();
        Ok((self.shared.insert(memory)?, pinned))
    }

    fn unshare(&mut self, numbers: &[u32]) {
        for number in numbers {
            self.shared.remove(*number);
        }
    }

    /// Returns a number below `limit`, the same sequence in each run.
    fn choose(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % limit
    }
}

impl Nic for Efa {
    fn get_context(&mut self, udata: &Udata) -> Result<()> {
        let user: AllocUcontext = udata.read()?;
        let both = COMP_TX_BATCH | COMP_MIN_SQ_WR;
        if user.comp_mask & both != both {
            return Err(Errno::EOPNOTSUPP);
        }
        udata.write(&caps::context())
    }

    fn query_device(&self, udata: &Udata) -> Result<ExQueryDeviceResp> {
        udata.write(&caps::user_device())?;
        Ok(caps::device())
    }

    fn query_port(&self, cx: &Shared) -> QueryPortRespEx {
        caps::port(cx)
    }

    fn comp_vectors(&self) -> u32 {
        caps::COMP_VECTORS
    }

    fn alloc_pd(&mut self, pd: u32, udata: &Udata) -> Result<()> {
        udata.write(&NumberResp {
            number: (pd & 0xffff) as u16,
            ..NumberResp::default()
        })
    }

    fn check_access(&self, flags: u32) -> Result<()> {
        let optional = crate::abi::core::access::OPTIONAL;
        (flags & !(caps::ACCESS | optional) == 0)
            .then_some(())
            .ok_or(Errno::EOPNOTSUPP)
    }

    fn create_ah(&mut self, pd: u32, attr: &AhAttr, udata: &Udata) -> Result<u32> {
        let gid = attr.grh.dgid;
        let number = self.ahs.insert(Ah { pd, gid })?;
        udata.write(&NumberResp {
            number: u16::try_from(number).map_err(|_| Errno::ENOMEM)?,
            ..NumberResp::default()
        })?;
        Ok(number)
    }

    fn destroy_ah(&mut self, ah: u32) {
        self.ahs.remove(ah);
    }

    fn create_cq(&mut self, create: &CreateCq, udata: &Udata) -> Result<u32> {
        self.new_cq(create, udata)
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
        _udata: &Udata,
    ) -> Result<()> {
        self.change_qp(cx, qp, modify)
    }

    fn query_qp(&self, qp: u32, mask: u32) -> Result<QueryQpResp> {
        self.qp_attr(qp, mask)
    }

    fn destroy_qp(&mut self, qp: u32) -> Destroyed {
        self.remove_qp(qp)
    }

    fn comp_cntr_caps(&self) -> Option<CompCntrCaps> {
        Some(counter::CAPS)
    }

    fn create_comp_cntr(&mut self, attrs: &Attrs) -> Result<u32> {
        self.new_counter(attrs)
    }

    fn modify_comp_cntr(&mut self, counter: u32, change: CounterChange) -> Result<()> {
        self.change_counter(counter, change)
    }

    fn attach_comp_cntr(&mut self, qp: u32, counter: u32, ops: u32) -> Result<()> {
        self.attach(qp, counter, ops)
    }

    fn destroy_comp_cntr(&mut self, counter: u32) {
        self.counters.remove(counter);
    }

    fn mmap(&mut self, length: usize, protection: c_int, offset: u64) -> Result<*mut c_void> {
        let number = u32::try_from(offset / PAGE).map_err(|_| Errno::EINVAL)?;
        self.shared
            .get(number)
            .ok_or(Errno::EINVAL)?
            .map(length, protection)
    }

    fn receive(&mut self, cx: &mut Shared, packet: Packet) {
        let Some(number) = cx.network.local_index(packet.header.destination) else {
            return;
        };
        if packet.header.kind == packet::RESPONSE {
            self.receive_response(cx, number, &packet);
        } else {
            self.receive_request(cx, number, &packet);
        }
    }

    fn step(&mut self, cx: &mut Shared) -> bool {
        let mut worked = false;
        for number in self.qps.numbers() {
            worked |= self.run(cx, number);
        }
        self.notify_all(cx);
        worked
    }
}
