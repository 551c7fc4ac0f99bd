//! A queue pair of any service, with what owns it, and what is counted on it.

use ibverbs::{
    Frozen, Held, QueuePair, Rc, RecvBatch, SharedRegion, Sink, Uc, Ud,
    wr::{self, Destination},
};

use crate::transport::cm::Connection;
use crate::transport::xrc::XrcLine;

/// What owns a connected queue pair.
#[derive(Debug)]
pub enum Line {
    /// Reliable, connected through the control connection.
    Rc(QueuePair<Rc>),
    /// Reliable, an rdma_cm connection.
    Cm(Connection),
    /// Unreliable, connected.
    Uc(QueuePair<Uc>),
    /// Datagrams, and where they go.
    Ud(QueuePair<Ud>, Destination),
    /// Extended reliable connections, one for each direction.
    Xrc(XrcLine),
}

impl Line {
    /// Posts one receive to its own queue, of memory that many share: that takes less than a list
    /// of one.
    #[inline]
    pub(super) fn recv(&mut self, sink: Held<Sink>) -> ibverbs::Result<()> {
        match self {
            Line::Rc(qp) => qp.post_recv(wr::recv(sink)),
            Line::Cm(connection) => connection.qp_mut().post_recv(wr::recv(sink)),
            Line::Uc(qp) => qp.post_recv(wr::recv(sink)),
            Line::Ud(qp, _) => qp.post_recv(wr::recv(sink)),
            Line::Xrc(_) => return Ok(()), // It has none.
        }
        .map_err(Into::into)
    }

    /// Posts receives to its own queue.
    pub(super) fn recv_batch(
        &mut self,
        fill: impl FnOnce(&mut RecvBatch<'_>) -> ibverbs::Result<()>,
    ) -> ibverbs::Result<()> {
        match self {
            Line::Rc(qp) => qp.recv_batch(fill),
            Line::Cm(connection) => connection.qp_mut().recv_batch(fill),
            Line::Uc(qp) => qp.recv_batch(fill),
            Line::Ud(qp, _) => qp.recv_batch(fill),
            Line::Xrc(_) => Ok(()), // It has none.
        }
    }
}

/// Does the same with the queue pair of a line, whatever its service.
macro_rules! with_qp {
    ($line:expr, $qp:ident => $body:expr) => {
        match $line {
            $crate::transport::wire::line::Line::Rc($qp) => $body,
            $crate::transport::wire::line::Line::Cm(connection) => {
                let $qp = connection.qp_mut();
                $body
            }
            $crate::transport::wire::line::Line::Uc($qp) => $body,
            $crate::transport::wire::line::Line::Ud($qp, _) => $body,
            $crate::transport::wire::line::Line::Xrc(line) => {
                let $qp = &mut line.sender;
                $body
            }
        }
    };
}

pub(super) use with_qp;

/// What a lane's messages are made from, as far as its queue pair holds it.
#[derive(Debug)]
pub(super) struct Source {
    /// What all messages are sent from, where they are not told apart.
    pub(super) frozen: Option<Held<Frozen>>,
    /// What fetches bring here, and what writes that are looked for are made from.
    pub(super) shared: Option<Held<SharedRegion>>,
    /// Bytes that may go with the request itself.
    pub(super) max_inline: u32,
}

/// A line with its share of the memory and its counts.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) line: Line,
    pub(super) id: ibverbs::QueueId,
    /// What arrives says that it came by this.
    pub(super) qpn: ibverbs::Qpn,
    pub(super) source: Source,
    /// Data messages posted, and known to be complete.
    pub(super) posted: u64,
    pub(super) completed: u64,
    /// Data messages that arrived, and the number after that of the latest.
    pub(super) arrived: u64,
    pub(super) reached: u64,
}

impl Lane {
    pub(super) fn new(mut line: Line) -> Self {
        let (id, mut qpn, max_inline) =
            with_qp!(&mut line, qp => (qp.id(), qp.qp_num(), qp.caps().max_inline_data));
        if let Line::Xrc(line) = &line {
            qpn = line.arrives_at();
        }
        let source = Source {
            frozen: None,
            shared: None,
            max_inline,
        };
        Self {
            line,
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
