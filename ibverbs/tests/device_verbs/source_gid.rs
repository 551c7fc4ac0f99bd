//! Completions of EFA with the GID of the sender.

use std::collections::HashSet;

use ibverbs::{
    AhAttr, Context, CqOptions, DatagramAttr, DatagramTransport, Direction, DuplexTransport, Gid,
    ProtectionDomain, Qkey, QpOptions, Qpn, QueuePair, Ud,
    cq_ex::CompletionQueueEx,
    efa::{EfaCaps, SourceGid, Srd},
    wr::{self, Destination},
};

use crate::lab::{devices_with, until, verb};

const QKEY: Qkey = Qkey(0x2222_2222);
/// Requests in flight at the same time.
const DEPTH: u32 = 64;

/// A queue pair with a completion queue that has the GIDs of senders.
struct Receiver<T: DuplexTransport> {
    pd: ProtectionDomain,
    cq: CompletionQueueEx<SourceGid>,
    qp: QueuePair<T>,
}

impl<T: DuplexTransport + DatagramTransport> Receiver<T> {
    fn new(context: &Context) -> Self {
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context.create_cq_ex(CqOptions::new().depth(4 * DEPTH), SourceGid);
        let cq = cq.expect("completion queue");
        let options = QpOptions::new().max_send_wr(DEPTH).max_inline_data(32);
        let qp = pd.create_qp::<T>(&cq, &cq, options).expect("queue pair");
        Self { pd, cq, qp }
    }

    fn to(&mut self, qpn: Qpn, gid: Gid) -> Destination {
        let address = self.pd.create_ah(&AhAttr::for_gid(1, 0, gid));
        let address = address.expect("address handle");
        Destination {
            address: self.qp.hold_address(&address).expect("hold"),
            qpn,
            qkey: QKEY,
        }
    }

    /// Posts a receive, and returns the GID and the number of the address handle of the sender.
    fn receive(&mut self, send: impl FnOnce()) -> (Option<Gid>, Qpn, u16) {
        let buf = self.pd.buf(64).expect("buffer");
        self.qp.post_recv(wr::recv(buf)).expect("receive");
        send();
        let mut received = None;
        until("the message", || {
            for completion in self.cq.poll().expect("poll") {
                let source = completion.source();
                if completion.direction() == Direction::Recv {
                    received = Some((completion.source_gid(), source.qpn, source.slid.0));
                } else {
                    assert_eq!(completion.source_gid(), None, "a send has no source");
                }
                self.qp.retire(completion.into()).expect("in flight");
            }
            received.is_some()
        });
        received.expect("set above")
    }
}

/// Receives without and with an address handle of the sender, which is known only then, and answers
/// the sender.
fn answer_an_unknown_sender<T: DuplexTransport + DatagramTransport>(
    context: &Context,
    start: impl Fn(&mut QueuePair<T>),
    send: impl Fn(&mut QueuePair<T>, Destination),
) {
    let own = context.gids(1).expect("GID table")[0].gid;
    let (mut a, mut b) = (Receiver::<T>::new(context), Receiver::<T>::new(context));
    start(&mut a.qp);
    start(&mut b.qp);
    let to_b = a.to(b.qp.qp_num(), own);
    let (gid, qpn, number) = b.receive(|| send(&mut a.qp, to_b));
    assert_eq!((gid, qpn, number), (Some(own), a.qp.qp_num(), 0xffff));
    let to_a = b.to(qpn, gid.expect("checked above"));
    let (gid, ..) = a.receive(|| send(&mut b.qp, to_a));
    assert_eq!(gid, None, "a has an address handle of b");
    let (gid, _, number) = b.receive(|| send(&mut a.qp, to_b));
    assert_eq!(gid, None, "b has an address handle of a now");
    assert_ne!(number, 0xffff);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_unknown_sender_is_answered_by_its_gid() {
    for context in devices_with(&[verb::SRD]) {
        let caps = context.query_efa().expect("attributes").device_caps;
        assert!(caps.contains(EfaCaps::CQ_WITH_SGID));
        answer_an_unknown_sender::<Srd>(
            &context,
            |qp| qp.start(&DatagramAttr::new(1, QKEY)).expect("RTS state"),
            |qp, to| {
                let request = wr::send(wr::Inline(b"who am I?")).to(to);
                qp.post_send(request).expect("send");
            },
        );
        answer_an_unknown_sender::<Ud>(
            &context,
            |qp| qp.start(&DatagramAttr::new(1, QKEY)).expect("RTS state"),
            |qp, to| {
                let request = wr::send(wr::Inline(b"who am I?")).to(to);
                qp.post_send(request).expect("send");
            },
        );
    }
}

/// A failed `ibv_next_poll` would damage the provider's table of the sends of `a`
/// (`docs/drivers.md`, fault 53).
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn completions_of_a_destroyed_queue_pair_do_no_harm() {
    const COUNT: u32 = 8;
    for context in devices_with(&[verb::SRD]) {
        let own = context.gids(1).expect("GID table")[0].gid;
        let mut a = Receiver::<Srd>::new(&context);
        let start =
            |qp: &mut QueuePair<Srd>| qp.start(&DatagramAttr::new(1, QKEY)).expect("RTS state");
        start(&mut a.qp);
        let mut peer = Receiver::<Srd>::new(&context);
        start(&mut peer.qp);
        let there = a.to(peer.qp.qp_num(), own);
        for round in 0..20 {
            // Completions of `a` and of a queue pair that is destroyed, in one queue.
            let options = QpOptions::new().max_send_wr(DEPTH).max_inline_data(32);
            let other = a.pd.create_qp::<Srd>(&a.cq, &a.cq, options);
            let mut other = other.expect("queue pair");
            start(&mut other);
            let address = AhAttr::for_gid(1, 0, own);
            let address = a.pd.create_ah(&address).expect("address handle");
            let address = other.hold_address(&address).expect("hold");
            for number in 0..COUNT {
                let buf = peer.pd.buf(64).expect("buffer");
                peer.qp.post_recv(wr::recv(buf)).expect("receive");
                let buf = peer.pd.buf(64).expect("buffer");
                peer.qp.post_recv(wr::recv(buf)).expect("receive");
                let bytes = number.to_ne_bytes();
                let request = wr::send(wr::Inline(&bytes)).to(there).tag(number.into());
                a.qp.post_send(request).expect("send");
                let there = Destination { address, ..there };
                let request = wr::send(wr::Inline(&bytes)).to(there);
                other.post_send(request).expect("send");
            }
            let mut received = 0;
            until("all messages", || {
                for completion in peer.cq.poll().expect("poll") {
                    peer.qp.retire(completion.into()).expect("in flight");
                    received += 1;
                }
                received == 2 * COUNT
            });
            other.destroy().expect("destroyed");
            let mut tags = HashSet::new();
            until("the completions of a", || {
                for completion in a.cq.poll().expect("completions are skipped") {
                    assert_eq!(completion.queue(), a.qp.id(), "round {round}");
                    let retired = a.qp.retire(completion.into()).expect("in flight");
                    assert!(tags.insert(retired.tag()), "completed twice");
                }
                tags.len() == COUNT as usize
            });
        }
    }
}
