//! Scopes on the fake provider. Miri detects if the device accesses borrowed memory after its
//! scope.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::fixture::{PROFILES, Pair, in_order, pairs};
use fake_provider::{PostFault, Profile, Queue};
use ibverbs::{AccessFlags, Error, ErrorKind, PostError, scope::LentMut, wr};

const NO_WAIT: Duration = Duration::ZERO;

#[test]
fn borrowed_memory_is_usable_after_the_scope() {
    for mut pair in pairs(PROFILES) {
        let message = *b"a message of the caller";
        let mut reply = [0_u8; 32];
        pair.b
            .post_recv(wr::recv(pair.pool.take().expect("a free buffer")))
            .expect("receive");
        pair.a
            .scope(|scope| {
                let message = scope.lend(&message)?;
                let reply = scope.lend_mut(&mut reply)?;
                scope.post_recv(wr::recv(reply.slice(8..32).expect("in range")))?;
                scope.post_send(wr::send(message.slice(2..9).expect("in range")))?;
                let mut echoed = false;
                scope.wait(&mut pair.cq, Duration::from_secs(9), |item| match item {
                    Ok(retired) => retired.check().expect("success"),
                    Err(completion) => {
                        let retired = pair.b.retire(completion).expect("posted on the peer");
                        if !echoed {
                            pair.b
                                .post_send(wr::send(retired.into_buf().expect("received")))
                                .expect("echo");
                        }
                        echoed = true;
                    }
                })
            })
            .expect("no timeout");
        assert_eq!(&reply[8..15], b"message");
        reply.fill(1);
        assert!(message.starts_with(b"a m"));
    }
}

#[test]
fn a_wait_ends_when_its_requests_do_or_its_time_has_passed() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(2);
        let message = *b"bytes";
        pair.a
            .scope(|scope| {
                #[allow(clippy::reversed_empty_ranges, reason = "must be refused")]
                for wrong in [0..6, 3..1] {
                    let lent = scope.lend(&message)?;
                    assert!(lent.slice(wrong.clone()).is_none(), "{wrong:?}");
                }
                let nothing = scope.lend(&[]).expect_err("an empty slice");
                assert_eq!(nothing.kind(), ErrorKind::InvalidInput);
                let empty = scope.lend(&message)?.slice(2..2);
                let whole = scope.lend(&message)?;
                scope.post_send(wr::send(whole))?;
                // No time is left, but the request has completed.
                scope.wait(&mut pair.cq, NO_WAIT, |_| ())?;
                pair.fake.stall();
                scope.post_send(wr::send(empty.expect("an empty range")))?;
                let error = scope
                    .wait(&mut pair.cq, NO_WAIT, |_| ())
                    .expect_err("stalled");
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                pair.fake.resume();
                scope.wait(&mut pair.cq, Duration::from_secs(9), |_| ())
            })
            .expect("no timeout");
    }
}

#[test]
fn borrowed_memory_works_in_one_sided_batches() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let region = pair
            .pd
            .shared(64, AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE)
            .expect("region");
        let (source, mut target) = ([3_u8; 64], [0_u8; 64]);
        pair.a
            .scope(|scope| {
                let (source, target) = (scope.lend(&source)?, scope.lend_mut(&mut target)?);
                scope.batch(|batch| -> Result<(), Error> {
                    batch.send(wr::write(source, region.remote()).signaled(false))?;
                    batch.send(wr::read(target, region.remote()))?;
                    Ok(())
                })?;
                assert_eq!(scope.lent_in_flight(), 2);
                // A late READ needs a second poll.
                let timeout = if in_order(&profile) {
                    NO_WAIT
                } else {
                    Duration::from_secs(60)
                };
                scope.wait(&mut pair.cq, timeout, |item| {
                    item.expect("posted on this queue pair")
                        .check()
                        .expect("success");
                })
            })
            .expect("the signaled request retires both");
        assert_eq!(target, source);
    }
}

