//! State of a device: plain data behind one lock. Objects are stored by index.

use std::collections::VecDeque;
use std::ffi::c_int;

use rdma_sys::{
    ibv_comp_channel, ibv_cq, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_state, ibv_sge, ibv_srq,
    ibv_wc,
};

use crate::destroyed::Destroyed;
use crate::fault::{Faults, Verb};
use crate::profile::Profile;
use crate::request::{Batch, RecvWr, SendWr, Sges};
use crate::slab::Slab;

/// Maximum size of inline data, in bytes.
pub(crate) const MAX_INLINE: u32 = 512;
/// Maximum number of requests in a queue.
pub(crate) const MAX_WR: u32 = 32_768;
/// Maximum number of entries in a completion queue.
pub(crate) const MAX_CQE: u32 = 65_536;

/// A C handle that is returned to the program. This crate does not dereference it while it holds
/// the lock, except for the contexts of completion queues.
#[derive(Clone, Copy)]
pub(crate) struct Handle<T>(pub(crate) *mut T);

// SAFETY: the pointer is only a value here. Code that dereferences it upholds its own invariants.
unsafe impl<T> Send for Handle<T> {}

pub(crate) struct DeviceState {
    pub(crate) profile: Profile,
    /// If `true`, posted requests are not executed.
    pub(crate) stalled: bool,
    pub(crate) faults: Faults,
    pub(crate) violations: Vec<String>,
    pub(crate) contexts: Slab<Context>,
    pub(crate) pds: Slab<Pd>,
    pub(crate) mrs: Slab<Mr>,
    pub(crate) mws: Slab<Mw>,
    pub(crate) dms: Slab<Dm>,
    pub(crate) channels: Slab<Channel>,
    pub(crate) cqs: Slab<Cq>,
    pub(crate) qps: Slab<Qp>,
    pub(crate) srqs: Slab<Srq>,
    pub(crate) ahs: Slab<Ah>,
    pub(crate) xrcds: Slab<Xrcd>,
    pub(crate) tds: Slab<Td>,
    pub(crate) parents: Slab<Parent>,
    pub(crate) flows: Slab<Flow>,
    pub(crate) groups: Vec<Group>,
    /// Queue pairs that enter the error state after the current request.
    pub(crate) to_disconnect: Vec<usize>,
    /// Memory that the device still reads, although the requests have completed.
    pub(crate) in_transit: Vec<InTransit>,
    /// Memory that the device still writes, although the requests have failed.
    pub(crate) late_writes: Vec<LateWrite>,
    /// Destroyed objects, if a test keeps them.
    pub(crate) destroyed: Option<Vec<Destroyed>>,
    pub(crate) next_uid: u64,
    pub(crate) next_key: u32,
}

pub(crate) struct Context {
    /// The pipe of the asynchronous events. It holds one byte per event.
    pub(crate) reader: i32,
    pub(crate) writer: i32,
    /// Unread events.
    pub(crate) events: VecDeque<Event>,
}

/// The object that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventSource {
    Cq(usize),
    Qp(usize),
    Srq(usize),
    /// A port, or another number.
    Number(c_int),
}

/// An event that was not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) event_type: u32,
    pub(crate) source: EventSource,
}

pub(crate) struct Pd {
    pub(crate) context: usize,
}

pub(crate) struct Td {
    pub(crate) context: usize,
}

/// A protection domain combined with a thread domain.
pub(crate) struct Parent {
    pub(crate) pd: usize,
    pub(crate) td: usize,
}

/// A flow rule: a queue pair receives the frames to this MAC address, or all frames.
pub(crate) struct Flow {
    pub(crate) qp: usize,
    pub(crate) to: Option<[u8; 6]>,
}

/// A queue pair that is attached to a multicast group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) qp: usize,
    pub(crate) gid: [u8; 16],
    pub(crate) lid: u16,
}

