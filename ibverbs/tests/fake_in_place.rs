//! Completions read where the provider shows them: by a call, in which the provider may hold a
//! lock, and which ends the poll whatever becomes of it.

mod fake;

use std::panic::{AssertUnwindSafe, catch_unwind};

use fake::{connect, open, small};
use fake_provider::{Fake, Profile};
use ibverbs::{
    Buf, Context, CqOptions, Error, ErrorKind, Pool, ProtectionDomain, QpState, QueuePair, Rc,
    Result, SrqOptions, WcOpcode, WcStatus,
    cq_ex::{CompletionQueueEx, CqFields, Enabled},
    qp::QpChange,
    wr,
    xrc::Xrc,
};

/// `a` and `b` are connected and share a completion queue with timestamps.
struct Setup {
    a: QueuePair<Rc>,
    b: QueuePair<Rc>,
    cq: CompletionQueueEx<CqFields<Enabled>>,
    pool: Pool,
    pd: ProtectionDomain,
    context: Context,
    fake: Fake,
}

impl Setup {
    fn new() -> Self {
        let fake = Fake::new(Profile {
            extra_fields: true,
            more_verbs: true,
            ..Profile::RXE
        });
        let context = open(&fake);
        let pd = context.alloc_pd().expect("domain");
        let options = CqOptions {
            depth: 63,
            ..CqOptions::default()
        };
        let cq = context
            .create_cq_ex(options, CqFields::new().timestamp())
            .expect("queue");
        let mut a = pd.create_qp::<Rc>(&cq, &cq, small()).expect("a");
        let mut b = pd.create_qp::<Rc>(&cq, &cq, small()).expect("b");
        connect(&mut a, &mut b);
        let pool = pd.pool(16, 64).expect("pool");
        Self {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        }
    }

    fn buf(&self, len: usize) -> Buf {
        let mut buf = self.pool.take().expect("a free buffer");
        buf.set_len(len);
        buf
    }

    /// One message, which has arrived: two completions.
    fn message(&mut self, len: usize) {
        let (source, target) = (self.buf(len), self.buf(0));
        self.b
            .post_recv(wr::recv(target).tag(len as u64))
            .expect("receive");
        self.a
            .post_send(wr::send_with_imm(source, 7).tag(100 + len as u64))
            .expect("send");
    }

    /// Retires all that has completed: the tags.
    fn rest(&mut self) -> Vec<u64> {
        let mut tags = Vec::new();
        let each = |completion: ibverbs::cq_ex::CompletionInPlace<'_, _>| -> Result<()> {
            let qp = if completion.queue() == self.a.id() {
                &mut self.a
            } else {
                &mut self.b
            };
            tags.push(qp.retire_in_place(completion)?.tag());
            Ok(())
        };
        self.cq.poll_each(each).expect("poll");
        tags
    }

    fn finish(self) {
        let Self {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        } = self;
        assert_eq!(
            pool.available() + a.caps().max_send_wr as usize - a.send_slots_free(),
            16
        );
        drop((a, b, cq, pool, pd, context));
        fake.assert_clean();
    }
}

#[test]
fn each_field_is_read_where_it_is_and_buffers_come_back_as_from_any_poll() {
    let mut setup = Setup::new();
    for len in [3, 5] {
        setup.message(len);
    }
    let Setup { a, b, cq, .. } = &mut setup;
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let count = cq.poll_each(|completion| -> Result<()> {
        assert!(
            completion.is_success() && completion.timestamp() >= 1_000,
            "{completion:?}"
        );
        if completion.queue() == a.id() {
            assert_eq!(
                (
                    completion.qp_num(),
                    completion.byte_len(),
                    completion.imm_data()
                ),
                (a.qp_num(), 0, None)
            );
            let retired = a.retire_in_place(completion)?;
            assert_eq!((retired.opcode(), retired.byte_len()), (WcOpcode::SEND, 0));
            sent.push((retired.tag(), retired.into_buf().map(|buf| buf.len())));
        } else {
            assert_eq!(
                (completion.opcode(), completion.imm_data()),
                (WcOpcode::RECV, Some(7))
            );
            assert_eq!(
                (completion.vendor_err(), completion.source().has_grh),
                (0, false)
            );
            let len = completion.byte_len();
            let retired = b.retire_in_place(completion)?;
            retired.ok()?;
            assert_eq!(
                (
                    retired.byte_len(),
                    retired.imm_data(),
                    retired.invalidated_rkey()
                ),
                (len, Some(7), None)
            );
            let buf = retired.into_buf().expect("posted with one");
            received.push((len, buf.len()));
            b.post_recv(wr::recv(buf))?; // posting goes on meanwhile
        }
        Ok(())
    });
    assert_eq!(count.expect("poll"), 4);
    assert_eq!(
        (sent, received),
        (vec![(103, Some(3)), (105, Some(5))], vec![(3, 3), (5, 5)])
    );
    assert_eq!(setup.cq.poll_each(|_| Result::Ok(())).expect("poll"), 0);
    // What is not retired in place comes back from the queue pair.
    let Setup {
        a,
        b,
        cq,
        pool,
        pd,
        context,
        fake,
    } = setup;
    assert_eq!(b.destroy().expect("destroyed").recvs.len(), 2);
    drop((a, cq, pd, context));
    assert_eq!(pool.available(), 16);
    drop(pool);
    fake.assert_clean();
}

