//! Shared receive queues on the fake device: where a receive retires, drop orders, panics and
//! errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fixture::{self, Fake, PROFILES, connect, open, small};
use fake_provider::{AfterDestroy, Live, PostFault, Profile, Queue};
use ibverbs::{
    BatchError, CompletionQueue, CqOptions, Error, Pool, PostError, QueuePair, Rc,
    SharedReceiveQueue, SrqOptions, srq::SrqAttr, wr,
};

/// A shared receive queue with two connections that receive from it.
struct Setup {
    srq: SharedReceiveQueue,
    /// Senders and receivers.
    pairs: Vec<(QueuePair<Rc>, QueuePair<Rc>)>,
    cq: CompletionQueue,
    pool: Pool,
    fake: Fake,
}

impl Setup {
    fn new(profile: Profile) -> Self {
        let fake = Fake::new(profile);
        let context = open(&fake);
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context
            .create_cq(CqOptions::new().depth(63))
            .expect("completion queue");
        let srq = pd
            .create_srq(SrqOptions::new().max_wr(7).max_batch(7))
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

    /// Posts `count` receives with tags from 0.
    fn post_recvs(&mut self, count: u64) {
        for tag in 0..count {
            self.srq
                .post_recv(wr::recv(self.pool.take().expect("a free buffer")).tag(tag))
                .expect("a free slot");
        }
    }

    /// Retires all requests. Returns the tag, the index of the pair and the bytes of each receive.
    fn retire(&mut self) -> Vec<(u64, usize, Vec<u8>)> {
        let mut all = Vec::new();
        for completion in self.cq.poll().expect("poll") {
            let qp_num = completion.qp_num();
            if completion.queue() == self.srq.id() {
                let retired = self.srq.retire(completion).expect("in flight");
                retired.check().expect("success");
                let index = self
                    .pairs
                    .iter()
                    .position(|(_, receiver)| receiver.qp_num() == qp_num)
                    .expect("a known receiver");
                all.push((
                    retired.tag(),
                    index,
                    retired.into_buf().expect("posted with a buffer").to_vec(),
                ));
            } else {
                let sender = self
                    .pairs
                    .iter_mut()
                    .find(|(sender, _)| sender.id() == completion.queue());
                sender
                    .expect("a known sender")
                    .0
                    .retire(completion)
                    .expect("in flight")
                    .check()
                    .expect("success");
            }
        }
        all
    }
}

#[test]
fn queue_pairs_share_an_srq_and_completions_name_them() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        setup.post_recvs(3);
        for (index, text) in [(1, b"one"), (0, b"two"), (1, b"six")] {
            setup.pairs[index]
                .0
                .post_send(wr::send(wr::Inline(text)))
                .expect("send");
        }
        let expected = [
            (0, 1, b"one".to_vec()),
            (1, 0, b"two".to_vec()),
            (2, 1, b"six".to_vec()),
        ];
        assert_eq!(setup.retire(), expected);
        let rejected = setup.pairs[0]
            .1
            .post_recv(wr::recv(wr::Empty))
            .expect_err("the queue pair has no receive queue");
        assert_eq!(rejected.error(), PostError::QueueFull { capacity: 0 });
    }
}

#[test]
fn a_send_waits_for_a_shared_receive() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        setup.pairs[1]
            .0
            .post_send(wr::send(wr::Inline(b"early")))
            .expect("send");
        assert!(setup.retire().is_empty());
        setup.post_recvs(1);
        assert_eq!(setup.retire(), [(0, 1, b"early".to_vec())]);
    }
}

#[test]
fn a_receive_retires_only_at_its_srq() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        setup.post_recvs(1);
        setup.pairs[0]
            .0
            .post_send(wr::send(wr::Empty).signaled(false))
            .expect("send");
        let completion = setup.cq.poll().expect("poll").next().expect("received");
        let foreign = setup.pairs[0]
            .1
            .retire(completion)
            .expect_err("the queue pair has no such request");
        assert_eq!(foreign.queue, setup.srq.id());
        assert_eq!(
            setup.pool.available(),
            7,
            "the shared receive queue keeps the buffer"
        );
    }
}

#[test]
fn queue_pairs_keep_the_srq_and_its_buffers() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        setup.post_recvs(3);
        setup.pairs[0]
            .0
            .post_send(wr::send(wr::Empty))
            .expect("send");
        let objects = || (setup.fake.live().srqs, setup.pool.available());
        drop(setup.srq);
        assert_eq!(objects(), (1, 5));
        setup.pairs.truncate(1);
        assert_eq!(objects(), (1, 5));
        drop(setup.pairs);
        assert_eq!(
            objects(),
            (0, 8),
            "buffers in flight and unretired buffers are returned"
        );
    }
}

