//! Devices with the faults of real ones (docs/drivers.md): memory that is read after the
//! completion, lost and spurious completions, and refused posts that stay queued.

use crate::fixture::{
    IN_ORDER, OUT_OF_ORDER, PROFILES, Pair, buf_bytes, connect, in_order, pairs, small,
};
use fake_provider::{Overrun, Profile, Provider, SendOrder, Transport, UnconnectedPosts};
use ibverbs::{AccessFlags, CqOptions, ErrorKind, MemoryOptions, Rc, Reclaimed, Retired, wr};

#[test]
fn memory_in_transit_is_not_reused() {
    let in_order = Profile {
        send_order: SendOrder::InOrder,
        ..OUT_OF_ORDER[0]
    };
    for mut pair in pairs([in_order, OUT_OF_ORDER[0], OUT_OF_ORDER[1]]) {
        pair.post_recvs(2);
        let buf = pair.buf(b"unsignaled");
        pair.a
            .post_send(wr::send(buf).signaled(false))
            .expect("send");
        let buf = pair.buf(b"signaled");
        pair.a.post_send(wr::send(buf)).expect("send");
        drop(pair.retire());
        let mut bufs: Vec<_> = std::iter::from_fn(|| pair.pool.take()).collect();
        for buf in &mut bufs {
            buf.fill(0xff);
        }
        pair.fake.finish_transmissions();
    }
}

#[test]
fn frozen_memory_is_unsignaled_and_not_reused_over_iwarp() {
    let mut pair = Pair::new(Profile {
        provider: Provider::Siw,
        transport: Transport::Iwarp,
        // Miri can give the address of unmapped pages to others, and has no mark for pages.
        transmits_read_responses_late: !cfg!(miri),
        ..OUT_OF_ORDER[0]
    });
    pair.post_recvs(6);
    let fill = |bytes: &mut [u8]| bytes.fill(b'f');
    let options = MemoryOptions::new();
    let shared = pair.pd.frozen_shared(64, options, fill).expect("frozen");
    let private = pair.buf(b"private").freeze();
    let (free, qp) = (pair.a.send_slots_free(), &mut pair.a);
    let shared_held = qp.hold(&shared).expect("hold");
    let private_held = qp.hold(&private).expect("hold");
    let shared_list = qp.hold_list(&[shared_held]).expect("hold");
    let private_list = qp.hold_list(&[private_held]).expect("hold");
    qp.post_send(wr::send(shared_held).tag(1).signaled(false))
        .expect("send");
    qp.batch(|batch| {
        batch.send(wr::send(shared_list).tag(2).signaled(false))?;
        batch.send(wr::send(private_list).tag(3).signaled(false))?;
        Ok::<(), ibverbs::Error>(())
    })
    .expect("batch");
    qp.post_send(wr::send(wr::Empty).tag(4).signaled(false))
        .expect("send");
    qp.post_send(wr::send(private_held).tag(5).signaled(false))
        .expect("send");
    qp.post_send(wr::send(shared_held).tag(6).signaled(false))
        .expect("send");
    let (sent, received) = pair.retire();
    let tags: Vec<u64> = sent.iter().map(Retired::tag).collect();
    assert_eq!((tags, received.len()), (vec![2, 3, 5], 6));
    assert_eq!(pair.a.send_slots_free(), free - 1, "the last one");
    drop((sent, received, private));
    drop((pair.a, pair.b));
    // The device transmits the memory after it was deregistered.
    drop(shared);
    let _others: Vec<_> = (0..4)
        .map(|_| pair.pd.shared(64, AccessFlags::LOCAL_WRITE))
        .collect();
}

/// Its bytes can change, so only their copy may be transmitted after the completion.
#[test]
fn shared_memory_is_always_signaled_over_iwarp() {
    let mut pair = Pair::new(Profile {
        provider: Provider::Siw,
        transport: Transport::Iwarp,
        ..OUT_OF_ORDER[0]
    });
    pair.post_recvs(2);
    let region = pair.pd.shared(64, AccessFlags::REMOTE_READ);
    let region = region.expect("region");
    let held = pair.a.hold(&region).expect("hold");
    for tag in [1, 2] {
        let send = wr::send(held).tag(tag).signaled(false);
        pair.a.post_send(send).expect("send");
    }
    let (sent, received) = pair.retire();
    let tags: Vec<u64> = sent.iter().map(Retired::tag).collect();
    assert_eq!((tags, received.len()), (vec![1, 2], 2));
    drop((sent, received));
    drop((pair.a, pair.b));
}

#[test]
fn memory_that_a_peer_may_be_reading_is_not_reclaimed() {
    for profile in PROFILES {
        let mut pair = Pair::new(Profile {
            transmits_read_responses_late: !in_order(&profile),
            ..profile
        });
        let region = pair
            .pd
            .shared(64, AccessFlags::REMOTE_READ)
            .expect("region");
        let sink = pair.buf(&[0; 64]);
        pair.a
            .post_send(wr::read(sink, region.remote()))
            .expect("read");
        drop(pair.retire());
        drop((pair.a, pair.b));
        match region.try_into_buf() {
            Ok(buf) => {
                assert!(in_order(&profile), "the device still reads the memory");
                drop(buf);
            }
            Err(failed) => {
                assert!(!in_order(&profile));
                assert_eq!(failed.error().kind(), ErrorKind::Unsupported);
            }
        }
    }
}

