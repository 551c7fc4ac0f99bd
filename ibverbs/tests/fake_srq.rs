//! Shared receive queues on the fake device: whose a receive is, drop orders, what a panic or an
//! error leaves behind.

mod fake;

use std::panic::{AssertUnwindSafe, catch_unwind};

use fake::{PROFILES, connect, open, small};
use fake_provider::{Fake, Live, PostFault, Profile, Queue};
use ibverbs::{
    BatchError, CompletionQueue, CqOptions, Error, Pool, PostError, QueuePair, Rc,
    SharedReceiveQueue, SrqOptions, srq::SrqAttr, wr,
};

struct Store {
    srq: SharedReceiveQueue,
    /// Each a sender and a receiver.
    pairs: Vec<(QueuePair<Rc>, QueuePair<Rc>)>,
    cq: CompletionQueue,
    pool: Pool,
    fake: Fake,
}

impl Store {
    fn new(profile: Profile) -> Self {
        let fake = Fake::new(profile);
        let context = open(&fake);
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context
            .create_cq(CqOptions {
                depth: 63,
                extended: profile.extended_cq,
                ..CqOptions::default()
            })
            .expect("completion queue");
        let srq = pd
            .create_srq(SrqOptions {
                max_wr: 7,
                max_sge: 1,
                max_batch: 7,
            })
            .expect("shared receive queue");
        let pair = |_| {
            let mut sender = pd.create_qp::<Rc>(&cq, &cq, small()).expect("sender");
            let mut receiver = pd
                .create_qp_with_srq::<Rc>(&cq, &cq, &srq, small())
                .expect("receiver");
            connect(&mut sender, &mut receiver);
            (sender, receiver)
        };
        let pairs = (0..2).map(pair).collect();
        let pool = pd.pool(8, 64).expect("pool");
        Self {
            srq,
            pairs,
            cq,
            pool,
            fake,
        }
    }

    fn receives(&mut self, count: u64) {
        for tag in 0..count {
            self.srq
                .post_recv(wr::recv(self.pool.take().expect("a free buffer")).tag(tag))
                .expect("a free slot");
        }
    }

    /// Retires all; what was received: the tag, the place of the pair, and the bytes.
    fn retire(&mut self) -> Vec<(u64, usize, Vec<u8>)> {
        let mut all = Vec::new();
        for completion in self.cq.poll().expect("poll") {
            let number = completion.qp_num();
            if completion.queue() == self.srq.id() {
                let retired = self.srq.retire(completion).expect("in flight");
                retired.ok().expect("success");
                let place = self
                    .pairs
                    .iter()
                    .position(|(_, receiver)| receiver.qp_num() == number)
                    .expect("a known completion queue");
                all.push((
                    retired.tag(),
                    place,
                    retired.into_buf().expect("posted with a buffer").to_vec(),
                ));
            } else {
                let sender = self
                    .pairs
                    .iter_mut()
                    .find(|(sender, _)| sender.id() == completion.queue());
                sender
                    .expect("a sender")
                    .0
                    .retire(completion)
                    .expect("in flight")
                    .ok()
                    .expect("success");
            }
        }
        all
    }

    fn finish(self) {
        let Self {
            srq,
            pairs,
            cq,
            pool,
            fake,
        } = self;
        drop((srq, pairs, cq, pool));
        fake.assert_clean();
    }
}

#[test]
fn queue_pairs_receive_from_one_store_and_the_completion_says_which() {
    for profile in PROFILES {
        let mut store = Store::new(profile);
        store.receives(3);
        for (place, text) in [(1, b"one"), (0, b"two"), (1, b"six")] {
            store.pairs[place]
                .0
                .post_send(wr::send(wr::Inline(text)))
                .expect("send");
        }
        let expected = [
            (0, 1, b"one".to_vec()),
            (1, 0, b"two".to_vec()),
            (2, 1, b"six".to_vec()),
        ];
        assert_eq!(store.retire(), expected);
        let rejected = store.pairs[0]
            .1
            .post_recv(wr::recv(wr::Empty))
            .expect_err("it has no receives of its own");
        assert_eq!(rejected.error(), PostError::QueueFull { capacity: 0 });
        store.finish();
    }
}

#[test]
fn a_send_waits_for_a_receive_of_the_store() {
    for profile in PROFILES {
        let mut store = Store::new(profile);
        store.pairs[1]
            .0
            .post_send(wr::send(wr::Inline(b"early")))
            .expect("send");
        assert!(store.retire().is_empty());
        store.receives(1);
        assert_eq!(store.retire(), [(0, 1, b"early".to_vec())]);
        store.finish();
    }
}

#[test]
fn a_receive_retires_at_the_store_and_nowhere_else() {
    for profile in PROFILES {
        let mut store = Store::new(profile);
        store.receives(1);
        store.pairs[0]
            .0
            .post_send(wr::send(wr::Empty).unsignaled())
            .expect("send");
        let completion = store.cq.poll().expect("poll").next().expect("received");
        let not_mine = store.pairs[0]
            .1
            .retire(completion)
            .expect_err("the queue pair has no such request");
        assert_eq!(not_mine.queue, store.srq.id());
        assert_eq!(store.pool.available(), 7, "the buffer stays with the store");
        store.finish();
    }
}

