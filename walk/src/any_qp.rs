//! A queue pair of any connected transport, and posting through a queue pair, a batch or a scope.

use ibverbs::scope::Scope;
use ibverbs::wr::{self, Operation, ReadPayload, SendPayload, SendRequest};
use ibverbs::{
    Batch, ConnectedDuplexTransport, QueuePair, Rc, Rejected, RemoteMemory, SendTransport, Uc,
};
use rdmacm::Connection;

/// A queue pair of a connected transport.
pub(crate) enum AnyQp {
    Rc(QueuePair<Rc>),
    Uc(QueuePair<Uc>),
    /// Connected with rdma_cm.
    Cm(Connection),
}

/// Evaluates an expression with `$qp`, a `&mut QueuePair` of whichever transport.
macro_rules! with_qp {
    ($any:expr, $qp:ident => $value:expr) => {
        match $any {
            $crate::any_qp::AnyQp::Rc($qp) => $value,
            $crate::any_qp::AnyQp::Uc($qp) => $value,
            $crate::any_qp::AnyQp::Cm(connection) => {
                let $qp = connection.qp_mut();
                $value
            }
        }
    };
}
pub(crate) use with_qp;

impl AnyQp {
    /// Returns the queue pair if its transport has RDMA READ and atomics.
    pub(crate) fn rc(&mut self) -> Option<&mut QueuePair<Rc>> {
        match self {
            Self::Rc(qp) => Some(qp),
            Self::Cm(connection) => Some(connection.qp_mut()),
            Self::Uc(_) => None,
        }
    }
}

/// Accepts requests of the send queue.
pub(crate) trait Poster<T: SendTransport> {
    fn send<O: Operation<T, P>, P: SendPayload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> Result<(), Rejected<P>>;

    fn fetch<O: Operation<T, P>, P: ReadPayload>(
        &mut self,
        request: SendRequest<O, P>,
    ) -> Result<(), Rejected<P>>;
}

macro_rules! posters {
    ($($poster:ty: $method:ident),*) => {$(
        impl<T: SendTransport> Poster<T> for $poster {
            fn send<O: Operation<T, P>, P: SendPayload>(
                &mut self,
                request: SendRequest<O, P>,
            ) -> Result<(), Rejected<P>> {
                self.$method(request)
            }

            fn fetch<O: Operation<T, P>, P: ReadPayload>(
                &mut self,
                request: SendRequest<O, P>,
            ) -> Result<(), Rejected<P>> {
                self.$method(request)
            }
        }
    )*};
}

posters!(QueuePair<T>: post_send, Batch<'_, T>: send, Scope<'_, '_, T>: post_send);

/// An operation that transfers bytes to the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outbound {
    Send,
    SendImm(u32),
    SendInv(u32),
    Write(RemoteMemory),
    WriteImm(RemoteMemory, u32),
}

/// An operation that fetches bytes from the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fetch {
    Read(RemoteMemory),
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
    fn apply<O, P>(self, request: SendRequest<O, P>) -> SendRequest<O, P> {
        let request = request.tag(self.tag);
        let request = if self.signaled {
            request
        } else {
            request.unsignaled()
        };
        if self.fenced {
            request.fenced()
        } else {
            request
        }
    }
}

pub(crate) fn post_outbound<T: ConnectedDuplexTransport, P: SendPayload>(
    poster: &mut impl Poster<T>,
    operation: Outbound,
    payload: P,
    flags: Flags,
) -> Result<(), Rejected<P>> {
    match operation {
        Outbound::Send => poster.send(flags.apply(wr::send(payload))),
        Outbound::SendImm(imm) => poster.send(flags.apply(wr::send_with_imm(payload, imm))),
        Outbound::SendInv(rkey) => poster.send(flags.apply(wr::send_with_inv(payload, rkey))),
        Outbound::Write(remote) => poster.send(flags.apply(wr::write(payload, remote))),
        Outbound::WriteImm(remote, imm) => {
            poster.send(flags.apply(wr::write_with_imm(payload, remote, imm)))
        }
    }
}

pub(crate) fn post_fetch<P: ReadPayload>(
    poster: &mut impl Poster<Rc>,
    operation: Fetch,
    payload: P,
    flags: Flags,
) -> Result<(), Rejected<P>> {
    match operation {
        Fetch::Read(remote) => poster.fetch(flags.apply(wr::read(payload, remote))),
        Fetch::Add(remote, add) => poster.fetch(flags.apply(wr::fetch_add(payload, remote, add))),
        Fetch::Swap(remote, compare, swap) => {
            poster.fetch(flags.apply(wr::compare_swap(payload, remote, compare, swap)))
        }
    }
}
