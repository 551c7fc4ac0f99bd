//! Optional changes of a queue pair on the fake device: queue lengths and alternate paths.

use crate::fixture::{Fake, IN_ORDER, PROFILES, Pair, buf_bytes, open, parents, path, small};
use fake_provider::{Profile, Provider, Transport, Verb};
use ibverbs::{
    AccessFlags, AhAttr, CqOptions, DatagramAttr, Endpoint, Error, ErrorKind, GidIndex, Lid, Mtu,
    PostError, Psn, Qkey, QpState, Rc, Ud,
    qp::{AlternatePath, Ece, MigState, QpChange},
    wr,
};

/// Adds the optional verbs to a profile.
fn all_verbs(profile: Profile) -> Profile {
    Profile {
        more_verbs: true,
        ..profile
    }
}

/// Returns a change of the queue lengths.
fn lengths(send: u32, recv: u32) -> QpChange {
    QpChange::new().max_send_wr(send).max_recv_wr(recv)
}

/// Sends and receives `count` messages. Returns the numbers of unused send and receive slots.
fn exchange(pair: &mut Pair, count: usize) -> (usize, usize) {
    let unused = (
        pair.a.send_slots_free() - count,
        pair.b.recv_slots_free() - count,
    );
    pair.post_recvs(count);
    for number in 0..count {
        pair.a
            .post_send(wr::send(wr::Inline(&[
                u8::try_from(number).expect("fits u8")
            ])))
            .expect("a free slot");
    }
    let (sent, received) = pair.retire();
    assert_eq!(sent.len(), count);
    let received: Vec<_> = received.into_iter().map(buf_bytes).collect();
    assert_eq!(
        received,
        (0..count)
            .map(|number| vec![u8::try_from(number).expect("fits u8")])
            .collect::<Vec<_>>()
    );
    unused
}

#[test]
fn idle_queues_can_be_lengthened_and_shortened() {
    for profile in PROFILES {
        let mut pair = Pair::new(all_verbs(profile));
        assert_eq!(exchange(&mut pair, 5), (2, 2));
        for (requested, granted) in [(15, 15), (3, 3), (7, 7), (12, 15)] {
            pair.a
                .modify(&lengths(requested, requested))
                .expect("resize");
            pair.b
                .modify(&lengths(requested, requested))
                .expect("resize");
            assert_eq!(
                (pair.a.caps().max_send_wr, pair.b.caps().max_recv_wr),
                (granted, granted)
            );
            assert_eq!(pair.b.query().expect("query").max_recv_wr, granted);
            let count = usize::try_from(granted.min(12)).expect("fits usize");
            let rest = granted as usize - count;
            assert_eq!(exchange(&mut pair, count), (rest, rest));
        }
    }
}

#[test]
fn completions_from_before_a_resize_match_nothing() {
    for profile in IN_ORDER {
        let mut pair = Pair::new(all_verbs(profile));
        let region = pair.pd.shared(8, path().access).expect("region");
        for _ in 0..2 {
            pair.a
                .post_send(wr::write(wr::Empty, region.remote()))
                .expect("send");
        }
        let mut completions = pair.cq.poll().expect("poll");
        let (first, second) = (
            completions.next().expect("first completion"),
            completions.next().expect("second completion"),
        );
        pair.a
            .retire(second)
            .expect("in flight")
            .check()
            .expect("success"); // This also retires the first request.
        pair.a
            .modify(&QpChange::new().max_send_wr(31))
            .expect("idle");
        pair.fake.stall();
        pair.a
            .post_send(wr::send(pair.pool.take().expect("a free buffer")))
            .expect("send");
        pair.a.retire(first).expect_err("not a request in flight");
        assert_eq!(pair.pool.available(), 15, "the buffer is still in flight");
    }
}

