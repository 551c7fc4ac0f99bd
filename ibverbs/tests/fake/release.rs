//! Release of held memory while its queue pair lives, on the fake device.

use crate::fixture::{self, Fake, IN_ORDER, OUT_OF_ORDER, PROFILES, Pair, open, pairs, small};
use fake_provider::{Profile, Provider};
use ibverbs::{
    AccessFlags, CqOptions, ErrorKind, Frozen, Held, MemoryOptions, PostError, Rc, SharedRegion,
    SrqOptions, wr,
};

const REMOTE_RW: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

impl Pair {
    fn region(&self) -> SharedRegion {
        self.pd.shared(64, REMOTE_RW).expect("region")
    }
}

fn error_of<P>(posted: Result<(), ibverbs::Rejected<P>>) -> Option<PostError> {
    posted.err().map(|rejected| rejected.error())
}

#[test]
fn released_memory_is_freed_when_its_requests_have_retired() {
    for mut pair in pairs(IN_ORDER.into_iter().chain(OUT_OF_ORDER)) {
        let target = pair.region();
        let region = pair.region();
        region.write(0, b"held").expect("in range");
        let held = pair.a.hold(&region).expect("hold").slice(0..4);
        let held = held.expect("in range");
        drop(region);
        let mrs = pair.fake.live().mrs;
        pair.fake.stall();
        let write = |held| wr::write(held, target.remote());
        pair.a.post_send(write(held)).expect("write");
        assert!(!pair.a.release(held).expect("own token"), "in flight");
        assert!(!pair.a.release(held).expect("own token"), "still in flight");
        assert_eq!(
            error_of(pair.a.post_send(write(held))),
            Some(PostError::WrongQueue)
        );
        assert_eq!(pair.fake.live().mrs, mrs);
        pair.fake.resume();
        let sent = pair.retire().0;
        assert!(sent.len() == 1 && sent[0].is_success());
        assert!(pair.a.release(held).expect("own token"), "retired");
        assert!(pair.a.release(held).expect("own token"), "already released");
        assert_eq!(pair.fake.live().mrs, mrs - 1);
        let mut seen = [0; 4];
        target.read(0, &mut seen).expect("in range");
        assert_eq!(&seen, b"held");
    }
}

#[test]
fn other_tokens_outlive_a_release() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(3);
        let texts = [b"first", b"other"].map(|text| pair.buf(text).freeze());
        let tokens = texts
            .each_ref()
            .map(|text| pair.a.hold(text).expect("hold"));
        assert!(pair.a.release(tokens[0]).expect("own token"));
        // The other token is older than the release, and a new one is not.
        pair.a.post_send(wr::send(tokens[1])).expect("send");
        let again = pair.a.hold(&texts[0]).expect("hold");
        pair.a.post_send(wr::send(again)).expect("send");
        pair.a
            .batch(|batch| -> ibverbs::Result<()> { Ok(batch.send(wr::send(tokens[1]))?) })
            .expect("batch");
        let error = error_of(pair.a.post_send(wr::send(tokens[0])));
        assert_eq!(error, Some(PostError::WrongQueue));
        let received = pair.retire().1.into_iter().map(fixture::buf_bytes);
        let received: Vec<_> = received.collect();
        assert_eq!(received, [b"other", b"first", b"other"]);
        let [first, second] = texts;
        let first = first.try_thaw().expect_err("held again");
        assert!(pair.a.release(again).expect("own token"));
        drop((first.try_thaw().expect("the last reference"), second));
    }
}

