//! Requests, as the device keeps them.

use rdma_sys::{ibv_sge, ibv_wr_opcode};

/// Gather or scatter entries of a request at most.
pub(crate) const MAX_SGE: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvWr {
    pub(crate) wr_id: u64,
    pub(crate) sges: Sges,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) opcode: ibv_wr_opcode,
    pub(crate) flags: u32,
    pub(crate) imm_be: u32,
    pub(crate) data: Data,
    pub(crate) remote: Remote,
    /// Of a datagram.
    pub(crate) to: Option<To>,
    /// Of XRC: the number of the shared receive queue that it is for.
    pub(crate) srqn: Option<u32>,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To {
    pub(crate) ah: usize,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
}

/// The peer's memory that a request names, and the operands of an atomic.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
}

/// Where a send's bytes are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data {
    Registered(Sges),
    /// Copied when it was posted: this many bytes at this place of the batch's, or of the send's
    /// own.
    Inline {
        start: usize,
        length: usize,
    },
    /// None: a window is to be bound.
    Bind(Bind),
}

/// The memory that a window is to open. A length of 0 unbinds one of type 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bind {
    pub(crate) mw: usize,
    pub(crate) mr: Option<usize>,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) access: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sges {
    pub(crate) all: [ibv_sge; MAX_SGE],
    pub(crate) count: usize,
}

impl Sges {
    pub(crate) fn of(list: &[ibv_sge]) -> Option<Self> {
        let mut all = [ibv_sge::default(); MAX_SGE];
        all.get_mut(..list.len())?.copy_from_slice(list);
        Some(Self {
            all,
            count: list.len(),
        })
    }

    pub(crate) fn as_slice(&self) -> &[ibv_sge] {
        &self.all[..self.count]
    }

    pub(crate) fn length(&self) -> usize {
        self.as_slice().iter().map(|sge| sge.length as usize).sum()
    }
}

/// What `ibv_wr_start` began.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) open: bool,
    pub(crate) sends: Vec<SendWr>,
    pub(crate) inline: Vec<u8>,
    /// A setter was given what the queue does not take: `ibv_wr_complete` says so.
    pub(crate) error: i32,
}