#[test]
fn an_srq_outlives_its_queue_pairs_and_the_pool() {
    let mut setup = Setup::new(PROFILES[0]);
    setup.post_recvs(2);
    drop((setup.pairs, setup.cq, setup.pool));
    assert_eq!(
        setup.fake.live(),
        Live {
            contexts: 1,
            pds: 1,
            mrs: 1,
            srqs: 1,
            ..Live::default()
        }
    );
}

#[test]
fn unread_completions_are_returned_by_the_next_poll() {
    let mut setup = Setup::new(PROFILES[0]);
    setup.post_recvs(1);
    setup.pairs[0]
        .0
        .post_send(wr::send(wr::Inline(b"late")))
        .expect("send");
    assert_eq!(setup.cq.poll().expect("poll").len(), 2);
    assert_eq!(setup.retire().len(), 1, "the receive is returned again");
}

#[test]
fn a_batch_can_be_as_long_as_the_queue() {
    let fake = Fake::new(Profile::RXE);
    let pd = open(&fake).alloc_pd().expect("protection domain");
    let mut srq = pd
        .create_srq(SrqOptions::new().max_wr(7).max_batch(u32::MAX))
        .expect("shared receive queue");
    let free_slots = srq.recv_slots_free();
    srq.recv_batch(|batch| {
        (0..free_slots).try_for_each(|_| Ok::<(), Error>(batch.recv(wr::recv(wr::Empty))?))
    })
    .expect("one batch");
    assert_eq!(srq.recv_slots_free(), 0);
}

#[test]
fn an_srq_accepts_lists_of_memory_it_holds() {
    let mut setup = Setup::new(Profile {
        extended_cq: false,
        ..Profile::RXE
    });
    let sink = setup.srq.pd().sink(8).expect("sink");
    let held = setup.srq.hold(&sink).expect("hold");
    let list = setup
        .srq
        .hold_list(&[held])
        .expect("list of its own tokens");
    setup
        .srq
        .post_recv(wr::recv(list).tag(4))
        .expect("a free slot");
    let released = setup.srq.release_list(list);
    assert!(!released.expect("its own"), "a receive uses it");
    let (sender, _) = &mut setup.pairs[0];
    sender
        .hold_list(&[held])
        .expect_err("tokens of the shared receive queue");
    sender
        .post_send(wr::send(wr::Inline(b"unseen")))
        .expect("send");
    let received = setup
        .cq
        .poll()
        .expect("poll")
        .find(|completion| completion.queue() == setup.srq.id());
    let retired = setup
        .srq
        .retire(received.expect("received"))
        .expect("in flight");
    assert_eq!(
        (
            retired.tag(),
            retired.received_len(),
            retired.into_buf().is_none()
        ),
        (4, 6, true)
    );
    assert!(setup.srq.release_list(list).expect("its own"));
    let rejected = setup.srq.post_recv(wr::recv(list));
    let error = rejected.expect_err("released").error();
    assert_eq!(error, PostError::WrongQueue);
}

#[test]
fn a_failed_batch_of_receives_returns_the_buffers() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let (srq, pool) = (&mut setup.srq, &setup.pool);
        let free_slots = srq.recv_slots_free();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            srq.recv_batch(|batch| -> Result<(), Error> {
                batch.recv(wr::recv(pool.take().expect("a free buffer")))?;
                panic!("inside the batch");
            })
        }));
        assert!(panicked.is_err());
        let failed = srq.recv_batch(|batch| -> Result<(), Error> {
            for _ in 0..8 {
                batch.recv(wr::recv(pool.take().expect("a free buffer")))?;
            }
            Ok(())
        });
        assert!(failed.is_err(), "the queue has 7 slots");
        assert_eq!((pool.available(), srq.recv_slots_free()), (8, free_slots));
    }
}

#[test]
fn rejected_receives_return_and_those_in_doubt_stay() {
    for profile in PROFILES {
        for sets_bad_wr in [true, false] {
            let mut setup = Setup::new(profile);
            let fault = PostFault {
                queue: Queue::SharedRecv,
                at: 1,
                errno: libc::ENOMEM,
                sets_bad_wr,
                executed: false,
            };
            setup.fake.fail_post(fault);
            let (srq, pool) = (&mut setup.srq, &setup.pool);
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
        }
    }
}

#[test]
fn srq_attributes_can_be_set_and_queried() {
    let mut setup = Setup::new(PROFILES[0]);
    setup.srq.set_limit(3).expect("limit");
    let SrqAttr {
        max_wr,
        max_sge,
        limit,
        ..
    } = setup.srq.query().expect("query");
    assert_eq!((max_wr, max_sge, limit), (7, 1, 3));
    assert_eq!(setup.srq.recv_capacity(), 7);
    setup.srq.resize(5).expect("resize");
    assert_eq!(setup.srq.query().expect("query").max_wr, 5);
    assert_eq!(setup.srq.recv_capacity(), 7, "that of the creation");
}

