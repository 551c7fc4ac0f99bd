//! What is refused, by this crate or by the provider: the payload comes back, and the error says
//! why and what to do.

mod fake;

use fake::{PROFILES, Pair, open, small};
use fake_provider::{ErrorStatePosts, Fake, PostFault, Profile, Queue, Verb};
use ibverbs::{
    CqOptions, Device, Errno, ErrorKind, PostError, QpOptions, QpState, Rc, WcStatus, wr,
};

const REFUSED: PostFault = PostFault {
    queue: Queue::Send,
    at: 0,
    errno: libc::ENOMEM,
    sets_bad_wr: true,
    executed: false,
};
const IN_DOUBT: PostFault = PostFault {
    sets_bad_wr: false,
    ..REFUSED
};

#[test]
fn a_full_queue_gives_the_buffer_back_before_the_device_hears_of_it() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        pair.fake.stall();
        let capacity = pair.a.caps().max_send_wr;
        assert!(capacity >= small().max_send_wr, "the device rounds up");
        for _ in 0..capacity {
            pair.a.post_send(wr::send(wr::Empty)).expect("a free slot");
        }
        let buf = pair.buf(b"kept");
        let rejected = pair.a.post_send(wr::send(buf)).expect_err("full");
        assert_eq!(rejected.error(), PostError::QueueFull { capacity });
        assert!(
            rejected.to_string().contains("retire completions first"),
            "{rejected}"
        );
        assert_eq!(
            &rejected.into_payload().expect("the posted buffer")[..],
            b"kept"
        );
        let capacity = pair.b.caps().max_recv_wr;
        for _ in 0..capacity {
            pair.b.post_recv(wr::recv(wr::Empty)).expect("a free slot");
        }
        let buf = pair.buf(b"kept");
        let rejected = pair.b.post_recv(wr::recv(buf)).expect_err("full");
        assert_eq!(rejected.error(), PostError::QueueFull { capacity });
        assert_eq!(
            &rejected.into_payload().expect("the posted buffer")[..],
            b"kept"
        );
        // One after the other is retired, and the queue takes as many again.
        pair.fake.resume();
        drop(pair.retire());
        assert_eq!(pair.a.send_slots_free(), pair.a.caps().max_send_wr as usize);
        pair.finish();
    }
}

#[test]
fn unsignalled_sends_alone_fill_the_queue() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        for _ in 0..pair.a.caps().max_send_wr {
            pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
            pair.a
                .post_send(wr::send(wr::Empty).unsignaled())
                .expect("a free slot");
            drop(pair.retire());
        }
        assert!(matches!(
            pair.a
                .post_send(wr::send(wr::Empty))
                .expect_err("full")
                .error(),
            PostError::QueueFull { .. }
        ));
        pair.finish();
    }
}

#[test]
fn inline_data_that_is_too_long_is_refused() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let max = pair.a.caps().max_inline_data;
        let long = vec![0; max as usize + 1];
        let rejected = pair
            .a
            .post_send(wr::send(wr::Inline(&long)))
            .expect_err("too long");
        assert_eq!(
            rejected.error(),
            PostError::InlineTooLong {
                len: long.len(),
                max
            }
        );
        let in_batch = pair.a.batch(|batch| -> Result<(), ibverbs::Error> {
            assert!(batch.send(wr::send(wr::Inline(&long))).is_err());
            Ok(())
        });
        in_batch.expect("the batch goes on without it");
        pair.finish();
    }
}