#[test]
fn queues_with_requests_in_flight_are_not_resized() {
    let mut pair = Pair::new(all_verbs(PROFILES[0]));
    pair.fake.stall();
    pair.post_recvs(2);
    assert_eq!(
        pair.b
            .modify(&lengths(15, 15))
            .expect_err("receives in flight")
            .kind(),
        ErrorKind::Busy
    );
    pair.a.post_send(wr::send(wr::Empty)).expect("send");
    assert_eq!(
        pair.a
            .modify(&lengths(15, 15))
            .expect_err("a send in flight")
            .kind(),
        ErrorKind::Busy
    );
    pair.fake.resume();
    drop(pair.retire());
    pair.a.modify(&lengths(15, 15)).expect("idle");
    let error = pair
        .a
        .modify(&lengths(u32::MAX, 15))
        .expect_err("longer than the limit");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_rejected_resize_changes_nothing() {
    let mut pair = Pair::new(all_verbs(PROFILES[0]));
    pair.fake.fail_next(Verb::ModifyQp, libc::ENOMEM);
    pair.a
        .modify(&lengths(63, 63))
        .expect_err("the driver refuses");
    assert_eq!(
        (pair.a.caps().max_send_wr, pair.a.send_slots_free()),
        (7, 7)
    );
    for _ in 0..7 {
        pair.a.post_send(wr::send(wr::Empty)).expect("a free slot");
    }
    let full = pair.a.post_send(wr::send(wr::Empty)).expect_err("full");
    assert_eq!(full.error(), PostError::QueueFull { capacity: 7 });
}

#[test]
fn unsupported_changes_are_reported() {
    let mut pair = Pair::new(PROFILES[0]);
    let error = pair
        .a
        .modify(&lengths(15, 15))
        .expect_err("resizing is unsupported");
    assert!(error.is_unsupported(), "{error}");
    let alternate = AlternatePath::new(AhAttr::for_lid(1, Lid(7)));
    let change = QpChange::to(QpState::RTS).alternate(alternate);
    let error = pair.a.modify(&change).expect_err("an Ethernet link");
    assert!(
        error.is_unsupported() && error.to_string().contains("InfiniBand links only"),
        "{error}"
    );
}

#[test]
fn an_alternate_path_is_loaded_armed_and_used() -> Result<(), Error> {
    let mut pair = Pair::new(all_verbs(PROFILES[0]));
    assert_eq!(pair.a.query()?.alternate, None);
    let peer = pair.context.gid(1, GidIndex(1))?.gid;
    let alternate = AlternatePath::new(AhAttr::for_gid(1, GidIndex(1), peer)).timeout(9);
    pair.a.modify(&QpChange::new().alternate(alternate))?;
    pair.a
        .modify(&QpChange::new().path_mig_state(MigState::REARM))?;
    let attr = pair.a.query()?;
    assert_eq!(
        (attr.alternate, attr.path_mig_state),
        (Some(alternate), MigState::ARMED)
    );
    pair.a
        .modify(&QpChange::new().path_mig_state(MigState::MIGRATED))?;
    assert_eq!(pair.a.query()?.path_mig_state, MigState::MIGRATED);
    Ok(())
}

#[test]
fn a_transition_without_paths_is_named_in_the_error() {
    let fake = Fake::extended();
    let (_, pd, cq) = parents(&fake);
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
    let init = QpChange::to(QpState::INIT)
        .access(path().access)
        .pkey_index(0)
        .port_num(1);
    let change = init.path_mig_state(MigState::REARM);
    let error = qp
        .modify(&change)
        .expect_err("not allowed in this transition");
    assert!(
        error
            .to_string()
            .contains("RESET to INIT does not allow path_mig_state"),
        "{error}"
    );
}

#[test]
fn each_attribute_of_a_path_reaches_the_device() {
    let fake = Fake::new(Profile::RXE);
    let context = open(&fake);
    let pd = context.alloc_pd().expect("domain");
    let cq = context.create_cq(CqOptions::new().depth(15)).expect("cq");
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("qp");
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    let path = path()
        .access(access)
        .mtu(Mtu::B512)
        .psn(Psn(21))
        .pkey_index(22)
        .sl(3)
        .src_path_bits(4)
        .static_rate(5)
        .timeout(6)
        .retry_cnt(2)
        .rnr_retry(1)
        .min_rnr_timer(9)
        .max_rd_atomic(10)
        .max_dest_rd_atomic(11);
    qp.init(&path).expect("INIT state");
    let own = qp.endpoint(&path).expect("endpoint");
    let peer = Endpoint {
        psn: Psn(31),
        lid: Lid(32),
        ..own
    };
    qp.connect(&path, &peer).expect("RTS state");
    let attr = qp.query().expect("query");
    assert_eq!((attr.port_num, attr.pkey_index), (1, 22));
    assert_eq!((attr.access, attr.path_mtu), (access, Mtu::B512));
    assert_eq!((attr.sq_psn, attr.rq_psn), (Psn(21), Psn(31)));
    assert_eq!(attr.dest_qpn, own.qpn);
    assert_eq!((attr.timeout, attr.retry_cnt, attr.rnr_retry), (6, 2, 1));
    let limits = (attr.max_rd_atomic, attr.max_dest_rd_atomic);
    assert_eq!((limits, attr.min_rnr_timer), ((10, 11), 9));
    let AhAttr {
        dlid,
        sl,
        src_path_bits,
        static_rate,
        grh,
        ..
    } = attr.address;
    assert_eq!((dlid, sl), (Lid(32), 3));
    assert_eq!((src_path_bits, static_rate), (4, 5));
    assert_eq!(grh.expect("a route").dgid, own.gid);

    let mut datagrams = pd.create_qp::<Ud>(&cq, &cq, small()).expect("qp");
    let attr = DatagramAttr::new(1, Qkey(24)).pkey_index(23).psn(Psn(25));
    datagrams.start(&attr).expect("RTS");
    let attr = datagrams.query().expect("query");
    assert_eq!((attr.port_num, attr.pkey_index), (1, 23));
    assert_eq!((attr.qkey, attr.sq_psn), (Qkey(24), Psn(25)));
}

#[test]
fn a_query_needs_only_the_attributes_of_efa() {
    let fake = Fake::new(Profile {
        provider: Provider::Efa,
        transport: Transport::Unspecified,
        ..Profile::RXE
    });
    let context = open(&fake);
    let pd = context.alloc_pd().expect("domain");
    let cq = context.create_cq(CqOptions::new().depth(15)).expect("cq");
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("qp");
    let path = path().psn(Psn(21)).pkey_index(22).rnr_retry(1);
    qp.init(&path).expect("INIT state");
    let endpoint = qp.endpoint(&path).expect("endpoint");
    qp.connect(&path, &endpoint).expect("RTS state");
    let attr = qp.query().expect("query");
    assert_eq!((attr.state, attr.is_draining), (QpState::RTS, false));
    assert_eq!((attr.port_num, attr.pkey_index), (1, 22));
    assert_eq!((attr.sq_psn, attr.rnr_retry), (Psn(21), 1));
    assert_eq!(attr.max_send_wr, qp.caps().max_send_wr);
    let mut datagrams = pd.create_qp::<Ud>(&cq, &cq, small()).expect("qp");
    datagrams
        .start(&DatagramAttr::new(1, Qkey(24)))
        .expect("RTS");
    assert_eq!(datagrams.query().expect("query").qkey, Qkey(24));
    // Another failure is no reason for a second query.
    fake.fail_next(Verb::QueryQp, libc::EIO);
    assert_eq!(qp.query().expect_err("fault").kind(), ErrorKind::Os);
}

#[test]
fn an_alternate_path_fails_with_the_reason_of_the_driver() {
    let cases = [
        (false, libc::EINVAL, ErrorKind::Unsupported),
        (false, libc::EIO, ErrorKind::Os),
        (true, libc::EINVAL, ErrorKind::InvalidInput),
    ];
    for (infiniband_link, errno, kind) in cases {
        let mut pair = Pair::new(Profile {
            infiniband_link,
            ..all_verbs(PROFILES[0])
        });
        pair.fake.fail_next(Verb::ModifyQp, errno);
        let alternate = AlternatePath::new(AhAttr::for_lid(1, Lid(7)));
        let change = QpChange::new().alternate(alternate);
        let error = pair.a.modify(&change).expect_err("fault");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!error.to_string().contains("RESET"), "{error}");
    }
}

