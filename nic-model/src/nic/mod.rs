//! The adapter and its kernel driver, as the core of the verbs sees them.

pub(crate) mod mlx5;

use std::ffi::{c_int, c_void};

use crate::abi::core::{
    AhAttr, ExQueryDeviceResp, GidEntry, ModifyQp, QpCap, QueryPortRespEx, QueryQpResp,
};
use crate::attr::{Attrs, Udata};
use crate::channels::Channels;
use crate::clock::Clock;
use crate::errno::{Errno, Result};
use crate::keys::Keys;
use crate::wire::Wire;
use crate::wire::packet::Packet;

/// State that the core and the adapter share.
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    pub(crate) channels: Channels,
    pub(crate) wire: Wire,
    pub(crate) clock: Clock,
    pub(crate) link: crate::options::Link,
    /// GIDs of the port.
    pub(crate) gids: Vec<GidEntry>,
}

/// Destination of the events of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventTarget {
    /// Channel of the asynchronous events, if the program has opened one.
    pub(crate) channel: Option<u32>,
    pub(crate) user_handle: u64,
}

impl EventTarget {
    /// Reports an asynchronous event of the object.
    pub(crate) fn report(&self, channels: &mut Channels, event: u32) {
        if let Some(channel) = self.channel {
            channels.asynchronous(channel, self.user_handle, event);
        }
    }
}

pub(crate) struct CreateCq {
    pub(crate) entries: u32,
    pub(crate) comp_channel: Option<u32>,
    pub(crate) events: EventTarget,
}

pub(crate) struct CreateQp {
    pub(crate) kind: u8,
    pub(crate) pd: Option<u32>,
    pub(crate) xrcd: Option<u32>,
    pub(crate) send_cq: Option<u32>,
    pub(crate) recv_cq: Option<u32>,
    pub(crate) srq: Option<u32>,
    pub(crate) cap: QpCap,
    pub(crate) flags: u32,
    pub(crate) events: EventTarget,
}

pub(crate) struct CreateSrq {
    pub(crate) pd: u32,
    /// XRC domain and completion queue of an XRC shared receive queue.
    pub(crate) xrc: Option<(u32, u32)>,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) limit: u32,
    pub(crate) events: EventTarget,
}

pub(crate) struct SrqAttr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) limit: u32,
}

/// Number of events of a destroyed object, read and unread.
pub(crate) struct Destroyed {
    pub(crate) completion: u32,
    pub(crate) asynchronous: u32,
}

/// An adapter with its kernel driver. Objects are named by numbers that it chooses.
pub(crate) trait Nic: Send {
    fn get_context(&mut self, cx: &mut Shared, udata: &Udata) -> Result<()>;
    /// Writes the context that a second `ibv_context` imports.
    fn query_context(&self, attrs: &Attrs) -> Result<()>;
    fn query_device(&self, cx: &Shared, udata: &Udata) -> Result<ExQueryDeviceResp>;
    fn query_port(&self, cx: &Shared) -> QueryPortRespEx;
    fn comp_vectors(&self) -> u32;

    fn alloc_pd(&mut self, pd: u32, udata: &Udata) -> Result<()>;
    fn create_ah(&mut self, cx: &mut Shared, attr: &AhAttr, udata: &Udata) -> Result<()>;

    fn create_cq(&mut self, cx: &mut Shared, create: &CreateCq, udata: &Udata) -> Result<u32>;
    fn resize_cq(&mut self, cx: &mut Shared, cq: u32, entries: u32, udata: &Udata) -> Result<u32>;
    fn destroy_cq(&mut self, cx: &mut Shared, cq: u32) -> Destroyed;

    /// Creates a queue pair and returns its index, its number and the granted capacities.
    fn create_qp(
        &mut self,
        cx: &mut Shared,
        create: &CreateQp,
        udata: &Udata,
    ) -> Result<(u32, u32, QpCap)>;
    fn qp_state(&self, qp: u32) -> u8;
    fn modify_qp(
        &mut self,
        cx: &mut Shared,
        qp: u32,
        modify: &ModifyQp,
        udata: &Udata,
    ) -> Result<()>;
    fn query_qp(&self, qp: u32) -> Result<QueryQpResp>;
    fn destroy_qp(&mut self, cx: &mut Shared, qp: u32) -> Destroyed;
    fn is_multicast_member(&self, qp: u32) -> bool;
    fn attach_multicast(&mut self, qp: u32, gid: [u8; 16]) -> Result<()>;
    fn detach_multicast(&mut self, qp: u32, gid: [u8; 16]) -> Result<()>;

    /// Creates a shared receive queue and returns its number.
    fn create_srq(&mut self, cx: &mut Shared, create: &CreateSrq, udata: &Udata) -> Result<u32>;
    fn modify_srq(&mut self, cx: &mut Shared, srq: u32, limit: u32) -> Result<()>;
    fn query_srq(&self, srq: u32) -> Result<SrqAttr>;
    fn destroy_srq(&mut self, cx: &mut Shared, srq: u32) -> Destroyed;

    /// Allocates device memory and returns its number.
    fn alloc_dm(&mut self, length: u64, attrs: &Attrs) -> Result<u32>;
    fn dm(&self, dm: u32) -> Result<crate::memory::Pinned>;
    fn free_dm(&mut self, dm: u32);
    /// Writes what a second context needs to map device memory.
    fn query_dm(&self, dm: u32, attrs: &Attrs) -> Result<()>;

    /// Executes a method of an object of the driver.
    fn driver_method(&mut self, object: u16, method: u16, _attrs: &Attrs) -> Result<()> {
        let _ = (object, method);
        Err(Errno::EPROTONOSUPPORT)
    }

    /// Maps something of the device into the program.
    fn mmap(&mut self, length: usize, protection: c_int, offset: u64) -> Result<*mut c_void>;

    /// Handles a packet that arrived.
    fn receive(&mut self, cx: &mut Shared, packet: Packet);

    /// Executes posted requests, timers and events. Returns `true` if there was work.
    fn step(&mut self, cx: &mut Shared) -> bool;
}