#[test]
fn a_list_ends_with_the_release_of_a_part() {
    for mut pair in pairs(PROFILES) {
        let options = small().max_send_sge(2).max_recv_sge(2);
        let mut qp = pair
            .pd
            .create_qp::<Rc>(&pair.cq, &pair.cq, options)
            .expect("a");
        std::mem::swap(&mut pair.a, &mut qp);
        let mut b = pair
            .pd
            .create_qp::<Rc>(&pair.cq, &pair.cq, options)
            .expect("b");
        std::mem::swap(&mut pair.b, &mut b);
        drop((qp, b));
        fixture::connect(&mut pair.a, &mut pair.b);
        pair.post_recvs(2);
        let texts = [b"one ", b"two "].map(|text| pair.buf(text).freeze());
        let tokens = texts
            .each_ref()
            .map(|text| pair.a.hold(text).expect("hold"));
        let both = pair.a.hold_list(&tokens).expect("list");
        let second = pair.a.hold_list(&tokens[1..]).expect("list");
        assert!(pair.a.release(tokens[0]).expect("own token"));
        assert_eq!(
            error_of(pair.a.post_send(wr::send(both))),
            Some(PostError::WrongQueue)
        );
        let error = pair.a.hold_list(&tokens).expect_err("a part was released");
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        pair.a.post_send(wr::send(second)).expect("send");
        // The same list, and its parts, can be held again.
        let tokens = [pair.a.hold(&texts[0]).expect("hold"), tokens[1]];
        let again = pair.a.hold_list(&tokens).expect("list");
        pair.a.post_send(wr::send(again)).expect("send");
        let received = pair.retire().1.into_iter().map(fixture::buf_bytes);
        let received: Vec<_> = received.collect();
        assert_eq!(received, [&b"two "[..], b"one two "]);
        // A list is released without its parts.
        assert!(pair.a.release_list(second).expect("own token"));
        assert_eq!(
            error_of(pair.a.post_send(wr::send(second))),
            Some(PostError::WrongQueue)
        );
        assert!(pair.a.hold_list(&tokens[1..]).is_ok());
    }
}

#[test]
fn tokens_are_released_on_their_own_queue_pair() {
    for mut pair in pairs(PROFILES) {
        let region = pair.region();
        let held = pair.a.hold(&region).expect("hold");
        let error = pair
            .b
            .release(held)
            .expect_err("a token of another queue pair");
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        pair.a
            .post_send(wr::write(held, region.remote()))
            .expect("not released");
        drop((pair.retire(), region));
    }
}

#[test]
fn waiting_receives_delay_only_memory_that_they_can_write() {
    for mut pair in pairs(PROFILES) {
        let sink = pair.pd.sink(64).expect("sink");
        let text = pair.buf(b"text").freeze();
        let (into, from) = (pair.b.hold(&sink), pair.b.hold(&text));
        let (into, from) = (into.expect("hold"), from.expect("hold"));
        pair.b.post_recv(wr::recv(into)).expect("receive");
        assert!(
            pair.b.release(from).expect("own token"),
            "no receive writes it"
        );
        assert!(!pair.b.release(into).expect("own token"), "a receive waits");
        assert_eq!(
            error_of(pair.b.post_recv(wr::recv(into))),
            Some(PostError::WrongQueue)
        );
        pair.a.post_send(wr::send(wr::Inline(b"x"))).expect("send");
        drop(pair.retire());
        let mrs = pair.fake.live().mrs;
        drop(sink);
        assert_eq!(pair.fake.live().mrs, mrs, "kept until the next call");
        // A release of anything finds that the receive has completed.
        let other = pair.b.hold(&text).expect("hold");
        assert!(pair.b.release(other).expect("own token"));
        assert_eq!(pair.fake.live().mrs, mrs - 1);
    }
}

#[test]
fn a_token_of_another_queue_is_rejected_after_a_release() {
    for mut pair in pairs(PROFILES) {
        let region = pair.region();
        // The same number in both queues.
        let [of_a, of_b] = [&mut pair.a, &mut pair.b].map(|qp| {
            let first = qp.hold(&region).expect("hold");
            assert!(qp.release(first).expect("own token"));
            qp.hold(&region).expect("hold")
        });
        assert_eq!(
            error_of(pair.a.post_send(wr::send(of_b))),
            Some(PostError::WrongQueue)
        );
        pair.post_recvs(1);
        pair.a.post_send(wr::send(of_a)).expect("own token");
        drop((pair.retire(), region));
    }
}

