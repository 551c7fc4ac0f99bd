//! Posting, polling and retiring allocate and free no memory, with every kind of payload and on
//! both data paths.

#![allow(
    unsafe_code,
    reason = "implementing a global allocator is unsafe; this one counts calls and forwards them"
)]

#[path = "fake/fixture.rs"]
mod fixture;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use fake_provider::Profile;
use fixture::{IN_ORDER, Pair, connect, pairs, small};
use ibverbs::{
    AccessFlags, AhAttr, BufList, CqOptions, DatagramAttr, Error, Qkey, Rc, SrqOptions, Ud,
    cq_ex::CqFields,
    wr::{self, Destination},
};

/// No test leaves objects of its device.
const LEAKS: bool = false;

/// Forwards to the system allocator and counts the calls of each thread.
struct CountingAllocator;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // The counter of an ending thread may be destroyed already. Such calls are not counted.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: all calls are forwarded to the system allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of this function.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller upholds the contract of this function.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const ROUNDS: usize = if cfg!(miri) { 3 } else { 1000 };

/// Returns the number of allocator calls in [`ROUNDS`] rounds, after one round that is not counted
/// because it may initialize something.
fn calls(mut round: impl FnMut()) -> usize {
    round();
    let before = CALLS.get();
    for _ in 0..ROUNDS {
        round();
    }
    CALLS.get() - before
}

/// Retires all requests and drops their buffers, which returns them to the pool.
fn retire(pair: &mut Pair) -> usize {
    let mut count = 0;
    for completion in pair.cq.poll().expect("poll") {
        let qp = if completion.queue() == pair.a.id() {
            &mut pair.a
        } else {
            &mut pair.b
        };
        let retired = qp.retire(completion).expect("in flight");
        retired.check().expect("success");
        drop(retired.into_buf());
        count += 1;
    }
    count
}

#[test]
fn allocator_calls_are_counted() {
    assert_eq!(
        calls(|| drop(std::hint::black_box(Box::new(1)))),
        2 * ROUNDS
    );
}

#[test]
fn single_requests_with_buffers_allocate_nothing() {
    for mut pair in pairs(IN_ORDER) {
        let calls = calls(|| {
            pair.b
                .post_recv(wr::recv(pair.pool.take().expect("a free buffer")).tag(1))
                .expect("receive");
            pair.a
                .post_send(wr::send(pair.pool.take().expect("a free buffer")).tag(2))
                .expect("send");
            assert_eq!(retire(&mut pair), 2);
        });
        assert_eq!(calls, 0);
    }
}

