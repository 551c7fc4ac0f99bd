//! Life cycle of requests between two queue pairs of one process, on devices that can connect
//! without rdma_cm.

use std::time::{Duration, Instant};

use ibverbs::{
    CqOptions, Device, ErrorKind, GidIndex, PostError, QpOptions, Rc, RcPath, WcStatus, wr,
};

use crate::lab::{
    self, LeakCheck, Pair, devices_with, is_model, pair, pairs, roce, roce_paths, verb,
};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn no_completion_is_lost_between_polls() {
    for mut pair in pairs() {
        for _ in 0..200 {
            pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
            pair.a.post_send(wr::send(wr::Empty)).expect("send");
            drop(pair.retire(2));
        }
        for _ in 0..50 {
            pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
        }
        for _ in 0..50 {
            pair.a.post_send(wr::send(wr::Empty)).expect("send");
        }
        let mut seen = 0;
        let deadline = Instant::now() + Duration::from_secs(20);
        while seen < 100 {
            assert!(Instant::now() < deadline, "{seen} of 100 arrived");
            // Takes one completion per poll; the others must be returned by the next poll.
            if let Some(completion) = pair.cq.poll().expect("poll").next() {
                let qp = if completion.queue() == pair.a.id() {
                    &mut pair.a
                } else {
                    &mut pair.b
                };
                qp.retire(completion)
                    .expect("in flight")
                    .check()
                    .expect("success");
                seen += 1;
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn message_arrives_and_both_buffers_return() {
    for mut pair in pairs() {
        let mut message = pair.pd.buf(5).expect("buffer");
        message.copy_from_slice(b"hello");
        pair.b
            .post_recv(wr::recv(pair.pd.buf(64).expect("buffer")).tag(1))
            .expect("receive");
        pair.a.post_send(wr::send(message).tag(2)).expect("send");
        for retired in pair.retire(2) {
            retired.check().expect("success");
            let (tag, buf) = (
                retired.tag(),
                retired.into_buf().expect("posted with a buffer"),
            );
            assert_eq!(&buf[..], b"hello", "tag {tag}");
        }
        assert_eq!(pair.a.send_slots_free(), pair.a.caps().max_send_wr as usize);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn every_payload_is_sent_and_received() {
    for mut pair in pairs() {
        let frozen = {
            let mut buf = pair.pd.buf(1000).expect("buffer");
            buf.fill(7);
            buf.freeze()
        };
        let source = pair.a.hold(&frozen).expect("hold");
        let sink = pair.pd.sink(4096).expect("sink");
        let target = pair.b.hold(&sink).expect("hold");
        for _ in 0..3 {
            pair.b
                .post_recv(wr::recv(target))
                .expect("receive into the sink");
        }
        pair.b
            .post_recv(wr::recv(wr::Empty))
            .expect("receive without a buffer");
        pair.a
            .post_send(wr::send(source).signaled(false))
            .expect("send held memory");
        pair.a
            .post_send(wr::send(source.slice(10..20).expect("in range")).signaled(false))
            .expect("send a slice");
        pair.a
            .post_send(wr::send_with_imm(wr::Inline(b"inline"), 0xdead_beef).signaled(false))
            .expect("send inline data");
        pair.a
            .post_send(wr::send(wr::Empty))
            .expect("send without data");
        let retired = pair.retire(5);
        let lengths: Vec<(usize, Option<u32>)> = retired
            .iter()
            .filter(|one| one.direction() == ibverbs::Direction::Recv)
            .map(|one| (one.received_len(), one.imm_data()))
            .collect();
        assert_eq!(
            lengths,
            [(1000, None), (10, None), (6, Some(0xdead_beef)), (0, None)]
        );
        assert_eq!(
            pair.a.send_slots_free(),
            pair.a.caps().max_send_wr as usize,
            "the signaled request must retire the others"
        );
        assert!(
            frozen.clone().try_thaw().is_err(),
            "the queue pair holds it"
        );
        drop(pair);
        frozen.try_thaw().expect("the queue pair was destroyed");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn batches_post_together_or_abort() {
    for mut pair in pairs() {
        let pool = pair.pd.pool(16, 128).expect("pool");
        pair.b
            .recv_batch(|batch| -> ibverbs::Result<()> {
                for tag in 0..8 {
                    batch.recv(wr::recv(pool.take().expect("a free buffer")).tag(tag))?;
                }
                Ok(())
            })
            .expect("receives");
        let aborted: Result<(), ibverbs::Error> = pair.a.batch(|batch| {
            batch.send(wr::send(pool.take().expect("a free buffer")))?;
            Err(ibverbs::Error::new(
                ErrorKind::Os,
                "test",
                "aborted by the test",
            ))
        });
        aborted.expect_err("the closure's error");
        assert_eq!(
            pool.available(),
            8,
            "the buffer of the aborted batch must return"
        );
        assert_eq!(pair.a.send_slots_free(), pair.a.caps().max_send_wr as usize);
        pair.a
            .batch(|batch| -> ibverbs::Result<()> {
                for index in 0..4_u8 {
                    let mut buf = pool.take().expect("a free buffer");
                    buf.fill(index);
                    buf.set_len(100);
                    batch.send(wr::send(buf).signaled(false))?;
                    batch.send(wr::send(wr::Inline(&[index; 10])))?;
                }
                Ok(())
            })
            .expect("sends");
        for retired in pair.retire(12) {
            retired.check().expect("success");
            if retired.direction() == ibverbs::Direction::Recv {
                let index = u8::try_from(retired.tag() / 2).expect("small");
                let length = if retired.tag() % 2 == 0 { 100 } else { 10 };
                let buf = retired.into_buf().expect("posted with a buffer");
                assert_eq!(&buf[..], &vec![index; length][..]);
            }
        }
        assert_eq!(pool.available(), 16);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn full_queue_returns_the_buffer() {
    for (context, options) in roce_paths() {
        let mut pair = pair(&context, options.max_send_wr(4).max_recv_wr(4));
        let free = pair.b.recv_slots_free();
        let pool = pair.pd.pool(free + 1, 64).expect("pool");
        for _ in 0..free {
            pair.b
                .post_recv(wr::recv(pool.take().expect("a free buffer")))
                .expect("a free slot");
        }
        let rejected = pair
            .b
            .post_recv(wr::recv(pool.take().expect("a free buffer")))
            .expect_err("full");
        assert_eq!(
            rejected.error(),
            PostError::QueueFull {
                capacity: u32::try_from(free).expect("small")
            }
        );
        assert_eq!(
            rejected
                .into_payload()
                .expect("the rejected buffer")
                .capacity(),
            64
        );
        let reclaimed = pair.b.destroy().expect("destroy");
        assert_eq!(reclaimed.recvs.len(), free);
        drop(reclaimed);
        assert_eq!(pool.available(), free + 1);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn completion_of_destroyed_queue_pair_is_stale() {
    for (context, options) in roce_paths() {
        let mut pair = pair(&context, options);
        pair.b
            .post_recv(wr::recv(pair.pd.buf(64).expect("buffer")))
            .expect("receive");
        pair.b.to_error().expect("ERR state");
        std::thread::sleep(Duration::from_millis(50));
        let Pair { pd, mut cq, a, b } = pair;
        drop((a, b));
        let mut fresh = pd.create_qp::<Rc>(&cq, &cq, options).expect("queue pair");
        for completion in cq.poll().expect("poll") {
            fresh.retire(completion).expect_err("stale");
        }
        assert_eq!(fresh.recv_slots_free(), fresh.caps().max_recv_wr as usize);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn channel_wakes_for_armed_queue_only() {
    for context in roce() {
        let channel = context.create_comp_channel().expect("channel");
        let mut pair = pair(&context, QpOptions::default());
        let mut cq = context
            .create_cq(CqOptions::new().channel(&channel))
            .expect("queue with a channel");
        assert_eq!(
            channel.wait(Some(Duration::from_millis(20))).expect("wait"),
            None
        );
        cq.arm(false).expect("arm");
        let mut qp = pair
            .pd
            .create_qp::<Rc>(&cq, &cq, QpOptions::default())
            .expect("queue pair");
        let port = context.query_port(1).expect("port");
        qp.init(&RcPath::new(1, GidIndex(0), port.active_mtu))
            .expect("INIT state");
        qp.post_recv(wr::recv(wr::Empty)).expect("receive");
        qp.to_error().expect("ERR state");
        assert_eq!(
            channel.wait(Some(Duration::from_secs(10))).expect("wait"),
            Some(cq.id())
        );
        let completion = cq.poll().expect("poll").next().expect("flushed");
        assert_eq!(
            qp.retire(completion).expect("in flight").status(),
            WcStatus::WR_FLUSH_ERR
        );
        drop(pair.retire(0));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn errors_name_devices_ports_and_limits() {
    for context in devices_with(&[verb::RC]) {
        let error = Device::by_name("no_such_device").expect_err("unknown");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(
            error.to_string().contains(context.device_name()),
            "the available devices must be listed: {error}"
        );
        let error = context.query_port(9).expect_err("no port 9");
        assert!(error.to_string().contains("port 9"), "{error}");
        let pd = context.alloc_pd().expect("protection domain");
        let cq = lab::cq(&context);
        let error = pd
            .create_qp::<Rc>(&cq, &cq, QpOptions::new().max_send_sge(10_000))
            .expect_err("too many scatter entries");
        assert!(error.help().is_some(), "{error}");
        assert!(context.netdev(1).is_some(), "each device has a netdev");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn mixing_devices_fails_and_names_both() {
    let _leak_check = LeakCheck::new();
    let all = test_support::lab::devices();
    if let [only] = all.as_slice()
        && is_model(only)
    {
        test_support::lab::report_no_device("a model has one device");
        return;
    }
    let [first, second, ..] = all.as_slice() else {
        panic!("two devices are needed")
    };
    println!(
        "device: {}\ndevice: {}",
        first.device_name(),
        second.device_name()
    );
    let cq = second
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let error = first
        .alloc_pd()
        .expect("protection domain")
        .create_qp::<Rc>(&cq, &cq, QpOptions::default())
        .expect_err("another device's queue");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    let text = error.to_string();
    assert!(
        text.contains(first.device_name()) && text.contains(second.device_name()),
        "{text}"
    );
}
