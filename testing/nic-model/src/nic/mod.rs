//! The adapter and its kernel driver, as the core of the verbs sees them.

pub(crate) mod efa;
pub(crate) mod mlx5;

use std::ffi::{c_int, c_void};
use std::os::fd::OwnedFd;

use crate::abi::core::{
    AhAttr, ExQueryDeviceResp, GidEntry, ModifyQp, QpCap, QueryPortResp, QueryPortRespEx,
    QueryQpResp,
};
use crate::attr::{Attrs, Udata};
use crate::channels::Channels;
use crate::clock::Clock;
use crate::errno::{Errno, Result};
use crate::keys::Keys;
use crate::network::Network;
use crate::network::packet::Packet;

/// Facts that sysfs and the core report of a device.
pub(crate) struct Identity {
    pub(crate) name: &'static str,
    /// Content of the file `node_type`.
    pub(crate) node_type: &'static str,
    pub(crate) guid: [u8; 8],
    pub(crate) firmware: &'static str,
    /// Files that only some drivers have, with their content.
    pub(crate) files: &'static [(&'static str, &'static str)],
    pub(crate) modalias: &'static str,
    pub(crate) rate: &'static str,
    pub(crate) link_layer: &'static str,
    pub(crate) gids: Vec<GidEntry>,
    /// Number of bits of a queue pair number below those of its process.
    pub(crate) qpn_bits: u32,
    pub(crate) largest_qpn: u32,
    /// Maximum number of memory keys.
    pub(crate) max_keys: u32,
}

/// Speed of the link in units of 100 Mb/s.
pub(crate) const LINK_SPEED: u64 = 1000;

/// Limits of the completion counters of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompCntrCaps {
    pub(crate) max_counters: u32,
    pub(crate) max_value: u64,
    /// Operations whose completions can be counted (`ib_uverbs_qp_attach_comp_cntr_op`).
    pub(crate) qp_attach_ops: u32,
}

/// A change of a completion counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterChange {
    /// Changes the count of failures instead of that of successes.
    pub(crate) failures: bool,
    /// Adds the value instead of replacing the count.
    pub(crate) adds: bool,
    pub(crate) value: u64,
}

/// Returns the attributes of a port that all adapters have: a link of 100 Gb/s.
pub(crate) fn link(cx: &Shared) -> QueryPortResp {
    const DOWN: u8 = 1;
    const ACTIVE: u8 = 4;
    const DISABLED: u8 = 3;
    const LINK_UP: u8 = 5;
    const MTU_4096: u8 = 5;
    const WIDTH_4X: u8 = 2;
    const SPEED_EDR: u8 = 32;

    let up = cx.network.link_up;
    QueryPortResp {
        pkey_tbl_len: 1,
        state: if up { ACTIVE } else { DOWN },
        max_mtu: MTU_4096,
        active_mtu: MTU_4096,
        active_width: WIDTH_4X,
        active_speed: SPEED_EDR,
        phys_state: if up { LINK_UP } else { DISABLED },
        ..QueryPortResp::default()
    }
}

/// Returns a GUID as sysfs prints it.
pub(crate) fn guid_text(guid: [u8; 8]) -> String {
    guid.chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
        .collect::<Vec<_>>()
        .join(":")
}

/// State that the core and the adapter share.
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    pub(crate) channels: Channels,
    pub(crate) network: Network,
    pub(crate) clock: Clock,
    pub(crate) link: crate::options::Link,
    /// LID of the port.
    pub(crate) lid: u16,
    /// GIDs of the port.
    pub(crate) gids: Vec<GidEntry>,
    /// Requests that send queues have started.
    pub(crate) sent: u64,
    /// Requests of peers that were executed.
    pub(crate) received: u64,
    /// The adapter has reported a fatal error.
    pub(crate) has_failed: bool,
}

impl Shared {
    /// Fails if the adapter has reported a fatal error. The driver of mlx5 then executes only the
    /// commands that destroy objects or stop queue pairs (`mlx5_internal_err_ret_value` in
    /// `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`).
    pub(crate) fn check_adapter(&self) -> Result<()> {
        if self.has_failed {
            Err(Errno::ENOLINK)
        } else {
            Ok(())
        }
    }
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
#[derive(Default)]
pub(crate) struct Destroyed {
    pub(crate) completion: u32,
    pub(crate) asynchronous: u32,
}

/// An adapter with its kernel driver. Objects are named by numbers that it chooses.
pub(crate) trait Nic: Send {
    fn get_context(&mut self, udata: &Udata) -> Result<()>;
    /// Writes the context that a second `ibv_context` imports.
    fn query_context(&self, _attrs: &Attrs) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    fn query_device(&self, udata: &Udata) -> Result<ExQueryDeviceResp>;
    fn query_port(&self, cx: &Shared) -> QueryPortRespEx;
    fn comp_vectors(&self) -> u32;