#[test]
fn a_call_that_fails_or_panics_ends_the_poll_and_the_next_one_goes_on() {
    let mut setup = Setup::new();
    for len in [1, 2] {
        setup.message(len);
    }
    let mut calls = 0;
    let failed = setup.cq.poll_each(|completion| {
        calls += 1;
        setup
            .a
            .retire_in_place(completion)
            .map(drop)
            .map_err(Error::from)?;
        Err(Error::new(ErrorKind::TimedOut, "test", "enough"))
    });
    // Of another queue pair or not: it failed, once.
    assert!(failed.is_err() && calls == 1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        setup
            .cq
            .poll_each(|completion| -> Result<()> { panic!("within the poll: {completion:?}") })
    }));
    assert!(panicked.is_err());
    assert_eq!(setup.rest().len(), 2);
    setup.message(3);
    assert_eq!(setup.rest(), [3, 103]);
    let Setup {
        a,
        b,
        cq,
        pool,
        pd,
        context,
        fake,
    } = setup;
    drop((a, b, cq, pool, pd, context));
    fake.assert_clean();
}

#[test]
fn a_queue_pair_dropped_within_is_destroyed_after() {
    let mut setup = Setup::new();
    setup.message(4);
    let Setup {
        a,
        b,
        mut cq,
        pool,
        pd,
        context,
        fake,
    } = setup;
    let mut pairs = [Some(a), Some(b)];
    let count = cq.poll_each(|completion| -> Result<()> {
        let queue = completion.queue();
        let of = pairs
            .iter_mut()
            .find(|pair| pair.as_ref().is_some_and(|pair| pair.id() == queue))
            .expect("one");
        of.as_mut().expect("it").retire_in_place(completion)?.ok()?;
        let mut pair = of.take().expect("it");
        let reset = pair
            .modify(&QpChange::to(QpState::RESET))
            .expect_err("the lock is held");
        assert_eq!(reset.kind(), ErrorKind::InvalidInput);
        pair.to_error()?;
        if fake.live().qps == 2 && pairs.iter().flatten().count() == 1 {
            drop(pair);
        } else {
            let error = pair.destroy().expect_err("the lock is held");
            assert!(error.to_string().contains("poll_each"), "{error}");
        }
        assert_eq!(fake.live().qps, 2);
        Ok(())
    });
    assert_eq!((count.expect("poll"), fake.live().qps), (2, 0));
    assert_eq!(pool.available(), 16);
    drop((cq, pool, pd, context));
    fake.assert_clean();
}

#[test]
fn what_must_be_destroyed_at_once_cannot_begin_within() {
    let mut setup = Setup::new();
    setup.message(4);
    let Setup {
        a,
        b,
        mut cq,
        pool,
        pd,
        context,
        fake,
    } = setup;
    let (mut a, bytes, mut lent) = (Some(a), [1; 8], None);
    cq.poll_each(|_| -> Result<()> {
        if let Some(pair) = a.take() {
            let end =
                pair.scope(|scope| scope.lend(&bytes).map(drop).map_err(|error| error.kind()));
            let (pair, refused) = end.into_result()?;
            (a, lent) = (Some(pair), Some(refused));
        }
        Ok(())
    })
    .expect("poll");
    assert_eq!(lent, Some(Err(ErrorKind::InvalidInput)));
    let end = a.expect("back").scope(|scope| scope.lend(&bytes).map(drop));
    end.value.expect("after it");
    drop((end.qp, b, cq, pool, pd, context));
    fake.assert_clean();
}