#[test]
fn polls_with_additional_fields_allocate_nothing() {
    let pair = Pair::new(Profile {
        extra_fields: true,
        ..IN_ORDER[0]
    });
    let (pd, pool) = (&pair.pd, &pair.pool);
    let mut cq = pair
        .context
        .create_cq_ex(CqOptions::default(), CqFields::new().timestamp())
        .expect("completion queue");
    let mut a = pd.create_qp::<Rc>(&cq, &cq, small()).expect("a");
    let mut b = pd.create_qp::<Rc>(&cq, &cq, small()).expect("b");
    connect(&mut a, &mut b);
    let calls = calls(|| {
        b.post_recv(wr::recv(pool.take().expect("a free buffer")))
            .expect("receive");
        a.post_send(wr::send(pool.take().expect("a free buffer")))
            .expect("send");
        let completions = cq.poll().expect("poll");
        assert_eq!(completions.len(), 2);
        for completion in completions {
            let qp = if completion.queue() == a.id() {
                &mut a
            } else {
                &mut b
            };
            qp.retire(completion.into())
                .expect("in flight")
                .check()
                .expect("success");
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn held_memory_allocates_nothing() {
    for mut pair in pairs(IN_ORDER) {
        let (frozen, sink) = (
            pair.buf(b"frozen").freeze(),
            pair.pd.sink(64).expect("sink"),
        );
        let (source, target) = (
            pair.a.hold(&frozen).expect("hold"),
            pair.b.hold(&sink).expect("hold"),
        );
        let calls = calls(|| {
            pair.b.post_recv(wr::recv(target)).expect("receive");
            pair.a.post_send(wr::send(source)).expect("send");
            assert_eq!(retire(&mut pair), 2);
        });
        assert_eq!(calls, 0);
    }
}

#[test]
fn inline_and_empty_messages_allocate_nothing() {
    for mut pair in pairs(IN_ORDER) {
        let sink = pair.pd.sink(64).expect("sink");
        let target = pair.b.hold(&sink).expect("hold");
        let calls = calls(|| {
            for _ in 0..2 {
                pair.b.post_recv(wr::recv(target)).expect("receive");
            }
            pair.a
                .post_send(wr::send(wr::Inline(b"inline")))
                .expect("send");
            pair.a
                .post_send(wr::send_with_imm(wr::Empty, 1))
                .expect("send");
            assert_eq!(retire(&mut pair), 4);
        });
        assert_eq!(calls, 0);
    }
}

#[test]
fn batches_and_unsignaled_requests_allocate_nothing() {
    for mut pair in pairs(IN_ORDER) {
        let calls = calls(|| {
            let (a, b, pool) = (&mut pair.a, &mut pair.b, &pair.pool);
            b.recv_batch(|batch| -> Result<(), Error> {
                for _ in 0..4 {
                    batch.recv(wr::recv(pool.take().expect("a free buffer")))?;
                }
                Ok(())
            })
            .expect("receives");
            a.batch(|batch| -> Result<(), Error> {
                for _ in 0..2 {
                    batch.send(wr::send(pool.take().expect("a free buffer")).signaled(false))?;
                }
                batch.send(wr::send(wr::Inline(b"inline")).signaled(false))?;
                batch.send(wr::send(pool.take().expect("a free buffer")))?;
                Ok(())
            })
            .expect("sends");
            assert_eq!(retire(&mut pair), 5);
        });
        assert_eq!(calls, 0);
    }
}

#[test]
fn one_sided_operations_allocate_nothing() {
    for mut pair in pairs(IN_ORDER) {
        let access =
            AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let region = pair.pd.shared(64, access).expect("region");
        let remote = region.remote().slice(0..8).expect("in range");
        let mut bytes = [0; 8];
        let calls = calls(|| {
            pair.a
                .post_send(wr::write(wr::Inline(b"8 bytes!"), remote))
                .expect("write");
            pair.a
                .post_send(wr::read(pair.pool.take().expect("a free buffer"), remote))
                .expect("read");
            pair.a
                .post_send(wr::fetch_add(
                    pair.pool.take().expect("a free buffer"),
                    remote,
                    1,
                ))
                .expect("add");
            assert_eq!(retire(&mut pair), 3);
            region.read(0, &mut bytes).expect("in range");
            region.write(3, b"xyz").expect("in range");
        });
        assert_eq!(calls, 0);
    }
}

#[test]
fn empty_polls_and_rejected_posts_allocate_nothing() {
    for mut pair in pairs(IN_ORDER) {
        pair.fake.stall();
        while pair.a.send_slots_free() > 0 {
            pair.a.post_send(wr::send(wr::Empty)).expect("a free slot");
        }
        let calls = calls(|| {
            assert_eq!(retire(&mut pair), 0);
            let rejected = pair
                .a
                .post_send(wr::send(pair.pool.take().expect("a free buffer")))
                .expect_err("full");
            drop(rejected.into_payload());
        });
        assert_eq!(calls, 0);
    }
}

#[test]
fn existing_lists_allocate_nothing() {
    for mut pair in pairs(IN_ORDER) {
        let options = fixture::small().max_send_sge(2).max_recv_sge(2);
        pair.a = pair
            .pd
            .create_qp::<Rc>(&pair.cq, &pair.cq, options)
            .expect("a");
        pair.b = pair
            .pd
            .create_qp::<Rc>(&pair.cq, &pair.cq, options)
            .expect("b");
        fixture::connect(&mut pair.a, &mut pair.b);
        let parts = [pair.buf(b"one").freeze(), pair.buf(b"two").freeze()];
        let tokens = parts
            .each_ref()
            .map(|memory| pair.a.hold(memory).expect("hold"));
        let held = pair.a.hold_list(&tokens).expect("list");
        let mut list = Some(BufList::new(vec![pair.buf(b"a"), pair.buf(b"b")]));
        let mut target = Some(BufList::new(vec![
            pair.pd.buf(4).expect("buffer"),
            pair.pd.buf(4).expect("buffer"),
        ]));
        let calls = calls(|| {
            for step in 0..2 {
                pair.b
                    .post_recv(wr::recv(target.take().expect("the retired list")))
                    .expect("receive");
                match step {
                    0 => pair
                        .a
                        .post_send(wr::send(list.take().expect("the retired list")))
                        .expect("send"),
                    _ => pair.a.post_send(wr::send(held)).expect("send"),
                }
                for completion in pair.cq.poll().expect("poll") {
                    if completion.queue() == pair.a.id() {
                        let returned = pair.a.retire(completion).expect("in flight").into_list();
                        list = list.take().or(returned);
                    } else {
                        target = pair.b.retire(completion).expect("in flight").into_list();
                    }
                }
            }
        });
        assert_eq!(calls, 0);
    }
}

#[test]
fn a_shared_receive_queue_allocates_nothing() {
    for mut pair in pairs(IN_ORDER) {
        let mut srq = pair
            .pd
            .create_srq(SrqOptions::new().max_wr(7).max_batch(7))
            .expect("shared receive queue");
        pair.a = pair
            .pd
            .create_qp::<Rc>(&pair.cq, &pair.cq, fixture::small())
            .expect("a");
        pair.b = pair
            .pd
            .create_qp_with_srq::<Rc>(&pair.cq, &pair.cq, &srq, fixture::small())
            .expect("b");
        fixture::connect(&mut pair.a, &mut pair.b);
        let calls = calls(|| {
            srq.post_recv(wr::recv(pair.pool.take().expect("a free buffer")))
                .expect("receive");
            srq.recv_batch(|batch| -> Result<(), Error> {
                Ok(batch.recv(wr::recv(pair.pool.take().expect("a free buffer")))?)
            })
            .expect("receives");
            for _ in 0..2 {
                pair.a
                    .post_send(wr::send(wr::Inline(b"inline")))
                    .expect("send");
            }
            for completion in pair.cq.poll().expect("poll") {
                let retired = if completion.queue() == srq.id() {
                    srq.retire(completion).expect("in flight")
                } else {
                    pair.a.retire(completion).expect("in flight")
                };
                drop(retired.into_buf());
            }
        });
        assert_eq!(calls, 0);
    }
}

#[test]
fn datagrams_allocate_nothing() {
    const QKEY: Qkey = Qkey(7);
    for pair in pairs(IN_ORDER) {
        let Pair {
            pd, context, pool, ..
        } = &pair;
        let mut cq = context
            .create_cq(CqOptions::new())
            .expect("completion queue");
        let mut qp = pd
            .create_qp::<Ud>(&cq, &cq, fixture::small())
            .expect("queue pair");
        qp.start(&DatagramAttr::new(1, QKEY)).expect("RTS state");
        let own = context.gids(1).expect("GID table")[0];
        let handle = pd
            .create_ah(&AhAttr::for_gid(1, own.index, own.gid))
            .expect("address handle");
        let address = qp.hold_address(&handle).expect("hold");
        let destination = Destination {
            address,
            qpn: qp.qp_num(),
            qkey: QKEY,
        };
        let calls = calls(|| {
            qp.post_recv(wr::recv(pool.take().expect("a free buffer")))
                .expect("receive");
            qp.post_send(wr::send(wr::Inline(b"to itself")).to(destination))
                .expect("send");
            let mut count = 0;
            for completion in cq.poll().expect("poll") {
                drop(qp.retire(completion).expect("in flight").into_buf());
                count += 1;
            }
            assert_eq!(count, 2);
        });
        assert_eq!(calls, 0);
    }
}
