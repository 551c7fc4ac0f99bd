//! Completions: each retires one request once, none is lost, and stale or foreign ones are
//! rejected.

use crate::fixture::{self, PROFILES, Pair, buf_bytes, connect, in_order, pairs, small};
use fake_provider::{AfterDestroy, VENDOR_ERROR, Verb};
use ibverbs::{Completion, CqOptions, ErrorKind, QpState, Rc, WcStatus, wr};

#[test]
fn unread_completions_are_returned_by_the_next_poll() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(5);
        for tag in 0..5 {
            pair.a
                .post_send(wr::send(wr::Inline(b"x")).tag(tag))
                .expect("send");
        }
        let mut seen = Vec::new();
        while let Some(completion) = pair.cq.poll().expect("poll").next() {
            let qp = if completion.queue() == pair.a.id() {
                &mut pair.a
            } else {
                &mut pair.b
            };
            seen.push(qp.retire(completion).expect("in flight").tag());
        }
        assert_eq!(seen, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    }
}

#[test]
fn one_completion_is_polled_at_a_time() {
    for mut pair in pairs(PROFILES) {
        assert!(pair.cq.poll_one().expect("poll").is_none());
        pair.post_recvs(3);
        for _ in 0..2 {
            pair.a.post_send(wr::send(wr::Inline(b"x"))).expect("send");
        }
        let mut retired = 0;
        while let Some(completion) = pair.cq.poll_one().expect("poll") {
            let qp = if completion.queue() == pair.a.id() {
                &mut pair.a
            } else {
                &mut pair.b
            };
            let request = qp.retire(completion).expect("in flight");
            request.check().expect("success");
            retired += 1;
            if retired == 1 {
                pair.a.post_send(wr::send(wr::Inline(b"x"))).expect("send");
                // The first poll left three entries to the provider, which has two more now. This
                // poll copies all of them, and the next ones return them one by one.
                assert_eq!(pair.cq.poll().expect("poll").len(), 5);
            }
        }
        assert_eq!(retired, 6);
    }
}

#[test]
fn several_completions_of_a_poll_can_be_held() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(2);
        for _ in 0..2 {
            pair.a.post_send(wr::send(wr::Inline(b"x"))).expect("send");
        }
        let mut all: Vec<Completion<'_>> = pair.cq.poll().expect("poll").collect();
        assert_eq!(all.len(), 4);
        // Receives can be retired in any order. Retiring a send also retires the earlier sends.
        while let Some(completion) = all.pop() {
            let qp = if completion.queue() == pair.a.id() {
                &mut pair.a
            } else {
                &mut pair.b
            };
            let _ = qp.retire(completion);
        }
        assert_eq!(pair.a.send_slots_free(), pair.a.caps().max_send_wr as usize);
    }
}

#[test]
fn a_signaled_completion_retires_earlier_unsignaled_sends() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        pair.post_recvs(4);
        let free = pair.pool.available();
        for byte in [b"0", b"1", b"2"] {
            let buf = pair.buf(byte);
            pair.a
                .post_send(wr::send(buf).signaled(false))
                .expect("send");
        }
        // Out of order, every request is signaled, because no other completion proves its end.
        let signaled = if in_order(&profile) { 0 } else { 3 };
        assert_eq!(pair.retire().0.len(), signaled);
        let buf = pair.buf(b"3");
        pair.a.post_send(wr::send(buf)).expect("send");
        let (mut sent, received) = pair.retire();
        assert_eq!((sent.len(), received.len()), (1, 1));
        assert_eq!(buf_bytes(sent.remove(0)), b"3");
        assert_eq!(pair.a.send_slots_free(), pair.a.caps().max_send_wr as usize);
        drop(received);
        assert_eq!(
            pair.pool.available(),
            free + 4,
            "all buffers are in the pool again"
        );
    }
}

