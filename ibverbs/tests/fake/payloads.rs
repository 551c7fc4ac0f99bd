//! Every operation with every kind of payload, on both data paths.

use std::sync::atomic::Ordering;

use crate::fixture::{PROFILES, Pair, buf_bytes, pairs, small};
use fake_provider::Profile;
use ibverbs::{AccessFlags, Direction, PostError, Rc, Uc, WcOpcode, WcStatus, wr};

#[test]
fn a_sent_buffer_is_returned_and_its_bytes_arrive() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(1);
        let buf = pair.buf(b"hello");
        pair.a.post_send(wr::send(buf).tag(7)).expect("send");
        let (mut sent, mut received) = pair.retire();
        let (sent, received) = (sent.remove(0), received.remove(0));
        assert_eq!(
            (sent.tag(), sent.direction(), sent.received_len()),
            (7, Direction::Send, 0)
        );
        assert_eq!((received.received_len(), received.imm_data()), (5, None));
        assert_eq!(buf_bytes(sent), b"hello", "the sent buffer is unchanged");
        assert_eq!(
            buf_bytes(received),
            b"hello",
            "the received buffer contains the message"
        );
    }
}

#[test]
fn immediate_data_and_solicited_sends_arrive() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(1);
        let buf = pair.buf(b"!");
        pair.a
            .post_send(
                wr::send_with_imm(buf, 0xdead_beef)
                    .solicited(true)
                    .fenced(true),
            )
            .expect("send");
        let (_, received) = pair.retire();
        assert_eq!(received[0].imm_data(), Some(0xdead_beef));
    }
}

#[test]
fn inline_bytes_can_be_dropped_after_the_post() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(2);
        pair.fake.stall();
        let mut message = Box::new(*b"first");
        pair.a
            .post_send(wr::send(wr::Inline(&message[..])))
            .expect("send");
        message.fill(0);
        drop(message);
        pair.a.post_send(wr::send(wr::Inline(b""))).expect("send");
        pair.fake.resume();
        let (sent, received) = pair.retire();
        assert_eq!(sent.len(), 2);
        assert_eq!(
            received.into_iter().map(buf_bytes).collect::<Vec<_>>(),
            [&b"first"[..], b""]
        );
    }
}

#[test]
fn an_empty_message_needs_no_memory() {
    for mut pair in pairs(PROFILES) {
        pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
        pair.a.post_send(wr::send(wr::Empty)).expect("send");
        let (mut sent, received) = pair.retire();
        assert!(sent.remove(0).into_buf().is_none());
        assert_eq!(received[0].received_len(), 0);
    }
}

#[test]
fn frozen_memory_is_readable_while_requests_send_it() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(4);
        let frozen = pair.buf(b"frozen").freeze();
        let held = pair.a.hold(&frozen).expect("hold");
        pair.fake.stall();
        for _ in 0..3 {
            pair.a.post_send(wr::send(held)).expect("send");
        }
        pair.a
            .post_send(wr::send(held.slice(2..4).expect("in range")))
            .expect("send");
        let reference: &[u8] = &frozen;
        pair.fake.resume();
        assert_eq!(
            reference, b"frozen",
            "a reference stays valid while the device reads"
        );
        let (sent, received) = pair.retire();
        assert_eq!(sent.len(), 4);
        let messages: Vec<_> = received.into_iter().map(buf_bytes).collect();
        assert_eq!(messages, [&b"frozen"[..], b"frozen", b"frozen", b"oz"]);
    }
}

#[test]
fn a_sink_is_the_target_of_several_receives() {
    for mut pair in pairs(PROFILES) {
        let sink = pair.pd.sink(64).expect("sink");
        let held = pair.b.hold(&sink).expect("hold");
        for _ in 0..3 {
            pair.b.post_recv(wr::recv(held)).expect("receive");
        }
        pair.b
            .post_recv(wr::recv(held.slice(60..64).expect("in range")))
            .expect("receive");
        for _ in 0..3 {
            pair.a
                .post_send(wr::send(wr::Inline(b"twelve bytes")))
                .expect("send");
        }
        pair.a
            .post_send(wr::send(wr::Inline(b"four")))
            .expect("send");
        let (_, received) = pair.retire();
        assert_eq!(
            received
                .iter()
                .map(ibverbs::Retired::received_len)
                .collect::<Vec<_>>(),
            [12, 12, 12, 4]
        );
    }
}