#[test]
fn requests_in_flight_at_scope_end_are_not_executed() {
    for profile in PROFILES {
        let pair = Pair::new(profile);
        let Pair { mut a, mut b, .. } = pair;
        pair.fake.stall();
        let region = pair
            .pd
            .shared(64, AccessFlags::REMOTE_READ)
            .expect("region");
        b.post_send(wr::send(pair.pool.take().expect("a free buffer")))
            .expect("the message for the receive");
        a.post_send(wr::send(pair.pool.take().expect("a free buffer")).tag(4))
            .expect("send of an owned buffer");
        let mut memory = vec![1_u8; 64];
        let ended = a.scope(|scope| -> Result<(), Error> {
            let lent = scope.lend_mut(&mut memory)?;
            scope.post_recv(wr::recv(lent.clone()))?;
            scope.post_send(wr::read(lent, region.remote()))?;
            // Forgetting it changes nothing.
            assert!(!std::mem::needs_drop::<LentMut<'_>>());
            Ok(())
        });
        let error = ended.expect_err("requests were in flight");
        assert_eq!(error.kind(), ErrorKind::Disconnected);
        assert!(a.is_destroyed());
        assert_eq!(memory, [1; 64]);
        drop(memory);
        pair.fake.resume(); // No request must be left to execute.
        let reclaimed = a.destroy().expect("destroyed by the scope");
        let tags = reclaimed.sends.iter().map(|(tag, _)| *tag);
        assert_eq!(tags.collect::<Vec<_>>(), [4]);
    }
}

#[test]
fn nested_scopes_cannot_use_the_memory_of_each_other() {
    for mut pair in pairs(PROFILES) {
        let (mut of_outer, of_inner) = ([0_u8; 16], *b"of the inner one");
        pair.a
            .scope(|outer| {
                let target = outer.lend_mut(&mut of_outer)?;
                pair.b.scope(|inner| {
                    let source = inner.lend(&of_inner)?;
                    let receive = inner.post_recv(wr::recv(target.clone()));
                    let send = inner.post_send(wr::send(target.clone()));
                    let of_inner = outer.post_send(wr::send(source.clone()));
                    let errors = [
                        receive.expect_err("memory of the outer scope").error(),
                        send.expect_err("memory of the outer scope").error(),
                        of_inner.expect_err("memory of the inner scope").error(),
                    ];
                    assert_eq!(errors, [PostError::WrongQueue; 3]);
                    assert_eq!((outer.lent_in_flight(), inner.lent_in_flight()), (0, 0));
                    outer.post_recv(wr::recv(target))?;
                    inner.post_send(wr::send(source))?;
                    // The completion of the receive belongs to the outer scope.
                    inner.wait(&mut pair.cq, Duration::from_secs(9), |item| {
                        if let Err(completion) = item {
                            let retired = outer.retire(completion).expect("of the outer scope");
                            retired.check().expect("success");
                        }
                    })
                })?;
                assert_eq!(outer.lent_in_flight(), 0);
                Ok::<(), Error>(())
            })
            .expect("nothing in flight");
        assert_eq!(of_outer, of_inner);
    }
}

#[test]
fn a_panic_ends_the_scope_before_it_unwinds_further() {
    for mut pair in pairs(PROFILES) {
        pair.fake.stall();
        let mut memory = vec![1_u8; 64];
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pair.a.scope(|scope| -> Result<(), Error> {
                let lent = scope.lend_mut(&mut memory)?;
                scope.post_recv(wr::recv(lent))?;
                std::panic::resume_unwind(Box::new("expected by the test"));
            })
        }));
        panicked.expect_err("panicked");
        drop(memory);
        pair.fake.resume();
        assert!(pair.a.is_destroyed());
    }
}

#[test]
fn a_rejected_request_is_not_in_flight_but_one_in_doubt_is() {
    for in_doubt in [false, true] {
        let mut pair = Pair::new(Profile {
            extended_qp: false,
            ..Profile::RXE
        });
        let memory = [1_u8; 64];
        let ended = pair.a.scope(|scope| -> Result<(), Error> {
            let lent = scope.lend(&memory)?;
            pair.fake.fail_post(fault(in_doubt));
            let rejected = scope.post_send(wr::send(lent)).expect_err("rejected");
            assert_eq!(matches!(rejected.error(), PostError::InDoubt(_)), in_doubt);
            assert_eq!(scope.lent_in_flight(), usize::from(in_doubt));
            Ok(())
        });
        assert_eq!(
            (ended.is_err(), pair.a.is_destroyed()),
            (in_doubt, in_doubt),
            "a request in doubt must destroy the queue pair"
        );
    }
}

#[test]
fn a_poll_error_ends_the_wait() {
    for mut pair in pairs(PROFILES) {
        pair.fake.stall();
        let mut memory = [1_u8; 64];
        let ended = pair.a.scope(|scope| {
            let lent = scope.lend_mut(&mut memory)?;
            scope.post_recv(wr::recv(lent))?;
            pair.fake.fail_next(fake_provider::Verb::PollCq, libc::EIO);
            scope.wait(&mut pair.cq, Duration::from_secs(9), |_| ())
        });
        let error = ended.expect_err("poll error");
        assert!(error.to_string().contains("ibv_poll_cq"), "{error}");
        assert!(pair.a.is_destroyed());
        pair.fake.resume();
    }
}

/// Returns a fault that rejects a send, or leaves it in doubt.
fn fault(in_doubt: bool) -> PostFault {
    PostFault {
        queue: Queue::Send,
        at: 0,
        errno: libc::EINVAL,
        sets_bad_wr: !in_doubt,
        executed: false,
    }
}
