//! Queues of mlx5 that are exposed to code which posts by writing to memory. The tests write
//! requests by hand, as a GPU would.

#![allow(unsafe_code, reason = "writes requests to the memory of queues")]

mod by_hand;
mod ends;
mod receives;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use by_hand::{
    ENTRY_OF_FAILED_SEND, ENTRY_OF_SEND, RDMA_WRITE, SEND, SIGNALED, Writer, data_segment,
    inline_segments, remote_segment, wait_for_entry,
};
use ends::{ACCESS, End, ends};
use ibverbs::{
    ConnectedDuplexTransport, CqOptions, ErrorKind, QpOptions, Rc, Uc, WcStatus,
    exposed::ExposedQueues, pd::ThreadDomain, wr,
};
use test_support::process;

use crate::lab::{connect, devices_with, path, supporting, until, verb};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn requests_written_by_hand_complete_and_the_queue_pair_goes_on() {
    for context in devices_with(&[verb::LEND]) {
        write_by_hand(ends::<Rc>(&context));
        write_by_hand(ends::<Uc>(&context));
    }
}

/// Alternates between requests of this crate and others, for many turns of all queues.
fn write_by_hand<T: ConnectedDuplexTransport>([mut a, mut b]: [End<T>; 2]) {
    const ROUNDS: u32 = 100;
    let number = a.qp.qp_num().0;
    let slots = a.qp.send_slots_free();
    for round in 0..ROUNDS {
        for message in 0..round % 4 {
            a.send(&mut b, format!("safe {round} {message}").as_bytes());
        }
        let text = format!("round {round:04}");
        a.region.write(0, text.as_bytes()).expect("inside");
        let there = b
            .remote()
            .slice(128..128 + text.len() as u64)
            .expect("inside");
        let here = a.held.slice(0..text.len()).expect("inside").sge();
        // Two blocks.
        let long = [text.as_bytes(), &[b'.'; 60]].concat();
        b.post_receive();
        b.post_receive();
        // SAFETY: the closure writes requests in order into free blocks, and waits for the last.
        let blocks = unsafe {
            a.qp.expose_queues(&mut a.sends, round.into(), |queues| {
                let mut writer = Writer::new(queues, number);
                let write = [remote_segment(&there), data_segment(here)];
                writer.put(RDMA_WRITE, 0, &write);
                writer.ring();
                writer.put(SEND, SIGNALED, &inline_segments(&long));
                writer.put(SEND, SIGNALED, &[data_segment(here)]);
                writer.ring();
                assert!(writer.blocks() <= queues.free_blocks());
                let entries = queues.completion_queue().expect("not shared");
                let first = queues.next_block();
                for (index, block) in [1, 3].into_iter().enumerate() {
                    let index = u32::try_from(index).expect("small");
                    let (kind, found) = wait_for_entry(&entries, index);
                    assert_eq!(kind, ENTRY_OF_SEND);
                    assert_eq!(found, first.wrapping_add(block));
                }
                writer.blocks()
            })
        }
        .expect("exposed");
        assert_eq!(blocks, 4);
        assert_eq!(b.receive(), long);
        assert_eq!(b.receive(), text.as_bytes());
        let mut written = vec![0; text.len()];
        b.region.read(128, &mut written).expect("inside");
        assert_eq!(written, text.as_bytes());
        assert_eq!(a.qp.send_slots_free(), slots - blocks);
        for request in a.retire(2) {
            request.check().expect("success");
            assert_eq!(request.tag(), u64::from(round));
        }
        assert_eq!(a.qp.send_slots_free(), slots);
    }
    // The other direction was not exposed.
    b.send(&mut a, b"from b");
    // All slots can be used.
    while b.qp.recv_slots_free() > 0 {
        b.post_receive();
    }
    for _ in 0..slots {
        let write = wr::write(wr::Inline(b"last"), b.remote());
        a.qp.post_send(write).expect("write");
    }
    a.retire(slots);
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn failed_request_ends_the_connection_as_usual() {
    for context in devices_with(&[verb::LEND]) {
        let [mut a, b] = ends::<Rc>(&context);
        let number = a.qp.qp_num().0;
        let mut there = b.remote().slice(0..8).expect("inside");
        there.rkey ^= 0x5500;
        let here = a.held.slice(0..8).expect("inside").sge();
        // SAFETY: the closure writes one request into a free block, and waits for it.
        unsafe {
            a.qp.expose_queues(&mut a.sends, 9, |queues| {
                let mut writer = Writer::new(queues, number);
                let write = [remote_segment(&there), data_segment(here)];
                writer.put(RDMA_WRITE, SIGNALED, &write);
                writer.ring();
                let entries = queues.completion_queue().expect("not shared");
                let (kind, _) = wait_for_entry(&entries, 0);
                assert_eq!(kind, ENTRY_OF_FAILED_SEND);
            })
        }
        .expect("exposed");
        let failed = a.retire(1).remove(0);
        assert_eq!(failed.status(), WcStatus::REM_ACCESS_ERR);
        assert_eq!(failed.tag(), 9);
        a.post_receive();
        let mut reclaimed = 0;
        let queues = &mut [&mut a.sends, &mut a.receives];
        let drained = a.qp.drain(queues, Duration::from_secs(5), |retired| {
            reclaimed += usize::from(retired.expect("of this queue pair").into_buf().is_some());
        });
        drained.expect("drained");
        assert_eq!(reclaimed, 1);
        a.qp.destroy().expect("destroyed");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn queue_pair_goes_on_after_a_panic_and_without_requests() {
    for context in devices_with(&[verb::LEND]) {
        let [mut a, mut b] = ends::<Rc>(&context);
        let number = a.qp.qp_num().0;
        b.post_receive();
        let expose = || {
            // SAFETY: the closure writes one request into a free block, and waits for it.
            unsafe {
                a.qp.expose_queues(&mut a.sends, 3, |queues| {
                    let mut writer = Writer::new(queues, number);
                    writer.put(SEND, SIGNALED, &inline_segments(b"before the panic"));
                    writer.ring();
                    let entries = queues.completion_queue().expect("not shared");
                    wait_for_entry(&entries, 0);
                    panic!("expected by the test");
                })
            }
        };
        assert!(catch_unwind(AssertUnwindSafe(expose)).is_err());
        assert_eq!(b.receive(), b"before the panic");
        assert_eq!(a.retire(1).remove(0).tag(), 3);
        // SAFETY: the closure writes nothing.
        unsafe {
            a.qp.expose_queues(&mut a.sends, 4, |queues| assert_eq!(queues.next_block(), 1))
        }
        .expect("exposed");
        a.send(&mut b, b"after it");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn queue_pair_of_a_thread_domain_is_exposed() {
    for context in devices_with(&[verb::LEND, verb::THREAD_DOMAINS]) {
        let pd = context.alloc_pd().expect("protection domain");
        let domain = || -> ThreadDomain { context.alloc_td().expect("thread domain") };
        let mut a = End::<Rc>::with(&pd, |sends, receives, options| {
            let parent = pd.alloc_parent_domain(domain()).expect("parent domain");
            parent.create_qp(sends, receives, options)
        });
        let mut b = End::new(&pd);
        connect(&mut a.qp, &mut b.qp, &path(&context).access(ACCESS));
        let number = a.qp.qp_num().0;
        b.post_receive();
        // SAFETY: the closure writes one request into a free block, and waits for it.
        unsafe {
            a.qp.expose_queues(&mut a.sends, 5, |queues| {
                assert!(queues.queue_pair().bf.size >= 64, "a register of its own");
                let mut writer = Writer::new(queues, number);
                writer.put(SEND, SIGNALED, &inline_segments(b"domain"));
                writer.ring();
                wait_for_entry(&queues.completion_queue().expect("not shared"), 0);
            })
        }
        .expect("exposed");
        assert_eq!(b.receive(), b"domain");
        assert_eq!(a.retire(1).remove(0).tag(), 5);
        a.send(&mut b, b"after it");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn exposing_checks_the_queues() {
    for context in devices_with(&[verb::LEND]) {
        let [mut a, b] = ends::<Rc>(&context);
        let pd = a.qp.pd().clone();
        let nothing = |_: &ExposedQueues<'_>| ();
        // SAFETY: the closures write nothing.
        unsafe {
            let error = a.qp.expose_queues(&mut a.receives, 0, nothing);
            let error = error.expect_err("another queue");
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");

            let other = pd.create_qp::<Rc>(&a.sends, &a.receives, QpOptions::new());
            let other = other.expect("queue pair");
            let export = |queues: &ExposedQueues<'_>| queues.completion_queue().map(drop);
            let shared =
                a.qp.expose_queues(&mut a.sends, 0, export)
                    .expect("exposed");
            let error = shared.expect_err("shared");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            drop(other);
            let exclusive =
                a.qp.expose_queues(&mut a.sends, 0, export)
                    .expect("exposed");
            exclusive.expect("no longer shared");
        }
        let another = pd.create_qp::<Rc>(&a.sends, &a.receives, QpOptions::new());
        let error = another.expect_err("exposed");
        assert!(error.to_string().contains("was exposed"), "{error}");

        // SAFETY: nothing is posted, and the queue pair is not used anymore.
        let result = unsafe {
            a.qp.expose_queues(&mut a.sends, 0, |queues| {
                let blocks = u16::try_from(queues.free_blocks() + 1).expect("a small queue");
                let number = u32::from(queues.next_block().wrapping_add(blocks));
                let record = queues.queue_pair().dbrec.add(1);
                record.write_volatile(number.to_be());
            })
        };
        let error = result.expect_err("more blocks than are free");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");

        let classic = QpOptions::new().classic_only(true);
        let mut cq = context.create_cq(CqOptions::new()).expect("queue");
        let mut classic = pd.create_qp::<Rc>(&cq, &cq, classic).expect("queue pair");
        // SAFETY: the closure writes nothing.
        let error = unsafe { classic.expose_queues(&mut cq, 0, nothing) };
        let error = error.expect_err("not extended");
        assert!(error.is_unsupported(), "{error}");
        drop(b);
    }
}

/// libmlx5 would leave the completions of the queue pair in the exposed queue, where those of
/// another queue pair with the same number would be expected.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn queue_pair_of_an_exposed_queue_is_drained_or_leaked() {
    const CHILD: &str = "IBVERBS_TEST_LEND_LEAK";
    if std::env::var_os(CHILD).is_none() {
        if supporting(&[verb::LEND]).is_empty() {
            return;
        }
        let name = "exposed::queue_pair_of_an_exposed_queue_is_drained_or_leaked";
        let output = process::output(process::ignored_test(name).env(CHILD, "1"));
        assert!(output.success(), "{output}");
        return;
    }
    for context in supporting(&[verb::LEND]) {
        let [mut a, mut b] = ends::<Rc>(&context);
        b.post_receive();
        let export = |queues: &ExposedQueues<'_>| queues.completion_queue().map(drop);
        // SAFETY: the closure writes nothing.
        unsafe {
            a.qp.expose_queues(&mut a.sends, 0, export)
                .expect("exposed")
        }
        .expect("not shared");
        a.qp.post_send(wr::send(wr::Inline(b"unseen")))
            .expect("send");
        assert_eq!(b.receive(), b"unseen");
        let error = a.qp.destroy().expect_err("not drained");
        assert_eq!(error.kind(), ErrorKind::WrongState, "{error}");
        assert!(error.help().is_some_and(|help| help.contains("drain")));
        assert_eq!(ibverbs::leaked_objects(), 1);
        // Its completion matches no queue pair.
        until("the completion", || {
            let completion = a.sends.poll().expect("poll").next();
            completion.is_some_and(|completion| b.qp.retire(completion).is_err())
        });
    }
}