#[test]
fn a_peer_writes_reads_and_updates_a_shared_region() {
    for mut pair in pairs(PROFILES) {
        let all = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let region = pair.pd.shared(64, all).expect("region");
        let remote = region.remote();
        let at = |offset, len| remote.slice(offset..offset + len).expect("in range");

        let buf = pair.buf(b"written!");
        pair.a.post_send(wr::write(buf, at(8, 8))).expect("write");
        let mut seen = [0; 8];
        region.read(8, &mut seen).expect("in range");
        assert_eq!(&seen, b"written!");

        pair.post_recvs(1);
        pair.a
            .post_send(wr::write_with_imm(wr::Inline(b"W"), at(8, 1), 3))
            .expect("write");
        let sink = pair.buf(&[0; 64]);
        pair.a.post_send(wr::read(sink, at(8, 8))).expect("read");
        region.store(0, 40, Ordering::Relaxed).expect("aligned");
        let sink = pair.buf(&[0; 64]);
        pair.a
            .post_send(wr::fetch_add(sink, at(0, 8), 2))
            .expect("add");
        let sink = pair.buf(&[0; 64]);
        pair.a
            .post_send(wr::compare_swap(sink, at(0, 8), 42, 7))
            .expect("swap");
        let (sent, received) = pair.retire();
        assert_eq!(
            (received[0].imm_data(), received[0].received_len()),
            (Some(3), 1)
        );
        assert_eq!(received[0].opcode(), WcOpcode::RECV_RDMA_WITH_IMM);
        let sent: Vec<_> = sent.into_iter().skip(2).map(buf_bytes).collect();
        assert_eq!(
            sent,
            [
                &b"Written!"[..],
                &40_u64.to_ne_bytes(),
                &42_u64.to_ne_bytes()
            ]
        );
        assert_eq!(region.load(0, Ordering::Relaxed).expect("aligned"), 7);
        for (ordering, loads, stores) in [
            (Ordering::SeqCst, true, true),
            (Ordering::Acquire, true, false),
            (Ordering::Release, false, true),
            (Ordering::AcqRel, false, false),
        ] {
            assert_eq!(region.load(0, ordering).is_ok(), loads, "{ordering:?}");
            assert_eq!(region.store(0, 7, ordering).is_ok(), stores, "{ordering:?}");
        }
    }
}

#[test]
fn a_queue_pair_has_at_least_one_scatter_entry() {
    for mut pair in pairs(PROFILES) {
        let none = small().max_send_sge(0).max_recv_sge(0);
        let qp = pair
            .pd
            .create_qp::<Rc>(&pair.cq, &pair.cq, none)
            .expect("queue pair");
        assert!(qp.caps().max_send_sge >= 1 && qp.caps().max_recv_sge >= 1);
        pair.a = qp;
    }
}

#[test]
fn a_held_region_is_local_memory_of_every_operation() {
    for mut pair in pairs(PROFILES) {
        let region = pair
            .pd
            .shared(64, AccessFlags::REMOTE_READ)
            .expect("region");
        region.write(0, b"shared").expect("in range");
        let (to_send, to_fill) = (
            pair.a.hold(&region).expect("a"),
            pair.b.hold(&region).expect("b"),
        );
        pair.b
            .post_recv(wr::recv(to_fill.slice(32..64).expect("in range")))
            .expect("receive");
        pair.a
            .post_send(wr::send(to_send.slice(0..6).expect("in range")))
            .expect("send");
        pair.a
            .post_send(wr::read(
                to_send.slice(16..22).expect("in range"),
                region.remote().slice(0..6).expect("in range"),
            ))
            .expect("read");
        let (sent, received) = pair.retire();
        assert!(
            sent.iter()
                .chain(&received)
                .all(ibverbs::Retired::is_success)
        );
        for offset in [16, 32] {
            let mut seen = [0; 6];
            region.read(offset, &mut seen).expect("in range");
            assert_eq!(&seen, b"shared");
        }
    }
}

#[test]
fn the_peer_rejects_access_without_permission() {
    for mut pair in pairs(PROFILES) {
        let region = pair
            .pd
            .shared(64, AccessFlags::REMOTE_READ)
            .expect("region");
        let buf = pair.buf(b"rejected");
        pair.a
            .post_send(wr::write(buf, region.remote()))
            .expect("write");
        let (mut sent, _) = pair.retire();
        assert_eq!(sent[0].status(), WcStatus::REM_ACCESS_ERR);
        assert_eq!(
            &sent.remove(0).into_buf().expect("posted with a buffer")[..],
            b"rejected"
        );
    }
}

