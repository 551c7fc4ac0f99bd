//! Requests in the representation of the device.

use rdma_sys::{ibv_sge, ibv_wr_opcode};

/// Maximum number of gather or scatter entries of a request.
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
    /// Destination of a datagram.
    pub(crate) to: Option<To>,
    /// Number of the shared receive queue of an XRC request.
    pub(crate) srqn: Option<u32>,
}

/// Destination of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To {
    pub(crate) ah: usize,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
}

/// Remote memory of a request, and the operands of an atomic operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
}

/// Payload of a send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data {
    Registered(Sges),
    /// Bytes copied when the request was posted: a range of the inline buffer of the batch or of
    /// the deferred request.
    Inline {
        start: usize,
        length: usize,
    },
    /// No payload. The request binds a memory window.
    Bind(Bind),
}

/// Memory range for a memory window. A length of 0 unbinds a window of type 1.
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
    pub(crate) fn from_list(list: &[ibv_sge]) -> Option<Self> {
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

/// Requests between `ibv_wr_start` and `ibv_wr_complete`.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) open: bool,
    pub(crate) sends: Vec<SendWr>,
    pub(crate) inline: Vec<u8>,
    /// Error number of a setter that got invalid arguments. `ibv_wr_complete` returns it.
    pub(crate) error: i32,
}