#[test]
fn memory_of_another_domain_or_queue_pair_is_refused() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let other = pair.context.alloc_pd().expect("another domain");
        let rejected = pair
            .a
            .post_send(wr::send(other.buf(8).expect("buffer")))
            .expect_err("another domain");
        assert_eq!(rejected.error(), PostError::WrongDomain);
        assert_eq!(ibverbs::Error::from(rejected).kind(), ErrorKind::Mismatch);
        let rejected = pair
            .b
            .post_recv(wr::recv(other.buf(8).expect("buffer")))
            .expect_err("another domain");
        assert_eq!(rejected.error(), PostError::WrongDomain);
        drop(rejected);
        let frozen = pair.buf(b"x").freeze();
        let held = pair.b.hold(&frozen).expect("b");
        let rejected = pair.a.post_send(wr::send(held)).expect_err("held by b");
        assert_eq!(rejected.error(), PostError::WrongQueue);
        assert!(rejected.into_payload().is_some());
        let foreign = other.sink(8).expect("sink");
        assert_eq!(
            pair.a.hold(&foreign).expect_err("another domain").kind(),
            ErrorKind::Mismatch
        );
        drop((frozen, foreign, other));
        pair.finish();
    }
}

#[test]
fn objects_of_two_openings_are_refused() {
    let (fake, other) = (Fake::extended(), Fake::classic());
    let (context, second) = (open(&fake), open(&other));
    let pd = context.alloc_pd().expect("protection domain");
    let cq = second
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let error = pd
        .create_qp::<Rc>(&cq, &cq, small())
        .expect_err("another device's queue");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    let text = error.to_string();
    assert!(
        text.contains(fake.name()) && text.contains(other.name()),
        "{text}"
    );
    drop((cq, pd, context, second));
    fake.assert_clean();
    other.assert_clean();
}

#[test]
fn a_request_that_the_provider_refuses_comes_back() {
    // The extended verbs have no `bad_wr`: what they report is in doubt (next test).
    let mut pair = Pair::new(PROFILES[1]);
    pair.fake.fail_post(REFUSED);
    let buf = pair.buf(b"back");
    let rejected = pair.a.post_send(wr::send(buf)).expect_err("refused");
    assert_eq!(
        rejected.error(),
        PostError::Refused(Errno(libc::ENOMEM)),
        "siw's sign is taken off"
    );
    assert_eq!(
        &rejected.into_payload().expect("the posted buffer")[..],
        b"back"
    );
    assert_eq!(pair.a.send_slots_free(), pair.a.caps().max_send_wr as usize);
    pair.fake.fail_post(PostFault {
        queue: Queue::Recv,
        ..REFUSED
    });
    let buf = pair.buf(b"back");
    let rejected = pair.b.post_recv(wr::recv(buf)).expect_err("refused");
    assert_eq!(
        &rejected.into_payload().expect("the posted buffer")[..],
        b"back"
    );
    pair.receives(1);
    pair.a
        .post_send(wr::send(wr::Inline(b"on")))
        .expect("the queue works on");
    assert_eq!(pair.retire().1.len(), 1);
    pair.finish();
}

#[test]
fn a_request_in_doubt_keeps_its_buffer() {
    for executed in [true, false] {
        for profile in PROFILES {
            let mut pair = Pair::new(profile);
            let free = pair.pool.available();
            for (queue, fault) in [
                (
                    Queue::Recv,
                    PostFault {
                        queue: Queue::Recv,
                        executed,
                        ..IN_DOUBT
                    },
                ),
                (
                    Queue::Send,
                    PostFault {
                        executed,
                        ..IN_DOUBT
                    },
                ),
            ] {
                pair.fake.fail_post(fault);
                let buf = pair.buf(b"in doubt");
                let rejected = match queue {
                    Queue::Send => pair.a.post_send(wr::send(buf)).expect_err("in doubt"),
                    Queue::Recv | Queue::SharedRecv => {
                        pair.b.post_recv(wr::recv(buf)).expect_err("in doubt")
                    }
                };
                assert_eq!(rejected.error(), PostError::InDoubt(Errno(libc::ENOMEM)));
                assert!(
                    rejected.to_string().contains("may have been posted"),
                    "{rejected}"
                );
                assert!(rejected.into_payload().is_none());
            }
            assert_eq!(pair.pool.available(), free - 2);
            let (sent, received) = pair.retire();
            assert_eq!(sent.len() + received.len(), if executed { 2 } else { 0 });
            drop((sent, received));
            // What never completes comes back when the queue pair is destroyed.
            let Pair {
                a,
                b,
                cq,
                pool,
                pd,
                context,
                fake,
            } = pair;
            let (of_a, of_b) = (a.destroy().expect("a"), b.destroy().expect("b"));
            assert_eq!(
                (of_a.sends.len(), of_b.recvs.len()),
                if executed { (0, 0) } else { (1, 1) }
            );
            drop((of_a, of_b, cq, pool, pd, context));
            fake.assert_clean();
        }
    }
}

