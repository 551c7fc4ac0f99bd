//! A queue pair of any transport, and posting through a queue pair, a batch or a scope.

use ibverbs::efa::Srd;
use ibverbs::scope::Scope;
use ibverbs::wr::{self, Destination, ReadPayload, SendPayload, SendRequest};
use ibverbs::{
    Batch, DuplexTransport, QueuePair, Rc, Reclaimed, Rejected, RemoteMemory, SendTransport, Uc, Ud,
};
use rdmacm::Connection;

/// A queue pair of any transport.
pub(crate) enum AnyQp {
    Rc(QueuePair<Rc>),
    Uc(QueuePair<Uc>),
    /// Connected with rdma_cm.
    Cm(Connection),
    Ud(QueuePair<Ud>),
    Srd(QueuePair<Srd>),
}

impl AnyQp {
    /// Destroys the queue pair and returns the buffers of its requests in flight.
    pub(crate) fn destroy(self) -> ibverbs::Result<Reclaimed> {
        match self {
            Self::Rc(qp) => qp.destroy(),
            Self::Uc(qp) => qp.destroy(),
            Self::Cm(connection) => connection.close(),
            Self::Ud(qp) => qp.destroy(),
            Self::Srd(qp) => qp.destroy(),
        }
    }
}

/// Evaluates an expression with `$qp`, a `&mut QueuePair` of whichever transport.
macro_rules! with_qp {
    ($any:expr, $qp:ident => $value:expr) => {
        match $any {
            $crate::transport::AnyQp::Rc($qp) => $value,
            $crate::transport::AnyQp::Uc($qp) => $value,
            $crate::transport::AnyQp::Cm(connection) => {
                let $qp = connection.qp_mut();
                $value
            }
            $crate::transport::AnyQp::Ud($qp) => $value,
            $crate::transport::AnyQp::Srd($qp) => $value,
        }
    };
}
pub(crate) use with_qp;

/// Like `with_qp`, for a queue pair that has one peer.
macro_rules! with_connected {
    ($any:expr, $qp:ident => $value:expr) => {
        match $any {
            $crate::transport::AnyQp::Rc($qp) => $value,
            $crate::transport::AnyQp::Uc($qp) => $value,
            $crate::transport::AnyQp::Cm(connection) => {
                let $qp = connection.qp_mut();
                $value
            }
            $crate::transport::AnyQp::Ud(_) | $crate::transport::AnyQp::Srd(_) => {
                unreachable!("a queue pair of a link")
            }
        }
    };
}
pub(crate) use with_connected;

/// Like `with_qp`, for a queue pair whose requests name their destination.
macro_rules! with_datagram {
    ($any:expr, $qp:ident => $value:expr) => {
        match $any {
            $crate::transport::AnyQp::Ud($qp) => $value,
            $crate::transport::AnyQp::Srd($qp) => $value,
            _ => unreachable!("a queue pair that exchanges datagrams"),
        }
    };
}
pub(crate) use with_datagram;

/// Accepts requests of the send queue.
pub(crate) trait Poster<T: SendTransport> {
    fn send<O: wr::Operation<T, P>, P: SendPayload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> Result<(), Rejected<P::Returned>>;

    fn fetch<O: wr::Operation<T, P>, P: ReadPayload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> Result<(), Rejected<P::Returned>>;
}

macro_rules! posters {
    ($($poster:ty: $method:ident),*) => {$(
        impl<T: SendTransport> Poster<T> for $poster {
            fn send<O: wr::Operation<T, P>, P: SendPayload>(
                &mut self,
                request: SendRequest<O, P>,
            ) -> Result<(), Rejected<P::Returned>> {
                self.$method(request)
            }

            fn fetch<O: wr::Operation<T, P>, P: ReadPayload>(
                &mut self,
                request: SendRequest<O, P>,
            ) -> Result<(), Rejected<P::Returned>> {
                self.$method(request)
            }
        }
    )*};
}

posters!(QueuePair<T>: post_send, Batch<'_, T>: send, Scope<'_, '_, T>: post_send);

/// An operation that transfers bytes to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Send,
    SendImm(u32),
    SendInv(u32),
    Write(RemoteMemory),
    WriteImm(RemoteMemory, u32),
}

/// An operation, and the peer if the queue pair has several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outbound {
    pub(crate) operation: Operation,
    pub(crate) to: Option<Destination>,
}

impl Outbound {
    /// Returns an operation on the only peer.
    pub(crate) fn to_peer(operation: Operation) -> Self {
        Self {
            operation,
            to: None,
        }
    }

    fn destination(self) -> Destination {
        self.to.expect("a datagram has a destination")
    }
}

/// An operation that fetches bytes from a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fetch {
    Read(RemoteMemory),
    /// A READ by a queue pair that has several peers.
    ReadFrom(RemoteMemory, Destination),
    Add(RemoteMemory, u64),
    Swap(RemoteMemory, u64, u64),
}