#[test]
fn only_the_driver_checks_transitions_over_iwarp() {
    for (profile, is_checked) in [(Profile::SIW, false), (Profile::RXE, true)] {
        let mut pair = Pair::new(profile);
        let change = QpChange::to(QpState::INIT);
        let error = pair.a.modify(&change).expect_err("connected");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.errno().is_none(), is_checked, "{error}");
        // The reason is added to an error of the driver.
        let endpoint = pair.a.endpoint(&path()).expect("endpoint");
        let error = pair.b.connect(&path(), &endpoint).expect_err("connected");
        assert!(error.errno().is_some(), "{error}");
        let text = error.to_string();
        assert_eq!(text.contains("no transition"), is_checked, "{text}");
    }
}

#[test]
fn queue_lengths_beyond_the_limit_of_the_library_are_named() {
    let mut pair = Pair::new(all_verbs(PROFILES[0]));
    for (requests, is_ours) in [(1 << 20, false), ((1 << 20) + 1, true)] {
        for change in [lengths(requests, 7), lengths(7, requests)] {
            let error = pair.a.modify(&change).expect_err("too long");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let text = error.to_string();
            assert_eq!(text.contains("this library"), is_ours, "{text}");
        }
    }
}

#[test]
fn options_of_the_vendor_are_queried_and_set() {
    let mut pair = Pair::new(all_verbs(PROFILES[0]));
    let offered = pair.a.query_ece().expect("options");
    let fewer = Ece {
        options: offered.options & 1,
        ..offered
    };
    assert_ne!(fewer, offered);
    pair.a.set_ece(fewer).expect("offered");
    assert_eq!(pair.a.query_ece().expect("options"), fewer);
    let other = Ece {
        options: !offered.options,
        ..offered
    };
    let error = pair.a.set_ece(other).expect_err("not offered");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let mut pair = Pair::new(PROFILES[0]);
    assert!(pair.a.query_ece().expect_err("none").is_unsupported());
    assert!(pair.a.set_ece(offered).expect_err("none").is_unsupported());
}
