//! Batches: complete and partial posts, failing closures, panics and limits.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fixture::{self, IN_ORDER, PROFILES, Pair, buf_bytes, in_order, pairs, small};
use fake_provider::{PostFault, Queue};
use ibverbs::{BatchError, Error, PostError, Rc, wr};

#[test]
fn a_batch_posts_every_payload_with_one_doorbell() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(5);
        let frozen = pair.buf(b"frozen").freeze();
        let held = pair.a.hold(&frozen).expect("hold");
        let buf = pair.buf(b"buffer");
        let value = pair.a.batch(|batch| -> Result<_, Error> {
            batch.send(wr::send(buf).tag(1))?;
            batch.send(wr::send(held).tag(2))?;
            let inline = b"inline".to_vec();
            batch.send(wr::send(wr::Inline(&inline)).tag(3))?;
            drop(inline);
            batch.send(wr::send(wr::Inline(b"another")).tag(4))?;
            batch.send(wr::send_with_imm(wr::Empty, 5).tag(5))?;
            Ok("value")
        });
        assert_eq!(value.expect("posted"), "value");
        let (sent, received) = pair.retire();
        assert_eq!(
            sent.iter().map(ibverbs::Retired::tag).collect::<Vec<_>>(),
            [1, 2, 3, 4, 5]
        );
        assert_eq!(received[4].imm_data(), Some(5));
        let received: Vec<_> = received.into_iter().map(buf_bytes).collect();
        assert_eq!(
            received,
            [&b"buffer"[..], b"frozen", b"inline", b"another", b""]
        );
    }
}

/// Failed batches must not advance the generation of a slot, or a request id would be reused.
#[test]
fn failed_batches_do_not_make_old_completions_valid() {
    for mut pair in pairs(IN_ORDER) {
        pair.post_recvs(2);
        let bufs: Vec<_> = (0..pair.a.caps().max_send_wr)
            .map(|_| pair.buf(b"in flight"))
            .collect();
        let Pair { a, cq, .. } = &mut pair;
        for tag in [1, 2] {
            a.post_send(wr::send(wr::Empty).tag(tag)).expect("send");
        }
        let mut kept: Vec<_> = cq
            .poll()
            .expect("poll")
            .filter(|completion| completion.queue() == a.id())
            .collect();
        assert_eq!(
            a.retire(kept.pop().expect("second completion"))
                .expect("in flight")
                .tag(),
            2
        );
        // Fills the queue up to the slot of the first request. The sends wait for receives.
        let mut bufs = bufs.into_iter();
        let last = bufs.next().expect("at least one buffer");
        for buf in bufs {
            a.post_send(wr::send(buf)).expect("send");
        }
        for _ in 0..if cfg!(miri) { 8 } else { 1023 } {
            let failed = a.batch(|batch| -> Result<(), Error> {
                batch.send(wr::send(wr::Empty))?;
                Err(Error::new(
                    ibverbs::ErrorKind::Os,
                    "test",
                    "expected by the test",
                ))
            });
            failed.expect_err("the closure's error");
        }
        a.post_send(wr::send(last)).expect("send");
        assert_eq!(a.send_slots_free(), 0);
        a.retire(kept.pop().expect("first completion"))
            .expect_err("already retired with the second request");
        assert_eq!(a.send_slots_free(), 0, "the requests are still in flight");
    }
}

#[test]
fn receives_are_posted_as_a_batch() {
    for mut pair in pairs(PROFILES) {
        let bufs: Vec<_> = (0..5)
            .map(|_| pair.pool.take().expect("a free buffer"))
            .collect();
        pair.b
            .recv_batch(|batch| -> Result<(), Error> {
                for (tag, buf) in (0..).zip(bufs) {
                    batch.recv(wr::recv(buf).tag(tag))?;
                }
                Ok(())
            })
            .expect("posted");
        for _ in 0..5 {
            pair.a.post_send(wr::send(wr::Inline(b"x"))).expect("send");
        }
        let (_, received) = pair.retire();
        assert_eq!(
            received
                .iter()
                .map(ibverbs::Retired::tag)
                .collect::<Vec<_>>(),
            [0, 1, 2, 3, 4]
        );
    }
}