#[test]
fn out_of_bounds_requests_are_not_posted() {
    let mut pair = Pair::new(PROFILES[0]);
    let region = pair
        .pd
        .shared(64, AccessFlags::REMOTE_READ)
        .expect("region");
    let target = region.remote().slice(0..4).expect("in range");
    let error = pair
        .a
        .post_send(wr::write(wr::Inline(b"five!"), target))
        .expect_err("too long");
    assert_eq!(error.error(), PostError::BeyondRemote { len: 5, remote: 4 });
    let mut held = pair.pool.take().expect("a free buffer");
    held.set_len(1);
    let error = pair
        .a
        .post_send(wr::read(
            held,
            region.remote().slice(0..64).expect("in range"),
        ))
        .err();
    assert!(
        error.is_none(),
        "a READ can fill the buffer's capacity, not only its length"
    );
    let sink = pair.pd.sink(8).expect("sink");
    let held = pair.a.hold(&sink).expect("hold");
    let error = pair
        .a
        .post_send(wr::read(held, region.remote()))
        .expect_err("too short");
    assert_eq!(error.error(), PostError::BeyondLocal { len: 64, local: 8 });
    let odd = region.remote().slice(4..12).expect("in range");
    let error = pair
        .a
        .post_send(wr::fetch_add(held, odd, 1))
        .expect_err("misaligned");
    assert!(matches!(error.error(), PostError::Misaligned { .. }));
    drop(pair.retire());
}

#[test]
fn iwarp_reads_only_into_remotely_writable_memory() {
    let mut pair = Pair::new(Profile::SIW);
    let region = pair
        .pd
        .shared(64, AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE)
        .expect("region");
    let buf = pair.buf(b"buffer");
    let error = pair
        .a
        .post_send(wr::read(
            buf,
            region.remote().slice(0..8).expect("in range"),
        ))
        .expect_err("a local buffer");
    assert!(error.to_string().contains("iWARP"), "{error}");
    assert!(error.into_payload().is_some());
    let held = pair.a.hold(&region).expect("hold");
    let (into, from) = (
        held.slice(8..16).expect("in range"),
        region.remote().slice(0..8).expect("in range"),
    );
    pair.a
        .post_send(wr::read(into, from))
        .expect("read into the shared region");
    let (sent, _) = pair.retire();
    assert!(sent[0].is_success());
}

#[test]
fn an_unreliable_connection_sends_and_writes() {
    for profile in PROFILES {
        let mut pair = Pair::<Uc>::with_transport(profile);
        pair.post_recvs(1);
        let region = pair
            .pd
            .shared(8, AccessFlags::REMOTE_WRITE)
            .expect("region");
        pair.a.post_send(wr::send(wr::Inline(b"uc"))).expect("send");
        pair.a
            .post_send(wr::write(wr::Inline(b"uc"), region.remote()))
            .expect("write");
        let (sent, mut received) = pair.retire();
        assert!(sent.iter().all(ibverbs::Retired::is_success));
        assert_eq!(buf_bytes(received.remove(0)), b"uc");
    }
}

#[test]
fn a_message_longer_than_the_receive_fails_both_requests() {
    for mut pair in pairs(PROFILES) {
        let mut short = pair.pd.buf(3).expect("buffer");
        short.copy_from_slice(b"old");
        pair.b.post_recv(wr::recv(short)).expect("receive");
        let buf = pair.buf(b"too long");
        pair.a.post_send(wr::send(buf)).expect("send");
        let (mut sent, mut received) = pair.retire();
        assert_eq!(sent[0].status(), WcStatus::REM_INV_REQ_ERR);
        assert_eq!(received[0].status(), WcStatus::LOC_LEN_ERR);
        let text = received[0].check().expect_err("failed").to_string();
        assert!(
            text.contains("receive failed: local length error"),
            "{text}"
        );
        assert_eq!(
            &sent.remove(0).into_buf().expect("the posted buffer")[..],
            b"too long"
        );
        assert_eq!(
            &received.remove(0).into_buf().expect("the posted buffer")[..],
            b"old"
        );
    }
}