#[test]
fn lost_completions_leave_requests_in_flight() {
    for profile in PROFILES {
        let mut pair = Pair::new(Profile {
            overrun: Overrun::Lose,
            ..profile
        });
        let cq = pair
            .context
            .create_cq(CqOptions::new().depth(1))
            .expect("completion queue");
        let mut qp = pair.pd.create_qp::<Rc>(&cq, &cq, small()).expect("qp");
        let mut peer = pair
            .pd
            .create_qp::<Rc>(&pair.cq, &pair.cq, small())
            .expect("peer");
        connect(&mut qp, &mut peer);
        let (depth, count) = (cq.depth(), 4);
        assert!(depth < count, "the queue overflows");
        let free = pair.pool.available();
        for tag in 0..count as u64 {
            let buf = pair.pool.take().expect("a free buffer");
            qp.post_recv(wr::recv(buf).tag(tag)).expect("receive");
        }
        for _ in 0..count {
            peer.post_send(wr::send(wr::Inline(b"x"))).expect("send");
        }
        for completion in pair.cq.poll().expect("poll") {
            peer.retire(completion)
                .expect("in flight")
                .check()
                .expect("success");
        }
        let mut cq = cq;
        let received = cq
            .poll()
            .expect("poll")
            .map(|completion| qp.retire(completion).expect("in flight").tag());
        assert_eq!(
            received.collect::<Vec<_>>(),
            (0..depth as u64).collect::<Vec<_>>()
        );
        let lost = count - depth;
        assert_eq!(
            pair.pool.available(),
            free - lost,
            "the queue pair keeps the buffers"
        );
        // A later completion is no proof that the requests of the lost ones have completed.
        let buf = pair.pool.take().expect("a free buffer");
        qp.post_recv(wr::recv(buf).tag(9)).expect("receive");
        peer.post_send(wr::send(wr::Inline(b"x"))).expect("send");
        let completion = cq.poll().expect("poll").next().expect("one");
        assert_eq!(qp.retire(completion).expect("in flight").tag(), 9);
        assert_eq!(pair.pool.available(), free - lost);
        let Reclaimed { recvs, .. } = qp.destroy().expect("destroyed");
        assert_eq!(recvs.len(), lost);
    }
}

/// Without the check that a slot is in use, a completion with the next generation of a vacant slot
/// would match. After 1024 requests, that is the first one.
#[test]
fn spurious_flushes_match_no_request() {
    for profile in PROFILES {
        let mut pair = Pair::new(Profile {
            spurious_flushes: true,
            ..profile
        });
        let slots = pair.a.caps().max_send_wr as usize;
        let generations = if cfg!(miri) { 2 } else { 1024 };
        for _ in 0..slots * generations {
            pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
            pair.a.post_send(wr::send(wr::Empty)).expect("send");
            drop(pair.retire());
        }
        let free = pair.pool.available();
        pair.fake.stall();
        let recv = pair.pool.take().expect("a free buffer");
        pair.a.post_recv(wr::recv(recv).tag(9)).expect("receive");
        pair.a.to_error().expect("ERR state");
        let mut foreign = 0;
        for completion in pair.cq.poll().expect("poll") {
            match pair.a.retire(completion) {
                Ok(retired) => assert_eq!(retired.tag(), 9),
                Err(_) => foreign += 1,
            }
        }
        assert_eq!(foreign, 1, "the first send");
        assert_eq!(pair.pool.available(), free);
        assert_eq!(pair.a.send_slots_free(), slots);
        pair.fake.resume();
    }
}

#[test]
fn a_refused_send_that_stays_queued_keeps_its_buffer() {
    let devices = [
        (IN_ORDER[0], UnconnectedPosts::FailAndQueue),
        (IN_ORDER[1], UnconnectedPosts::FailAndQueue),
        (IN_ORDER[1], UnconnectedPosts::FailOnceAndQueue),
        (OUT_OF_ORDER[0], UnconnectedPosts::FailOnceAndQueue),
    ];
    for (profile, unconnected_posts) in devices {
        let mut pair = Pair::new(Profile {
            unconnected_posts,
            ..profile
        });
        let create = || pair.pd.create_qp::<Rc>(&pair.cq, &pair.cq, small());
        let (mut a, mut b) = (create().expect("a"), create().expect("b"));
        let free = pair.pool.available();
        let (first, second) = (pair.buf(b"first"), pair.buf(b"second"));
        let error = a.post_send(wr::send(first)).expect_err("not connected");
        assert!(error.into_payload().is_none(), "the device has the buffer");
        let posted = a.post_send(wr::send(second));
        assert_eq!(
            posted.is_ok(),
            unconnected_posts == UnconnectedPosts::FailOnceAndQueue
        );
        drop(posted);
        assert_eq!(pair.pool.available(), free - 2);
        connect(&mut b, &mut a);
        for _ in 0..2 {
            let buf = pair.pool.take().expect("a free buffer");
            b.post_recv(wr::recv(buf)).expect("receive");
        }
        let mut messages = Vec::new();
        for completion in pair.cq.poll().expect("poll") {
            if completion.queue() == a.id() {
                drop(a.retire(completion).expect("in flight"));
            } else {
                messages.push(buf_bytes(b.retire(completion).expect("in flight")));
            }
        }
        assert_eq!(messages, [&b"first"[..], b"second"]);
        assert_eq!(pair.pool.available(), free);
    }
}