#[test]
fn a_queue_pair_in_the_wrong_state_refuses_with_a_remedy() {
    for profile in PROFILES {
        let pair = Pair::new(profile);
        let mut qp = pair
            .pd
            .create_qp::<Rc>(&pair.cq, &pair.cq, small())
            .expect("fresh");
        assert_eq!(qp.state().expect("query"), QpState::RESET);
        let error = qp.post_recv(wr::recv(wr::Empty)).expect_err("RESET");
        assert_eq!(error.error(), PostError::Refused(Errno(libc::EINVAL)));
        let error = ibverbs::Error::from(qp.post_send(wr::send(wr::Empty)).expect_err("RESET"));
        assert!(
            error
                .to_string()
                .contains("check that the queue pair is connected"),
            "{error}"
        );
        drop(qp);
        pair.finish();
    }
}

#[test]
fn requests_to_a_dead_queue_pair_come_back_with_its_destruction_at_the_latest() {
    for error_state_posts in [ErrorStatePosts::Flush, ErrorStatePosts::Discard] {
        for profile in PROFILES {
            let mut pair = Pair::new(profile);
            pair.fake
                .set(|profile| profile.error_state_posts = error_state_posts);
            pair.a.to_error().expect("ERR state");
            let (send, recv) = (pair.buf(b"dead"), pair.pool.take().expect("a free buffer"));
            pair.a.post_send(wr::send(send).tag(1)).expect("accepted");
            pair.a.post_recv(wr::recv(recv).tag(2)).expect("accepted");
            let (retired, _) = pair.retire();
            let flushed = retired
                .iter()
                .filter(|retired| retired.status() == WcStatus::WR_FLUSH_ERR)
                .count();
            drop(retired);
            let Pair {
                a,
                b,
                cq,
                pool,
                pd,
                context,
                fake,
            } = pair;
            let reclaimed = a.destroy().expect("destroyed");
            assert_eq!(flushed + reclaimed.sends.len() + reclaimed.recvs.len(), 2);
            drop((reclaimed, b, cq, pool, pd, context));
            fake.assert_clean();
        }
    }
}

#[test]
fn null_with_errno_0_is_an_error_with_a_remedy() {
    let fake = Fake::classic();
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::default())
        .expect("completion queue");
    fake.fail_next(Verb::CreateQp, 0);
    // What an earlier call left behind must not be taken for the reason.
    assert!(Device::by_name("no such device").is_err());
    let error = pd.create_qp::<Rc>(&cq, &cq, small()).expect_err("NULL");
    assert_eq!(
        (error.call(), error.errno()),
        ("ibv_create_qp", Some(Errno(0)))
    );
    let text = error.to_string();
    assert!(
        text.contains("failed without a reason (errno 0)") && text.contains("create a larger one"),
        "{text}"
    );
    pd.create_qp::<Rc>(&cq, &cq, small())
        .expect("the next one works");
    drop((cq, pd, context));
    fake.assert_clean();
}