    fn alloc_pd(&mut self, pd: u32, udata: &Udata) -> Result<()>;
    /// Checks access rights of a memory region that the core accepts.
    fn check_access(&self, _flags: u32) -> Result<()> {
        Ok(())
    }
    /// Creates an address handle and returns its number.
    fn create_ah(&mut self, pd: u32, attr: &AhAttr, udata: &Udata) -> Result<u32>;
    fn destroy_ah(&mut self, _ah: u32) {}

    fn create_cq(&mut self, create: &CreateCq, udata: &Udata) -> Result<u32>;
    fn resize_cq(
        &mut self,
        _cx: &mut Shared,
        _cq: u32,
        _entries: u32,
        _udata: &Udata,
    ) -> Result<u32> {
        Err(Errno::EOPNOTSUPP)
    }
    fn destroy_cq(&mut self, cq: u32) -> Destroyed;

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
    fn query_qp(&self, qp: u32, mask: u32) -> Result<QueryQpResp>;
    fn destroy_qp(&mut self, qp: u32) -> Destroyed;
    fn is_multicast_member(&self, _qp: u32) -> bool {
        false
    }
    fn attach_multicast(&mut self, _qp: u32, _gid: [u8; 16]) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    fn detach_multicast(&mut self, _qp: u32, _gid: [u8; 16]) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Creates a shared receive queue and returns its number.
    fn create_srq(&mut self, _create: &CreateSrq, _udata: &Udata) -> Result<u32> {
        Err(Errno::EOPNOTSUPP)
    }
    fn modify_srq(&mut self, _srq: u32, _limit: u32) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    fn query_srq(&self, _srq: u32) -> Result<SrqAttr> {
        Err(Errno::EOPNOTSUPP)
    }
    fn destroy_srq(&mut self, _srq: u32) -> Destroyed {
        Destroyed::default()
    }

    /// Allocates device memory and returns its number.
    fn alloc_dm(&mut self, _length: u64, _attrs: &Attrs) -> Result<u32> {
        Err(Errno::EOPNOTSUPP)
    }
    fn dm(&self, _dm: u32) -> Result<crate::memory::Pinned> {
        Err(Errno::EOPNOTSUPP)
    }
    fn free_dm(&mut self, _dm: u32) {}
    /// Writes what a second context needs to map device memory.
    fn query_dm(&self, _dm: u32, _attrs: &Attrs) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Exports the memory at an offset that the program can map, as a dma-buf.
    fn export(&self, _offset: u64) -> Result<OwnedFd> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Returns `true` if the driver has DMA handles.
    fn has_dma_handles(&self) -> bool {
        false
    }

    /// Returns the limits of completion counters, or `None` if the driver has none.
    fn comp_cntr_caps(&self) -> Option<CompCntrCaps> {
        None
    }
    /// Creates a completion counter and returns its number.
    fn create_comp_cntr(&mut self, _attrs: &Attrs) -> Result<u32> {
        Err(Errno::EOPNOTSUPP)
    }
    fn modify_comp_cntr(&mut self, _counter: u32, _change: CounterChange) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Lets a counter count the operations `ops` of a queue pair.
    fn attach_comp_cntr(&mut self, _qp: u32, _counter: u32, _ops: u32) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
    fn destroy_comp_cntr(&mut self, _counter: u32) {}

    /// Executes a method of an object of the driver.
    fn driver_method(&mut self, object: u16, method: u16, _attrs: &Attrs) -> Result<()> {
        let _ = (object, method);
        Err(Errno::EPROTONOSUPPORT)
    }

    /// Maps something of the device into the program.
    fn mmap(&mut self, length: usize, protection: c_int, offset: u64) -> Result<*mut c_void>;

    /// Handles a packet that arrived.
    fn receive(&mut self, cx: &mut Shared, packet: Packet);

    /// Returns `true` if a completion queue may have entries that the program has not read.
    fn has_completions(&self, _cq: u32) -> bool {
        true
    }

    /// Returns `true` if no posted send is known to be unfinished.
    fn is_idle(&self) -> bool {
        true
    }

    /// Executes posted requests, timers and events. Returns `true` if there was work.
    fn step(&mut self, cx: &mut Shared) -> bool;
}