pub(crate) struct Srq {
    pub(crate) pd: usize,
    pub(crate) recvs: VecDeque<RecvWr>,
    pub(crate) depth: usize,
    pub(crate) max_sge: usize,
    pub(crate) limit: u32,
    /// NULL for a shared receive queue of an XRC domain, which raises no events.
    pub(crate) handle: Handle<ibv_srq>,
    /// Number of events that were read and not acknowledged.
    pub(crate) unacked_async_events: u32,
    /// XRC domain and completion queue, for a shared receive queue of XRC.
    pub(crate) xrc: Option<(usize, usize)>,
}

/// An XRC domain. All opens with the same descriptor share it.
pub(crate) struct Xrcd {
    pub(crate) context: usize,
    pub(crate) file: Option<i32>,
    pub(crate) opens: usize,
}

/// Role of an XRC queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum XrcRole {
    Send,
    /// Receives, in an XRC domain. `opens` counts the handles of the queue pair.
    Recv {
        xrcd: usize,
        opens: usize,
    },
}

pub(crate) struct Ah {
    pub(crate) pd: usize,
    /// GID of the destination.
    pub(crate) gid: [u8; 16],
}

pub(crate) struct Mr {
    pub(crate) pd: usize,
    pub(crate) key: u32,
    /// Address of the first byte as used by requests and peers.
    pub(crate) address: u64,
    /// Address of the first byte in the memory of the process.
    pub(crate) memory: u64,
    /// Device memory that the region is in.
    pub(crate) dm: Option<usize>,
    /// Address and length of the mapping of a dma-buf.
    pub(crate) mapping: Option<(u64, usize)>,
    pub(crate) length: usize,
    pub(crate) access: u32,
}

/// Memory of the device: bytes of the process that only the device's copies access.
pub(crate) struct Dm {
    pub(crate) context: usize,
    pub(crate) memory: u64,
    pub(crate) length: usize,
}

pub(crate) struct Mw {
    pub(crate) pd: usize,
    /// Type of the window (`IBV_MW_TYPE_*`).
    pub(crate) kind: u32,
    pub(crate) key: u32,
    pub(crate) bound: Option<Binding>,
}

/// Memory range that a window grants access to.
pub(crate) struct Binding {
    pub(crate) mr: usize,
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) access: u32,
    /// Queue pair whose peer may use the window, for a window of type 2.
    pub(crate) qp: Option<usize>,
}

pub(crate) struct Channel {
    pub(crate) context: usize,
    /// Write end of the pipe that holds one byte per event.
    pub(crate) writer: i32,
    pub(crate) events: VecDeque<usize>,
}

pub(crate) struct Cq {
    pub(crate) context: usize,
    pub(crate) handle: Handle<ibv_cq>,
    pub(crate) depth: usize,
    pub(crate) entries: VecDeque<Cqe>,
    pub(crate) channel: Option<usize>,
    /// `Some` if notification is armed, with `true` for solicited events only.
    pub(crate) armed: Option<bool>,
    pub(crate) unacked_events: u32,
    /// Number of asynchronous events that were read and not acknowledged.
    pub(crate) unacked_async_events: u32,
    /// Thread with an open extended poll.
    pub(crate) polling: Option<ThreadToken>,
    /// Parent domain that the queue was created in.
    pub(crate) parent: Option<usize>,
}

/// Identity of a thread that polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadToken(usize);

impl ThreadToken {
    pub(crate) fn current() -> Self {
        thread_local!(static TOKEN: u8 = const { 0 });
        Self(TOKEN.with(|here| std::ptr::from_ref(here).addr()))
    }
}

/// A completion, and the number of send queue slots that polling it frees.
#[derive(Clone, Copy)]
pub(crate) struct Cqe {
    pub(crate) wc: ibv_wc,
    pub(crate) qp: usize,
    pub(crate) uid: u64,
    pub(crate) releases: u32,
}