#[test]
fn an_unretired_completion_keeps_its_slot() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        pair.post_recvs(2);
        let free = pair.pool.available();
        let buf = pair.buf(b"0");
        pair.a.post_send(wr::send(buf)).expect("send");
        pair.cq.poll().expect("poll").for_each(drop);
        assert_eq!(pair.pool.available(), free - 1);
        pair.a.post_send(wr::send(wr::Inline(b"1"))).expect("send");
        assert_eq!(pair.retire().0.len(), 1);
        let sent = usize::from(in_order(&profile));
        assert_eq!(
            pair.pool.available(),
            free + sent,
            "the second receive is returned, and in order the sent buffer; the first is in flight"
        );
        let reclaimed = pair.b.destroy().expect("destroyed");
        assert_eq!(reclaimed.recvs.len(), 1);
        drop((reclaimed, pair.a));
        drop((pair.cq, pair.pool, pair.pd, pair.context));
        pair.fake.assert_clean();
    }
}

#[test]
fn completions_of_a_destroyed_queue_pair_match_nothing() {
    for after_destroy in [
        AfterDestroy::Leave,
        AfterDestroy::Drop,
        AfterDestroy::LeaveAndFlush,
    ] {
        for profile in PROFILES {
            let mut pair = Pair::new(profile);
            pair.fake
                .set(|profile| profile.after_destroy = after_destroy);
            pair.post_recvs(3);
            pair.a.post_send(wr::send(wr::Inline(b"x"))).expect("send");
            let (old_num, old_id) = (pair.b.qp_num(), pair.b.id());
            let replacement = pair
                .pd
                .create_qp::<Rc>(&pair.cq, &pair.cq, small())
                .expect("replacement");
            let reclaimed = std::mem::replace(&mut pair.b, replacement)
                .destroy()
                .expect("destroyed");
            assert_eq!(
                reclaimed
                    .recvs
                    .iter()
                    .map(|(tag, _)| *tag)
                    .collect::<Vec<_>>(),
                [0, 1, 2]
            );
            drop(reclaimed);
            let mut reused = pair
                .pd
                .create_qp::<Rc>(&pair.cq, &pair.cq, small())
                .expect("third queue pair");
            assert_eq!(
                reused.qp_num(),
                old_num,
                "the device reuses the queue pair number"
            );
            assert_ne!(reused.id(), old_id, "the id is new");
            reused.init(&fixture::path()).expect("INIT state");
            reused
                .post_recv(wr::recv(pair.pool.take().expect("a free buffer")))
                .expect("receive");
            let free_slots = reused.recv_slots_free();
            let mut stale = 0;
            for completion in pair.cq.poll().expect("poll") {
                if completion.queue() == pair.a.id() {
                    pair.a.retire(completion).expect("in flight");
                } else {
                    assert_eq!((completion.queue(), completion.qp_num()), (old_id, old_num));
                    assert_eq!(reused.retire(completion).expect_err("stale").queue, old_id);
                    stale += 1;
                }
            }
            assert_eq!(stale, [1, 0, 3][after_destroy as usize]);
            assert_eq!(
                reused.recv_slots_free(),
                free_slots,
                "a stale completion retired a request"
            );
        }
    }
}

#[test]
fn a_completion_of_another_queue_pair_changes_nothing() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(1);
        let free_slots = pair.a.send_slots_free();
        pair.b.to_error().expect("ERR state");
        let completion = pair.cq.poll().expect("poll").next().expect("flushed");
        let error = pair.a.retire(completion).expect_err("a completion of b");
        assert_eq!(error.queue, pair.b.id());
        assert_eq!(pair.a.send_slots_free(), free_slots);
        assert_eq!(pair.b.recv_slots_free(), 6, "the slot is lost");
        let text = ibverbs::Error::from(error).to_string();
        assert!(text.contains("not of a request in flight"), "{text}");
    }
}

