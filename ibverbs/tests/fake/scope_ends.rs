//! Scopes of several queue pairs, queue pairs that a scope has destroyed, and errors in scopes.

use std::error::Error as AnyError;
use std::time::Duration;

use crate::fixture::{self, IN_ORDER, PROFILES, Pair, connect, in_order, pairs, small};
use fake_provider::{Profile, Provider};
use ibverbs::qp::QpChange;
use ibverbs::scope::Lent;
use ibverbs::{
    AccessFlags, Completion, CompletionQueue, Error, ErrorKind, PostError, QpState, QueuePair, Rc,
    SharedRegion, wr,
};

const LONG: Duration = Duration::from_secs(9);

/// Two pairs of connected queue pairs of one protection domain.
struct Two {
    c: QueuePair<Rc>,
    d: QueuePair<Rc>,
    pair: Pair,
}

impl Two {
    fn new(profile: Profile) -> Self {
        let pair = Pair::new(profile);
        let create = || pair.pd.create_qp::<Rc>(&pair.cq, &pair.cq, small());
        let (mut c, mut d) = (create().expect("c"), create().expect("d"));
        connect(&mut c, &mut d);
        Self { c, d, pair }
    }

    /// Returns memory that peers can write.
    fn region(&self, len: usize) -> SharedRegion {
        let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        self.pair.pd.shared(len, access).expect("region")
    }
}

fn bytes_of(region: &SharedRegion) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).expect("in range");
    bytes
}

#[test]
fn several_queue_pairs_send_memory_that_was_lent_once() {
    for profile in PROFILES {
        let mut two = Two::new(profile);
        let regions = [two.region(32), two.region(32)];
        let (a, c, cq) = (&mut two.pair.a, &mut two.c, &mut two.pair.cq);
        let message = [7_u8; 32];
        a.scope(|scope| {
            let lent = scope.lend(&message)?;
            let mut joined = scope.join(c)?;
            joined.post_send(wr::write(lent.clone(), regions[0].remote()))?;
            scope.post_send(wr::write(lent, regions[1].remote()))?;
            assert_eq!(scope.lent_in_flight(), 2);
            scope.wait(cq, LONG, |each| {
                let retired = each.or_else(|completion| joined.try_retire(completion));
                retired.expect("of this scope").check().expect("success");
            })
        })
        .expect("both complete");
        two.pair.fake.finish_transmissions();
        for region in &regions {
            assert_eq!(bytes_of(region), message);
        }
    }
}

#[test]
fn a_queue_pair_that_left_a_scope_can_start_its_own() {
    for profile in PROFILES {
        let mut two = Two::new(profile);
        let region = two.region(32);
        let (a, c, cq) = (&mut two.pair.a, &mut two.c, &mut two.pair.cq);
        let (first, second) = ([1_u8; 32], [2_u8; 32]);
        for bytes in [&first, &second] {
            a.scope(|scope| scope.join(c).map(drop)).expect("join");
            a.scope(|scope| {
                let lent = scope.lend(bytes)?;
                let left = c.post_send(wr::write(lent, region.remote()));
                let error = left.expect_err("not in this scope").error();
                assert_eq!(error, PostError::WrongQueue);
                Ok::<(), Error>(())
            })
            .expect("nothing was posted");
            c.scope(|scope| {
                let lent = scope.lend(bytes)?;
                let foreign = a.post_send(wr::write(lent.clone(), region.remote()));
                let error = foreign.expect_err("not in the scope").error();
                assert_eq!(error, PostError::WrongQueue);
                scope.post_send(wr::write(lent, region.remote()))?;
                scope.wait(cq, LONG, |each| {
                    each.expect("of c").check().expect("success");
                })
            })
            .expect("completes");
            two.pair.fake.finish_transmissions();
            assert_eq!(bytes_of(&region), bytes);
        }
    }
}

#[test]
fn a_queue_pair_of_another_protection_domain_cannot_join() {
    let mut pair = Pair::new(Profile::RXE);
    let pd = pair.context.alloc_pd().expect("protection domain");
    let mut other = pd
        .create_qp::<Rc>(&pair.cq, &pair.cq, small())
        .expect("queue pair");
    let joined = pair.a.scope(|scope| scope.join(&mut other).map(drop));
    let error = joined.expect_err("its keys are others");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
}

