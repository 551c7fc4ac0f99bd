//! Traits that a type must or must not implement. They are checked when this program is compiled.
//!
//! A compile-fail test would need an expected message, which lists every type that implements the
//! trait. Rules of borrowing and ownership are in `testing/compile-fail`.

use std::marker::PhantomData;

use ibverbs::wr::{self, Empty, Inline, ReadPayload, RecvPayload, SendPayload, SendRequest};
use ibverbs::{
    AddressHandle, Buf, Completion, CompletionChannel, CompletionQueue, Context, DuplexTransport,
    Frozen, Held, HeldAddress, Hold, Pool, ProtectionDomain, QueuePair, RawPacket, Rc, RcPath,
    RemoteMemory, SendTransport, SharedReceiveQueue, SharedRegion, Sink, Uc, Ud,
    cq_ex::{CompletionQueueEx, CqFields},
    mw::{Binding, Type2, Window},
    pd::{ParentDomain, ThreadDomain},
    qp::QpChange,
    wr::{Destination, Operation},
    xrc::{SrqNum, Xrc, XrcDomain, XrcRecvQueuePair, XrcSend},
};
use static_assertions::{assert_impl_all, assert_not_impl_any};

// A buffer and a completion have one owner.
assert_not_impl_any!(Buf: Clone);
assert_not_impl_any!(Completion<'static>: Clone);
assert_not_impl_any!(QueuePair<Rc>: Clone);

// A transport without a receive queue cannot be used for ordinary queue pairs.
assert_not_impl_any!(XrcSend: DuplexTransport);

// A buffer is a payload of every request. It moves into the request and is returned.
assert_impl_all!(Buf: SendPayload, RecvPayload, ReadPayload, Send, Sync);

// Memory that several requests use is posted as a token of the queue pair that holds it.
assert_not_impl_any!(Frozen: SendPayload, RecvPayload, ReadPayload);
assert_not_impl_any!(Sink: SendPayload, RecvPayload, ReadPayload);
assert_not_impl_any!(SharedRegion: SendPayload, RecvPayload, ReadPayload);
assert_not_impl_any!(&'static Buf: SendPayload, RecvPayload, ReadPayload);
assert_impl_all!(Held<Frozen>: Copy);

// Memory that is read-only for the program is read-only for the device. A sink, which the program
// cannot read, cannot be sent.
assert_impl_all!(Held<Frozen>: SendPayload);
assert_not_impl_any!(Held<Frozen>: RecvPayload, ReadPayload);
assert_impl_all!(Held<Sink>: RecvPayload, ReadPayload);
assert_not_impl_any!(Held<Sink>: SendPayload);
assert_impl_all!(Held<SharedRegion>: SendPayload, RecvPayload, ReadPayload);

// Inline bytes are copied during the post, so nothing can be received into them.
assert_impl_all!(Inline<'static>: SendPayload);
assert_not_impl_any!(Inline<'static>: RecvPayload, ReadPayload);
assert_not_impl_any!(&'static [u8]: SendPayload, RecvPayload, ReadPayload);
assert_not_impl_any!(&'static mut [u8]: SendPayload, RecvPayload, ReadPayload);
assert_not_impl_any!(Vec<u8>: SendPayload, RecvPayload, ReadPayload);
// A READ or an atomic operation needs memory for its result.
assert_not_impl_any!(Empty: ReadPayload);

// A queue pair can hold memory that requests share, but not memory with one owner.
assert_impl_all!(Frozen: Hold, Clone);
assert_impl_all!(Sink: Hold, Clone);
assert_not_impl_any!(Buf: Hold);
assert_not_impl_any!(Pool: Hold);

// A sink and a shared region give no references to their bytes.
assert_not_impl_any!(Sink: std::ops::Deref, AsRef<[u8]>);
assert_not_impl_any!(SharedRegion: std::ops::Deref, AsRef<[u8]>);
assert_not_impl_any!(Frozen: std::ops::DerefMut, AsMut<[u8]>);

// Types that can be moved between threads (`Send`) or shared by them (`Sync`).
assert_impl_all!(Context: Send, Sync);
assert_impl_all!(ProtectionDomain: Send, Sync);
assert_impl_all!(Pool: Send, Sync);
assert_impl_all!(SharedRegion: Send, Sync);
assert_impl_all!(QueuePair<Rc>: Send, Sync); // posting needs `&mut`
assert_impl_all!(QueuePair<Uc>: Send, Sync);
assert_impl_all!(QueuePair<Ud>: Send, Sync);
assert_impl_all!(CompletionQueueEx<CqFields>: Send, Sync);
assert_impl_all!(CompletionChannel: Send, Sync, Clone);
assert_impl_all!(SharedReceiveQueue: Send, Sync);
assert_impl_all!(SharedReceiveQueue<Xrc>: Send, Sync);
assert_impl_all!(ThreadDomain: Send, Sync);
assert_not_impl_any!(ThreadDomain: Clone);
assert_impl_all!(ParentDomain: Send, Sync);
assert_not_impl_any!(ParentDomain: Clone);
assert_impl_all!(XrcDomain: Send, Sync, Clone);
assert_impl_all!(XrcRecvQueuePair: Send, Sync);
assert_not_impl_any!(XrcRecvQueuePair: Clone);
assert_impl_all!(QueuePair<XrcSend>: Send, Sync);
assert_impl_all!(QueuePair<RawPacket>: Send, Sync);
assert_impl_all!(AddressHandle: Send, Sync, Clone);
assert_impl_all!(Window<Type2>: Send);
assert_impl_all!(Frozen: Send, Sync);
assert_impl_all!(Sink: Send, Sync);
assert_impl_all!(Held<Frozen>: Send, Sync);
assert_impl_all!(HeldAddress: Send, Sync);
assert_impl_all!(wr::SendRequest<wr::Send, Buf>: Send, Sync);
assert_impl_all!(wr::SendRequest<wr::Bind, Binding>: Send);
assert_impl_all!(wr::RecvRequest<Buf>: Send, Sync);
assert_impl_all!(RcPath: Send, Sync, Copy);
assert_impl_all!(QpChange: Send, Sync, Copy);
assert_impl_all!(CompletionQueue: Send, Sync); // polling needs `&mut`

/// Tests if transport `T` has the operation `O`. Method resolution finds the inherent `has` if it
/// does, and otherwise `has` of the trait [`Missing`].
struct Probe<T, O>(PhantomData<(T, O)>);

impl<T: SendTransport, O: Operation<T, Buf>> Probe<T, O> {
    #[allow(clippy::unused_self, reason = "found by method resolution")]
    fn has(&self) -> bool {
        true
    }
}

trait Missing {
    fn has(&self) -> bool {
        false
    }
}

impl<T, O> Missing for &Probe<T, O> {}

/// Returns a probe for the operation of the requests that a function creates.
fn plain<T, O>(_: fn(Buf) -> SendRequest<O, Buf>) -> Probe<T, O> {
    Probe(PhantomData)
}

fn remote<T, O>(_: fn(Buf, RemoteMemory) -> SendRequest<O, Buf>) -> Probe<T, O> {
    Probe(PhantomData)
}

fn directed<T, O>(_: fn(Buf, Destination) -> SendRequest<O, Buf>) -> Probe<T, O> {
    Probe(PhantomData)
}

/// Returns `true` for each operation that the transport has: send, send with immediate data, send
/// to an address, the same with immediate data, write, write with immediate data, read, compare and
/// swap, fetch and add.
macro_rules! operations {
    ($transport:ty) => {
        [
            (&plain::<$transport, _>(wr::send)).has(),
            (&plain::<$transport, _>(|buf| wr::send_with_imm(buf, 0))).has(),
            (&directed::<$transport, _>(|buf, to| wr::send(buf).to(to))).has(),
            (&directed::<$transport, _>(|buf, to| wr::send_with_imm(buf, 0).to(to))).has(),
            (&remote::<$transport, _>(wr::write)).has(),
            (&remote::<$transport, _>(|buf, at| wr::write_with_imm(buf, at, 0))).has(),
            (&remote::<$transport, _>(wr::read)).has(),
            (&remote::<$transport, _>(|buf, at| wr::compare_swap(buf, at, 0, 0))).has(),
            (&remote::<$transport, _>(|buf, at| wr::fetch_add(buf, at, 0))).has(),
        ]
    };
}

/// Does the same for requests that name a shared receive queue.
macro_rules! operations_for_srq {
    ($transport:ty) => {
        [
            (&plain::<$transport, _>(|buf| wr::send(buf).for_srq(SrqNum(0)))).has(),
            (&plain::<$transport, _>(|buf| wr::send_with_imm(buf, 0).for_srq(SrqNum(0)))).has(),
            (&directed::<$transport, _>(|buf, to| wr::send(buf).to(to).for_srq(SrqNum(0)))).has(),
            (&directed::<$transport, _>(|buf, to| {
                wr::send_with_imm(buf, 0).to(to).for_srq(SrqNum(0))
            }))
                .has(),
            (&remote::<$transport, _>(|buf, at| wr::write(buf, at).for_srq(SrqNum(0)))).has(),
            (&remote::<$transport, _>(|buf, at| wr::write_with_imm(buf, at, 0).for_srq(SrqNum(0))))
                .has(),
            (&remote::<$transport, _>(|buf, at| wr::read(buf, at).for_srq(SrqNum(0)))).has(),
            (&remote::<$transport, _>(|buf, at| {
                wr::compare_swap(buf, at, 0, 0).for_srq(SrqNum(0))
            }))
                .has(),
            (&remote::<$transport, _>(|buf, at| wr::fetch_add(buf, at, 0).for_srq(SrqNum(0))))
                .has(),
        ]
    };
}

#[test]
#[allow(
    clippy::needless_borrow,
    reason = "the trait's method is found through the borrow"
)]
fn a_transport_has_its_operations_and_no_others() {
    const NO: bool = false;
    assert_eq!(
        operations!(Rc),
        [true, true, NO, NO, true, true, true, true, true]
    );
    assert_eq!(
        operations!(Uc),
        [true, true, NO, NO, true, true, NO, NO, NO]
    );
    assert_eq!(operations!(Ud), [NO, NO, true, true, NO, NO, NO, NO, NO]);
    assert_eq!(
        operations!(RawPacket),
        [true, NO, NO, NO, NO, NO, NO, NO, NO]
    );
    // XRC requests name a shared receive queue. Requests of other transports cannot.
    assert_eq!(operations!(XrcSend), [NO; 9]);
    assert_eq!(operations_for_srq!(XrcSend), operations!(Rc));
    assert_eq!(
        [
            operations_for_srq!(Rc),
            operations_for_srq!(Uc),
            operations_for_srq!(Ud)
        ],
        [[NO; 9]; 3]
    );
}

/// Returns the cells of the guide's table of operations below this transport.
fn column(transport: &str) -> Vec<&'static str> {
    let guide = include_str!("../src/transports.md");
    let table = guide.split("# Operations").nth(1).expect("a table");
    let mut rows = table.lines().filter(|line| line.starts_with('|'));
    let cells = |row: &'static str| row.trim_matches('|').split('|').map(str::trim);
    let header = rows.next().expect("a header");
    let is_it = |cell: &str| cell.trim_matches(['[', ']', '`']) == transport;
    let index = cells(header).position(is_it).expect("a column");
    let rows = rows.skip(1).take(7);
    rows.map(|row| cells(row).nth(index).expect("a cell"))
        .collect()
}

#[test]
#[allow(
    clippy::needless_borrow,
    reason = "the trait's method is found through the borrow"
)]
fn the_guide_has_the_operations_of_the_types() {
    for (transport, operations, text) in [
        ("Rc", operations!(Rc), "yes"),
        ("Uc", operations!(Uc), "yes"),
        ("Ud", operations!(Ud), "yes"),
        ("RawPacket", operations!(RawPacket), "yes"),
        ("XrcSend", operations_for_srq!(XrcSend), "for SRQ"),
    ] {
        let cell = |is_there| if is_there { text } else { "" };
        // Of two kinds of sends, each transport has one.
        let [send, imm, send_to, imm_to, others @ ..] = operations;
        let of_send = |is_plain, names_it| if names_it { "to" } else { cell(is_plain) };
        let mut expected = vec![of_send(send, send_to), of_send(imm, imm_to)];
        expected.extend(others.map(cell));
        assert_eq!(column(transport), expected, "{transport}");
    }
}

/// Nothing of a thread group leaves its thread.
mod group {
    use ibverbs::group::{GroupCompletionQueue, Grouped, ThreadGroup};
    use ibverbs::wr::{FetchAdd, Operation, RdmaRead, Send, To};
    use ibverbs::{Batch, Buf, CompletionQueue, QueuePair, Rc, Uc, Ud};
    use static_assertions::{assert_impl_all, assert_not_impl_any};

    assert_not_impl_any!(ThreadGroup: core::marker::Send, Sync);
    assert_not_impl_any!(GroupCompletionQueue: core::marker::Send, Sync);
    assert_not_impl_any!(GroupCompletionQueue: AsRef<CompletionQueue>, core::ops::Deref);
    assert_not_impl_any!(QueuePair<Grouped<Rc>>: core::marker::Send, Sync);
    assert_not_impl_any!(Batch<'static, Grouped<Rc>>: core::marker::Send, Sync);
    assert_impl_all!(QueuePair<Rc>: core::marker::Send, Sync);
    assert_impl_all!(RdmaRead: Operation<Grouped<Rc>, Buf>);
    assert_impl_all!(FetchAdd: Operation<Grouped<Rc>, Buf>);
    assert_impl_all!(Send: Operation<Grouped<Uc>, Buf>);
    assert_impl_all!(To<Send>: Operation<Grouped<Ud>, Buf>);
    assert_not_impl_any!(RdmaRead: Operation<Grouped<Uc>, Buf>, Operation<Grouped<Ud>, Buf>);
    assert_not_impl_any!(To<Send>: Operation<Grouped<Rc>, Buf>);
}

/// Operations of scalable reliable datagrams: each has a destination, and none is an atomic.
#[cfg(feature = "efa")]
mod efa {
    use ibverbs::efa::Srd;
    use ibverbs::wr::{FetchAdd, Operation, RdmaRead, RdmaWrite, Send, To};
    use ibverbs::{Buf, ConnectedTransport, Frozen, Held, Rc, Ud};
    use static_assertions::{assert_impl_all, assert_not_impl_any};

    assert_impl_all!(To<Send>: Operation<Srd, Buf>, Operation<Ud, Buf>);
    assert_impl_all!(To<RdmaRead>: Operation<Srd, Buf>);
    assert_impl_all!(To<RdmaWrite>: Operation<Srd, Held<Frozen>>);
    assert_not_impl_any!(To<RdmaRead>: Operation<Ud, Buf>, Operation<Srd, Held<Frozen>>);
    assert_not_impl_any!(To<FetchAdd>: Operation<Srd, Buf>);
    assert_not_impl_any!(To<Send>: Operation<Rc, Buf>);
    assert_not_impl_any!(Send: Operation<Srd, Buf>);
    assert_not_impl_any!(Srd: ConnectedTransport);
}

/// Operations of the dynamically connected transport: each has a destination with a key.
#[cfg(feature = "mlx5")]
mod dc {
    use ibverbs::dc::{Dc, DcDestination, DcStreams, DcTarget, StreamDestination};
    use ibverbs::mw::Binding;
    use ibverbs::wr::{Bind, Destination, FetchAdd, Operation, RdmaRead, Send, To};
    use ibverbs::{Buf, ConnectedTransport, DuplexTransport, Rc, Ud};
    use static_assertions::{assert_impl_all, assert_not_impl_any};

    assert_impl_all!(To<Send, DcDestination>: Operation<Dc, Buf>);
    assert_impl_all!(To<RdmaRead, DcDestination>: Operation<Dc, Buf>);
    assert_impl_all!(To<FetchAdd, DcDestination>: Operation<Dc, Buf>);
    assert_impl_all!(To<FetchAdd, StreamDestination>: Operation<DcStreams, Buf>);
    // A stream is named on queue pairs with streams, and only there.
    assert_not_impl_any!(To<Send, DcDestination>: Operation<DcStreams, Buf>);
    assert_not_impl_any!(To<Send, StreamDestination>: Operation<Dc, Buf>);
    assert_not_impl_any!(To<Send, Destination>: Operation<Dc, Buf>);
    assert_not_impl_any!(To<Send, DcDestination>: Operation<Ud, Buf>, Operation<Rc, Buf>);
    assert_not_impl_any!(Send: Operation<Dc, Buf>);
    assert_not_impl_any!(Bind: Operation<Dc, Binding>);
    assert_not_impl_any!(Dc: DuplexTransport, ConnectedTransport);
    assert_not_impl_any!(DcStreams: DuplexTransport, ConnectedTransport);
    assert_impl_all!(DcTarget: core::marker::Send, Sync);
    assert_not_impl_any!(DcTarget: Clone);
}