/// A send and a receive use the memory, and complete in both orders.
#[test]
fn memory_is_kept_until_its_last_request_has_retired() {
    for (profile, receives_first) in PROFILES.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let mut pair = Pair::new(profile);
        let region = pair.region();
        let held = pair.a.hold(&region).expect("hold");
        drop(region);
        pair.a.post_recv(wr::recv(held)).expect("receive");
        // It waits for a receive of the peer.
        pair.a.post_send(wr::send(held)).expect("send");
        assert!(!pair.a.release(held).expect("own token"), "two requests");
        for first in [true, false] {
            if first == receives_first {
                pair.b.post_send(wr::send(wr::Inline(b"x"))).expect("send");
            } else {
                pair.post_recvs(1);
            }
            assert_eq!(pair.retire().0.len(), 1);
            assert_eq!(pair.a.release(held).expect("own token"), !first);
        }
    }
}

#[test]
fn a_shared_receive_queue_releases_memory() {
    for profile in IN_ORDER {
        let fake = Fake::new(profile);
        let context = open(&fake);
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context.create_cq(CqOptions::new().depth(63)).expect("cq");
        let mut srq = pd.create_srq(SrqOptions::new().max_wr(7)).expect("queue");
        let mut a = pd.create_qp::<Rc>(&cq, &cq, small()).expect("a");
        let mut b = pd
            .create_qp_with_srq::<Rc>(&cq, &cq, &srq, small())
            .expect("b");
        fixture::connect(&mut a, &mut b);
        let mut cq = cq;
        let sink = pd.sink(64).expect("sink");
        let held = srq.hold(&sink).expect("hold");
        drop(sink);
        for _ in 0..2 {
            srq.post_recv(wr::recv(held)).expect("receive");
        }
        a.post_send(wr::send(wr::Inline(b"x"))).expect("send");
        assert!(!srq.release(held).expect("own token"), "two receives");
        for left in [1, 0] {
            for completion in cq.poll().expect("poll") {
                if completion.queue() == srq.id() {
                    srq.retire(completion)
                        .expect("in flight")
                        .check()
                        .expect("received");
                } else {
                    a.retire(completion)
                        .expect("in flight")
                        .check()
                        .expect("sent");
                }
            }
            let is_released = srq.release(held).expect("own token");
            assert_eq!(is_released, left == 0);
            assert_eq!(fake.live().mrs, left);
            if left > 0 {
                a.post_send(wr::send(wr::Inline(b"x"))).expect("send");
            }
        }
        assert_eq!(
            error_of(srq.post_recv(wr::recv(held))),
            Some(PostError::WrongQueue)
        );
    }
}

/// The device writes to the memory of a failed receive until the queue pair is destroyed.
#[test]
fn memory_of_a_failed_request_is_kept_on_strict_devices() {
    for profile in IN_ORDER {
        let mut pair = Pair::new(Profile {
            provider: Provider::Ocrdma,
            writes_after_failures: true,
            ..profile
        });
        let sink = pair.pd.sink(64).expect("sink");
        let held = pair.b.hold(&sink).expect("hold");
        drop(sink);
        pair.b.post_recv(wr::recv(held)).expect("receive");
        assert!(!pair.b.release(held).expect("own token"), "in flight");
        pair.b.to_error().expect("ERR state");
        let received = pair.retire().1;
        assert!(received.len() == 1 && !received[0].is_success());
        assert!(
            !pair.b.release(held).expect("own token"),
            "the device writes"
        );
        assert_eq!(pair.cq.poll().expect("the device writes").len(), 0);
    }
}

