//! The device as plain data: its objects by number, behind one lock.

use std::collections::VecDeque;

use rdma_sys::{
    ibv_comp_channel, ibv_cq, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_state, ibv_srq, ibv_wc,
};

use crate::event_kind::Event;
use crate::fault::Faults;
use crate::profile::Profile;
use crate::request::{Batch, RecvWr, SendWr};
use crate::slab::Slab;
use crate::thread::Thread;

/// Bytes inline at most.
pub(crate) const MAX_INLINE: u32 = 512;
/// Requests of a queue at most.
pub(crate) const MAX_WR: u32 = 32_768;
/// Entries of a completion queue at most.
pub(crate) const MAX_CQE: u32 = 65_536;

/// A C handle that the world hands out again; never followed here.
#[derive(Clone, Copy)]
pub(crate) struct Handle<T>(pub(crate) *mut T);

// SAFETY: only the number is kept; who follows it answers for that.
unsafe impl<T> Send for Handle<T> {}

pub(crate) struct World {
    pub(crate) profile: Profile,
    /// Nothing that is posted is executed.
    pub(crate) stalled: bool,
    pub(crate) faults: Faults,
    pub(crate) violations: Vec<String>,
    pub(crate) contexts: Slab<Context>,
    pub(crate) pds: Slab<Pd>,
    pub(crate) mrs: Slab<Mr>,
    pub(crate) mws: Slab<Mw>,
    pub(crate) channels: Slab<Channel>,
    pub(crate) cqs: Slab<Cq>,
    pub(crate) qps: Slab<Qp>,
    pub(crate) srqs: Slab<Srq>,
    pub(crate) ahs: Slab<Ah>,
    pub(crate) xrcds: Slab<Xrcd>,
    pub(crate) tds: Slab<Td>,
    pub(crate) parents: Slab<Parent>,
    pub(crate) flows: Slab<Flow>,
    /// Connections to be ended once the request that lost them is done.
    pub(crate) lost: Vec<usize>,
    pub(crate) next_uid: u64,
    pub(crate) next_key: u32,
}

pub(crate) struct Context {
    /// The pipe of its events: one byte goes in for each.
    pub(crate) reader: i32,
    pub(crate) writer: i32,
    /// Events that nobody has taken.
    pub(crate) events: VecDeque<Event>,
}

pub(crate) struct Pd {
    pub(crate) context: usize,
}

pub(crate) struct Td {
    pub(crate) context: usize,
}

/// A protection domain joined with a thread domain.
pub(crate) struct Parent {
    pub(crate) pd: usize,
    pub(crate) td: usize,
}

/// A rule: a queue pair receives the frames to this hardware address, or all.
pub(crate) struct Flow {
    pub(crate) qp: usize,
    pub(crate) to: Option<[u8; 6]>,
}

pub(crate) struct Srq {
    pub(crate) pd: usize,
    pub(crate) recvs: VecDeque<RecvWr>,
    pub(crate) depth: usize,
    pub(crate) max_sge: usize,
    pub(crate) limit: u32,
    /// Null for those of XRC, whose events nobody needs so far.
    pub(crate) handle: Handle<ibv_srq>,
    /// Events taken and not yet acknowledged.
    pub(crate) events_taken: u32,
    /// Of an XRC domain: which, and the completion queue of its receives.
    pub(crate) xrc: Option<(usize, usize)>,
}

/// An XRC domain; those that open it by the same descriptor share it.
pub(crate) struct Xrcd {
    pub(crate) context: usize,
    pub(crate) file: Option<i32>,
    pub(crate) opens: usize,
}

/// Which half of an extended reliable connection a queue pair is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Send,
    /// The receiving one, of this XRC domain, opened so many times.
    Recv {
        xrcd: usize,
        opens: usize,
    },
}

pub(crate) struct Ah {
    pub(crate) pd: usize,
}

pub(crate) struct Mr {
    pub(crate) pd: usize,
    pub(crate) key: u32,
    pub(crate) address: u64,
    pub(crate) length: usize,
    pub(crate) access: u32,
}

