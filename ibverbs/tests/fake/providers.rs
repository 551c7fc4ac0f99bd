//! Rules for providers that do not have all properties: a completion looked up by the number of its
//! queue pair, a poll that follows freed memory, and writes after a failure.

use crate::fixture::{self, Fake, IN_ORDER, PROFILES, Pair, open, small};
use fake_provider::{AfterDestroy, Profile, Provider, SendOrder, Transport, VENDOR_ERROR};
use ibverbs::cq_ex::CqFields;
use ibverbs::qp::QpChange;
use ibverbs::{
    CqOptions, Direction, ErrorKind, PostError, QpState, QueuePair, Rc, RemoteMemory, SrqOptions,
    leaked_objects, wr,
};

/// Finds the request of a completion by the number of the queue pair, when it is polled.
const FINDS_BY_NUMBER: Profile = Profile {
    provider: Provider::Efa,
    transport: Transport::Unspecified,
    send_order: SendOrder::Reversed,
    after_destroy: AfterDestroy::FindByNumber,
    ..Profile::RXE
};

/// Returns a profile whose device writes to memory after a request has failed.
const fn writes_after_failures(provider: Provider, profile: Profile) -> Profile {
    Profile {
        provider,
        writes_after_failures: true,
        ..profile
    }
}

#[test]
fn an_empty_receive_needs_a_provider_that_completes_it() {
    let mut pair = Pair::new(FINDS_BY_NUMBER);
    let rejected = pair.b.post_recv(wr::recv(wr::Empty));
    let error = rejected.expect_err("it never completes").error();
    assert_eq!(error, PostError::EmptyReceive);
    assert!(pair.b.is_idle());
}

#[test]
fn a_number_with_old_completions_is_not_used_again() {
    let mut pair = Pair::new(FINDS_BY_NUMBER);
    pair.post_recvs(1);
    let send = wr::send(wr::Inline(b"old"));
    pair.a.post_send(send).expect("send");
    let number = pair.b.qp_num();
    let new = |pair: &Pair| {
        let qp = pair.pd.create_qp::<Rc>(&pair.cq, &pair.cq, small());
        qp.expect("queue pair")
    };
    let other = new(&pair);
    drop(std::mem::replace(&mut pair.b, other));
    let (mut next, more) = (new(&pair), new(&pair));
    assert!(![&next, &more].map(QueuePair::qp_num).contains(&number));
    next.init(&fixture::path()).expect("INIT state");
    let buf = pair.pool.take().expect("a free buffer");
    next.post_recv(wr::recv(buf)).expect("receive");
    let (sends, recvs) = pair.retire();
    assert_eq!((sends.len(), recvs.len()), (1, 0));
    // The library does not know that the queue has no more completions.
    assert_ne!(new(&pair).qp_num(), number);
    assert!(!next.is_idle(), "its receive was retired");
}

#[test]
fn a_number_is_used_again_without_its_completion_queue() {
    let mut pair = Pair::new(FINDS_BY_NUMBER);
    let (context, pd) = (pair.context.clone(), pair.pd.clone());
    let cq = context.create_cq(CqOptions::new().depth(15)).expect("cq");
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("qp");
    let number = qp.qp_num();
    qp.init(&fixture::path()).expect("INIT state");
    let buf = pair.pool.take().expect("a free buffer");
    qp.post_recv(wr::recv(buf)).expect("receive");
    drop(qp);
    let new = || pd.create_qp::<Rc>(&pair.cq, &pair.cq, small()).expect("qp");
    assert_ne!(new().qp_num(), number, "of any completion queue");
    drop(cq);
    assert_eq!(new().qp_num(), number);
    drop((pd, context));
    assert_eq!(pair.retire().1.len(), 0);
}

#[test]
fn a_number_of_an_idle_queue_pair_is_used_again() {
    let pair = Pair::new(FINDS_BY_NUMBER);
    let new = || pair.pd.create_qp::<Rc>(&pair.cq, &pair.cq, small());
    let number = new().expect("first").qp_num();
    assert_eq!(new().expect("second").qp_num(), number);
}

