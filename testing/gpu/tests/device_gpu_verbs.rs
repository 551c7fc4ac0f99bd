//! Memory of a GPU in the requests of the safe verbs, on the model of an mlx5 adapter.

mod common;

use common::{Memory, ends};
use gpu_memory::Gpu;
use gpu_tests::run::on_gpu;
use gpu_tests::{Cuda, fact, kernels};
use ibverbs::{WcStatus, wr};

const LEN: usize = 2 << 20;

/// Number of messages that were moved, and their bytes.
#[derive(Default)]
struct Moved {
    messages: u64,
    bytes: u64,
}

/// Checks that only the bytes from `at` have changed from the pattern `seed` to `expected`.
fn check_target(target: &Memory, seed: u64, at: usize, expected: &[u8]) {
    let mut bytes = kernels::bytes(seed, LEN);
    bytes[at..at + expected.len()].copy_from_slice(expected);
    assert!(
        target.read(0, LEN) == bytes,
        "{} bytes at {at}",
        expected.len()
    );
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn every_verb_moves_memory_of_a_gpu() {
    on_gpu("every_verb_moves_memory_of_a_gpu", |cuda| {
        let gpu = Gpu::cuda(0).expect("a GPU");
        // The driver keeps some memory after the first allocation.
        drop(gpu.alloc(1).expect("memory"));
        let before = cuda.memory();
        let mut moved = Moved::default();
        {
            let [mut a, mut b] = ends();
            let source = Memory::new(&gpu, &mut a.qp, LEN);
            let target = Memory::new(&gpu, &mut b.qp, LEN);
            for (len, from, to) in [
                (1, 5, 3),
                (7, 4095, 4097),
                (64, 0, 64),
                (4096, 65_535, 4096),
                (65_536, 0, 65_536),
                (1 << 20, 4096, LEN - (1 << 20)),
            ] {
                let seed = len as u64;
                source.fill(cuda, seed);
                let bytes = &kernels::bytes(seed, LEN)[from..from + len];
                let slice = || source.held.slice(from..from + len).expect("inside");

                target.fill(cuda, 1000);
                let place = target.remote(to as u64, len as u64);
                a.qp.post_send(wr::write(slice(), place)).expect("write");
                a.retire(1)[0].check().expect("written");
                check_target(&target, 1000, to, bytes);

                target.fill(cuda, 2000);
                let place = target.held.slice(to..to + len).expect("inside");
                b.qp.post_recv(wr::recv(place)).expect("receive");
                a.qp.post_send(wr::send(slice())).expect("send");
                a.retire(1)[0].check().expect("sent");
                let received = b.retire(1).remove(0);
                received.check().expect("received");
                assert_eq!(received.received_len(), len);
                check_target(&target, 2000, to, bytes);

                // The other direction.
                target.fill(cuda, 3000);
                let place = source.remote(from as u64, len as u64);
                let slice = target.held.slice(to..to + len).expect("inside");
                b.qp.post_send(wr::read(slice, place)).expect("read");
                b.retire(1)[0].check().expect("read");
                check_target(&target, 3000, to, bytes);
                moved.messages += 3;
                moved.bytes += 3 * seed;
            }
            atomics(cuda, &mut a, &source, &target);
            drop((a, b));
        }
        assert_eq!(cuda.memory(), before);
        let Moved { messages, bytes } = moved;
        fact(format_args!(
            "the model moved {messages} messages, {bytes} bytes: every byte checked"
        ));
    });
}

/// Adds and swaps words of a GPU, and receives their old values in memory of a GPU.
fn atomics(cuda: &Cuda, a: &mut common::End, source: &Memory, target: &Memory) {
    target.fill(cuda, 4000);
    source.fill(cuda, 5000);
    let old = kernels::word(4000, 8);
    let place = || target.remote(64, 8);
    let result = |start: usize| source.held.slice(start..start + 8).expect("inside");
    for round in 0..100 {
        let add = wr::fetch_add(result(16), place(), 3);
        a.qp.post_send(add).expect("fetch and add");
        a.retire(1)[0].check().expect("added");
        assert_eq!(source.word(16), old.wrapping_add(3 * round));
    }
    let now = old.wrapping_add(300);
    for (compare, found) in [(now, now), (now, 77), (77, 77)] {
        let swap = wr::compare_swap(result(32), place(), compare, 77);
        a.qp.post_send(swap).expect("compare and swap");
        a.retire(1)[0].check().expect("swapped");
        assert_eq!(source.word(32), found);
    }
    assert_eq!(target.word(64), 77);
    target.check(cuda, 0, 8, 4000);
    assert_eq!(target.word(72), kernels::word(4000, 9));
    source.check(cuda, 0, 2, 5000);
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn refused_requests_leave_memory_of_a_gpu_unchanged() {
    on_gpu("refused_requests_leave_memory_of_a_gpu_unchanged", |cuda| {
        let gpu = Gpu::cuda(0).expect("a GPU");
        for wrong in ["key", "address", "length"] {
            let [mut a, mut b] = ends();
            let source = Memory::new(&gpu, &mut a.qp, 4096);
            let target = Memory::new(&gpu, &mut b.qp, 4096);
            source.fill(cuda, 1);
            target.fill(cuda, 2);
            let mut place = target.remote(0, 64);
            match wrong {
                "key" => place.rkey ^= 0x5500,
                "address" => place.addr += target.buffer.len(),
                _ => place.addr += target.buffer.len() - 63,
            }
            let slice = source.held.slice(0..64).expect("inside");
            a.qp.post_send(wr::write(slice, place)).expect("posted");
            assert_eq!(a.retire(1)[0].status(), WcStatus::REM_ACCESS_ERR, "{wrong}");
            target.check(cuda, 0, target.buffer.len() / kernels::WORD, 2);
        }
    });
}

/// A dma-buf is registered with an offset, and the buffer is dropped before or after its region.
#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn parts_are_registered_and_released_in_any_order() {
    on_gpu("parts_are_registered_and_released_in_any_order", |cuda| {
        let gpu = Gpu::cuda(0).expect("a GPU");
        // The driver keeps some memory after the first allocation.
        drop(gpu.alloc(1).expect("memory"));
        let before = cuda.memory();
        for (offset, len) in [(0, 4096), (4096, 100), (8192 + 512, 512), (65_536, 65_536)] {
            let [mut a, b] = ends();
            let mut buffer = gpu.alloc(128 << 10).expect("memory");
            buffer.write(offset, b"part of a buffer").expect("inside");
            let region =
                a.qp.pd()
                    .reg_dmabuf(buffer.dmabuf(), offset, len, common::ACCESS);
            let region = region.expect("region");
            assert_eq!(region.len(), len as u64);
            let held = a.qp.hold(&region).expect("held");
            let received = a.qp.pd().buf(16).expect("buffer");
            let mut b = b;
            b.qp.post_recv(wr::recv(received)).expect("receive");
            let slice = held.slice(0..16).expect("inside");
            a.qp.post_send(wr::send(slice)).expect("send");
            a.retire(1)[0].check().expect("sent");
            let received = b.retire(1).remove(0).into_buf().expect("a buffer");
            assert_eq!(&received[..], b"part of a buffer");
            if offset % 8192 == 0 {
                drop((a, region));
                drop(buffer);
            } else {
                // No request is in flight.
                drop(buffer);
                drop((a, region));
            }
        }
        assert_eq!(cuda.memory(), before);
    });
}