#[test]
fn a_provider_that_refuses_the_extended_verbs_gets_the_classic_ones() {
    let fake = Fake::extended();
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    fake.fail_next(Verb::CreateCqEx, libc::EOPNOTSUPP);
    let cq = context
        .create_cq(CqOptions {
            extended: true,
            ..CqOptions::default()
        })
        .expect("completion queue");
    assert!(!cq.is_extended());
    // With the operations of windows, and without.
    fake.fail_next(Verb::CreateQpEx, libc::EOPNOTSUPP);
    fake.fail_next(Verb::CreateQpEx, libc::EOPNOTSUPP);
    let qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
    assert!(!qp.is_extended());
    drop((qp, cq, pd, context));
    fake.assert_clean();
}

#[test]
fn every_verb_that_fails_is_named_with_its_reason() {
    let fake = Fake::classic();
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
    let check = |verb: Verb, name: &str, call: &mut dyn FnMut() -> Option<ibverbs::Error>| {
        fake.fail_next(verb, libc::EACCES);
        let error = call().expect(name);
        assert_eq!(
            (error.call(), error.errno(), error.kind()),
            (name, Some(Errno(libc::EACCES)), ErrorKind::PermissionDenied)
        );
        assert!(
            error.to_string().contains("Permission denied (EACCES)"),
            "{error}"
        );
    };
    check(Verb::GetDeviceList, "ibv_get_device_list", &mut || {
        Device::list().err()
    });
    check(Verb::OpenDevice, "ibv_open_device", &mut || {
        context.device().open().err()
    });
    check(Verb::QueryDevice, "ibv_query_device", &mut || {
        context.query_device().err()
    });
    check(Verb::QueryPort, "ibv_query_port", &mut || {
        context.query_port(1).err()
    });
    check(Verb::AllocPd, "ibv_alloc_pd", &mut || {
        context.alloc_pd().err()
    });
    check(Verb::RegMr, "ibv_reg_mr", &mut || pd.buf(8).err());
    check(Verb::CreateCq, "ibv_create_cq", &mut || {
        context.create_cq(CqOptions::default()).err()
    });
    check(Verb::CreateQp, "ibv_create_qp", &mut || {
        pd.create_qp::<Rc>(&cq, &cq, small()).err()
    });
    check(Verb::QueryQp, "ibv_query_qp", &mut || qp.state().err());
    check(Verb::ModifyQp, "ibv_modify_qp", &mut || qp.to_error().err());
    drop((qp, cq, pd, context));
    fake.assert_clean();
}

#[test]
fn a_device_without_the_gid_table_verb_is_asked_entry_by_entry() {
    let fake = Fake::extended();
    let context = open(&fake);
    let whole = context.gids(1).expect("table");
    fake.fail_next(Verb::QueryGidTable, libc::EOPNOTSUPP);
    let one_by_one = context.gids(1).expect("entries");
    let gids = |entries: &[ibverbs::gid::GidEntry]| {
        entries.iter().map(|entry| entry.gid).collect::<Vec<_>>()
    };
    assert_eq!(gids(&whole), gids(&one_by_one));
    assert_eq!(
        context.query_port(2).expect_err("one port").kind(),
        ErrorKind::InvalidInput
    );
    drop(context);
    fake.assert_clean();
}

#[test]
fn sizes_above_the_device_or_the_library_are_refused() {
    let fake = Fake::new(Profile::SIW);
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::default())
        .expect("completion queue");
    for options in [
        QpOptions {
            max_send_sge: 99,
            ..small()
        },
        QpOptions {
            max_send_wr: 1 << 31,
            ..small()
        },
        QpOptions {
            max_inline_data: 100_000,
            ..small()
        },
    ] {
        let error = pd
            .create_qp::<Rc>(&cq, &cq, options)
            .expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.help().is_some(), "{error}");
    }
    for (count, size) in [(0, 8), (8, 0), (usize::MAX, 8), (1 << 40, 1 << 40)] {
        assert_eq!(
            pd.pool(count, size).expect_err("no such pool").kind(),
            ErrorKind::InvalidInput
        );
    }
    assert!(pd.sink(0).is_err() && pd.sink(1 << 40).is_err());
    drop((cq, pd, context));
    fake.assert_clean();
}