#[test]
fn completions_left_by_the_caller_are_returned_by_the_next_poll() {
    let mut pair = Pair::new(FINDS_BY_NUMBER);
    for tag in 0..5 {
        pair.b
            .post_recv(wr::recv(pair.buf(b"")).tag(tag))
            .expect("receive");
        pair.a
            .post_send(wr::send(wr::Inline(b"")).tag(tag))
            .expect("send");
    }
    let first = pair.cq.poll().expect("poll").next().expect("one");
    let (a, b) = (&mut pair.a, &mut pair.b);
    let retired = a.try_retire(first).or_else(|first| b.try_retire(first));
    drop(retired.expect("in flight"));
    let (sends, recvs) = pair.retire();
    assert_eq!(sends.len() + recvs.len(), 9);
}

#[test]
fn a_failed_request_keeps_its_buffer_until_the_end() {
    for profile in IN_ORDER {
        let mut pair = Pair::new(writes_after_failures(Provider::Ocrdma, profile));
        pair.post_recvs(2);
        pair.fake.stall();
        for tag in 0..3 {
            let send = wr::send(pair.buf(b"unsent")).tag(tag);
            let send = if tag == 2 { send } else { send.signaled(false) };
            pair.a.post_send(send).expect("send");
        }
        pair.a.to_error().expect("ERR state");
        pair.b.to_error().expect("ERR state");
        let free = pair.pool.available();
        let (sends, recvs) = pair.retire();
        assert_eq!(recvs.len(), 2);
        for retired in sends.into_iter().chain(recvs) {
            assert!(!retired.is_success());
            assert!(
                retired.into_buf().is_none(),
                "a failure returned its buffer"
            );
        }
        assert!(pair.a.is_idle() && pair.b.is_idle());
        assert_eq!(pair.pool.available(), free, "a buffer returned to its pool");
        assert_eq!(pair.cq.poll().expect("the device writes").len(), 0);
        let reset = pair.b.modify(&QpChange::to(QpState::RESET));
        let error = reset.expect_err("its memory is in use");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let (a, b) = (pair.a.destroy().expect("a"), pair.b.destroy().expect("b"));
        let tags = |bufs: &[(u64, ibverbs::Buf)]| bufs.iter().map(|(tag, _)| *tag).collect();
        let (sent, received): (Vec<u64>, Vec<u64>) = (tags(&a.sends), tags(&b.recvs));
        assert_eq!((sent, received), (vec![0, 1, 2], vec![0, 1]));
        drop((a, b, pair.pool, pair.cq, pair.pd, pair.context));
        pair.fake.assert_clean();
    }
}

/// The unsignaled requests before the failed one retire with it, wherever they are in the ring.
#[test]
fn a_failure_keeps_the_buffers_of_all_requests_it_retires() {
    // Miri is slow, so it runs three of the eight places.
    let step = if cfg!(miri) { 3 } else { 1 };
    for profile in IN_ORDER {
        for completed in (0..8).step_by(step) {
            let mut pair = Pair::new(writes_after_failures(Provider::Ocrdma, profile));
            for _ in 0..completed {
                pair.post_recvs(1);
                let send = wr::send(wr::Inline(b"x"));
                pair.a.post_send(send).expect("send");
                assert_eq!(pair.retire().0.len(), 1);
            }
            pair.post_recvs(2);
            for tag in 0..2 {
                let send = wr::send(pair.buf(b"short")).tag(tag).signaled(false);
                pair.a.post_send(send).expect("send");
            }
            let nowhere = RemoteMemory {
                addr: 0,
                len: 5,
                rkey: 0,
            };
            let write = wr::write(pair.buf(b"wrong"), nowhere).tag(2);
            pair.a.post_send(write).expect("write");
            let free = pair.pool.available();
            let (mut sends, recvs) = pair.retire();
            assert_eq!((sends.len(), recvs.len()), (1, 2));
            let failed = sends.remove(0);
            assert!(!failed.is_success());
            assert_eq!(failed.vendor_err(), VENDOR_ERROR);
            assert!(failed.into_buf().is_none());
            assert_eq!(pair.pool.available(), free, "a buffer returned to its pool");
            let kept = pair.a.destroy().expect("destroyed").sends;
            assert_eq!(
                kept.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(),
                [0, 1, 2]
            );
        }
    }
}

