//! Completion queues: fields, resizing, moderation, the clock, and several queues on one channel.

use std::collections::BTreeSet;
use std::time::Duration;

use ibverbs::{
    CompletionQueue, CqOptions, ErrorKind, QpOptions, QueuePair, Rc, cq_ex::CqFields, wr,
};

use crate::lab::{
    self, devices, devices_with, expect_unsupported, is_iwarp, is_mlx5, pair, path, roce, verb,
};

const LONG: Duration = Duration::from_secs(20);

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn fields_work_or_are_named_in_the_error() {
    for context in devices() {
        println!("device: {}", context.device_name());
        let fields = CqFields::new();
        if is_mlx5(&context) {
            let options = CqOptions::default();
            let (timestamp, wallclock) = (fields.timestamp(), fields.wallclock());
            drop(context.create_cq_ex(options, timestamp).expect("supported"));
            drop(context.create_cq_ex(options, wallclock).expect("supported"));
            assert!(context.raw_clock().expect("a clock") > 0);
            continue;
        }
        let error = context
            .create_cq_ex(CqOptions::default(), fields.timestamp())
            .expect_err("no timestamps");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("timestamp"), "{error}");
        expect_unsupported(context.create_cq_ex(CqOptions::default(), fields.wallclock()));
        expect_unsupported(context.create_cq_ex(CqOptions::default(), fields.cvlan()));
        expect_unsupported(context.create_cq_ex(CqOptions::default(), fields.flow_tag()));
        expect_unsupported(context.raw_clock());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn queue_with_timestamps_works() {
    for context in devices_with(&[verb::RC]) {
        let error = context
            .create_cq_ex(CqOptions::default(), CqFields::new())
            .expect_err("no field");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let created = context.create_cq_ex(CqOptions::default(), CqFields::new().timestamp());
        if !is_mlx5(&context) {
            expect_unsupported(created);
            continue;
        }
        let mut cq = created.expect("timestamps");
        let pd = context.alloc_pd().expect("protection domain");
        let mut qp = lab::qp::<Rc>(&pd, &cq);
        let path = path(&context);
        qp.init(&path).expect("INIT state");
        qp.connect(&path, &qp.endpoint(&path).expect("endpoint"))
            .expect("connected to itself");
        qp.post_recv(wr::recv(pd.buf(16).expect("buffer")))
            .expect("receive");
        qp.post_send(wr::send(wr::Inline(b""))).expect("send");
        let mut retired = 0;
        while retired < 2 {
            for completion in cq.poll().expect("poll") {
                qp.retire(completion.into())
                    .expect("in flight")
                    .check()
                    .expect("success");
                retired += 1;
            }
        }
        // One buffer carries 64 messages; its receive is posted again before the next poll.
        qp.post_recv(wr::recv(pd.buf(16).expect("buffer")))
            .expect("receive");
        qp.post_send(wr::send(wr::Inline(b"first"))).expect("send");
        let (mut sent, mut received, mut last) = (0, 0, 0);
        while received < 64 || sent < 64 {
            for completion in cq.poll().expect("poll") {
                assert!(completion.timestamp() >= last, "the clock runs forwards");
                last = completion.timestamp();
                let retired = qp.retire(completion.into()).expect("in flight");
                retired.check().expect("success");
                let Some(buf) = retired.into_buf() else {
                    sent += 1;
                    continue;
                };
                let expected: &[u8] = if received == 0 { b"first" } else { b"next" };
                assert_eq!(&buf[..], expected);
                received += 1;
                if received < 64 {
                    qp.post_recv(wr::recv(buf)).expect("receive");
                    qp.post_send(wr::send(wr::Inline(b"next"))).expect("send");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn resize_keeps_entries_or_is_unsupported() {
    for context in devices_with(&[verb::RC]) {
        if is_iwarp(&context) {
            expect_unsupported(
                context
                    .create_cq(CqOptions::default())
                    .expect("completion queue")
                    .resize(512),
            );
            continue;
        }
        let mut pair = pair(&context, QpOptions::default());
        for _ in 0..8 {
            pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
            pair.a.post_send(wr::send(wr::Empty)).expect("send");
        }
        // Entries that are in the queue or arrive during the resize are not lost.
        let before = pair.cq.depth();
        pair.cq.resize(4000).expect("resize");
        assert!(
            pair.cq.depth() >= 4000 && before < 4000,
            "{before} to {}",
            pair.cq.depth()
        );
        pair.retire(16)
            .iter()
            .for_each(|one| one.check().expect("success"));
        let error = pair.cq.resize(u32::MAX).expect_err("too deep");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(pair.cq.depth() >= 4000, "a failed resize changes nothing");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn moderation_works_or_is_unsupported() {
    for context in devices() {
        println!("device: {}", context.device_name());
        let mut cq = lab::cq(&context);
        let moderated = cq.moderate(16, Duration::from_micros(50));
        if is_mlx5(&context) {
            moderated.expect("supported");
        } else {
            expect_unsupported(moderated);
        }
        let error = cq
            .moderate(16, Duration::from_secs(1))
            .expect_err("longer than the verb supports");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn channel_event_identifies_one_of_many_queues() {
    for context in roce() {
        let pd = context.alloc_pd().expect("protection domain");
        let channel = context.create_comp_channel().expect("channel");
        let path = path(&context);
        let mut queues: Vec<(CompletionQueue, QueuePair<Rc>)> = (0..8)
            .map(|_| {
                let options = CqOptions::new().depth(16).channel(&channel);
                let mut cq = context.create_cq(options).expect("completion queue");
                let mut qp = lab::qp::<Rc>(&pd, &cq);
                qp.init(&path).expect("INIT state");
                qp.connect(&path, &qp.endpoint(&path).expect("endpoint"))
                    .expect("connected to itself");
                cq.arm(false).expect("arm");
                (cq, qp)
            })
            .collect();
        assert_eq!(
            channel.wait(Some(Duration::ZERO)).expect("wait"),
            None,
            "nothing was posted"
        );
        let posted: BTreeSet<usize> = [1, 4, 6].into();
        for &index in &posted {
            queues[index]
                .1
                .post_recv(wr::recv(wr::Empty))
                .expect("receive");
            queues[index]
                .1
                .post_send(wr::send(wr::Empty))
                .expect("send");
        }
        let mut reported = BTreeSet::new();
        while reported != posted {
            let id = channel
                .wait(Some(LONG))
                .expect("wait")
                .expect("an event for each queue");
            let index = queues
                .iter()
                .position(|(cq, _)| cq.id() == id)
                .expect("a known completion queue");
            assert!(
                reported.insert(index),
                "one event for each time that the queue was armed"
            );
            let (cq, qp) = &mut queues[index];
            for completion in cq.poll().expect("poll") {
                qp.retire(completion)
                    .expect("in flight")
                    .check()
                    .expect("success");
            }
        }
        assert_eq!(
            channel.wait(Some(Duration::ZERO)).expect("wait"),
            None,
            "one event per queue"
        );
    }
}
