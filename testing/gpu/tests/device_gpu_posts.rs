//! Work requests that a kernel of the GPU writes into a queue of libmlx5, which the safe library
//! has exposed. The model of the adapter executes them, and the safe library retires their
//! completions.
#![allow(unsafe_code, reason = "exposes queues to a kernel")]

mod common;

use std::time::Instant;

use common::{End, Memory, SENDS, ends};
use gpu_memory::Gpu;
use gpu_tests::kernels::{self, Entry, Post, Request, opcode};
use gpu_tests::run::on_gpu;
use gpu_tests::{Cuda, Registered, fact};
use ibverbs::exposed::ExposedQueues;
use ibverbs::{DeviceRegion, Held, RemoteMemory, WcStatus, wr};

/// `MLX5_CQE_REQ` and `MLX5_CQE_REQ_ERR`.
const COMPLETED: u32 = 0;
const FAILED: u32 = 13;
/// `MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR` and `MLX5_CQE_SYNDROME_WR_FLUSH_ERR`.
const REMOTE_ACCESS: u32 = 0x13;
const FLUSHED: u32 = 0x05;

/// Registers the queues of `end` with CUDA, so that kernels can access them.
fn register<'a>(cuda: &'a Cuda, end: &mut End) -> Registered<'a> {
    let ranges = |queues: &ExposedQueues<'_>| {
        let (qp, cq) = (
            queues.queue_pair(),
            queues.completion_queue().expect("not shared"),
        );
        [
            (
                qp.sq.buf.cast_const(),
                (qp.sq.wqe_cnt * qp.sq.stride) as usize,
            ),
            (qp.dbrec.cast_const().cast(), 8),
            (qp.bf.reg.cast_const(), 8),
            (cq.buf.cast_const(), (cq.cqe_cnt * cq.cqe_size) as usize),
        ]
    };
    // SAFETY: the closure writes nothing.
    let ranges = unsafe { end.qp.expose_queues(&mut end.sends, 0, ranges) }.expect("exposed");
    // SAFETY: the queues exist until the test drops `end`, after the result.
    unsafe { Registered::new(cuda, &ranges) }
}

/// Lets a kernel post requests and wait for their completions.
fn post(cuda: &Cuda, end: &mut End, tag: u64, requests: &[Request]) -> Vec<Entry> {
    let number = end.qp.qp_num().0;
    let post = |queues: &ExposedQueues<'_>| {
        let (qp, cq) = (
            queues.queue_pair(),
            queues.completion_queue().expect("not shared"),
        );
        assert!(requests.len() <= queues.free_blocks());
        assert_eq!(qp.sq.stride, 64);
        // SAFETY: the doorbell record of a completion queue is two words.
        let next_entry = u32::from_be(unsafe { cq.dbrec.read_volatile() });
        let address = |pointer: *mut std::ffi::c_void| pointer.expose_provenance() as u64;
        let post = Post {
            queue: address(qp.sq.buf),
            // That of the send queue is the second.
            record: address(qp.dbrec.wrapping_add(1).cast()),
            doorbell: address(qp.bf.reg),
            entries: address(cq.buf),
            blocks: qp.sq.wqe_cnt,
            number,
            next_block: queues.next_block().into(),
            next_entry,
            entry_count: cq.cqe_cnt,
            entry_size: cq.cqe_size,
            ..Post::default()
        };
        // SAFETY: the queues are exposed, and `register` has registered them.
        let entries = unsafe { kernels::post(cuda, post, requests) };
        // Every request has the next block.
        let signaled = (0..)
            .zip(requests)
            .filter(|(_, request)| request.signaled == 1);
        for (entry, (index, _)) in entries.iter().zip(signaled) {
            let block = queues.next_block().wrapping_add(index);
            assert_eq!(entry.block, u32::from(block));
        }
        entries
    };
    // SAFETY: the kernel writes one block for each request, and waits for the completion of the
    // last one, which is signaled.
    unsafe { end.qp.expose_queues(&mut end.sends, tag, post) }.expect("exposed")
}

