//! Borrowed memory on the fake provider: under Miri, a device that touched it after its scope would
//! be caught in the act.

mod fake;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fake::{PROFILES, Pair};
use fake_provider::{PostFault, Profile, Queue};
use ibverbs::{AccessFlags, Error, PostError, wr};

const AT_ONCE: Duration = Duration::ZERO;

#[test]
fn borrowed_memory_is_its_owners_again_after_the_scope() {
    for profile in PROFILES {
        let Pair {
            a,
            mut b,
            mut cq,
            pool,
            pd,
            context,
            fake,
        } = Pair::new(profile);
        let message = *b"a message of the caller's";
        let mut reply = [0_u8; 32];
        b.post_recv(wr::recv(pool.take().expect("a free buffer")))
            .expect("receive");
        let end = a.scope(|scope| -> Result<(), Error> {
            let message = scope.lend(&message)?;
            let reply = scope.lend_mut(&mut reply)?;
            scope.post_recv(wr::recv(reply.slice(8..32).expect("in range")))?;
            scope.post_send(wr::send(message.slice(2..9).expect("in range")))?;
            let mut echoed = false;
            scope.wait(&mut cq, Duration::from_secs(9), |item| match item {
                Ok(retired) => retired.ok().expect("success"),
                Err(completion) => {
                    let retired = b.retire(completion).expect("posted on the peer");
                    if !echoed {
                        b.post_send(wr::send(retired.into_buf().expect("received")))
                            .expect("echo");
                    }
                    echoed = true;
                }
            })
        });
        let (a, outcome) = end.into_result().expect("the queue pair still exists");
        outcome.expect("all retired");
        assert_eq!(&reply[8..15], b"message");
        reply.fill(1);
        assert!(message.starts_with(b"a m"));
        drop((a, b, cq, pool, pd, context));
        fake.assert_clean();
    }
}

#[test]
fn one_sided_requests_and_batches_borrow_as_well() {
    for profile in PROFILES {
        let Pair {
            a,
            b,
            mut cq,
            pool,
            pd,
            context,
            fake,
        } = Pair::new(profile);
        let region = pd
            .shared(64, AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE)
            .expect("region");
        let (source, mut target) = ([3_u8; 64], [0_u8; 64]);
        let end = a.scope(|scope| -> Result<(), Error> {
            let (source, target) = (scope.lend(&source)?, scope.lend_mut(&mut target)?);
            scope.batch(|batch| -> Result<(), Error> {
                batch.send(wr::write(source, region.remote()).unsignaled())?;
                batch.send(wr::read(target, region.remote()))?;
                Ok(())
            })?;
            assert_eq!(scope.lent_in_flight(), 2);
            scope.wait(&mut cq, AT_ONCE, |item| {
                item.expect("of this queue pair").ok().expect("success");
            })
        });
        let (a, outcome) = end.into_result().expect("the queue pair still exists");
        outcome.expect("the signalled one retires both");
        assert_eq!(target, source);
        drop((region, a, b, cq, pool, pd, context));
        fake.assert_clean();
    }
}

#[test]
fn what_is_in_flight_at_the_end_never_happens() {
    for profile in PROFILES {
        // What is forgotten leaks its count, as Miri would say.
        for forgets in [false, !cfg!(miri)] {
            let Pair {
                mut a,
                mut b,
                cq,
                pool,
                pd,
                context,
                fake,
            } = Pair::new(profile);
            fake.stall();
            let region = pd.shared(64, AccessFlags::REMOTE_READ).expect("region");
            b.post_send(wr::send(pool.take().expect("a free buffer")))
                .expect("what the receive waits for");
            a.post_send(wr::send(pool.take().expect("a free buffer")).tag(4))
                .expect("not borrowed");
            let mut memory = vec![1_u8; 64];
            let end = a.scope(|scope| {
                let lent = scope.lend_mut(&mut memory).expect("lend");
                scope.post_recv(wr::recv(lent.clone())).expect("receive");
                scope
                    .post_send(wr::read(lent.clone(), region.remote()))
                    .expect("read");
                if forgets {
                    std::mem::forget(lent);
                }
            });
            assert!(end.qp.is_none());
            assert_eq!(
                end.reclaimed
                    .sends
                    .iter()
                    .map(|(tag, _)| *tag)
                    .collect::<Vec<_>>(),
                [4]
            );
            assert_eq!(memory, [1; 64]);
            drop(memory);
            fake.resume(); // nothing of it may be left to do
            drop((end, region, b, cq, pool, pd, context));
            fake.assert_clean();
        }
    }
}

