//! Queue pairs, completion queues and buffers that move between threads, and shared memory.

use std::sync::atomic::Ordering;
use std::thread;

use crate::fixture::{self, PROFILES, Pair, buf_bytes, pairs};
use ibverbs::{AccessFlags, CqOptions, Rc, wr};

#[test]
fn a_queue_pair_moves_to_another_thread_with_its_cq() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(1);
        let buf = pair.buf(b"before");
        pair.a.post_send(wr::send(buf)).expect("send");
        let pair = thread::spawn(move || {
            let mut pair = pair;
            let (mut sent, mut received) = pair.retire();
            assert_eq!(buf_bytes(received.remove(0)), b"before");
            assert_eq!(buf_bytes(sent.remove(0)), b"before");
            pair.post_recvs(1);
            let buf = pair.buf(b"after");
            pair.a.post_send(wr::send(buf)).expect("send");
            pair
        });
        let mut pair = pair.join().expect("no panic");
        assert_eq!(buf_bytes(pair.retire().1.remove(0)), b"after");
    }
}

#[test]
fn two_threads_use_one_connection() {
    // More than a queue has slots.
    const MESSAGES: usize = if cfg!(miri) { 10 } else { 20 };
    for profile in PROFILES {
        let fake = fake_provider::Fake::new(profile);
        let context = fixture::open(&fake);
        let pd = context.alloc_pd().expect("protection domain");
        let options = CqOptions::new();
        let (mut cq_a, mut cq_b) = (
            context.create_cq(options).expect("a"),
            context.create_cq(options).expect("b"),
        );
        let mut a = pd
            .create_qp::<Rc>(&cq_a, &cq_a, fixture::small())
            .expect("a");
        let mut b = pd
            .create_qp::<Rc>(&cq_b, &cq_b, fixture::small())
            .expect("b");
        fixture::connect(&mut a, &mut b);
        let pool = pd.pool(4, 64).expect("pool");
        for _ in 0..3 {
            b.post_recv(wr::recv(pool.take().expect("a free buffer")))
                .expect("receive");
        }
        let sender = thread::spawn(move || {
            for number in 0..MESSAGES {
                let message = number.to_ne_bytes();
                a.post_send(wr::send(wr::Inline(&message))).expect("send");
                while a.send_slots_free() < a.caps().max_send_wr as usize {
                    for completion in cq_a.poll().expect("poll") {
                        a.retire(completion)
                            .expect("in flight")
                            .check()
                            .expect("success");
                    }
                    thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < MESSAGES {
            for completion in cq_b.poll().expect("poll") {
                let buf = b
                    .retire(completion)
                    .expect("in flight")
                    .into_buf()
                    .expect("posted with a buffer");
                assert_eq!(buf[..], next.to_ne_bytes());
                next += 1;
                b.post_recv(wr::recv(buf)).expect("receive");
            }
            thread::yield_now();
        }
        sender.join().expect("no panic");
    }
}

#[test]
fn a_pool_gives_buffers_to_many_threads() {
    let pair = Pair::new(PROFILES[0]);
    thread::scope(|scope| {
        for byte in 0..4 {
            let pool = pair.pool.clone();
            scope.spawn(move || {
                for _ in 0..5 {
                    let mut buf = pool.take().expect("more buffers than threads");
                    buf.fill(byte);
                    thread::yield_now();
                    assert!(
                        buf.iter().all(|seen| *seen == byte),
                        "the buffer is used by another thread"
                    );
                }
            });
        }
    });
    assert_eq!(pair.pool.available(), 16);
}

#[test]
#[cfg_attr(
    miri,
    ignore = "copies of a shared region are outside the memory model"
)]
fn threads_access_a_shared_region_concurrently() {
    let pair = Pair::new(PROFILES[0]);
    let region = pair
        .pd
        .shared(19, AccessFlags::REMOTE_READ)
        .expect("region");
    thread::scope(|scope| {
        for byte in 0..3_u8 {
            let region = region.clone();
            scope.spawn(move || {
                let mut seen = [0; 9];
                for round in 0..4 {
                    region
                        .write(usize::from(byte) + 3, &[byte; 7])
                        .expect("in range");
                    region.read(round, &mut seen).expect("in range");
                    region.load(0, Ordering::Relaxed).expect("aligned");
                    region
                        .store(8, u64::from(byte), Ordering::Release)
                        .expect("aligned");
                    let _ = region.compare_exchange(8, 1, 2).expect("aligned");
                }
            });
        }
    });
}