/// Returns a signaled request on local and remote memory.
fn request(opcode: u32, local: &Held<DeviceRegion>, remote: RemoteMemory) -> Request {
    let local = local.sge();
    Request {
        opcode,
        signaled: 1,
        remote: remote.addr,
        local: local.addr,
        rkey: remote.rkey,
        lkey: local.lkey,
        length: local.length,
        ..Request::default()
    }
}

/// Retires the completions of requests that a kernel has posted.
fn retire(end: &mut End, count: usize, tag: u64) {
    for request in end.retire(count) {
        request.check().expect("success");
        assert_eq!(request.tag(), tag);
    }
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn kernel_posts_every_kind_of_request() {
    const LEN: u64 = 64 << 10;
    const ROUNDS: u64 = 64;
    on_gpu("kernel_posts_every_kind_of_request", |cuda| {
        let gpu = Gpu::cuda(0).expect("a GPU");
        let [mut a, mut b] = ends();
        let source = Memory::new(&gpu, &mut a.qp, 4 << 16);
        let target = Memory::new(&gpu, &mut b.qp, 4 << 16);
        let registered = register(cuda, &mut a);
        let slots = a.qp.send_slots_free();
        let part = |index: u64| {
            let start = usize::try_from(index * LEN).expect("64 bits");
            let end = usize::try_from((index + 1) * LEN).expect("64 bits");
            source.held.slice(start..end).expect("inside")
        };
        let word = |at: usize| source.held.slice(at..at + 8).expect("inside");
        for round in 0..ROUNDS {
            let (seed, other) = (round * 10 + 1, round * 10 + 2);
            source.fill(cuda, seed);
            target.fill(cuda, other);
            for _ in 0..3 {
                let len = usize::try_from(LEN).expect("64 bits");
                let buf = b.qp.pd().buf(len).expect("buffer");
                b.qp.post_recv(wr::recv(buf)).expect("receive");
            }
            let immediate = 0x1234_0000 + u32::try_from(round).expect("small");
            let counter = target.remote(3 * LEN, 8);
            let mut requests = [
                request(opcode::RDMA_WRITE, &part(0), target.remote(0, LEN)),
                request(opcode::RDMA_READ, &part(1), target.remote(2 * LEN, LEN)),
                request(opcode::SEND, &part(0), target.remote(0, 0)),
                request(opcode::SEND_IMM, &part(0), target.remote(0, 0)),
                request(opcode::RDMA_WRITE_IMM, &part(0), target.remote(LEN, LEN)),
                request(opcode::ATOMIC_FA, &word(3 * 65_536), counter),
                request(opcode::ATOMIC_CS, &word(3 * 65_536 + 8), counter),
            ];
            requests[0].signaled = 0;
            requests[3].immediate = immediate;
            requests[4].immediate = immediate + 1;
            let old = kernels::word(other, 3 * LEN / 8);
            requests[5].swap_or_add = 5;
            (requests[6].compare, requests[6].swap_or_add) = (old.wrapping_add(5), round);

            let entries = post(cuda, &mut a, round, &requests);
            assert_eq!(entries.len(), 6);
            assert!(
                entries.iter().all(|entry| entry.kind == COMPLETED),
                "{entries:?}"
            );
            // They retire through the table of the safe library.
            assert_eq!(a.qp.send_slots_free(), slots - requests.len());
            retire(&mut a, 6, round);
            assert_eq!(a.qp.send_slots_free(), slots);

            target.check(cuda, 0, LEN / 8, seed);
            target.check(cuda, LEN, LEN / 8, seed);
            source.check(cuda, 0, LEN / 8, seed);
            let read = source.read(LEN, 64);
            assert_eq!(read, target.read(2 * LEN, 64));
            assert_eq!(source.word(3 * LEN), old);
            assert_eq!(source.word(3 * LEN + 8), old.wrapping_add(5));
            assert_eq!(target.word(3 * LEN), round);
            let received = b.retire(3);
            let expected = kernels::bytes(seed, usize::try_from(LEN).expect("64 bits"));
            let immediates: Vec<_> = received
                .iter()
                .map(|one| one.imm_data().map(u32::from_be))
                .collect();
            assert_eq!(immediates.iter().flatten().count(), 2, "{immediates:?}");
            for (index, received) in received.into_iter().enumerate() {
                received.check().expect("received");
                // The third receive only has the immediate data of a write.
                if index < 2 {
                    assert!(received.into_buf().is_some_and(|buf| buf[..] == expected));
                }
            }
        }
        // The queue pair goes on with requests of this crate.
        a.qp.post_send(wr::write(part(1), target.remote(0, LEN)))
            .expect("write");
        retire(&mut a, 1, 0);
        drop(registered);
        fact(format_args!(
            "a kernel posted {} requests of 7 kinds: all bytes, immediates and words checked",
            7 * ROUNDS
        ));
    });
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn failed_request_of_a_kernel_is_reported() {
    on_gpu("failed_request_of_a_kernel_is_reported", |cuda| {
        let gpu = Gpu::cuda(0).expect("a GPU");
        let [mut a, mut b] = ends();
        let source = Memory::new(&gpu, &mut a.qp, 4096);
        let target = Memory::new(&gpu, &mut b.qp, 4096);
        let registered = register(cuda, &mut a);
        source.fill(cuda, 1);
        target.fill(cuda, 2);
        let slice = source.held.slice(0..64).expect("inside");
        let write = |at| request(opcode::RDMA_WRITE, &slice, target.remote(at, 64));
        let mut wrong = write(64);
        wrong.rkey ^= 0x5500;
        let entries = post(cuda, &mut a, 9, &[write(0), wrong, write(128)]);
        let found: Vec<_> = entries
            .iter()
            .map(|entry| (entry.kind, entry.syndrome))
            .collect();
        assert_eq!(found[1..], [(FAILED, REMOTE_ACCESS), (FAILED, FLUSHED)]);
        assert_eq!(found[0].0, COMPLETED);
        let retired = a.retire(3);
        let statuses: Vec<_> = retired
            .iter()
            .map(|one| (one.status(), one.tag()))
            .collect();
        let expected = [
            WcStatus::SUCCESS,
            WcStatus::REM_ACCESS_ERR,
            WcStatus::WR_FLUSH_ERR,
        ];
        assert_eq!(statuses, expected.map(|status| (status, 9)));
        target.check(cuda, 0, 8, 1);
        let rest = target.read(64, 192);
        assert_eq!(rest, kernels::bytes(2, 256)[64..]);
        drop(registered);
        fact("a wrong key in a kernel's request: error and flush reported, no byte written");
    });
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn many_requests_of_a_kernel_complete() {
    const LEN: u64 = 4096;
    const ROUNDS: u64 = 200;
    on_gpu("many_requests_of_a_kernel_complete", |cuda| {
        let gpu = Gpu::cuda(0).expect("a GPU");
        let [mut a, mut b] = ends();
        let count = u64::from(SENDS / 2);
        let len = usize::try_from(count * LEN).expect("64 bits");
        let source = Memory::new(&gpu, &mut a.qp, len);
        let target = Memory::new(&gpu, &mut b.qp, len);
        let registered = register(cuda, &mut a);
        let (start, mut in_kernels) = (Instant::now(), 0.0);
        for round in 0..ROUNDS {
            source.fill(cuda, round);
            let mut requests: Vec<Request> = (0..count)
                .map(|index| {
                    let at = usize::try_from(index * LEN).expect("64 bits");
                    let slice = source.held.slice(at..at + 4096).expect("inside");
                    let request =
                        request(opcode::RDMA_WRITE, &slice, target.remote(index * LEN, LEN));
                    Request {
                        signaled: 0,
                        ..request
                    }
                })
                .collect();
            requests.last_mut().expect("requests").signaled = 1;
            let entries = post(cuda, &mut a, round, &requests);
            in_kernels += cuda.seconds();
            assert!(
                entries.len() == 1 && entries[0].kind == COMPLETED,
                "{entries:?}"
            );
            retire(&mut a, 1, round);
            target.check(cuda, 0, count * LEN / 8, round);
        }
        drop(registered);
        let requests = ROUNDS * count;
        fact(format_args!(
            "{requests} writes of {LEN} bytes posted by {ROUNDS} kernels in {:.2} s, of these \
             {in_kernels:.2} s in kernels, in which the model executes them",
            start.elapsed().as_secs_f64()
        ));
    });
}