#[test]
fn a_panic_ends_the_scope_before_it_goes_on() {
    for profile in PROFILES {
        let Pair {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        } = Pair::new(profile);
        fake.stall();
        let mut memory = vec![1_u8; 64];
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            a.scope(|scope| {
                let lent = scope.lend_mut(&mut memory).expect("lend");
                scope.post_recv(wr::recv(lent)).expect("receive");
                std::panic::resume_unwind(Box::new("in the middle"));
            })
            .value
        }));
        panicked.expect_err("panicked");
        drop(memory);
        fake.resume();
        drop((b, cq, pool, pd, context));
        fake.assert_clean();
    }
}

#[test]
fn a_request_that_was_not_posted_is_no_loan_and_one_in_doubt_is() {
    for in_doubt in [false, true] {
        let Pair {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        } = Pair::new(Profile {
            extended_qp: false,
            ..Profile::RXE
        });
        let memory = [1_u8; 64];
        let end = a.scope(|scope| {
            let lent = scope.lend(&memory).expect("lend");
            fake.fail_post(fault(in_doubt));
            let rejected = scope.post_send(wr::send(lent)).expect_err("refused");
            assert_eq!(matches!(rejected.error(), PostError::InDoubt(_)), in_doubt);
            assert_eq!(scope.lent_in_flight(), usize::from(in_doubt));
        });
        assert_eq!(
            end.qp.is_none(),
            in_doubt,
            "what may have been posted is ended"
        );
        drop((end, b, cq, pool, pd, context));
        fake.assert_clean();
    }
}

#[test]
fn a_failed_poll_is_no_completion() {
    for profile in PROFILES {
        let Pair {
            a,
            b,
            mut cq,
            pool,
            pd,
            context,
            fake,
        } = Pair::new(profile);
        fake.stall();
        let mut memory = [1_u8; 64];
        let end = a.scope(|scope| {
            let lent = scope.lend_mut(&mut memory).expect("lend");
            scope.post_recv(wr::recv(lent)).expect("receive");
            fake.fail_next(fake_provider::Verb::PollCq, libc::EIO);
            scope.wait(&mut cq, Duration::from_secs(9), |_| ())
        });
        end.value.as_ref().expect_err("the poll failed");
        assert!(end.qp.is_none());
        fake.resume();
        drop((end, b, cq, pool, pd, context));
        fake.assert_clean();
    }
}

/// Borrowed memory cannot be leaked, so a driver that does not let go of it ends the process.
#[test]
#[cfg_attr(miri, ignore = "runs a process")]
fn what_cannot_be_ended_aborts() {
    const CASE: &str = "IBVERBS_TEST_ABORTS_BY";
    if let Ok(case) = std::env::var(CASE) {
        let pair = Pair::new(PROFILES[0]);
        pair.fake.stall();
        let mut memory = [1_u8; 64];
        let _ = pair.a.scope(|scope| {
            let lent = scope.lend_mut(&mut memory).expect("lend");
            if case == "destroy" {
                scope.post_recv(wr::recv(lent)).expect("receive");
                pair.fake
                    .fail_next(fake_provider::Verb::DestroyQp, libc::EBUSY);
            } else {
                pair.fake
                    .fail_next(fake_provider::Verb::DeregMr, libc::EBUSY);
            }
        });
        return;
    }
    for case in ["destroy", "deregister"] {
        let output = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "what_cannot_be_ended_aborts", "--nocapture"])
            .env(CASE, case)
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("cannot be taken back from the device"),
            "{case}: {said}"
        );
    }
}

fn fault(in_doubt: bool) -> PostFault {
    PostFault {
        queue: Queue::Send,
        at: 0,
        errno: libc::EINVAL,
        sets_bad_wr: !in_doubt,
        executed: false,
    }
}