#[test]
fn memory_of_a_failed_receive_is_kept_by_a_strict_srq() {
    let mut pair = Pair::new(Profile {
        provider: Provider::Ocrdma,
        writes_after_failures: true,
        ..Profile::RXE
    });
    let srq = pair.pd.create_srq(SrqOptions::new().max_wr(3));
    let mut srq = srq.expect("queue");
    let create = pair.pd.create_qp::<Rc>(&pair.cq, &pair.cq, small());
    pair.a = create.expect("a");
    let create = pair
        .pd
        .create_qp_with_srq::<Rc>(&pair.cq, &pair.cq, &srq, small());
    pair.b = create.expect("b");
    fixture::connect(&mut pair.a, &mut pair.b);
    let sink = pair.pd.sink(1).expect("sink");
    let held = srq.hold(&sink).expect("hold");
    srq.post_recv(wr::recv(held)).expect("receive");
    let send = wr::send(wr::Inline(b"too long"));
    pair.a.post_send(send).expect("send");
    let mut completions = pair.cq.poll().expect("poll");
    let failed = completions.find(|completion| completion.queue() == srq.id());
    let failed = srq.retire(failed.expect("failed")).expect("in flight");
    assert!(!failed.is_success());
    assert!(!srq.release(held).expect("own token"), "the device writes");
}

/// Soft-iWARP transmits unsignaled frozen memory at any later time. Memory that is held afterwards
/// under the same number has another rule.
#[test]
fn the_rule_of_frozen_shared_memory_ends_with_its_release() {
    let mut pair = Pair::new(Profile::SIW);
    pair.post_recvs(2);
    let late = pair
        .pd
        .frozen_shared(64, MemoryOptions::default(), |bytes| bytes.fill(7));
    let late = late.expect("frozen");
    let held = pair
        .a
        .hold(&late)
        .expect("hold")
        .slice(0..4)
        .expect("in range");
    pair.a
        .post_send(wr::send(held).signaled(false))
        .expect("send");
    assert!(!pair.a.release(held).expect("own token"), "in flight");
    let text = pair.buf(b"text").freeze();
    let held = pair.a.hold(&text).expect("hold");
    pair.a
        .post_send(wr::send(held).signaled(false))
        .expect("send");
    assert_eq!(pair.retire().0.len(), 1, "the second one was signaled");
    assert!(pair.a.release(held).expect("own token"));
    pair.fake.finish_transmissions();
}

/// Holds, releases and posts in an arbitrary order, and compares each token with a model.
#[test]
fn tokens_are_valid_until_their_release_in_any_order() {
    const STEPS: u32 = if cfg!(miri) { 30 } else { 5000 };
    for (seed, profile) in (1_u64..).zip(PROFILES) {
        let mut pair = Pair::new(profile);
        let mut random = seed;
        let mut next = |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize % below
        };
        let texts: Vec<Frozen> = (0..4_u8)
            .map(|text| pair.buf(&[text; 3]).freeze())
            .collect();
        // Each token with its text and the number of holds of the text that were not repeated.
        let mut tokens: Vec<(usize, u32, Held<Frozen>)> = Vec::new();
        // The number of such holds of each text, and whether the last one is not released.
        let mut holds = [(0, false); 4];
        for _ in 0..STEPS {
            let action = next(4);
            if action == 0 || tokens.is_empty() {
                let text = next(texts.len());
                let token = pair.a.hold(&texts[text]).expect("hold");
                if !holds[text].1 {
                    holds[text] = (holds[text].0 + 1, true);
                }
                tokens.push((text, holds[text].0, token));
                continue;
            }
            let (text, hold, token) = tokens[next(tokens.len())];
            let is_valid = holds[text] == (hold, true);
            if action == 1 {
                assert!(
                    pair.a.release(token).expect("own token"),
                    "nothing in flight"
                );
                holds[text].1 &= !is_valid;
                continue;
            }
            pair.post_recvs(1);
            let error = error_of(pair.a.post_send(wr::send(token)));
            assert_eq!(error, (!is_valid).then_some(PostError::WrongQueue));
            if !is_valid {
                pair.a
                    .post_send(wr::send(wr::Inline(&[9; 3])))
                    .expect("send");
            }
            let received = pair.retire().1.remove(0);
            let expected = if is_valid { texts[text][0] } else { 9 };
            assert_eq!(fixture::buf_bytes(received), [expected; 3]);
        }
    }
}
