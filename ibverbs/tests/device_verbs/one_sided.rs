//! One-sided operations between two queue pairs of one device, and unreliable connections.

use std::sync::atomic::Ordering;

use ibverbs::{Direction, Uc, WcStatus, wr};

use crate::lab::{
    REMOTE_ACCESS, extended_and_classic, pair_with_access, pairs_with, roce_with, verb,
};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn write_and_read_round_trip() {
    for mut pair in pairs_with(REMOTE_ACCESS) {
        let region = pair.pd.shared(4096, REMOTE_ACCESS).expect("region");
        let target = region.remote().slice(100..105).expect("in range");
        let mut hello = pair.pd.buf(5).expect("buffer");
        hello.copy_from_slice(b"hello");
        pair.a.post_send(wr::write(hello, target)).expect("write");
        pair.retire(1)[0].check().expect("written");
        let mut seen = [0; 5];
        region.read(100, &mut seen).expect("in range");
        assert_eq!(&seen, b"hello");
        pair.a
            .post_send(wr::read(pair.pd.buf(64).expect("buffer"), target))
            .expect("read");
        let read = pair.retire(1).remove(0);
        read.check().expect("read");
        assert_eq!(
            &read.into_buf().expect("posted with a buffer")[..],
            b"hello",
            "the buffer length is the length of the READ"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn write_with_imm_consumes_a_receive() {
    for mut pair in pairs_with(REMOTE_ACCESS) {
        let region = pair.pd.shared(64, REMOTE_ACCESS).expect("region");
        pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
        pair.a
            .post_send(wr::write_with_imm(wr::Inline(b"abc"), region.remote(), 77))
            .expect("write");
        let retired = pair.retire(2);
        let received = retired
            .iter()
            .find(|one| one.direction() == Direction::Recv)
            .expect("a receive");
        assert_eq!(
            (received.received_len(), received.imm_data()),
            (3, Some(77))
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn atomics_return_the_previous_value() {
    for mut pair in pairs_with(REMOTE_ACCESS) {
        let region = pair.pd.shared(64, REMOTE_ACCESS).expect("region");
        region.store(8, 40, Ordering::Relaxed).expect("aligned");
        let number = region.remote().slice(8..16).expect("in range");
        pair.a
            .post_send(wr::fetch_add(pair.pd.buf(8).expect("buffer"), number, 2))
            .expect("add");
        let before = pair.retire(1).remove(0);
        before.check().expect("added");
        assert_eq!(
            before.into_buf().expect("posted with a buffer")[..],
            40_u64.to_ne_bytes()
        );
        let held = pair
            .a
            .hold(&region)
            .expect("hold")
            .slice(0..8)
            .expect("in range");
        pair.a
            .post_send(wr::compare_swap(held, number, 42, 7))
            .expect("swap");
        pair.retire(1)[0].check().expect("swapped");
        assert_eq!(region.load(8, Ordering::Acquire).expect("aligned"), 7);
        assert_eq!(
            region.load(0, Ordering::Acquire).expect("aligned"),
            42,
            "the previous value"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn wrong_rkey_fails_with_rem_access_err() {
    for mut pair in pairs_with(REMOTE_ACCESS) {
        let region = pair.pd.shared(64, REMOTE_ACCESS).expect("region");
        let mut remote = region.remote();
        remote.rkey ^= 0x5500;
        pair.a
            .post_send(wr::write(pair.pd.buf(8).expect("buffer"), remote))
            .expect("post");
        let failed = pair.retire(1).remove(0);
        assert_eq!(failed.status(), WcStatus::REM_ACCESS_ERR);
        assert!(failed.into_buf().is_some());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn unreliable_connection_sends_and_writes() {
    for context in roce_with(&[verb::UC]) {
        for options in extended_and_classic() {
            let mut pair = pair_with_access::<Uc>(&context, options, REMOTE_ACCESS);
            let region = pair.pd.shared(64, REMOTE_ACCESS).expect("region");
            pair.b
                .post_recv(wr::recv(pair.pd.buf(64).expect("buffer")))
                .expect("receive");
            pair.a
                .post_send(wr::send(wr::Inline(b"over UC")))
                .expect("send");
            for retired in pair.retire(2) {
                retired.check().expect("success");
                if let Some(buf) = retired.into_buf() {
                    assert_eq!(&buf[..], b"over UC");
                }
            }
            pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
            pair.a
                .post_send(wr::write_with_imm(wr::Inline(b"there"), region.remote(), 1))
                .expect("write");
            pair.retire(2);
            let mut seen = [0; 5];
            region.read(0, &mut seen).expect("in range");
            assert_eq!(&seen, b"there");
        }
    }
}