/// Tag and flags of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flags {
    pub(crate) tag: u64,
    pub(crate) signaled: bool,
    pub(crate) fenced: bool,
}

impl Flags {
    /// Returns the flags of an ordinary request.
    pub(crate) fn plain(tag: u64) -> Self {
        Self {
            tag,
            signaled: true,
            fenced: false,
        }
    }

    fn apply<O, P>(self, request: SendRequest<O, P>) -> SendRequest<O, P> {
        let request = request.tag(self.tag).signaled(self.signaled);
        request.fenced(self.fenced)
    }
}

/// A transport whose queue pairs the walk uses.
pub(crate) trait Transport: DuplexTransport + Sized {
    /// Posts an operation of this transport.
    fn outbound<P: SendPayload>(
        poster: &mut impl Poster<Self>,
        outbound: Outbound,
        payload: P,
        flags: Flags,
    ) -> Result<(), Rejected<P::Returned>>;
}

macro_rules! connected_transports {
    ($($transport:ty),*) => {$(
        impl Transport for $transport {
            fn outbound<P: SendPayload>(
                poster: &mut impl Poster<Self>,
                outbound: Outbound,
                payload: P,
                flags: Flags,
            ) -> Result<(), Rejected<P::Returned>> {
                match outbound.operation {
                    Operation::Send => poster.send(flags.apply(wr::send(payload))),
                    Operation::SendImm(imm) => {
                        poster.send(flags.apply(wr::send_with_imm(payload, imm)))
                    }
                    Operation::SendInv(rkey) => {
                        poster.send(flags.apply(wr::send_with_inv(payload, rkey)))
                    }
                    Operation::Write(remote) => {
                        poster.send(flags.apply(wr::write(payload, remote)))
                    }
                    Operation::WriteImm(remote, imm) => {
                        poster.send(flags.apply(wr::write_with_imm(payload, remote, imm)))
                    }
                }
            }
        }
    )*};
}

connected_transports!(Rc, Uc);

impl Transport for Ud {
    fn outbound<P: SendPayload>(
        poster: &mut impl Poster<Self>,
        outbound: Outbound,
        payload: P,
        flags: Flags,
    ) -> Result<(), Rejected<P::Returned>> {
        let to = outbound.destination();
        match outbound.operation {
            Operation::Send => poster.send(flags.apply(wr::send(payload).to(to))),
            Operation::SendImm(imm) => {
                poster.send(flags.apply(wr::send_with_imm(payload, imm).to(to)))
            }
            _ => unreachable!("UD sends only"),
        }
    }
}

impl Transport for Srd {
    fn outbound<P: SendPayload>(
        poster: &mut impl Poster<Self>,
        outbound: Outbound,
        payload: P,
        flags: Flags,
    ) -> Result<(), Rejected<P::Returned>> {
        let to = outbound.destination();
        match outbound.operation {
            Operation::Send => poster.send(flags.apply(wr::send(payload).to(to))),
            Operation::SendImm(imm) => {
                poster.send(flags.apply(wr::send_with_imm(payload, imm).to(to)))
            }
            Operation::Write(remote) => poster.send(flags.apply(wr::write(payload, remote).to(to))),
            Operation::WriteImm(remote, imm) => {
                poster.send(flags.apply(wr::write_with_imm(payload, remote, imm).to(to)))
            }
            Operation::SendInv(_) => unreachable!("SRD has no memory windows"),
        }
    }
}

/// Posts an operation that fetches bytes. Only RC and SRD have such operations.
pub(crate) fn fetch<P: ReadPayload>(
    qp: &mut AnyQp,
    operation: Fetch,
    payload: P,
    flags: Flags,
) -> Result<(), Rejected<P::Returned>> {
    let qp: &mut QueuePair<Rc> = match qp {
        AnyQp::Rc(qp) => qp,
        AnyQp::Cm(connection) => connection.qp_mut(),
        AnyQp::Srd(qp) => {
            let Fetch::ReadFrom(remote, from) = operation else {
                unreachable!("SRD reads from a destination");
            };
            return qp.fetch(flags.apply(wr::read(payload, remote).to(from)));
        }
        AnyQp::Uc(_) | AnyQp::Ud(_) => unreachable!("excluded by the caller"),
    };
    match operation {
        Fetch::Read(remote) => qp.fetch(flags.apply(wr::read(payload, remote))),
        Fetch::Add(remote, add) => qp.fetch(flags.apply(wr::fetch_add(payload, remote, add))),
        Fetch::Swap(remote, compare, swap) => {
            qp.fetch(flags.apply(wr::compare_swap(payload, remote, compare, swap)))
        }
        Fetch::ReadFrom(..) => unreachable!("RC has one peer"),
    }
}