#[test]
fn queue_pairs_keep_the_store_and_its_buffers_whatever_goes_first() {
    for profile in PROFILES {
        let mut store = Store::new(profile);
        store.receives(3);
        store.pairs[0]
            .0
            .post_send(wr::send(wr::Empty))
            .expect("send");
        let Store {
            srq,
            mut pairs,
            cq,
            pool,
            fake,
        } = store;
        drop(srq);
        assert_eq!((fake.live().srqs, pool.available()), (1, 5));
        pairs.truncate(1);
        assert_eq!((fake.live().srqs, pool.available()), (1, 5));
        drop(pairs);
        assert_eq!(
            (fake.live().srqs, pool.available()),
            (0, 8),
            "what was in flight, and what nobody retired"
        );
        drop((cq, pool));
        fake.assert_clean();
    }
}

#[test]
fn a_store_outlives_its_queue_pairs_and_the_pool() {
    let mut store = Store::new(PROFILES[0]);
    store.receives(2);
    let Store {
        srq,
        pairs,
        cq,
        pool,
        fake,
    } = store;
    drop((pairs, cq, pool));
    assert_eq!(
        fake.live(),
        Live {
            contexts: 1,
            pds: 1,
            mrs: 1,
            srqs: 1,
            ..Live::default()
        }
    );
    drop(srq);
    fake.assert_clean();
}

#[test]
fn completions_that_were_not_taken_come_again() {
    let mut store = Store::new(PROFILES[0]);
    store.receives(1);
    store.pairs[0]
        .0
        .post_send(wr::send(wr::Inline(b"late")))
        .expect("send");
    assert_eq!(store.cq.poll().expect("poll").len(), 2);
    assert_eq!(store.retire().len(), 1, "those not taken come again");
    store.finish();
}

#[test]
fn a_batch_is_as_long_as_its_queue_at_most() {
    let fake = Fake::new(Profile::RXE);
    let pd = open(&fake).alloc_pd().expect("protection domain");
    let mut srq = pd
        .create_srq(SrqOptions {
            max_batch: u32::MAX,
            max_wr: 7,
            max_sge: 1,
        })
        .expect("shared receive queue");
    let room = srq.recv_slots_free();
    srq.recv_batch(|batch| {
        (0..room).try_for_each(|_| Ok::<(), Error>(batch.recv(wr::recv(wr::Empty))?))
    })
    .expect("all at once");
    assert_eq!(srq.recv_slots_free(), 0);
    drop((srq, pd));
    fake.assert_clean();
}

#[test]
fn a_shared_queue_takes_lists_of_memory_that_it_holds() {
    let mut store = Store::new(Profile {
        extended_cq: false,
        ..Profile::RXE
    });
    let sink = store.srq.pd().sink(8).expect("sink");
    let held = store.srq.hold(&sink).expect("hold");
    let list = store.srq.hold_list(&[held]).expect("of its own tokens");
    store
        .srq
        .post_recv(wr::recv(list).tag(4))
        .expect("a free slot");
    let (sender, _) = &mut store.pairs[0];
    sender
        .hold_list(&[held])
        .expect_err("tokens of another queue");
    sender
        .post_send(wr::send(wr::Inline(b"unseen")))
        .expect("send");
    let received = store
        .cq
        .poll()
        .expect("poll")
        .find(|completion| completion.queue() == store.srq.id());
    let retired = store
        .srq
        .retire(received.expect("received"))
        .expect("in flight");
    assert_eq!(
        (
            retired.tag(),
            retired.byte_len(),
            retired.into_buf().is_none()
        ),
        (4, 6, true)
    );
    drop(sink);
    store.finish();
}

#[test]
fn an_error_or_a_panic_in_a_batch_of_receives_gives_the_buffers_back() {
    for profile in PROFILES {
        let mut store = Store::new(profile);
        let (srq, pool) = (&mut store.srq, &store.pool);
        let room = srq.recv_slots_free();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            srq.recv_batch(|batch| -> Result<(), Error> {
                batch.recv(wr::recv(pool.take().expect("a free buffer")))?;
                panic!("in the middle");
            })
        }));
        assert!(panicked.is_err());
        let failed = srq.recv_batch(|batch| -> Result<(), Error> {
            for _ in 0..8 {
                batch.recv(wr::recv(pool.take().expect("a free buffer")))?;
            }
            Ok(())
        });
        assert!(failed.is_err(), "there is room for 7");
        assert_eq!((pool.available(), srq.recv_slots_free()), (8, room));
        store.finish();
    }
}

#[test]
fn what_the_provider_refuses_of_a_batch_comes_back_and_what_is_in_doubt_stays() {
    for profile in PROFILES {
        for sets_bad_wr in [true, false] {
            let mut store = Store::new(profile);
            let fault = PostFault {
                queue: Queue::SharedRecv,
                at: 1,
                errno: libc::ENOMEM,
                sets_bad_wr,
                executed: false,
            };
            store.fake.fail_post(fault);
            let (srq, pool) = (&mut store.srq, &store.pool);
            let error = srq
                .recv_batch(|batch| -> Result<(), BatchError> {
                    for _ in 0..3 {
                        let added = batch.recv(wr::recv(pool.take().expect("a free buffer")));
                        added.expect("a free slot");
                    }
                    Ok(())
                })
                .expect_err("the second fails");
            let rejected = error.into_rejected().len();
            assert_eq!(
                (rejected, pool.available()),
                if sets_bad_wr { (2, 7) } else { (0, 5) }
            );
            store.finish();
        }
    }
}

#[test]
fn a_store_can_be_asked_and_changed() {
    let mut store = Store::new(PROFILES[0]);
    store.srq.set_limit(3).expect("limit");
    let SrqAttr {
        max_wr,
        max_sge,
        limit,
        ..
    } = store.srq.query().expect("query");
    assert_eq!((max_wr, max_sge, limit), (7, 1, 3));
    store.finish();
}