#[test]
fn a_failed_receive_of_an_srq_keeps_its_buffer() {
    let fake = Fake::new(writes_after_failures(Provider::Ocrdma, Profile::RXE));
    let context = open(&fake);
    let pd = context.alloc_pd().expect("domain");
    let mut cq = context.create_cq(CqOptions::new().depth(15)).expect("cq");
    let mut srq = pd.create_srq(SrqOptions::new().max_wr(3)).expect("srq");
    let mut a = pd.create_qp::<Rc>(&cq, &cq, small()).expect("a");
    let mut b = pd
        .create_qp_with_srq::<Rc>(&cq, &cq, &srq, small())
        .expect("b");
    fixture::connect(&mut a, &mut b);
    srq.post_recv(wr::recv(pd.buf(1).expect("buf")))
        .expect("recv");
    a.post_send(wr::send(wr::Inline(b"too long")))
        .expect("send");
    let mut failed = 0;
    for completion in cq.poll().expect("poll") {
        if completion.direction() == Direction::Recv {
            let retired = srq.retire(completion).expect("in flight");
            assert!(!retired.is_success());
            assert!(
                retired.into_buf().is_none(),
                "a failure returned its buffer"
            );
            failed += 1;
        }
    }
    assert_eq!(failed, 1);
}

#[test]
fn an_unknown_provider_has_no_shared_receive_queues() {
    for provider in [Provider::Unknown, Provider::Qedr, Provider::Cxgb4] {
        let fake = Fake::new(Profile {
            provider,
            ..Profile::RXE
        });
        let pd = open(&fake).alloc_pd().expect("domain");
        let error = pd.create_srq(SrqOptions::new()).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.help().is_some());
    }
}

#[test]
fn an_unknown_provider_destroys_idle_queue_pairs() {
    for profile in PROFILES {
        let leaked = leaked_objects();
        let mut pair = Pair::new(Profile {
            provider: Provider::Unknown,
            after_destroy: AfterDestroy::Poison,
            ..profile
        });
        pair.post_recvs(1);
        assert_eq!(pair.a.caps().max_inline_data, 0);
        let inline = pair.a.post_send(wr::send(wr::Inline(b"x")));
        let error = inline.expect_err("not copied").error();
        assert!(matches!(error, PostError::InlineTooLong { .. }));
        let buf = pair.buf(b"x");
        pair.a
            .post_send(wr::send(buf).signaled(false))
            .expect("send");
        let (sends, recvs) = pair.retire();
        assert_eq!(
            (sends.len(), recvs.len()),
            (1, 1),
            "each request is signaled"
        );
        drop((sends, recvs));
        let Pair { a, b, .. } = pair;
        a.destroy().expect("idle");
        drop(b);
        assert_eq!(pair.cq.poll().expect("poll").len(), 0);
        drop((pair.cq, pair.pool, pair.pd, pair.context));
        assert_eq!(leaked_objects(), leaked);
    }
}

#[test]
fn an_extended_queue_returns_failures_before_an_error() {
    let fake = Fake::new(Profile {
        extra_fields: true,
        ..writes_after_failures(Provider::Ocrdma, Profile::RXE)
    });
    let context = open(&fake);
    let pd = context.alloc_pd().expect("domain");
    let options = CqOptions::new().depth(15);
    let mut cq = context
        .create_cq_ex(options, CqFields::new().timestamp())
        .expect("cq");
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("qp");
    qp.init(&fixture::path()).expect("INIT state");
    for tag in 0..3 {
        let buf = pd.buf(8).expect("buf");
        qp.post_recv(wr::recv(buf).tag(tag)).expect("receive");
    }
    assert!(cq.poll().expect("poll").is_empty());
    qp.to_error().expect("ERR state");
    fake.fail_poll_after(3, libc::EIO);
    for tag in 0..3 {
        let flushed = cq.poll().expect("poll").next().expect("flushed");
        let retired = qp.retire(flushed.into()).expect("in flight");
        assert_eq!(retired.tag(), tag);
        assert!(
            retired.into_buf().is_none(),
            "a failure returned its buffer"
        );
    }
    assert_eq!(cq.poll().expect_err("poll error").kind(), ErrorKind::Os);
    assert!(cq.poll().expect("reported once").is_empty());
}

#[test]
fn polls_of_several_completions_take_no_turn() {
    let fake = Fake::new(Profile {
        extra_fields: true,
        ..FINDS_BY_NUMBER
    });
    let context = open(&fake);
    let options = CqOptions::new().depth(15);
    let created = context.create_cq_ex(options, CqFields::new().timestamp());
    let error = created.expect_err("polls exclude the creation of queue pairs");
    assert!(error.is_unsupported(), "{error}");
}
