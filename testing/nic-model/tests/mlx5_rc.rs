//! Reliable connections on libmlx5: every operation, errors and events.

mod pair;

use std::sync::atomic::Ordering;

use ibverbs::{QpState, WcStatus, wr};
use pair::{REMOTE, connect};

#[test]
fn messages_wrap_around_the_queues() {
    let mut pair = connect();
    for number in 0..1000_u32 {
        let room = pair.pd.buf(64).expect("buffer");
        pair.b.post_recv(wr::recv(room)).expect("receive");
        let text = format!("message {number}");
        if number % 2 == 0 {
            let inline = wr::Inline(text.as_bytes());
            pair.a
                .post_send(wr::send_with_imm(inline, number))
                .expect("send");
        } else {
            let mut message = pair.pd.buf(text.len()).expect("buffer");
            message.copy_from_slice(text.as_bytes());
            pair.a
                .post_send(wr::send_with_imm(message, number))
                .expect("send");
        }
        for retired in pair.retire(2) {
            retired.check().expect("success");
            if retired.direction() == ibverbs::Direction::Recv {
                assert_eq!(retired.imm_data(), Some(number));
                let received = retired.into_buf().expect("a buffer");
                assert_eq!(&received[..], text.as_bytes());
            }
        }
    }
}

/// The adapter counts blocks of 64 bytes modulo 2^16.
#[test]
fn request_counters_wrap_around() {
    let mut pair = connect();
    let region = pair.pd.shared(64, REMOTE).expect("region");
    let target = |length| region.remote().slice(0..length).expect("in range");
    // Writes of 1 byte have 1 block, and those of 60 bytes 2 blocks. The first write makes the
    // others begin at odd numbers, so that one of them consists of the blocks 65,535 and 0.
    let first = wr::write(wr::Inline(b"x"), target(1));
    pair.a.post_send(first).expect("write");
    pair.retire(1)[0].check().expect("success");
    for number in 0..33_000_u64 {
        let mut bytes = [0; 60];
        bytes[..8].copy_from_slice(&number.to_ne_bytes());
        bytes[48..56].copy_from_slice(&number.to_ne_bytes());
        let write = wr::write(wr::Inline(&bytes), target(60));
        pair.a.post_send(write).expect("write");
        pair.retire(1)[0].check().expect("success");
        for offset in [0, 48] {
            assert_eq!(
                region.load(offset, Ordering::Acquire).expect("aligned"),
                number
            );
        }
    }
}

#[test]
fn one_sided_operations_change_the_region() {
    let mut pair = connect();
    let region = pair.pd.shared(4096, REMOTE).expect("region");
    let target = region.remote().slice(100..107).expect("in range");
    pair.a
        .post_send(wr::write(wr::Inline(b"written"), target))
        .expect("write");
    pair.retire(1)[0].check().expect("written");
    let room = pair.pd.buf(7).expect("buffer");
    pair.a.post_send(wr::read(room, target)).expect("read");
    let read = pair.retire(1).remove(0).into_buf().expect("a buffer");
    assert_eq!(&read[..], b"written");
    region.store(8, 40, Ordering::Relaxed).expect("aligned");
    let number = region.remote().slice(8..16).expect("in range");
    for (request_is_add, before, after) in [(true, 40_u64, 42), (false, 42, 7)] {
        let room = pair.pd.buf(8).expect("buffer");
        let posted = if request_is_add {
            pair.a.post_send(wr::fetch_add(room, number, 2))
        } else {
            pair.a.post_send(wr::compare_swap(room, number, 42, 7))
        };
        posted.expect("atomic operation");
        let result = pair.retire(1).remove(0).into_buf().expect("a buffer");
        assert_eq!(result[..], before.to_ne_bytes());
        assert_eq!(region.load(8, Ordering::Acquire).expect("aligned"), after);
    }
}

#[test]
fn a_send_waits_for_a_receive() {
    let mut pair = connect();
    pair.a.post_send(wr::send(wr::Empty)).expect("send");
    // The model's time advances by 1 µs in each step, and the receiver asks to wait longer.
    for _ in 0..5 {
        nic_model::step();
    }
    assert_eq!(pair.cq.poll().expect("poll").count(), 0);
    pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
    assert_eq!(pair.statuses(2), [WcStatus::SUCCESS; 2]);
}

#[test]
fn a_wrong_key_fails_and_flushes_both_queue_pairs() {
    let mut pair = connect();
    let region = pair.pd.shared(64, REMOTE).expect("region");
    let mut wrong = region.remote();
    wrong.rkey ^= 0x100;
    pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
    let write = wr::write(wr::Inline(b"x"), wrong.slice(0..1).expect("in range"));
    pair.a.post_send(write.tag(77)).expect("write");
    pair.a.post_send(wr::send(wr::Empty).tag(78)).expect("send");
    let retired = pair.retire(3);
    let status = |tag| {
        retired
            .iter()
            .find(|one| one.tag() == tag)
            .expect("completed")
            .status()
    };
    assert_eq!(status(77), WcStatus::REM_ACCESS_ERR);
    assert_eq!(status(78), WcStatus::WR_FLUSH_ERR);
    assert_eq!(
        retired
            .iter()
            .filter(|one| one.status() == WcStatus::WR_FLUSH_ERR)
            .count(),
        2
    );
    assert_eq!(pair.a.state().expect("query"), QpState::ERR);
    assert_eq!(pair.b.state().expect("query"), QpState::ERR);
}

#[test]
fn unread_completions_survive_a_resize() {
    let mut pair = connect();
    for depth in [400, 100] {
        for _ in 0..3 {
            pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
            pair.a.post_send(wr::send(wr::Empty)).expect("send");
        }
        nic_model::settle();
        pair.cq.resize(depth).expect("resize");
        pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
        pair.a.post_send(wr::send(wr::Empty)).expect("send");
        assert_eq!(pair.statuses(8), [WcStatus::SUCCESS; 8]);
    }
}