#[test]
fn a_failed_closure_posts_nothing_and_returns_buffers() {
    for mut pair in pairs(PROFILES) {
        let (before, send_slots_free, recv_slots_free) = (
            pair.pool.available(),
            pair.a.send_slots_free(),
            pair.a.recv_slots_free(),
        );
        let (buf, other) = (pair.buf(b"1"), pair.buf(b"2"));
        let failed = pair.a.batch(|batch| -> Result<(), Error> {
            batch.send(wr::send(buf))?;
            batch.send(wr::send(other))?;
            Err(Error::new(
                ibverbs::ErrorKind::Os,
                "test",
                "expected by the test",
            ))
        });
        assert!(
            failed
                .expect_err("the closure's error")
                .to_string()
                .contains("expected by the test")
        );
        let buf = pair.pool.take().expect("a free buffer");
        let failed = pair.a.recv_batch(|batch| -> Result<(), Error> {
            batch.recv(wr::recv(buf))?;
            Err(Error::new(
                ibverbs::ErrorKind::Os,
                "test",
                "expected by the test",
            ))
        });
        assert!(failed.is_err());
        assert_eq!(
            (
                pair.pool.available(),
                pair.a.send_slots_free(),
                pair.a.recv_slots_free()
            ),
            (before, send_slots_free, recv_slots_free)
        );
        // The queue is still usable, with the same request ids.
        pair.post_recvs(1);
        pair.a.post_send(wr::send(wr::Inline(b"on"))).expect("send");
        let (sent, mut received) = pair.retire();
        assert_eq!(
            (sent.len(), buf_bytes(received.remove(0))),
            (1, b"on".to_vec())
        );
    }
}

#[test]
fn a_panic_aborts_the_batch_and_the_queue_stays_usable() {
    for mut pair in pairs(PROFILES) {
        let before = pair.pool.available();
        let (send, recv) = (pair.buf(b"1"), pair.pool.take().expect("a free buffer"));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pair.a.batch(|batch| -> Result<(), Error> {
                batch.send(wr::send(send))?;
                std::panic::resume_unwind(Box::new("expected by the test"));
            })
        }));
        assert!(panicked.is_err());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pair.a.recv_batch(|batch| -> Result<(), Error> {
                batch.recv(wr::recv(recv))?;
                std::panic::resume_unwind(Box::new("expected by the test"));
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(pair.pool.available(), before);
        pair.post_recvs(1);
        pair.a.post_send(wr::send(wr::Inline(b"on"))).expect("send");
        assert_eq!(pair.retire().0.len(), 1);
    }
}

#[test]
fn an_empty_batch_posts_nothing() {
    for mut pair in pairs(PROFILES) {
        pair.a.batch(|_| Ok::<(), Error>(())).expect("empty batch");
        pair.a
            .recv_batch(|_| Ok::<(), Error>(()))
            .expect("empty batch");
    }
}

#[test]
fn a_partly_rejected_batch_returns_unposted_buffers() {
    let mut pair = Pair::new(PROFILES[1]);
    pair.post_recvs(4);
    pair.fake.fail_post(PostFault {
        queue: Queue::Send,
        at: 2,
        errno: libc::ENOMEM,
        sets_bad_wr: true,
        executed: false,
    });
    let bufs: Vec<_> = [&b"0"[..], b"1", b"2", b"3"]
        .iter()
        .map(|byte| pair.buf(byte))
        .collect();
    let error = pair
        .a
        .batch(|batch| -> Result<(), BatchError> {
            for buf in bufs {
                batch.send(wr::send(buf)).expect("a free slot");
            }
            Ok(())
        })
        .expect_err("rejected");
    assert_eq!(
        error.error(),
        PostError::Refused(ibverbs::Errno(libc::ENOMEM)),
        "the error number is positive"
    );
    assert!(error.to_string().starts_with("ibv_post_send: "), "{error}");
    let returned: Vec<_> = error
        .into_rejected()
        .iter()
        .map(|buf| buf.to_vec())
        .collect();
    assert_eq!(returned, [b"2", b"3"]);
    let (sent, received) = pair.retire();
    assert_eq!((sent.len(), received.len()), (2, 2));
    drop((sent, received));
    // The request ids of the rejected requests are used again.
    pair.a.post_send(wr::send(wr::Inline(b"4"))).expect("send");
    assert_eq!(pair.retire().1.len(), 1);
}

/// siw's provider returns the result of its doorbell, and then only `bad_wr` reports the request.
#[test]
fn a_rejection_with_return_value_0_returns_the_buffer() {
    let mut pair = Pair::new(PROFILES[1]);
    pair.post_recvs(2);
    pair.fake.fail_post(PostFault {
        queue: Queue::Send,
        at: 1,
        errno: 0,
        sets_bad_wr: true,
        executed: false,
    });
    let bufs = [pair.buf(b"0"), pair.buf(b"1")];
    let error = pair
        .a
        .batch(|batch| -> Result<(), BatchError> {
            for buf in bufs {
                batch.send(wr::send(buf)).expect("a free slot");
            }
            Ok(())
        })
        .expect_err("rejected");
    assert_eq!(&error.into_rejected()[0][..], b"1");
    let (sent, received) = pair.retire();
    assert_eq!((sent.len(), received.len()), (1, 1));
}

