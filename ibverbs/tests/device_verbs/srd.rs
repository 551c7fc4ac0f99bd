//! Scalable reliable datagrams of EFA: messages and reads that complete in any order.

use std::collections::{HashMap, HashSet};

use ibverbs::{
    AccessFlags, AhAttr, Buf, CompletionQueue, Context, CqOptions, DatagramAttr, Direction, Error,
    ErrorKind, PostError, ProtectionDomain, Psn, Qkey, QpOptions, QpState, QueuePair, SharedRegion,
    WcStatus,
    efa::{EfaCaps, Srd},
    qp::QpChange,
    wr::{self, Destination},
};

use crate::lab::{self, devices_with, until, verb};

const QKEY: Qkey = Qkey(0x2222_2222);
/// Requests in flight at the same time.
const DEPTH: u32 = 64;

struct Node {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair<Srd>,
}

fn node(context: &Context) -> Node {
    let pd = context.alloc_pd().expect("protection domain");
    let cq = CqOptions::new().depth(4 * DEPTH);
    let cq = context.create_cq(cq).expect("completion queue");
    let options = QpOptions::new()
        .max_send_wr(DEPTH)
        .max_recv_wr(DEPTH)
        .max_inline_data(32);
    let mut qp = pd.create_qp::<Srd>(&cq, &cq, options).expect("queue pair");
    qp.start(&DatagramAttr::new(1, QKEY)).expect("RTS state");
    Node { pd, cq, qp }
}

impl Node {
    /// Returns the destination of `other`, from this queue pair.
    fn to(&mut self, other: &Node) -> Destination {
        let own = self.pd.context().gids(1).expect("GID table")[0];
        let address = AhAttr::for_gid(1, own.index, own.gid);
        let destination = self.qp.destination(&address, other.qp.qp_num(), QKEY);
        destination.expect("address handle")
    }

    /// Retires the completions that are there, and passes each with its source queue pair.
    fn retire(&mut self, mut each: impl FnMut(ibverbs::Retired, ibverbs::Qpn)) {
        for completion in self.cq.poll().expect("poll") {
            let source = completion.source().qpn;
            each(self.qp.retire(completion).expect("in flight"), source);
        }
    }
}

fn pair(context: &Context) -> (Node, Node, Destination) {
    let (mut a, b) = (node(context), node(context));
    let there = a.to(&b);
    (a, b, there)
}

