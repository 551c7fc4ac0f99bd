//! Unreliable datagrams: address handles, replies, multicast groups.

use std::time::{Duration, Instant};

use ibverbs::{
    AddressHandle, AhAttr, CompletionQueue, Context, CqOptions, DatagramAttr, Direction, ErrorKind,
    GRH_LEN, Gid, Lid, PostError, ProtectionDomain, Qkey, QpOptions, QpState, Qpn, QueuePair, Ud,
    UdSource,
    wr::{self, Destination},
};

use crate::lab::{
    self, devices, extended_and_classic, is_efa, is_infiniband, is_iwarp, roce_with, verb,
};

const QKEY: Qkey = Qkey(0x1111_1111);

struct Datagram {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair<Ud>,
}

fn datagram(context: &Context, options: QpOptions) -> Datagram {
    // The inline data of EFA.
    let options = options.max_inline_data(32);
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::new())
        .expect("completion queue");
    let mut qp = pd.create_qp::<Ud>(&cq, &cq, options).expect("queue pair");
    qp.start(&DatagramAttr::new(1, QKEY)).expect("RTS state");
    Datagram { pd, cq, qp }
}

impl Datagram {
    fn address_handle(&self, context: &Context, gid: Option<Gid>) -> AddressHandle {
        let own = context
            .gids(1)
            .expect("GID table")
            .into_iter()
            .find(|entry| is_efa(context) || !entry.gid.is_link_local())
            .expect("an address");
        self.pd
            .create_ah(&AhAttr::for_gid(1, own.index, gid.unwrap_or(own.gid)))
            .expect("address handle")
    }