#[test]
fn the_error_state_flushes_requests_with_their_buffers() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(2);
        pair.fake.stall();
        for byte in [b"0", b"1"] {
            let buf = pair.buf(byte);
            pair.a
                .post_send(wr::send(buf).signaled(false))
                .expect("send");
        }
        pair.a.to_error().expect("ERR state");
        pair.b.to_error().expect("ERR state");
        assert_eq!(pair.a.state().expect("query"), QpState::ERR);
        let (sent, received) = pair.retire();
        assert_eq!((sent.len(), received.len()), (2, 2));
        for retired in sent.into_iter().chain(received) {
            assert_eq!(retired.status(), WcStatus::WR_FLUSH_ERR);
            assert_eq!((retired.received_len(), retired.imm_data()), (0, None));
            assert!(retired.into_buf().is_some());
        }
    }
}

#[test]
fn a_failed_completion_has_the_error_code_of_the_vendor() {
    for mut pair in pairs(PROFILES) {
        pair.fake.stall();
        pair.a.post_send(wr::send(wr::Empty)).expect("send");
        pair.a.to_error().expect("ERR state");
        let failed = pair.cq.poll().expect("poll").next().expect("flushed");
        assert_eq!(failed.vendor_err(), VENDOR_ERROR);
        pair.a.retire(failed).expect("in flight");
    }
}

#[test]
fn a_poll_error_keeps_requests_in_flight() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(1);
        let buf = pair.buf(b"x");
        pair.a.post_send(wr::send(buf)).expect("send");
        let free = pair.pool.available();
        pair.fake.fail_next(Verb::PollCq, libc::EIO);
        let error = pair.cq.poll().expect_err("poll error");
        // A negative return value of `ibv_poll_cq` is not an error number.
        assert_eq!((error.call(), error.errno()), ("ibv_poll_cq", None));
        assert!(error.to_string().contains(pair.fake.name()), "{error}");
        assert!(error.help().is_some());
        assert_eq!(
            pair.pool.available(),
            free,
            "the requests are still in flight"
        );
        assert_eq!(pair.retire().0.len(), 1);
    }
}

#[test]
fn completions_of_several_polls_are_in_order() {
    for profile in PROFILES.into_iter().take(2) {
        let fake = fake_provider::Fake::new(profile);
        let context = fixture::open(&fake);
        let pd = context.alloc_pd().expect("protection domain");
        let options = small().max_send_wr(63).max_recv_wr(63);
        let mut cq = context
            .create_cq(CqOptions::new().depth(127))
            .expect("completion queue");
        let mut a = pd.create_qp::<Rc>(&cq, &cq, options).expect("a");
        let mut b = pd.create_qp::<Rc>(&cq, &cq, options).expect("b");
        connect(&mut a, &mut b);
        for tag in 0..40 {
            b.post_recv(wr::recv(wr::Empty).tag(tag)).expect("receive");
        }
        for tag in 0..40 {
            a.post_send(wr::send(wr::Empty).tag(tag)).expect("send");
        }
        let (mut next, mut polls) = ([0, 0], 0);
        loop {
            let all = cq.poll().expect("poll");
            if all.is_empty() {
                break;
            }
            assert!(all.len() <= 32);
            polls += 1;
            for completion in all {
                let (qp, next) = if completion.queue() == a.id() {
                    (&mut a, &mut next[0])
                } else {
                    (&mut b, &mut next[1])
                };
                assert_eq!(qp.retire(completion).expect("in flight").tag(), *next);
                *next += 1;
            }
        }
        assert_eq!((next, polls), ([40, 40], 3));
    }
}

#[test]
fn a_resize_keeps_the_entries_of_the_queue() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(3);
        for _ in 0..3 {
            pair.a.post_send(wr::send(wr::Inline(b"x"))).expect("send");
        }
        pair.cq.resize(1000).expect("resize");
        assert_eq!(pair.cq.depth(), 1023);
        let error = pair.cq.resize(0).expect_err("no entry");
        assert!(error.help().is_some_and(|help| help.contains("at least 1")));
        let error = pair.cq.resize(5).expect_err("6 entries");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(pair.cq.depth(), 1023);
        let (sends, recvs) = pair.retire();
        assert_eq!((sends.len(), recvs.len()), (3, 3));
    }
}