#[test]
fn what_was_copied_comes_before_what_is_in_place_and_errors_are_told_once() {
    let mut setup = Setup::new();
    setup.message(1);
    setup.fake.fail_poll_after(2, libc::EIO);
    let first = setup.cq.poll().expect("poll").next().expect("one");
    let qp = if first.queue() == setup.a.id() {
        &mut setup.a
    } else {
        &mut setup.b
    };
    qp.retire(first.into())
        .expect("in flight")
        .ok()
        .expect("success");
    let left = setup
        .cq
        .poll_each(|_| -> Result<()> { unreachable!() })
        .expect_err("one is left");
    assert!(
        left.kind() == ErrorKind::InvalidInput && left.to_string().contains("not taken"),
        "{left}"
    );
    let second = setup.cq.poll().expect("poll").next().expect("the other");
    let qp = if second.queue() == setup.a.id() {
        &mut setup.a
    } else {
        &mut setup.b
    };
    qp.retire(second.into())
        .expect("in flight")
        .ok()
        .expect("success");
    let error = setup
        .cq
        .poll_each(|_| -> Result<()> { unreachable!() })
        .expect_err("it came after the entries");
    assert_eq!(error.kind(), ErrorKind::Os);
    assert_eq!(setup.rest(), [0; 0]);
    for entries in [0, 1] {
        setup.message(2);
        setup.fake.fail_poll_after(entries, libc::EIO);
        let mut count = 0;
        let polled = setup.cq.poll_each(|completion| -> Result<()> {
            count += 1;
            let qp = if completion.queue() == setup.a.id() {
                &mut setup.a
            } else {
                &mut setup.b
            };
            qp.retire_in_place(completion)?.ok()
        });
        assert!(polled.is_err_and(|error| error.kind() == ErrorKind::Os) && count == entries);
        assert_eq!(setup.rest().len(), 2 - entries);
    }
    setup.finish();
}

#[test]
fn a_failure_shows_its_status_and_gives_its_buffer_back_as_it_was() {
    let mut setup = Setup::new();
    let buf = setup.buf(9);
    setup.b.post_recv(wr::recv(buf)).expect("receive");
    setup.b.to_error().expect("error state");
    let mut lens = Vec::new();
    let Setup { b, cq, .. } = &mut setup;
    cq.poll_each(|completion| -> Result<()> {
        assert_eq!(
            (completion.status(), completion.byte_len()),
            (WcStatus::WR_FLUSH_ERR, 0)
        );
        let retired = b.retire_in_place(completion)?;
        assert_eq!(
            retired.ok().expect_err("flushed").kind(),
            ErrorKind::Completion
        );
        assert_eq!((retired.byte_len(), retired.imm_data()), (0, None));
        lens.push(retired.into_buf().expect("its buffer").len());
        Ok(())
    })
    .expect("poll");
    assert_eq!(lens, [9]);
    setup.finish();
}

#[test]
fn receives_of_a_shared_queue_retire_in_place() {
    let mut setup = Setup::new();
    let mut srq = setup
        .pd
        .create_srq(SrqOptions {
            max_wr: 4,
            ..SrqOptions::default()
        })
        .expect("shared queue");
    let mut c = setup
        .pd
        .create_qp_with_srq::<Rc>(&setup.cq, &setup.cq, &srq, small())
        .expect("c");
    let mut d = setup
        .pd
        .create_qp::<Rc>(&setup.cq, &setup.cq, small())
        .expect("d");
    connect(&mut c, &mut d);
    let buf = setup.buf(0);
    srq.post_recv(wr::recv(buf)).expect("receive");
    d.post_send(wr::send(wr::Inline(b"four"))).expect("send");
    let mut got = 0;
    setup
        .cq
        .poll_each(|completion| -> Result<()> {
            if completion.queue() == srq.id() {
                let retired = srq.retire_in_place(completion)?;
                got = retired.into_buf().expect("its buffer").len();
            } else {
                d.retire_in_place(completion)?.ok()?;
            }
            Ok(())
        })
        .expect("poll");
    assert_eq!(got, 4);
    drop((c, d, srq));
    setup.finish();
}

#[test]
fn a_store_of_an_xrc_domain_dropped_within_is_destroyed_after() {
    let mut setup = Setup::new();
    let xrcd = setup.context.open_xrcd().expect("XRC domain");
    let options = SrqOptions {
        max_wr: 4,
        ..SrqOptions::default()
    };
    let mut store = Some(
        setup
            .pd
            .create_xrc_srq(&xrcd, &setup.cq, options)
            .expect("shared queue"),
    );
    setup.message(1);
    let Setup { a, b, cq, fake, .. } = &mut setup;
    cq.poll_each(|completion| -> Result<()> {
        drop::<Option<ibverbs::SharedReceiveQueue<Xrc>>>(store.take());
        assert_eq!(fake.live().srqs, 1);
        let qp = if completion.queue() == a.id() {
            &mut *a
        } else {
            &mut *b
        };
        qp.retire_in_place(completion)?.ok()
    })
    .expect("poll");
    assert_eq!(setup.fake.live().srqs, 0);
    drop(xrcd);
    setup.finish();
}
