//! Drop orders, and the objects that an XRC connection keeps alive.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use fake_provider::{Live, Profile};
use ibverbs::event::{EventSource, EventType};
use ibverbs::{AccessFlags, AsRaw, BufList, ErrorKind, QpState, qp::QpChange, wr, xrc::XrcdOpen};

use super::setup::{Setup, TargetSrq, with_xrc};
use crate::fixture::{self, Fake, IN_ORDER, PROFILES, order_of, path};

#[test]
fn the_last_xrc_queue_pair_releases_the_srq_buffers() {
    for profile in IN_ORDER {
        let mut setup = Setup::new(profile);
        let another = setup
            .xrcd
            .create_xrc_recv_qp()
            .expect("XRC receive queue pair");
        setup.srqs[0].post_recvs(3);
        let region = setup.region(0, 0);
        let Setup {
            sender,
            send_cq,
            pool: sent,
            receiver,
            srqs: [first, second],
            xrcd,
            context,
            fake,
        } = setup;
        let TargetSrq {
            srq, pool, pd, cq, ..
        } = first;
        drop(srq);
        assert_eq!(
            (fake.live().srqs, pool.available()),
            (1, 5),
            "a message may be in flight to the destroyed queue"
        );
        let region = region
            .try_into_buf()
            .expect_err("peers may reach the domain's memory")
            .into_region();
        drop(receiver);
        assert_eq!(pool.available(), 5);
        drop(another);
        assert_eq!(pool.available(), 8);
        drop(region.try_into_buf().expect("no peer can reach it"));
        // Without an XRC receive queue pair, the buffers are returned when the queue is dropped.
        let TargetSrq {
            mut srq,
            pool: other_pool,
            cq: other_cq,
            pd: other_pd,
            ..
        } = second;
        srq.post_recv(wr::recv(other_pool.take().expect("a free buffer")))
            .expect("a free slot");
        drop(srq);
        assert_eq!(other_pool.available(), 8);
        drop((
            sender, send_cq, sent, xrcd, context, pool, pd, cq, other_pool, other_cq, other_pd,
        ));
    }
}

/// A receiving half of another process or another opening may be in the middle of a message, and it
/// is not counted.
#[test]
fn buffers_of_a_file_domain_are_never_used_again() {
    for same_opening in [true, false] {
        let fake = with_xrc(PROFILES[0]);
        let context = fixture::open(&fake);
        // Any descriptor identifies a domain. Miri has sockets, but opens no files.
        let (socket, _) = UnixStream::pair().expect("sockets");
        let file = File::from(OwnedFd::from(socket));
        let open_xrcd = |how| context.open_xrcd_by_file(&file, how);
        let first = open_xrcd(XrcdOpen::Create).expect("XRC domain");
        let second = open_xrcd(XrcdOpen::Existing).expect("the same domain");
        let of_srq = if same_opening { &first } else { &second };
        let mut target = TargetSrq::new(&context, of_srq);
        let mut receiver = first.create_xrc_recv_qp().expect("XRC receive queue pair");
        receiver.init(&path()).expect("INIT state");
        target.post_recvs(2);
        let list = (0..2).map(|_| target.pool.take().expect("a free buffer"));
        let list = BufList::new(list.collect());
        let srq = &mut target.srq;
        srq.post_recv(wr::recv(list)).expect("a free slot");
        srq.post_recv(wr::recv(target.pd.buf(64).expect("a pool of its own")))
            .expect("a free slot");
        assert_eq!((fake.live().mrs, target.pool.available()), (2, 4));
        drop(target.srq);
        // The memory of the single buffer is freed, after it was deregistered.
        assert_eq!((fake.live().mrs, target.pool.available()), (1, 4));
        drop((receiver, first, second));
        assert_eq!(
            target.pool.available(),
            4,
            "a process may have another half"
        );
    }
}