pub(crate) struct Qp {
    /// Unique ID. Unlike the index and the queue pair number, it is not reused.
    pub(crate) uid: u64,
    /// NULL for a receiving XRC queue pair, which can have several handles.
    pub(crate) handle: Handle<ibv_qp>,
    pub(crate) pd: usize,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    /// Shared receive queue.
    pub(crate) srq: Option<usize>,
    pub(crate) xrc_role: Option<XrcRole>,
    /// Sends and receives raw Ethernet frames.
    pub(crate) raw: bool,
    /// Parent domain that the queue pair was created in.
    pub(crate) parent: Option<usize>,
    /// Q_Key of a datagram queue pair.
    pub(crate) qkey: Option<u32>,
    pub(crate) state: ibv_qp_state,
    pub(crate) peer: Option<usize>,
    /// Operations that the peer may perform on local memory.
    pub(crate) access: u32,
    pub(crate) caps: ibv_qp_cap,
    /// Attributes of the transitions so far.
    pub(crate) attributes: ibv_qp_attr,
    /// Vendor-specific options that were set.
    pub(crate) ece_options: u32,
    /// Attributes of the alternate path, and the path migration state.
    pub(crate) migration: ibv_qp_attr,
    pub(crate) signal_all: bool,
    pub(crate) recvs: VecDeque<RecvWr>,
    /// Sends that could not be executed: the device is stalled, or the peer has no posted receive.
    /// Each has a copy of its inline data.
    pub(crate) pending: VecDeque<(SendWr, Vec<u8>)>,
    /// READs and atomic operations that execute after later requests.
    pub(crate) late_reads: VecDeque<SendWr>,
    /// Completions of executed sends that are reported later, the last one first.
    pub(crate) late_completions: Vec<Cqe>,
    /// First successful completions of a send and of a receive.
    pub(crate) first_completions: [Option<Cqe>; 2],
    /// Number of send queue slots in use.
    pub(crate) send_slots_used: u32,
    /// Number of completed unsignaled sends. The next completion frees their slots.
    pub(crate) unreported_sends: u32,
    /// Number of events that were read and not acknowledged.
    pub(crate) unacked_async_events: u32,
    pub(crate) batch: Batch,
}

/// Memory that a device writes until a queue pair is destroyed.
pub(crate) struct LateWrite {
    /// Queue pair.
    pub(crate) qp: usize,
    /// Protection domain of the memory.
    pub(crate) pd: usize,
    pub(crate) sges: Sges,
}

/// Memory that the device still reads.
pub(crate) enum InTransit {
    /// Data of an unsignaled request: an entry of its gather list, and the bytes at the post.
    Request(ibv_sge, Vec<u8>),
    /// Data of a response to a READ: the address and the length.
    Response(u64, u64),
}

impl DeviceState {
    pub(crate) fn new(profile: Profile) -> Self {
        Self {
            profile,
            stalled: false,
            faults: Faults::default(),
            violations: Vec::new(),
            contexts: Slab::default(),
            pds: Slab::default(),
            mrs: Slab::default(),
            mws: Slab::default(),
            dms: Slab::default(),
            channels: Slab::default(),
            cqs: Slab::default(),
            qps: Slab::default(),
            srqs: Slab::default(),
            ahs: Slab::default(),
            xrcds: Slab::default(),
            tds: Slab::default(),
            parents: Slab::default(),
            flows: Slab::default(),
            groups: Vec::new(),
            to_disconnect: Vec::new(),
            in_transit: Vec::new(),
            late_writes: Vec::new(),
            destroyed: None,
            next_uid: 0,
            next_key: 0,
        }
    }

    /// Records that the program violated a rule of the verbs API.
    #[cold]
    pub(crate) fn violation(&mut self, text: impl Into<String>) {
        self.violations.push(text.into());
    }

    /// Returns the error number with which destroying an object must fail.
    pub(crate) fn destroy_fault(&mut self, verb: Verb) -> Option<i32> {
        let busy = self.profile.busy.then_some(libc::EBUSY);
        self.faults.take(verb).or(busy)
    }

    /// Returns the error number with the sign that posts of this profile use.
    pub(crate) fn signed(&self, errno: i32) -> i32 {
        if self.profile.negative_errno {
            -errno
        } else {
            errno
        }
    }

    /// Returns the index of a completion channel.
    pub(crate) fn channel_index(channel: *mut ibv_comp_channel) -> Option<usize> {
        // SAFETY: the caller passes a valid channel or NULL.
        unsafe { channel.as_ref() }.and_then(|channel| usize::try_from(channel.refcnt).ok())
    }
}
