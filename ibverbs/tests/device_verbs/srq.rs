//! Shared receive queues.

use std::time::{Duration, Instant};

use ibverbs::{AccessFlags, CqOptions, ErrorKind, PostError, QpOptions, Rc, SrqOptions, wr};

use crate::lab::{self, connect, devices_with, is_iwarp, is_mlx5, is_model, path, roce_with, verb};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn srq_completions_identify_the_queue_pair() {
    for context in roce_with(&[verb::RC, verb::SRQ]) {
        let pd = context.alloc_pd().expect("protection domain");
        let mut cq = lab::cq(&context);
        let mut srq = pd
            .create_srq(SrqOptions::default())
            .expect("shared receive queue");
        let path = path(&context);
        let mut pairs = Vec::new();
        for _ in 0..3 {
            let mut sender = lab::qp::<Rc>(&pd, &cq);
            let mut receiver = pd
                .create_qp_with_srq::<Rc>(&cq, &cq, &srq, QpOptions::default())
                .expect("receiver");
            connect(&mut sender, &mut receiver, &path);
            let rejected = receiver
                .post_recv(wr::recv(wr::Empty))
                .expect_err("it has a shared receive queue");
            assert_eq!(rejected.error(), PostError::QueueFull { capacity: 0 });
            pairs.push((sender, receiver));
        }
        let pool = pd.pool(8, 64).expect("pool");
        srq.recv_batch(|batch| -> ibverbs::Result<()> {
            for tag in 0..4 {
                batch.recv(wr::recv(pool.take().expect("a free buffer")).tag(tag))?;
            }
            Ok(())
        })
        .expect("receives");
        srq.post_recv(wr::recv(pool.take().expect("a free buffer")))
            .expect("another receive");
        for (index, (sender, _)) in pairs.iter_mut().enumerate() {
            let mut buf = pd.buf(1).expect("buffer");
            buf[0] = u8::try_from(index).expect("small");
            sender.post_send(wr::send(buf)).expect("send");
        }
        let (mut got, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(10));
        while got.len() < 3 {
            assert!(Instant::now() < deadline, "{} of 3 arrived", got.len());
            for completion in cq.poll().expect("poll") {
                let qpn = completion.qp_num();
                if completion.queue() == srq.id() {
                    let buf = srq
                        .retire(completion)
                        .expect("in flight")
                        .into_buf()
                        .expect("posted with a buffer");
                    assert_eq!(qpn, pairs[usize::from(buf[0])].1.qp_num());
                    got.push(buf[0]);
                } else {
                    let (sender, _) = pairs
                        .iter_mut()
                        .find(|(sender, _)| sender.id() == completion.queue())
                        .expect("a sender");
                    sender
                        .retire(completion)
                        .expect("in flight")
                        .check()
                        .expect("sent");
                }
            }
        }
        // The handle can be dropped first: queue pairs keep the queue and its buffers alive.
        drop(srq);
        assert_eq!(pool.available(), 6);
        drop(pairs);
        assert_eq!(pool.available(), 8);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn srq_receives_are_taken_in_any_order_by_queue_pairs() {
    for context in roce_with(&[verb::RC, verb::SRQ]) {
        let pd = context.alloc_pd().expect("protection domain");
        let mut cq = lab::cq(&context);
        let mut srq = pd
            .create_srq(SrqOptions::default())
            .expect("shared receive queue");
        let region = pd
            .shared(4 << 20, AccessFlags::REMOTE_READ)
            .expect("region");
        let path = path(&context).access(AccessFlags::REMOTE_READ);
        let mut pairs = Vec::new();
        for _ in 0..2 {
            let qp = |cq| pd.create_qp::<Rc>(cq, cq, QpOptions::default());
            let mut sender = qp(&cq).expect("sender");
            let mut receiver = pd
                .create_qp_with_srq::<Rc>(&cq, &cq, &srq, QpOptions::default())
                .expect("receiver");
            connect(&mut sender, &mut receiver, &path);
            pairs.push((sender, receiver));
        }
        let (first, second) = pairs.split_at_mut(1);
        let (first, second) = (&mut first[0].0, &mut second[0].0);
        let sink = first.hold(&pd.sink(4 << 20).expect("sink")).expect("hold");
        // The first message waits for a READ, and the second one overtakes it, unless the machine
        // was too busy to send it in time.
        let mut overtaken = false;
        for _ in 0..50 {
            for tag in [1, 2] {
                let buf = pd.buf(64).expect("buffer");
                srq.post_recv(wr::recv(buf).tag(tag)).expect("receive");
            }
            first
                .post_send(wr::read(sink, region.remote()))
                .expect("READ");
            first
                .post_send(wr::send(pd.buf(1).expect("buffer")).fenced(true))
                .expect("send");
            second
                .post_send(wr::send(pd.buf(2).expect("buffer")))
                .expect("send");
            let (mut got, mut sent) = (Vec::new(), 0);
            let deadline = Instant::now() + Duration::from_secs(10);
            while got.len() < 2 || sent < 3 {
                assert!(Instant::now() < deadline, "{got:?} arrived, {sent} sent");
                for completion in cq.poll().expect("poll") {
                    assert!(completion.is_success(), "{completion:?}");
                    if completion.queue() == srq.id() {
                        let len = completion.received_len();
                        let retired = srq.retire(completion).expect("in flight");
                        got.push((retired.tag(), len));
                    } else if completion.queue() == first.id() {
                        sent += first.retire(completion).map(|_| 1).expect("in flight");
                    } else {
                        sent += second.retire(completion).map(|_| 1).expect("in flight");
                    }
                }
            }
            got.sort_unstable();
            overtaken = got == [(1, 2), (2, 1)];
            assert!(overtaken || got == [(1, 1), (2, 2)], "{got:?}");
            // The model of mlx5 executes the READ at once.
            if overtaken || is_mlx5(&context) {
                break;
            }
        }
        assert!(
            overtaken || is_mlx5(&context),
            "the messages kept their order"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn srq_limit_resize_and_query_work_or_are_unsupported() {
    for context in devices_with(&[verb::RC, verb::SRQ]) {
        let pd = context.alloc_pd().expect("protection domain");
        let mut srq = pd
            .create_srq(SrqOptions::new().max_wr(64))
            .expect("shared receive queue");
        srq.set_limit(8).expect("limit");
        if is_iwarp(&context) {
            assert_eq!(
                srq.query().expect_err("unsupported by siw").kind(),
                ErrorKind::Unsupported
            );
            assert_eq!(
                srq.resize(128).expect_err("unsupported by siw").kind(),
                ErrorKind::Unsupported
            );
        } else {
            assert_eq!(srq.query().expect("query").limit, 8);
            let resized = srq.resize(128);
            if is_mlx5(&context) {
                resized.expect_err("the driver cannot change the size");
                continue;
            }
            resized.expect("resize");
            assert!(srq.query().expect("query").max_wr >= 128);
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn srq_of_another_domain_is_rejected() {
    for context in devices_with(&[verb::RC, verb::SRQ]) {
        let (pd, other) = (
            context.alloc_pd().expect("protection domain"),
            context.alloc_pd().expect("protection domain"),
        );
        let cq = lab::cq(&context);
        let srq = other
            .create_srq(SrqOptions::default())
            .expect("shared receive queue");
        let error = pd
            .create_qp_with_srq::<Rc>(&cq, &cq, &srq, QpOptions::default())
            .expect_err("another domain");
        assert_eq!(error.kind(), ErrorKind::Mismatch);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn destroyed_queue_pairs_are_named_in_late_completions() {
    const ROUNDS: u64 = 40;
    for context in roce_with(&[verb::RC, verb::SRQ]) {
        let pd = context.alloc_pd().expect("protection domain");
        let new_cq = || context.create_cq(CqOptions::new().depth(256));
        let (mut sends, mut receives) = (new_cq().expect("sends"), new_cq().expect("receives"));
        let options = SrqOptions::new().max_wr(128);
        let mut srq = pd.create_srq(options).expect("shared receive queue");
        for _ in 0..ROUNDS {
            let buf = pd.buf(64).expect("buffer");
            srq.post_recv(wr::recv(buf)).expect("receive");
        }
        let (path, mut alive, mut named) = (path(&context), Vec::new(), 0);
        let deadline = Instant::now() + Duration::from_secs(30);
        for round in 0..ROUNDS {
            let options = QpOptions::new().max_inline_data(8);
            let mut sender = pd.create_qp::<Rc>(&sends, &sends, options).expect("sender");
            let mut receiver = pd
                .create_qp_with_srq::<Rc>(&receives, &receives, &srq, options)
                .expect("receiver");
            connect(&mut sender, &mut receiver, &path);
            let message = u64::from(receiver.id().get()).to_le_bytes();
            sender
                .post_send(wr::send(wr::Inline(&message)))
                .expect("send");
            let mut sent = 0;
            while sent == 0 {
                assert!(Instant::now() < deadline, "round {round}");
                for completion in sends.poll().expect("poll") {
                    sender
                        .retire(completion)
                        .expect("own")
                        .check()
                        .expect("sent");
                    sent += 1;
                }
            }
            // Some receivers stay. Those of a model are destroyed with their completions.
            if round % 4 == 0 {
                alive.push((sender, receiver));
            }
            if round % 8 == 7 {
                for completion in receives.poll().expect("poll") {
                    let queue_pair = srq.queue_pair(&completion).expect("a known queue pair");
                    let retired = srq.retire(completion).expect("in flight");
                    let id = u64::from(queue_pair.get()).to_le_bytes();
                    assert_eq!(retired.into_buf().expect("a buffer")[..], id);
                    named += 1;
                }
            }
        }
        assert!(named >= alive.len(), "{named} of {}", alive.len());
        if !is_model(&context) {
            assert_eq!(named as u64, ROUNDS, "no completion is lost");
        }
    }
}
