//! Errors of this crate and of the provider: the payload is returned, and the error names the cause
//! and the remedy.

use crate::fixture::{Fake, IN_ORDER, PROFILES, Pair, open, pairs, parents, path, small};
use fake_provider::{ErrorStatePosts, PostFault, Profile, Queue, Verb};
use ibverbs::{
    AccessFlags, CqOptions, Device, Errno, ErrorKind, PostError, Rc, SrqOptions, Ud, WcStatus,
    qp::OptionalOps, wr,
};

/// A send that the provider rejects.
const REJECTED: PostFault = PostFault {
    queue: Queue::Send,
    at: 0,
    errno: libc::ENOMEM,
    sets_bad_wr: true,
    executed: false,
};
/// A failed send that may have been posted.
const IN_DOUBT: PostFault = PostFault {
    sets_bad_wr: false,
    ..REJECTED
};

#[test]
fn a_full_queue_returns_the_buffer_without_posting() {
    for mut pair in pairs(PROFILES) {
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
        // After its requests are retired, the queue is empty again.
        pair.fake.resume();
        drop(pair.retire());
        assert_eq!(pair.a.send_slots_free(), pair.a.caps().max_send_wr as usize);
    }
}

#[test]
fn unsignaled_sends_alone_fill_the_queue() {
    for mut pair in pairs(IN_ORDER) {
        for _ in 0..pair.a.caps().max_send_wr {
            pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
            pair.a
                .post_send(wr::send(wr::Empty).signaled(false))
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
    }
}

#[test]
fn inline_data_that_is_too_long_is_rejected() {
    for mut pair in pairs(PROFILES) {
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
        in_batch.expect("batch without the rejected request");
    }
}

#[test]
fn memory_of_another_domain_or_queue_pair_is_rejected() {
    for mut pair in pairs(PROFILES) {
        let other = pair.context.alloc_pd().expect("protection domain");
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
        let held = pair.b.hold(&frozen).expect("hold");
        let rejected = pair.a.post_send(wr::send(held)).expect_err("held by b");
        assert_eq!(rejected.error(), PostError::WrongQueue);
        assert!(rejected.into_payload().is_some());
        let foreign = other.sink(8).expect("sink");
        assert_eq!(
            pair.a.hold(&foreign).expect_err("another domain").kind(),
            ErrorKind::Mismatch
        );
    }
}

#[test]
fn objects_of_two_contexts_are_rejected() {
    let (fake, other) = (Fake::extended(), Fake::classic());
    let (context, second) = (open(&fake), open(&other));
    let pd = context.alloc_pd().expect("protection domain");
    let cq = second
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let error = pd
        .create_qp::<Rc>(&cq, &cq, small())
        .expect_err("a completion queue of another device");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    let text = error.to_string();
    assert!(
        text.contains(fake.name()) && text.contains(other.name()),
        "{text}"
    );
}

#[test]
fn a_request_rejected_by_the_provider_is_returned() {
    // The extended verbs have no `bad_wr`, so their errors leave a request in doubt (next test).
    let mut pair = Pair::new(PROFILES[1]);
    pair.fake.fail_post(REJECTED);
    let buf = pair.buf(b"returned");
    let rejected = pair.a.post_send(wr::send(buf)).expect_err("rejected");
    assert_eq!(
        rejected.error(),
        PostError::Refused(Errno(libc::ENOMEM)),
        "the error number is positive"
    );
    assert_eq!(
        &rejected.into_payload().expect("the posted buffer")[..],
        b"returned"
    );
    assert_eq!(pair.a.send_slots_free(), pair.a.caps().max_send_wr as usize);
    pair.fake.fail_post(PostFault {
        queue: Queue::Recv,
        ..REJECTED
    });
    let buf = pair.buf(b"returned");
    let rejected = pair.b.post_recv(wr::recv(buf)).expect_err("rejected");
    assert_eq!(
        &rejected.into_payload().expect("the posted buffer")[..],
        b"returned"
    );
    pair.post_recvs(1);
    pair.a
        .post_send(wr::send(wr::Inline(b"on")))
        .expect("the queue is still usable");
    assert_eq!(pair.retire().1.len(), 1);
}

#[test]
fn a_request_in_doubt_keeps_its_buffer() {
    for executed in [true, false] {
        for mut pair in pairs(PROFILES) {
            let available = pair.pool.available();
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
            assert_eq!(pair.pool.available(), available - 2);
            let (sent, received) = pair.retire();
            assert_eq!(sent.len() + received.len(), if executed { 2 } else { 0 });
            drop((sent, received));
            // Destroying the queue pair returns requests that never complete.
            let of_a = pair.a.destroy().expect("a");
            let of_b = pair.b.destroy().expect("b");
            assert_eq!(
                (of_a.sends.len(), of_b.recvs.len()),
                if executed { (0, 0) } else { (1, 1) }
            );
        }
    }
}

#[test]
fn requests_in_the_error_state_are_flushed_or_reclaimed() {
    for error_state_posts in [ErrorStatePosts::Flush, ErrorStatePosts::Discard] {
        for profile in PROFILES {
            let mut pair = Pair::new(profile);
            pair.fake
                .set(|profile| profile.error_state_posts = error_state_posts);
            pair.a.to_error().expect("ERR state");
            let (send, recv) = (
                pair.buf(b"flushed"),
                pair.pool.take().expect("a free buffer"),
            );
            pair.a.post_send(wr::send(send).tag(1)).expect("post");
            pair.a.post_recv(wr::recv(recv).tag(2)).expect("post");
            let (retired, _) = pair.retire();
            let flushed = retired
                .iter()
                .filter(|retired| retired.status() == WcStatus::WR_FLUSH_ERR)
                .count();
            drop(retired);
            let reclaimed = pair.a.destroy().expect("destroyed");
            assert_eq!(flushed + reclaimed.sends.len() + reclaimed.recvs.len(), 2);
        }
    }
}

#[test]
fn null_with_errno_0_is_an_error_with_a_remedy() {
    let fake = Fake::classic();
    let (_, pd, cq) = parents(&fake);
    fake.fail_next(Verb::CreateQp, 0);
    // The errno of an earlier call must not be reported as the cause.
    assert!(Device::by_name("no such device").is_err());
    let error = pd.create_qp::<Rc>(&cq, &cq, small()).expect_err("NULL");
    assert_eq!(
        (error.call(), error.errno()),
        ("ibv_create_qp", Some(Errno(0)))
    );
    let text = error.to_string();
    assert!(
        text.contains("failed without a reason (errno 0)")
            && text.contains("open the device again"),
        "{text}"
    );
    pd.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
}

#[test]
fn unsupported_extended_verbs_fall_back_to_classic_verbs() {
    let fake = Fake::extended();
    let (_, pd, cq) = parents(&fake);
    // The two attempts, with and without window operations.
    fake.fail_next(Verb::CreateQpEx, libc::EOPNOTSUPP);
    fake.fail_next(Verb::CreateQpEx, libc::EOPNOTSUPP);
    let qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
    assert!(!qp.is_extended());
}

#[test]
fn a_failed_verb_is_named_with_its_cause() {
    let fake = Fake::classic();
    let (context, pd, cq) = parents(&fake);
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
}

#[test]
fn gids_are_read_one_by_one_without_the_table_verb() {
    let fake = Fake::extended();
    let context = open(&fake);
    let table = context.gids(1).expect("table");
    fake.fail_next(Verb::QueryGidTable, libc::EOPNOTSUPP);
    let single_entries = context.gids(1).expect("single entries");
    let gids = |entries: &[ibverbs::gid::GidEntry]| {
        entries.iter().map(|entry| entry.gid).collect::<Vec<_>>()
    };
    assert_eq!(gids(&table), gids(&single_entries));
    assert_eq!(
        context.query_port(2).expect_err("one port").kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn sizes_above_the_limits_are_rejected() {
    let fake = Fake::new(Profile::SIW);
    let (_, pd, cq) = parents(&fake);
    for options in [
        small().max_send_sge(99),
        small().max_send_wr(1 << 31),
        small().max_inline_data(100_000),
    ] {
        let error = pd
            .create_qp::<Rc>(&cq, &cq, options)
            .expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.help().is_some(), "{error}");
    }
    // The error has the limit, which verbs do not report.
    let create = |inline| pd.create_qp::<Rc>(&cq, &cq, small().max_inline_data(inline));
    let error = create(100_000).expect_err("too large");
    let help = error.help().expect("a limit");
    let limit = help.split("at most ").nth(1).expect("a limit");
    let limit = limit
        .split(' ')
        .next()
        .and_then(|number| number.parse().ok());
    let limit: u32 = limit.expect("a number");
    drop(create(limit).expect("the limit is granted"));
    create(limit + 1).expect_err("above the limit");
    for (count, size) in [(0, 8), (8, 0), (usize::MAX, 8), (1 << 40, 1 << 40)] {
        assert_eq!(
            pd.pool(count, size).expect_err("invalid size").kind(),
            ErrorKind::InvalidInput
        );
    }
    // More than a `wr_id` can number, whatever the device supports.
    let error = pd.create_srq(SrqOptions::new().max_wr(1 << 21));
    let help = error.expect_err("too large").help().map(str::to_owned);
    assert!(help.is_some_and(|help| help.contains("this library")));
    fake.fail_next(Verb::CreateSrq, libc::EINVAL);
    let error = pd.create_srq(SrqOptions::new()).expect_err("refused");
    let help = error.help().expect("the limits");
    assert!(help.contains("max_srq_sge"), "{error}: {help}");
    assert!(pd.sink(0).is_err() && pd.sink(1 << 40).is_err());
    assert!(pd.shared(0, AccessFlags::REMOTE_READ).is_err());
}

#[test]
fn limits_of_the_library_come_before_those_of_the_device() {
    let fake = Fake::extended();
    let (_, pd, cq) = parents(&fake);
    let refused = |options| {
        let created = pd.create_qp::<Rc>(&cq, &cq, options);
        let error = created.expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    };
    for (requests, is_ours) in [(1 << 20, false), ((1 << 20) + 1, true)] {
        for options in [small().max_send_wr(requests), small().max_recv_wr(requests)] {
            let text = refused(options);
            assert_eq!(text.contains("this library"), is_ours, "{text}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "no allocation fails")]
fn a_batch_of_inline_data_beyond_the_memory_is_rejected() {
    let fake = Fake::extended();
    let (_, pd, cq) = parents(&fake);
    let options = small().max_batch(1 << 24).max_inline_data(1 << 24);
    let created = pd.create_qp::<Rc>(&cq, &cq, options);
    let text = created.expect_err("256 TiB").to_string();
    assert!(text.contains("not enough memory"), "{text}");
}

#[test]
fn several_gather_entries_need_classic_verbs_on_soft_roce() {
    const SOFT_ROCE: u32 = 0xff_ffff;
    let cases = [
        (SOFT_ROCE, 0, true),
        (SOFT_ROCE, 1, true),
        (SOFT_ROCE, 2, false),
        (0, 2, true),
    ];
    for (vendor_id, entries, is_extended) in cases {
        let fake = Fake::new(Profile {
            vendor_id,
            ..Profile::RXE
        });
        let (_, pd, cq) = parents(&fake);
        let options = small().max_send_sge(entries);
        let qp = pd.create_qp::<Rc>(&cq, &cq, options).expect("queue pair");
        assert_eq!(qp.is_extended(), is_extended, "{vendor_id:x}, {entries}");
        assert!(qp.caps().max_send_sge >= entries);
    }
}

#[test]
fn optional_operations_are_not_replaced_by_classic_verbs() {
    let fake = Fake::extended();
    let (_, pd, cq) = parents(&fake);
    let options = small().optional_ops(OptionalOps::ATOMIC_WRITE);
    for options in [options, options.classic_only(true)] {
        let error = pd.create_qp::<Rc>(&cq, &cq, options);
        let error = error.expect_err("the device has none");
        assert!(error.is_unsupported(), "{error}");
    }
    let error = pd.create_qp::<Ud>(&cq, &cq, options);
    let error = error.expect_err("datagrams have none");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    for mut pair in pairs(PROFILES) {
        let region = pair.pd.shared(8, path().access).expect("region");
        let write = wr::atomic_write(region.remote(), [7; 8]);
        let rejected = pair.a.post_send(write).expect_err("not requested");
        assert_eq!(rejected.error(), PostError::NotRequested);
    }
    let mut pair = Pair::new(Profile {
        windows: false,
        ..Profile::RXE
    });
    let send = wr::send_with_inv(wr::Empty, 1);
    let rejected = pair.a.post_send(send).expect_err("no windows");
    assert_eq!(rejected.error(), PostError::Unsupported);
}