#[test]
fn only_queue_pairs_with_requests_in_flight_are_destroyed() {
    for profile in PROFILES {
        for of_first in [false, true] {
            let mut two = Two::new(profile);
            let region = two.region(32);
            let (a, c) = (&mut two.pair.a, &mut two.c);
            two.pair.fake.stall();
            let memory = vec![1_u8; 32];
            let ended = a.scope(|scope| -> Result<(), Error> {
                let lent = scope.lend(&memory)?;
                let mut joined = scope.join(c)?;
                let write = wr::write(lent, region.remote());
                let posted = if of_first {
                    scope.post_send(write)
                } else {
                    joined.post_send(write)
                };
                Ok(posted?)
            });
            drop(memory);
            assert_eq!(
                ended.expect_err("in flight").kind(),
                ErrorKind::Disconnected
            );
            let destroyed = (a.is_destroyed(), c.is_destroyed());
            assert_eq!(destroyed, (of_first, !of_first));
            two.pair.fake.resume();
            assert_eq!(bytes_of(&region), [0; 32]);
            let survivor = if of_first { c } else { a };
            survivor
                .post_send(wr::write(wr::Empty, region.remote()))
                .expect("posted");
        }
    }
}

#[test]
fn an_early_return_ends_the_scope_with_its_own_error() {
    for mut pair in pairs(PROFILES) {
        pair.fake.stall();
        let mut memory = vec![1_u8; 64];
        let ended = pair.a.scope(|scope| -> Result<(), Box<dyn AnyError>> {
            let lent = scope.lend_mut(&mut memory)?;
            scope.post_recv(wr::recv(lent))?;
            "not a number".parse::<u8>()?;
            Ok(())
        });
        drop(memory);
        let error = ended.expect_err("the closure failed");
        assert!(error.is::<std::num::ParseIntError>(), "{error}");
        assert!(pair.a.is_destroyed());
        pair.fake.resume();
    }
}

/// The error of a request with borrowed memory borrows nothing, so `?` converts it into any error.
#[test]
fn rejections_of_borrowed_memory_convert_into_any_error() {
    type Any = Box<dyn AnyError + Send + Sync>;

    fn batch(lent: Lent<'_>, qp: &mut ibverbs::scope::ScopedQueuePair<'_, Rc>) -> Result<(), Any> {
        qp.batch(|batch| -> Result<(), Any> {
            batch.send(wr::send(lent))?;
            Ok(batch.send(wr::send(wr::Inline(&[0; 4096])))?)
        })
    }

    fn inline(qp: &mut QueuePair<Rc>) -> Result<(), Any> {
        let bytes = vec![0; 4096];
        Ok(qp.post_send(wr::send(wr::Inline(&bytes)))?)
    }

    for profile in PROFILES {
        let Two {
            mut pair,
            mut c,
            d: _d,
        } = Two::new(profile);
        let mut memory = [1_u8; 64];
        let error = inline(&mut pair.a).expect_err("too long");
        assert!(error.to_string().contains("inline"), "{error}");
        let ended = pair.a.scope(|scope| -> Result<(), Any> {
            let lent = scope.lend(&[7; 64])?;
            batch(lent, scope)
        });
        let error = ended.expect_err("too long");
        assert!(error.to_string().contains("inline"), "{error}");
        let ended = pair.a.scope(|scope| -> Result<(), Any> {
            let lent = scope.lend_mut(&mut memory)?;
            Ok(c.post_recv(wr::recv(lent))?)
        });
        let error = ended.expect_err("another queue pair");
        let rejected = error.downcast::<ibverbs::Rejected<std::convert::Infallible>>();
        let rejected = rejected.expect("a rejected request");
        assert_eq!(rejected.error(), PostError::WrongQueue);
        assert!(rejected.into_payload().is_none());
        assert!(!pair.a.is_destroyed(), "nothing was posted");
    }
}

/// Lets a scope destroy `a`, which has an owned buffer in flight.
fn destroy_in_scope(pair: &mut Pair) {
    pair.fake.stall();
    let owned = wr::send(pair.buf(b"owned")).tag(4);
    pair.a.post_send(owned).expect("send");
    let mut memory = [1_u8; 64];
    let ended = pair.a.scope(|scope| -> Result<(), Error> {
        let lent = scope.lend_mut(&mut memory)?;
        Ok(scope.post_recv(wr::recv(lent))?)
    });
    ended.expect_err("in flight");
}

