//! A queue pair of any service, with what owns it, and what is counted on it.

use ibverbs::{
    Frozen, Held, QueuePair, Rc, RecvBatch, SharedRegion, Sink, Uc, Ud,
    wr::{self, Destination},
};

use crate::rperf::transport::cm::Connection;
use crate::rperf::transport::xrc::XrcConnection;

/// What owns a connected queue pair.
#[derive(Debug)]
pub enum AnyQp {
    /// Reliable, connected through the control connection.
    Rc(QueuePair<Rc>),
    /// Reliable, an rdma_cm connection.
    Cm(Connection),
    /// Unreliable, connected.
    Uc(QueuePair<Uc>),
    /// Datagrams, and where they go.
    Ud(QueuePair<Ud>, Destination),
    /// Extended reliable connections, one for each direction.
    Xrc(XrcConnection),
}

impl AnyQp {
    /// Posts one receive to its own queue, of memory that many share: that takes less than a list
    /// of one.
    #[inline]
    pub(super) fn recv(&mut self, sink: Held<Sink>) -> ibverbs::Result<()> {
        match self {
            AnyQp::Rc(qp) => qp.post_recv(wr::recv(sink)),
            AnyQp::Cm(connection) => connection.qp_mut().post_recv(wr::recv(sink)),
            AnyQp::Uc(qp) => qp.post_recv(wr::recv(sink)),
            AnyQp::Ud(qp, _) => qp.post_recv(wr::recv(sink)),
            AnyQp::Xrc(_) => return Ok(()), // It has none.
        }
        .map_err(Into::into)
    }

    /// Posts receives to its own queue.
    pub(super) fn recv_batch(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> ibverbs::Result<()>,
    ) -> ibverbs::Result<()> {
        match self {
            AnyQp::Rc(qp) => qp.recv_batch(fill),
            AnyQp::Cm(connection) => connection.qp_mut().recv_batch(fill),
            AnyQp::Uc(qp) => qp.recv_batch(fill),
            AnyQp::Ud(qp, _) => qp.recv_batch(fill),
            AnyQp::Xrc(_) => Ok(()), // It has none.
        }
    }
}

/// Does the same with the queue pair of a line, whatever its service.
macro_rules! with_qp {
    ($any:expr, $qp:ident => $body:expr) => {
        match $any {
            $crate::rperf::transport::wire::qp::AnyQp::Rc($qp) => $body,
            $crate::rperf::transport::wire::qp::AnyQp::Cm(connection) => {
                let $qp = connection.qp_mut();
                $body
            }
            $crate::rperf::transport::wire::qp::AnyQp::Uc($qp) => $body,
            $crate::rperf::transport::wire::qp::AnyQp::Ud($qp, _) => $body,
            $crate::rperf::transport::wire::qp::AnyQp::Xrc(connection) => {
                let $qp = &mut connection.sender;
                $body
            }
        }
    };
}

pub(super) use with_qp;

/// What a lane's messages are made from, as far as its queue pair holds it.
#[derive(Debug)]
pub(super) struct SendSource {
    /// What all messages are sent from, where they are not told apart.
    pub(super) frozen: Option<Held<Frozen>>,
    /// What fetches bring here, and what writes that are looked for are made from.
    pub(super) shared: Option<Held<SharedRegion>>,
    /// Bytes that may go with the request itself.
    pub(super) max_inline: u32,
}

/// A line with its share of the memory and its counts.
#[derive(Debug)]
pub(super) struct QpState {
    pub(super) qp: AnyQp,
    pub(super) id: ibverbs::QueueId,
    /// What arrives says that it came by this.
    pub(super) qpn: ibverbs::Qpn,
    pub(super) source: SendSource,
    /// Data messages posted, and known to be complete.
    pub(super) posted: u64,
    pub(super) completed: u64,
    /// Data messages that arrived, and the number after that of the latest.
    pub(super) arrived: u64,
    pub(super) reached: u64,
}

impl QpState {
    pub(super) fn new(mut qp: AnyQp) -> Self {
        let (id, mut qpn, max_inline) =
            with_qp!(&mut qp, inner => (inner.id(), inner.qp_num(), inner.caps().max_inline_data));
        if let AnyQp::Xrc(connection) = &qp {
            qpn = connection.arrives_at();
        }
        let source = SendSource {
            frozen: None,
            shared: None,
            max_inline,
        };
        Self {
            qp,
            id,
            qpn,
            source,
            posted: 0,
            completed: 0,
            arrived: 0,
            reached: 0,
        }
    }
}