/// Creates a connection with requests in flight. Each object is boxed to be dropped separately.
fn everything(profile: Profile) -> (Fake, Vec<Option<Box<dyn Send>>>) {
    let mut setup = Setup::new(profile);
    setup.fake.stall();
    setup.srqs[0].post_recvs(3);
    let (srq_num, buf) = (setup.srqs[0].srq_num, setup.buf(b"never"));
    setup
        .sender
        .post_send(wr::send(buf).for_srq(srq_num))
        .expect("send");
    let Setup {
        sender,
        send_cq,
        receiver,
        srqs: [first, second],
        xrcd,
        fake,
        ..
    } = setup;
    drop(second);
    let TargetSrq { srq, cq, pool, .. } = first;
    let all: Vec<Option<Box<dyn Send>>> = vec![
        Some(Box::new((sender, send_cq))),
        Some(Box::new(receiver)),
        Some(Box::new(srq)),
        Some(Box::new(cq)),
        Some(Box::new(pool)),
        Some(Box::new(xrcd)),
    ];
    (fake, all)
}

#[test]
fn the_objects_of_a_connection_drop_in_any_order() {
    // Each order on two devices. Miri is slow, so it runs eleven cases.
    let step = if cfg!(miri) { 131 } else { 1 };
    for case in (0..2 * 720).step_by(step) {
        let (fake, mut objects) = everything(PROFILES[case % 2]);
        for object in order_of(6, case / 2) {
            drop(objects[object].take());
        }
        fake.resume();
    }
}

#[test]
fn an_opened_xrc_recv_queue_pair_outlives_its_creator() {
    let mut setup = Setup::new(PROFILES[0]);
    let qp_num = setup.receiver.qp_num();
    let mut opened = setup
        .xrcd
        .open_xrc_recv_qp(qp_num)
        .expect("existing object");
    assert_eq!(
        (opened.qp_num(), opened.state().expect("state")),
        (qp_num, QpState::RTS)
    );
    assert_ne!(opened.id(), setup.receiver.id());
    let other = setup.context.open_xrcd().expect("XRC domain");
    assert_eq!(
        other
            .open_xrc_recv_qp(qp_num)
            .expect_err("another XRC domain")
            .kind(),
        ErrorKind::InvalidInput
    );
    setup.receiver.destroy().expect("destroy");
    setup.srqs[0].post_recvs(1);
    setup
        .sender
        .post_send(wr::send(wr::Inline(b"still open")).for_srq(setup.srqs[0].srq_num))
        .expect("send");
    assert_eq!(setup.srqs[0].messages(), [(0, b"still open".to_vec())]);
    let state = |opened: &ibverbs::xrc::XrcRecvQueuePair| opened.state().expect("state");
    opened.to_error().expect("ERR state");
    assert_eq!(state(&opened), QpState::ERR);
    opened.modify(&QpChange::to(QpState::RESET)).expect("RESET");
    assert_eq!(state(&opened), QpState::RESET);
}

#[test]
fn a_region_is_not_reclaimed_while_an_xrc_srq_exists() {
    let setup = Setup::new(PROFILES[0]);
    let region = setup.srqs[1]
        .pd
        .shared(8, AccessFlags::REMOTE_WRITE)
        .expect("region");
    let region = region
        .try_into_buf()
        .expect_err("the shared receive queue exists")
        .into_region();
    let Setup {
        receiver,
        srqs,
        fake,
        sender,
        send_cq,
        pool,
        xrcd,
        context,
    } = setup;
    drop(receiver);
    let region = region
        .try_into_buf()
        .expect_err("the shared receive queue exists")
        .into_region();
    drop(srqs);
    drop(region.try_into_buf().expect("no peer can reach it"));
    drop((sender, send_cq, pool, xrcd, context));
    assert_eq!(fake.live(), Live::default());
}

#[test]
fn an_event_names_the_xrc_object() {
    let setup = Setup::new(PROFILES[0]);
    let events = setup.context.async_events().expect("events");
    let read = || {
        let all = std::iter::from_fn(|| events.try_next().expect("events"));
        all.map(|event| event.source).collect::<Vec<_>>()
    };
    setup.fake.raise(EventType::QP_FATAL.0);
    let queue_pair = |queue, qp_num| EventSource::QueuePair { queue, qp_num };
    let (sender, receiver) = (&setup.sender, &setup.receiver);
    let mut found = read();
    found.retain(|source| *source != queue_pair(sender.id(), sender.qp_num()));
    assert_eq!(found, [queue_pair(receiver.id(), receiver.qp_num())]);
    setup.fake.raise(EventType::SRQ_ERR.0);
    let ids = setup.srqs.each_ref().map(|target| target.srq.id());
    assert_eq!(read(), ids.map(EventSource::SharedReceiveQueue));
    assert!(!receiver.as_raw().is_null());
}