#[test]
fn partly_rejected_receives_return_unposted_buffers() {
    for mut pair in pairs(PROFILES) {
        pair.fake.fail_post(PostFault {
            queue: Queue::Recv,
            at: 1,
            errno: libc::ENOMEM,
            sets_bad_wr: true,
            executed: false,
        });
        let bufs: Vec<_> = (0..3)
            .map(|_| pair.pool.take().expect("a free buffer"))
            .collect();
        let error = pair
            .b
            .recv_batch(|batch| -> Result<(), BatchError> {
                for buf in bufs {
                    batch.recv(wr::recv(buf)).expect("a free slot");
                }
                Ok(())
            })
            .expect_err("rejected");
        assert_eq!(error.into_rejected().len(), 2);
        assert_eq!(
            pair.b.recv_slots_free(),
            pair.b.caps().max_recv_wr as usize - 1
        );
        pair.a.post_send(wr::send(wr::Inline(b"x"))).expect("send");
        assert_eq!(pair.retire().1.len(), 1);
    }
}

#[test]
fn a_batch_in_doubt_keeps_its_buffers() {
    for executed in [true, false] {
        for profile in PROFILES {
            let mut pair = Pair::new(profile);
            pair.post_recvs(3);
            let free = pair.pool.available();
            let at = usize::from(!profile.extended_qp);
            pair.fake.fail_post(PostFault {
                queue: Queue::Send,
                at,
                errno: libc::EIO,
                sets_bad_wr: false,
                executed,
            });
            let (one, two) = (pair.buf(b"1"), pair.buf(b"2"));
            let error = pair
                .a
                .batch(|batch| -> Result<(), BatchError> {
                    batch.send(wr::send(one)).expect("a free slot");
                    batch.send(wr::send(two)).expect("a free slot");
                    Ok(())
                })
                .expect_err("in doubt");
            assert!(matches!(error.error(), PostError::InDoubt(_)), "{error}");
            assert!(error.into_rejected().is_empty());
            assert_eq!(
                pair.pool.available(),
                free - 2,
                "the queue pair keeps both buffers"
            );
            drop(pair.retire());
            // In order, a later completion implies that the device has finished all earlier
            // requests. Out of order, a request that was not posted stays in doubt.
            pair.a.post_send(wr::send(wr::Inline(b"3"))).expect("send");
            drop(pair.retire());
            let in_doubt = usize::from(!in_order(&profile) && !executed);
            assert_eq!(
                pair.pool.available() + pair.b.caps().max_recv_wr as usize
                    - pair.b.recv_slots_free(),
                free + 3 - in_doubt
            );
        }
    }
}

#[test]
fn a_full_batch_returns_the_request_and_stays_usable() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let mut qp = pair
            .pd
            .create_qp::<Rc>(&pair.cq, &pair.cq, small().max_batch(2))
            .expect("queue pair");
        fixture::connect(&mut qp, &mut create_peer(&mut pair));
        qp.recv_batch(|batch| -> Result<(), Error> {
            batch.recv(wr::recv(wr::Empty))?;
            batch.recv(wr::recv(wr::Empty))?;
            let rejected = batch.recv(wr::recv(wr::Empty)).expect_err("full");
            assert_eq!(rejected.error(), PostError::BatchFull { max: 2 });
            Ok(())
        })
        .expect("two requests");
        let buf = pair.buf(b"returned");
        qp.batch(|batch| -> Result<(), Error> {
            batch.send(wr::send(wr::Empty))?;
            batch.send(wr::send(wr::Empty))?;
            if profile.extended_qp {
                // Only the free slots limit a batch of the extended verbs.
                batch.send(wr::send(buf))?;
                return Ok(());
            }
            let rejected = batch.send(wr::send(buf)).expect_err("full");
            assert_eq!(rejected.error(), PostError::BatchFull { max: 2 });
            assert_eq!(
                &rejected.into_payload().expect("the posted buffer")[..],
                b"returned"
            );
            Ok(())
        })
        .expect("posted");
        let posted = 2 + usize::from(profile.extended_qp);
        assert_eq!(
            qp.send_slots_free() + posted,
            qp.caps().max_send_wr as usize
        );
    }
}

/// Creates a third queue pair, as the peer of the one under test.
fn create_peer(pair: &mut Pair) -> ibverbs::QueuePair<Rc> {
    pair.pd
        .create_qp::<Rc>(&pair.cq, &pair.cq, small())
        .expect("queue pair")
}