#[test]
fn a_destroyed_queue_pair_is_a_valid_value() {
    for mut pair in pairs(PROFILES) {
        let (id, number) = (pair.a.id(), pair.a.qp_num());
        destroy_in_scope(&mut pair);
        pair.fake.resume();
        let (a, buf) = (&mut pair.a, pair.pool.take().expect("a free buffer"));
        assert_eq!((a.id(), a.qp_num()), (id, number));
        assert_eq!((a.send_slots_free(), a.recv_slots_free()), (0, 0));
        assert!(format!("{a:?}").contains("QueuePair"));
        let rejected = a.post_send(wr::send(buf)).expect_err("destroyed");
        assert_eq!(rejected.error(), PostError::Destroyed);
        let buf = rejected.into_payload().expect("the buffer");
        let rejected = a.post_recv(wr::recv(buf)).expect_err("destroyed");
        assert_eq!(rejected.error(), PostError::Destroyed);
        assert!(rejected.into_payload().is_some());
        let errors = [
            a.batch(|batch| Ok::<_, Error>(batch.send(wr::send(wr::Empty))?)),
            a.recv_batch(|batch| Ok::<_, Error>(batch.recv(wr::recv(wr::Empty))?)),
            a.as_raw().map(drop),
            a.state().map(drop),
            a.query().map(drop),
            a.query_ece().map(drop),
            a.set_ece(ibverbs::qp::Ece::default()),
            a.to_error(),
            a.modify(&QpChange::to(QpState::RESET)),
            a.init(&fixture::path()),
            a.drain(&mut [&mut pair.cq], LONG, |_| ()).map(drop),
        ];
        for (index, error) in errors.into_iter().enumerate() {
            let error = error.expect_err("destroyed");
            assert_eq!(error.kind(), ErrorKind::Disconnected, "{index}: {error}");
        }
        a.batch(|_| Ok::<_, Error>(())).expect("an empty batch");
        a.recv_batch(|_| Ok::<_, Error>(()))
            .expect("an empty batch");
        check_scope_of_destroyed(a, &mut pair.cq);
        let reclaimed = pair.a.destroy().expect("destroyed by the scope");
        let tags: Vec<u64> = reclaimed.sends.iter().map(|(tag, _)| *tag).collect();
        assert_eq!((tags, reclaimed.recvs.len()), (vec![4], 0));
        drop((reclaimed, pair.b, pair.cq, pair.pool, pair.pd, pair.context));
        pair.fake.assert_clean();
    }
}

/// A scope of a destroyed queue pair registers memory, but posts nothing.
fn check_scope_of_destroyed(qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue) {
    qp.scope(|scope| {
        let lent = scope.lend(&[1; 64])?;
        let rejected = scope.post_send(wr::send(lent)).expect_err("destroyed");
        assert_eq!(rejected.error(), PostError::Destroyed);
        scope.wait(cq, LONG, |_| ())
    })
    .expect("nothing is in flight");
    let polled = cq.poll().expect("poll");
    let of_destroyed = |completion: &Completion<'_>| completion.queue() == qp.id();
    for completion in polled.filter(of_destroyed).collect::<Vec<_>>() {
        qp.retire(completion).expect_err("destroyed");
    }
}

#[test]
fn a_destroyed_queue_pair_can_be_dropped() {
    for mut pair in pairs(PROFILES) {
        let free = pair.pool.available();
        destroy_in_scope(&mut pair);
        assert_eq!(
            pair.pool.available(),
            free - 1,
            "the queue pair keeps the buffer"
        );
        pair.fake.resume();
        drop((pair.a, pair.b));
        assert_eq!(pair.pool.available(), free);
    }
}

/// A device that writes after a failure still has the memory of a failed request. The scope
/// destroys its queue pair, although no request is in flight.
#[test]
fn a_failed_request_that_keeps_its_memory_ends_its_queue_pair() {
    for profile in IN_ORDER {
        let mut two = Two::new(Profile {
            provider: Provider::Ocrdma,
            writes_after_failures: true,
            ..profile
        });
        // The message does not fit.
        let message = two.pair.buf(&[7; 32]);
        two.d.post_send(wr::send(message)).expect("send");
        let (a, c, cq) = (&mut two.pair.a, &mut two.c, &mut two.pair.cq);
        let mut memory = vec![1_u8; 16];
        let ended = a.scope(|scope| {
            let lent = scope.lend_mut(&mut memory)?;
            let mut joined = scope.join(c)?;
            joined.post_recv(wr::recv(lent))?;
            let mut failed = 0;
            let waited = scope.wait(cq, Duration::ZERO, |each| {
                let retired = each.or_else(|completion| joined.try_retire(completion));
                failed += usize::from(retired.is_ok_and(|retired| !retired.is_success()));
            });
            assert_eq!((failed, scope.lent_in_flight()), (1, 1), "{waited:?}");
            waited
        });
        ended.expect_err("the device has the memory");
        assert_eq!((a.is_destroyed(), c.is_destroyed()), (false, true));
        drop(memory);
        assert!(in_order(&profile));
    }
}