    /// Waits for the next receive and returns its source and bytes. Also retires sends.
    fn received(&mut self) -> (UdSource, Vec<u8>) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            assert!(Instant::now() < deadline, "nothing arrived");
            for completion in self.cq.poll().expect("poll") {
                let source = completion.source();
                let retired = self.qp.retire(completion).expect("in flight");
                retired.check().expect("success");
                if retired.direction() == Direction::Recv {
                    assert_eq!(retired.imm_data(), Some(9));
                    return (
                        source,
                        retired.into_buf().expect("posted with a buffer").to_vec(),
                    );
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn datagram_follows_grh_and_can_be_answered() {
    for context in roce_with(&[verb::UD]) {
        for options in extended_and_classic() {
            let (mut a, mut b) = (datagram(&context, options), datagram(&context, options));
            let handle = a.address_handle(&context, None);
            let foreign = b.qp.hold_address(&handle).expect_err("another domain");
            assert_eq!(foreign.kind(), ErrorKind::Mismatch);
            let address = a.qp.hold_address(&handle).expect("hold");
            let there = Destination {
                address,
                qpn: b.qp.qp_num(),
                qkey: QKEY,
            };
            b.qp.post_recv(wr::recv(b.pd.buf(256).expect("buffer")))
                .expect("receive");
            a.qp.post_send(wr::send_with_imm(wr::Inline(b"ping"), 9).to(there))
                .expect("send");
            let (source, bytes) = b.received();
            assert_eq!(&bytes[GRH_LEN..], b"ping");
            assert_eq!(source.qpn, a.qp.qp_num());
            // EFA keeps 40 bytes free, and has no route header in them.
            assert_eq!(source.has_grh, !is_efa(&context));
            let to_a = if is_efa(&context) {
                b.address_handle(&context, None)
            } else {
                b.pd.create_ah_from_wc(1, &source, &bytes)
                    .expect("address handle")
            };
            let to_a = Destination {
                address: b.qp.hold_address(&to_a).expect("hold"),
                qpn: source.qpn,
                qkey: QKEY,
            };
            a.qp.post_recv(wr::recv(a.pd.buf(256).expect("buffer")))
                .expect("receive");
            b.qp.post_send(wr::send_with_imm(wr::Inline(b"pong"), 9).to(to_a))
                .expect("send");
            assert_eq!(&a.received().1[GRH_LEN..], b"pong");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn multicast_send_completes_and_member_can_be_destroyed() {
    for context in roce_with(&[verb::UD, verb::MULTICAST]) {
        for options in extended_and_classic() {
            // A multicast GID for an IPv4 group; Soft-RoCE delivers its own multicast packets to
            // itself.
            let group: Gid = "ff0e::ffff:239.1.2.3".parse().expect("a GID");
            let (mut a, mut b) = (datagram(&context, options), datagram(&context, options));
            // InfiniBand identifies a group also by its LID, RoCE only by its GID.
            let lid = if is_infiniband(&context) {
                Lid(0xc001)
            } else {
                Lid(0)
            };
            b.qp.attach_mcast(group, lid).expect("attach");
            b.qp.post_recv(wr::recv(b.pd.buf(256).expect("buffer")))
                .expect("receive");
            let address = a.address_handle(&context, Some(group));
            let address = a.qp.hold_address(&address).expect("hold");
            let there = Destination {
                address,
                qpn: Qpn::MULTICAST,
                qkey: QKEY,
            };
            a.qp.post_send(wr::send_with_imm(wr::Inline(b"all"), 9).to(there))
                .expect("send");
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut sent = false;
            while !sent {
                assert!(Instant::now() < deadline, "the send did not complete");
                for completion in a.cq.poll().expect("poll") {
                    a.qp.retire(completion)
                        .expect("in flight")
                        .check()
                        .expect("sent");
                    sent = true;
                }
            }
            assert_eq!(
                b.qp.detach_mcast(Gid::default(), lid)
                    .expect_err("not attached")
                    .kind(),
                ErrorKind::InvalidInput
            );
            b.qp.destroy().expect("destroying detaches the group");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn datagrams_are_unsupported_on_iwarp() {
    for context in devices() {
        println!("device: {}", context.device_name());
        if !is_iwarp(&context) {
            continue;
        }
        let pd = context.alloc_pd().expect("protection domain");
        let cq = lab::cq(&context);
        let error = pd
            .create_qp::<Ud>(&cq, &cq, QpOptions::default())
            .expect_err("no UD");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let error = pd
            .create_ah(&AhAttr::for_lid(1, Lid(1)))
            .expect_err("no address handles");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn query_returns_state_and_capacities() {
    for context in roce_with(&[verb::UD]) {
        let Datagram { qp, .. } = datagram(&context, QpOptions::default());
        let attr = qp.query().expect("attributes");
        assert_eq!((attr.state, attr.qkey), (QpState::RTS, QKEY));
        assert!(attr.max_send_wr >= 64, "{attr:?}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn polls_continue_after_a_queue_pair_was_destroyed() {
    const COUNT: usize = 5;
    for context in roce_with(&[verb::UD]) {
        for options in extended_and_classic() {
            let mut a = datagram(&context, options);
            let mut b =
                a.pd.create_qp::<Ud>(&a.cq, &a.cq, options.max_inline_data(32))
                    .expect("queue pair");
            b.start(&DatagramAttr::new(1, QKEY)).expect("RTS state");
            let address = a.address_handle(&context, None);
            let there = Destination {
                address: a.qp.hold_address(&address).expect("hold"),
                qpn: b.qp_num(),
                qkey: QKEY,
            };
            for _ in 0..COUNT {
                b.post_recv(wr::recv(a.pd.buf(64).expect("buffer")))
                    .expect("receive");
                a.qp.post_send(wr::send(wr::Inline(b"x")).to(there))
                    .expect("send");
            }
            // Both queue pairs have completions that were not polled.
            std::thread::sleep(Duration::from_millis(300));
            let Datagram { qp, mut cq, .. } = a;
            drop(qp);
            let deadline = Instant::now() + Duration::from_secs(10);
            let mut received = 0;
            while received < COUNT {
                assert!(Instant::now() < deadline, "{received} of {COUNT} arrived");
                for completion in cq.poll().expect("poll") {
                    if let Ok(retired) = b.retire(completion) {
                        retired.check().expect("success");
                        received += 1;
                    }
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn empty_receive_is_posted_or_refused() {
    for context in roce_with(&[verb::UD]) {
        let mut qp = datagram(&context, QpOptions::default()).qp;
        let posted = qp.post_recv(wr::recv(wr::Empty));
        if is_efa(&context) {
            let rejected = posted.expect_err("it would never complete");
            assert_eq!(rejected.error(), PostError::EmptyReceive);
        } else {
            posted.expect("posted");
        }
    }
}