/// mlx5 removes the completions of a queue pair that is destroyed (docs/drivers.md, fault 45). The
/// device can use the entry of the shared receive queue again, but the buffer must not move.
#[test]
fn a_removed_completion_keeps_the_buffer_in_its_srq() {
    for profile in PROFILES {
        let mut setup = Setup::new(Profile {
            after_destroy: AfterDestroy::Drop,
            ..profile
        });
        setup.post_recvs(7);
        let (mut sender, receiver) = setup.pairs.remove(0);
        sender
            .post_send(wr::send(wr::Inline(b"lost")))
            .expect("send");
        drop(receiver);
        let [(survivor, _)] = &mut setup.pairs[..] else {
            unreachable!("one pair is left");
        };
        for _ in 0..6 {
            survivor
                .post_send(wr::send(wr::Inline(b"received")))
                .expect("send");
        }
        let mut received = 0;
        for completion in setup.cq.poll().expect("poll") {
            if let Ok(retired) = setup.srq.try_retire(completion) {
                assert_eq!(fixture::buf_bytes(retired), b"received");
                received += 1;
            }
        }
        assert_eq!(received, 6);
        assert_eq!(
            (setup.srq.recv_slots_free(), setup.pool.available()),
            (6, 7)
        );
        setup.post_recvs(6);
        let rejected = setup
            .srq
            .post_recv(wr::recv(setup.pool.take().expect("a free buffer")))
            .expect_err("the slot of the lost receive is not free");
        assert_eq!(rejected.error(), PostError::QueueFull { capacity: 7 });
        drop((rejected, sender, setup.srq, setup.pairs));
        assert_eq!(setup.pool.available(), 8, "the destroyed queue returns it");
    }
}

#[test]
fn a_completion_of_another_queue_can_be_retired_there() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        setup.post_recvs(1);
        let sender = &mut setup.pairs[0].0;
        sender.post_send(wr::send(wr::Inline(b"hi"))).expect("send");
        let (mut sent, mut received) = (0, 0);
        for completion in setup.cq.poll().expect("poll") {
            // Each completion is tried on both queues, on the wrong one first.
            if completion.queue() == sender.id() {
                let completion = setup.srq.try_retire(completion).expect_err("a send");
                let retired = sender.try_retire(completion).expect("in flight");
                retired.check().expect("success");
                sent += 1;
            } else {
                let completion = sender.try_retire(completion).expect_err("a receive");
                let retired = setup.srq.try_retire(completion).expect("in flight");
                assert_eq!(fixture::buf_bytes(retired), b"hi");
                received += 1;
            }
        }
        assert_eq!((sent, received, setup.srq.recv_slots_free()), (1, 1, 7));
    }
}

#[test]
fn completions_name_their_queue_pair_after_number_reuse() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        setup.post_recvs(3);
        let (mut sender, receiver) = setup.pairs.remove(0);
        let (first, number) = (receiver.id(), receiver.qp_num());
        sender.post_send(wr::send(wr::Inline(b"1"))).expect("send");
        drop((receiver, sender));
        // The message is still in the completion queue, so the number is not used again.
        let pd = setup.srq.pd().clone();
        let create = |setup: &Setup| {
            let mut sender = pd
                .create_qp::<Rc>(&setup.cq, &setup.cq, small())
                .expect("sender");
            let mut receiver = pd
                .create_qp_with_srq::<Rc>(&setup.cq, &setup.cq, &setup.srq, small())
                .expect("receiver");
            connect(&mut sender, &mut receiver);
            (sender, receiver)
        };
        let (mut sender, receiver) = create(&setup);
        assert_ne!(receiver.qp_num(), number);
        sender.post_send(wr::send(wr::Inline(b"2"))).expect("send");
        let mut named = Vec::new();
        for completion in setup.cq.poll().expect("poll") {
            let queue_pair = setup.srq.queue_pair(&completion);
            if let Ok(retired) = setup.srq.try_retire(completion) {
                named.push((queue_pair, fixture::buf_bytes(retired)));
            } else {
                assert_eq!(queue_pair, None, "a send");
            }
        }
        let second = receiver.id();
        assert_eq!(
            named,
            [(Some(first), b"1".to_vec()), (Some(second), b"2".to_vec())]
        );
        // Two polls that find nothing prove that no completion of the first one is left.
        drop((sender, receiver));
        for _ in 0..2 {
            assert!(setup.cq.poll().expect("poll").is_empty());
        }
        let again: Vec<_> = (0..2).map(|_| create(&setup)).collect();
        let numbers: Vec<_> = again
            .iter()
            .map(|(_, receiver)| receiver.qp_num())
            .collect();
        assert!(numbers.contains(&number), "{numbers:?} without {number}");
    }
}
