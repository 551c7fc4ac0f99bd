//! Shared receive queues.

use super::Mlx5;
use crate::abi::core::event;
use crate::abi::mlx5::{CreateSrq as UserCreate, NumberResp};
use crate::attr::Udata;
use crate::errno::{Errno, Result};
use crate::memory::{self, Pinned};
use crate::nic::{CreateSrq, Destroyed, EventTarget, Shared, SrqAttr};

/// Maximum number of requests and of data segments.
pub(super) const MAX_WR: u32 = 32_767;
pub(super) const MAX_SGE: u32 = 31;

pub(super) struct Srq {
    memory: Pinned,
    doorbell: Pinned,
    stride: u32,
    /// Index of the next request.
    head: u16,
    /// Requests taken.
    taken: u16,
    max_wr: u32,
    max_sge: u32,
    limit: u32,
    pub(super) pd: u32,
    pub(super) uidx: u32,
    /// XRC domain and completion queue.
    pub(super) xrc: Option<(u32, u32)>,
    events: EventTarget,
    async_events: u32,
}

/// A receive request: its data segments.
pub(super) struct Receive {
    pub(super) counter: u16,
    pub(super) segments: Vec<u8>,
}

impl Mlx5 {
    pub(super) fn new_srq(&mut self, create: &CreateSrq, udata: &Udata) -> Result<u32> {
        let user: UserCreate = udata.read()?;
        if create.max_wr > MAX_WR || create.max_sge > MAX_SGE {
            return Err(Errno::EINVAL);
        }
        let entries = (create.max_wr + 1).next_power_of_two();
        let stride = (16 + create.max_sge * 16).max(32).next_power_of_two();
        let length = u64::from(entries) * u64::from(stride);
        let memory = memory::pin(user.buf_addr, length, true)?;
        let doorbell = memory::pin(user.db_addr, 4, true)?;
        let number = self.add_srq(create, memory, doorbell, stride, user.uidx)?;
        udata.write(&NumberResp {
            number,
            reserved: 0,
        })?;
        Ok(number)
    }

    /// Adds a queue with its memory, its doorbell record and the size of its requests in bytes.
    pub(super) fn add_srq(
        &mut self,
        create: &CreateSrq,
        memory: Pinned,
        doorbell: Pinned,
        stride: u32,
        uidx: u32,
    ) -> Result<u32> {
        self.srqs.insert(Srq {
            memory,
            doorbell,
            stride,
            head: 0,
            taken: 0,
            max_wr: create.max_wr,
            max_sge: create.max_sge,
            limit: create.limit,
            pd: create.pd,
            uidx,
            xrc: create.xrc,
            events: create.events,
            async_events: 0,
        })
    }

    /// Makes a handle that of the events of a queue.
    pub(super) fn name_srq(&mut self, number: u32, user_handle: u64) {
        if let Some(srq) = self.srqs.get_mut(number) {
            srq.events.user_handle = user_handle;
        }
    }

    pub(super) fn remove_srq(&mut self, number: u32) -> Destroyed {
        let asynchronous = self.srqs.remove(number).map_or(0, |srq| srq.async_events);
        Destroyed {
            completion: 0,
            asynchronous,
        }
    }
}

impl Srq {
    fn available(&self) -> u16 {
        // The record counts the posted requests modulo 2^16.
        let posted = self.doorbell.load_be32(0) & 0xffff;
        u16::try_from(posted).unwrap_or(0).wrapping_sub(self.taken)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.available() == 0
    }

    /// Takes the next request.
    pub(super) fn take(&mut self, cx: &mut Shared) -> Option<Receive> {
        if self.is_empty() {
            return None;
        }
        let offset = u64::from(self.head) * u64::from(self.stride);
        let mut segments = vec![0; self.stride as usize - 16];
        self.memory.read(offset + 16, &mut segments);
        let counter = self.head;
        self.head = self.memory.load_be16(offset + 2);
        self.taken = self.taken.wrapping_add(1);
        self.check_limit(cx);
        Some(Receive { counter, segments })
    }

    /// Sends the limit event, once, if fewer requests than the limit are left.
    fn check_limit(&mut self, cx: &mut Shared) {
        if self.limit > 0 && u32::from(self.available()) < self.limit {
            self.limit = 0;
            self.async_events += 1;
            self.events
                .report(&mut cx.channels, event::SRQ_LIMIT_REACHED);
        }
    }

    pub(super) fn set_limit(&mut self, limit: u32) -> Result<()> {
        if limit > self.max_wr {
            return Err(Errno::EINVAL);
        }
        // A limit above the present number takes effect at the next receive.
        self.limit = limit;
        Ok(())
    }

    pub(super) fn attr(&self) -> SrqAttr {
        SrqAttr {
            max_wr: self.max_wr,
            max_sge: self.max_sge,
            limit: self.limit,
        }
    }
}