/// Returns a buffer with `len` bytes that depend on `number`.
fn filled(pd: &ProtectionDomain, number: u32, len: usize) -> Buf {
    let mut buf = pd.buf(len).expect("buffer");
    for (byte, at) in buf.iter_mut().zip(number..) {
        *byte = at.to_le_bytes()[0];
    }
    buf
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_arrive_once_and_intact_in_any_order() {
    const COUNT: u32 = 2000;
    for context in devices_with(&[verb::SRD]) {
        let (mut a, mut b, there) = pair(&context);
        let len = |number: u32| 1 + number as usize * 37 % 8000;
        let (mut posted, mut sent, mut overtaken) = (0, 0, false);
        let mut received = HashSet::new();
        until("all messages", || {
            while b.qp.recv_slots_free() > 0 {
                let buf = b.pd.buf(8192).expect("buffer");
                b.qp.post_recv(wr::recv(buf)).expect("receive");
            }
            // Batches of eight, which the adapter takes together.
            while posted < COUNT && a.qp.send_slots_free() >= 8 {
                let Node { pd, qp, .. } = &mut a;
                qp.batch(|batch| -> Result<(), Error> {
                    for number in posted..posted + 8 {
                        let message = filled(pd, number, len(number));
                        let request = wr::send_with_imm(message, number).to(there);
                        batch.send(request.signaled(false))?;
                    }
                    Ok(())
                })
                .expect("batch");
                posted += 8;
            }
            a.retire(|retired, _| {
                retired.check().expect("success");
                sent += 1;
            });
            let from = a.qp.qp_num();
            b.retire(|retired, source| {
                retired.check().expect("success");
                assert_eq!(source, from);
                let number = retired.imm_data().expect("immediate data");
                overtaken |= received.len() != number as usize;
                assert!(received.insert(number), "{number} arrived twice");
                let bytes = retired.into_buf().expect("a buffer");
                assert_eq!(bytes.len(), len(number));
                let wrong = bytes.iter().zip(number..);
                assert!(wrong.clone().all(|(byte, at)| *byte == at.to_le_bytes()[0]));
            });
            sent == COUNT && received.len() == COUNT as usize
        });
        assert!(overtaken, "the test has not seen another order");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn reads_return_each_its_bytes_in_any_order() {
    const COUNT: u32 = 500;
    const PIECE: u32 = 1000;
    for context in devices_with(&[verb::SRD]) {
        let caps = context.query_efa().expect("attributes").device_caps;
        assert!(caps.contains(EfaCaps::RDMA_READ), "{caps:?}");
        let (mut a, b, there) = pair(&context);
        let access = AccessFlags::REMOTE_READ;
        let region = b.pd.shared(100 * PIECE as usize, access).expect("region");
        let source: Vec<u8> = (0..100 * PIECE).map(|at| at.to_le_bytes()[0]).collect();
        region.write(0, &source).expect("within the region");
        let remote = region.remote();
        let start = |number: u32| u64::from(number % 100 * PIECE);
        let (mut posted, mut done, mut overtaken) = (0, 0, false);
        until("all reads", || {
            // Batches of four.
            while posted < COUNT && a.qp.send_slots_free() >= 4 {
                let Node { pd, qp, .. } = &mut a;
                qp.batch(|batch| -> Result<(), Error> {
                    for number in posted..posted + 4 {
                        let piece = remote.slice(start(number)..start(number) + u64::from(PIECE));
                        let piece = piece.expect("within the region");
                        let into = pd.buf(PIECE as usize)?;
                        batch.send(wr::read(into, piece).to(there).tag(number.into()))?;
                    }
                    Ok(())
                })
                .expect("batch");
                posted += 4;
            }
            a.retire(|retired, _| {
                retired.check().expect("success");
                let number = u32::try_from(retired.tag()).expect("a number");
                overtaken |= number != done;
                done += 1;
                let at = usize::try_from(start(number)).expect("small");
                let bytes = retired.into_buf().expect("a buffer");
                assert_eq!(&bytes[..], &source[at..at + PIECE as usize]);
            });
            done == COUNT
        });
        assert!(overtaken, "the test has not seen another order");
    }
}

/// A node of the random test, with what its peers may read.
struct Peer {
    node: Node,
    region: SharedRegion,
    /// Destinations of all peers.
    to: Vec<Destination>,
    /// Receives that no message in flight will take.
    credits: usize,
}

/// A network of queue pairs, and what is in flight.
struct Network<'a> {
    context: &'a Context,
    peers: Vec<Peer>,
    /// Messages by their immediate data: source, destination and length.
    messages: HashMap<u32, (usize, usize, usize)>,
    /// Reads by their tag: peer and range.
    reads: HashMap<u64, (usize, usize, usize)>,
    sends: usize,
    next: u32,
}

impl Network<'_> {
    const REGION: usize = 4096;
    const LARGEST: usize = 8000;

    fn peer(context: &Context) -> Peer {
        let node = node(context);
        let region = node.pd.shared(Self::REGION, AccessFlags::REMOTE_READ);
        let region = region.expect("region");
        let number = node.qp.id().get();
        let bytes: Vec<u8> = (number..)
            .map(|at| at.to_le_bytes()[0])
            .take(Self::REGION)
            .collect();
        region.write(0, &bytes).expect("within the region");
        Peer {
            node,
            region,
            to: Vec::new(),
            credits: 0,
        }
    }

    /// Replaces a queue pair while nothing is in flight, and tells all peers its address.
    fn replace(&mut self, index: usize) {
        if let Some(old) = self.peers.get_mut(index) {
            let old = std::mem::replace(old, Self::peer(self.context));
            let reclaimed = old.node.qp.destroy().expect("destroyed");
            assert_eq!(
                (reclaimed.sends.len(), reclaimed.recvs.len()),
                (0, old.credits)
            );
        } else {
            self.peers.push(Self::peer(self.context));
        }
        for at in 0..self.peers.len() {
            let mut from = std::mem::take(&mut self.peers[at].to);
            from.clear();
            for other in 0..self.peers.len() {
                let qpn = self.peers[other].node.qp.qp_num();
                let own = self.context.gids(1).expect("GID table")[0];
                let node = &mut self.peers[at].node;
                let address = AhAttr::for_gid(1, own.index, own.gid);
                let address = node.pd.create_ah(&address).expect("address handle");
                let address = node.qp.hold_address(&address).expect("hold");
                from.push(Destination {
                    address,
                    qpn,
                    qkey: QKEY,
                });
            }
            self.peers[at].to = from;
        }
    }

    fn send(&mut self, from: usize, to: usize, len: usize) {
        if self.peers[to].credits == 0 || self.peers[from].node.qp.send_slots_free() == 0 {
            return;
        }
        self.peers[to].credits -= 1;
        let number = self.next;
        self.next += 1;
        self.messages.insert(number, (from, to, len));
        let Peer { node, to: all, .. } = &mut self.peers[from];
        let message = filled(&node.pd, number, len);
        let there = all[to];
        let posted = if len <= 32 {
            let inline = wr::Inline(&message);
            let request = wr::send_with_imm(inline, number).to(there);
            node.qp.post_send(request).map_err(Error::from)
        } else {
            let request = wr::send_with_imm(message, number).to(there);
            node.qp.post_send(request).map_err(Error::from)
        };
        posted.expect("send");
        self.sends += 1;
    }

    fn read(&mut self, from: usize, to: usize, start: usize, len: usize) {
        let len = len.min(Self::REGION - start);
        let remote = self.peers[to].region.remote();
        let remote = remote
            .slice(start as u64..start as u64 + len as u64)
            .expect("within");
        let Peer { node, to: all, .. } = &mut self.peers[from];
        if node.qp.send_slots_free() == 0 {
            return;
        }
        let tag = u64::from(self.next);
        self.next += 1;
        let into = node.pd.buf(len).expect("buffer");
        let request = wr::read(into, remote).to(all[to]).tag(tag);
        node.qp.post_send(request).expect("read");
        self.reads.insert(tag, (to, start, len));
    }

    fn receive(&mut self, at: usize) {
        let Peer { node, credits, .. } = &mut self.peers[at];
        if node.qp.recv_slots_free() > 0 {
            let buf = node.pd.buf(Self::LARGEST).expect("buffer");
            node.qp.post_recv(wr::recv(buf)).expect("receive");
            *credits += 1;
        }
    }

    fn poll(&mut self, at: usize) {
        let mut retired = Vec::new();
        let node = &mut self.peers[at].node;
        node.retire(|one, source| retired.push((one, source)));
        for (one, source) in retired {
            one.check().expect("success");
            if one.direction() == Direction::Recv {
                let number = one.imm_data().expect("immediate data");
                let message = self.messages.remove(&number);
                let (from, to, len) = message.expect("sent once");
                assert_eq!((to, self.peers[from].node.qp.qp_num()), (at, source));
                let buf = one.into_buf().expect("a buffer");
                assert_eq!(buf[..], filled(&self.peers[at].node.pd, number, len)[..]);
            } else if one.tag() == 0 {
                self.sends -= 1;
            } else {
                let read = self.reads.remove(&one.tag());
                let (from, start, len) = read.expect("posted once");
                let mut expected = vec![0; len];
                let region = &self.peers[from].region;
                region.read(start, &mut expected).expect("within");
                assert_eq!(one.into_buf().expect("a buffer")[..], expected);
            }
        }
    }

    fn drain(&mut self) {
        until("all completions", || {
            (0..self.peers.len()).for_each(|at| self.poll(at));
            self.sends == 0 && self.messages.is_empty() && self.reads.is_empty()
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn random_requests_between_many_queue_pairs_complete_once() {
    const PEERS: usize = 4;
    for context in devices_with(&[verb::SRD]) {
        for seed in 1..=3_u64 {
            let mut network = Network {
                context: &context,
                peers: Vec::new(),
                messages: HashMap::new(),
                reads: HashMap::new(),
                sends: 0,
                next: 1,
            };
            (0..PEERS).for_each(|index| network.replace(index));
            let mut state = seed;
            // The generator of Knuth's MMIX.
            let mut random = |limit: usize| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                usize::try_from(state >> 33).unwrap_or(0) % limit
            };
            for _ in 0..4000 {
                let (a, b) = (random(PEERS), random(PEERS));
                match random(16) {
                    0..=5 => network.receive(a),
                    6..=8 => network.send(a, b, 1 + random(Network::LARGEST)),
                    9 => network.send(a, b, 1 + random(32)),
                    10..=12 => network.read(a, b, random(Network::REGION - 1), 1 + random(2000)),
                    13..=14 => network.poll(a),
                    _ if random(20) == 0 => {
                        network.drain();
                        network.replace(a);
                    }
                    _ => {}
                }
            }
            network.drain();
            assert!(network.next > 500, "only {} requests", network.next);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn read_with_a_wrong_key_fails_and_returns_its_buffer() {
    for context in devices_with(&[verb::SRD]) {
        let (mut a, b, there) = pair(&context);
        let region = b.pd.shared(64, AccessFlags::REMOTE_READ).expect("region");
        let mut remote = region.remote();
        remote.rkey ^= 0x5555;
        let buf = a.pd.buf(64).expect("buffer");
        a.qp.post_send(wr::read(buf, remote).to(there))
            .expect("posted");
        let mut status = None;
        until("the completion", || {
            a.retire(|retired, _| {
                status = Some(retired.status());
                assert_eq!(retired.direction(), Direction::Send);
                assert_eq!(retired.into_buf().expect("the buffer").capacity(), 64);
            });
            status.is_some()
        });
        // No source says which of the errors of the peer the adapter reports.
        let status = status.expect("set above");
        assert!(
            ![WcStatus::SUCCESS, WcStatus::WR_FLUSH_ERR].contains(&status),
            "{status}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn requests_that_the_device_lacks_are_rejected() {
    for context in devices_with(&[verb::SRD]) {
        let (mut a, mut b, there) = pair(&context);
        let region = b.pd.shared(64, AccessFlags::REMOTE_READ).expect("region");
        let caps = context.query_efa().expect("attributes").device_caps;
        let fenced = wr::send(a.pd.buf(8).expect("buffer"))
            .to(there)
            .fenced(true);
        let rejected = a.qp.post_send(fenced).expect_err("no fence");
        assert_eq!(rejected.error(), PostError::UnsupportedFlag);
        let buf = rejected.into_payload().expect("not posted");
        let solicited = wr::send(buf).to(there).solicited(true);
        let rejected = a.qp.post_send(solicited).expect_err("no such flag");
        assert_eq!(Error::from(rejected).kind(), ErrorKind::Unsupported);
        if !caps.contains(EfaCaps::RDMA_WRITE) {
            let write = wr::write(wr::Inline(b"x"), region.remote()).to(there);
            let rejected = a.qp.post_send(write).expect_err("no write");
            assert_eq!(rejected.error(), PostError::Unsupported);
        }
        let theirs = Destination {
            address: b.to(&a).address,
            ..there
        };
        let rejected = a.qp.post_send(wr::send(wr::Empty).to(theirs));
        let rejected = rejected.expect_err("held by the other queue pair");
        assert_eq!(rejected.error(), PostError::WrongQueue);
        // The queue works afterwards.
        let receive = wr::recv(b.pd.buf(8).expect("buffer"));
        b.qp.post_recv(receive).expect("receive");
        a.qp.post_send(wr::send(wr::Inline(b"fine")).to(there))
            .expect("send");
        let mut received = false;
        until("the message", || {
            b.retire(|retired, _| {
                assert_eq!(&retired.into_buf().expect("a buffer")[..], b"fine");
                received = true;
            });
            received
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn destroy_returns_the_buffers_in_flight() {
    for context in devices_with(&[verb::SRD]) {
        let (mut a, b, there) = pair(&context);
        // `b` has no receives, so the message waits.
        let message = filled(&a.pd, 0, 100);
        a.qp.post_send(wr::send(message).to(there).tag(7))
            .expect("send");
        let buf = a.pd.buf(16).expect("buffer");
        a.qp.post_recv(wr::recv(buf)).expect("receive");
        let reclaimed = a.qp.destroy().expect("destroyed");
        assert_eq!(reclaimed.sends.len(), 1);
        assert_eq!((reclaimed.sends[0].0, reclaimed.sends[0].1.len()), (7, 100));
        assert_eq!(reclaimed.recvs.len(), 1);
        drop(b);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn states_and_attributes_are_those_of_the_driver() {
    for context in devices_with(&[verb::SRD]) {
        let attr = context.query_efa().expect("attributes");
        assert_eq!(
            attr.max_sq_wr,
            context.query_device().expect("device").max_qp_wr
        );
        assert!(attr.max_rdma_size > 0, "{attr:?}");
        let Node { pd, cq, mut qp } = node(&context);
        assert_eq!(qp.query().expect("attributes").state, QpState::RTS);
        assert!(format!("{qp:?}").contains("SRD"), "{qp:?}");
        let error = qp
            .start(&DatagramAttr::new(1, QKEY))
            .expect_err("already started");
        assert!(error.to_string().contains("SRD queue pair"), "{error}");

        let mut other = lab::qp::<Srd>(&pd, &cq);
        let early = other.post_recv(wr::recv(pd.buf(8).expect("buffer")));
        let error = Error::from(early.expect_err("in state RESET"));
        assert_eq!(error.kind(), ErrorKind::WrongState, "{error}");
        let init = QpChange::to(QpState::INIT).port_num(1).pkey_index(0);
        let error = other.modify(&init).expect_err("no queue key");
        assert!(error.to_string().contains("qkey"), "{error}");
        other.modify(&init.qkey(QKEY)).expect("INIT");
        other.modify(&QpChange::to(QpState::RTR)).expect("RTR");
        let rts = QpChange::to(QpState::RTS).sq_psn(Psn(0)).rnr_retry(3);
        other.modify(&rts).expect("RTS");

        let own = context.gids(1).expect("GID table")[0];
        let ah = pd.create_ah(&AhAttr::for_gid(1, own.index, own.gid));
        let number = ah.expect("address handle").efa_number();
        assert_ne!(number.expect("the number"), 0xffff);

        let srq = QpOptions::new().max_send_sge(1 + u32::from(attr.max_sq_sge));
        let error = pd.create_qp::<Srd>(&cq, &cq, srq).expect_err("too many");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

/// libefa before version 63 finds the request of a completion by the number of the queue pair.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_number_with_old_completions_is_not_used_again() {
    for context in devices_with(&[verb::SRD]) {
        // Of the completions of the receiver, libefa looks into none while no queue pair uses them.
        for has_other in [false, true] {
            let (mut peer, node, there) = pair(&context);
            let Node { pd, mut cq, mut qp } = node;
            let buf = pd.buf(64).expect("buffer");
            qp.post_recv(wr::recv(buf)).expect("receive");
            let number = qp.qp_num();
            let sent = wr::send(wr::Inline(b"old")).to(there);
            peer.qp.post_send(sent).expect("send");
            let mut done = 0;
            until("the message was sent", || {
                peer.retire(|retired, _| {
                    retired.check().expect("success");
                    done += 1;
                });
                done == 1
            });
            // The message completes the receive before the acknowledgment completes the send.
            let new = |cq: &CompletionQueue| {
                let options = QpOptions::new().max_send_wr(DEPTH).max_recv_wr(DEPTH);
                let qp = pd.create_qp::<Srd>(cq, cq, options);
                qp.expect("queue pair")
            };
            let other = has_other.then(|| new(&cq));
            drop(qp);
            // The model has 1022 numbers.
            for _ in 0..3000 {
                let mut qp = new(&cq);
                assert_ne!(qp.qp_num(), number);
                qp.start(&DatagramAttr::new(1, QKEY)).expect("RTS state");
            }
            let mut last = new(&cq);
            last.start(&DatagramAttr::new(1, QKEY)).expect("RTS state");
            let buf = pd.buf(64).expect("buffer");
            last.post_recv(wr::recv(buf).tag(77)).expect("receive");
            assert_eq!(cq.poll().expect("poll").len(), 0, "an old completion");
            drop((last, other, cq));
            // No completion is left without the queue.
            let cq = context.create_cq(CqOptions::new()).expect("queue");
            assert!((0..3000).any(|_| new(&cq).qp_num() == number));
        }
    }
}