pub(crate) struct Mw {
    pub(crate) pd: usize,
    /// Its type.
    pub(crate) kind: u32,
    pub(crate) key: u32,
    pub(crate) bound: Option<Binding>,
}

/// What a window opens.
pub(crate) struct Binding {
    pub(crate) mr: usize,
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) access: u32,
    /// The one queue pair whose peer may use it, for type 2.
    pub(crate) qp: Option<usize>,
}

pub(crate) struct Channel {
    pub(crate) context: usize,
    /// One byte goes in for each event.
    pub(crate) writer: i32,
    pub(crate) events: VecDeque<usize>,
}

pub(crate) struct Cq {
    pub(crate) context: usize,
    pub(crate) handle: Handle<ibv_cq>,
    pub(crate) depth: usize,
    pub(crate) entries: VecDeque<Cqe>,
    pub(crate) channel: Option<usize>,
    /// Armed: for solicited events only, if true.
    pub(crate) armed: Option<bool>,
    pub(crate) unacknowledged: u32,
    /// Asynchronous events taken and not yet acknowledged.
    pub(crate) events_taken: u32,
    /// A poll of the extended verbs is begun, by this thread.
    pub(crate) polling: Option<Thread>,
}

/// A completion, and how many places of the send queue are free when it is polled.
#[derive(Clone, Copy)]
pub(crate) struct Cqe {
    pub(crate) wc: ibv_wc,
    pub(crate) qp: usize,
    pub(crate) uid: u64,
    pub(crate) releases: u32,
}

pub(crate) struct Qp {
    /// Never reused, unlike the number.
    pub(crate) uid: u64,
    /// Null for the receiving halves of XRC, which have several.
    pub(crate) handle: Handle<ibv_qp>,
    pub(crate) pd: usize,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    /// Where its receives are, if they are shared.
    pub(crate) srq: Option<usize>,
    pub(crate) half: Option<Half>,
    /// Sends and receives whole frames.
    pub(crate) raw: bool,
    /// The parent domain that it was made in.
    pub(crate) parent: Option<usize>,
    /// Of a datagram queue pair: the key that senders must know.
    pub(crate) qkey: Option<u32>,
    pub(crate) state: ibv_qp_state,
    pub(crate) peer: Option<usize>,
    /// What the peer may do to this side's memory.
    pub(crate) access: u32,
    pub(crate) caps: ibv_qp_cap,
    /// The alternate path that was set, and where the queue pair stands between its two.
    pub(crate) migration: ibv_qp_attr,
    pub(crate) signal_all: bool,
    pub(crate) recvs: VecDeque<RecvWr>,
    /// Sends that wait: the device is stalled, or the receiver not ready.
    pub(crate) waiting: VecDeque<(SendWr, Vec<u8>)>,
    /// Places of the send queue taken.
    pub(crate) sends_used: u32,
    /// Places of unsignalled sends that are done, freed by the next completion.
    pub(crate) unreported: u32,
    /// Events taken and not yet acknowledged.
    pub(crate) events_taken: u32,
    pub(crate) batch: Batch,
}

impl World {
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
            channels: Slab::default(),
            cqs: Slab::default(),
            qps: Slab::default(),
            srqs: Slab::default(),
            ahs: Slab::default(),
            xrcds: Slab::default(),
            tds: Slab::default(),
            parents: Slab::default(),
            flows: Slab::default(),
            lost: Vec::new(),
            next_uid: 0,
            next_key: 0,
        }
    }

    /// Records that the user of the library broke a rule of verbs.
    #[cold]
    pub(crate) fn violation(&mut self, text: impl Into<String>) {
        self.violations.push(text.into());
    }

    /// The error number as this provider's posts return it.
    pub(crate) fn signed(&self, errno: i32) -> i32 {
        if self.profile.negative_errno {
            -errno
        } else {
            errno
        }
    }

    /// A C channel's number.
    pub(crate) fn channel_number(channel: *mut ibv_comp_channel) -> Option<usize> {
        // SAFETY: a channel that a caller names is alive, or NULL.
        unsafe { channel.as_ref() }.and_then(|channel| usize::try_from(channel.refcnt).ok())
    }
}
