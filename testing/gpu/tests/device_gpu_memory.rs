//! Memory of a GPU: allocation, access, exports, and what is left after them.
#![allow(unsafe_code, reason = "starts kernels, and maps dma-bufs")]

use std::fs::File;
use std::io::{Error, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Instant;

use gpu_memory::{Gpu, GpuBuffer};
use gpu_tests::kernels::{self, WORD};
use gpu_tests::run::on_gpu;
use gpu_tests::{Cuda, CudaError, fact};
use test_support::process;

const PAGE: u64 = 4096;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

fn gpu() -> Gpu {
    Gpu::cuda(0).expect("a GPU")
}

/// Fills a buffer by a kernel.
fn fill(cuda: &Cuda, buffer: &mut GpuBuffer, seed: u64) {
    // SAFETY: `&mut` is the only access to the buffer, which is not registered with a device.
    unsafe { kernels::fill(cuda, buffer.address(), buffer.len() / WORD, seed) }
}

/// Compares a buffer with a pattern by a kernel, and parts of it from the host.
fn check(cuda: &Cuda, buffer: &GpuBuffer, seed: u64) {
    // SAFETY: the buffer is not written meanwhile.
    let mismatch = unsafe { kernels::check(cuda, buffer.address(), buffer.len() / WORD, seed) };
    assert_eq!(
        mismatch,
        None,
        "word that differs, of {}",
        buffer.len() / WORD
    );
    let mut part = [0; 64];
    for at in [0, buffer.len() / 2, buffer.len() - part.len() as u64] {
        buffer.read(at, &mut part).expect("inside");
        let expected: Vec<u8> = (0..8)
            .flat_map(|word| kernels::word(seed, at / WORD + word).to_ne_bytes())
            .collect();
        assert_eq!(part[..], expected, "{at}");
    }
}

/// Runs a test, after which the GPU has as much free memory as before it.
fn without_leak(cuda: &Cuda, test: impl FnOnce(&Gpu)) {
    let gpu = gpu();
    // The driver keeps some memory after the first allocation.
    drop(gpu.alloc(1).expect("memory"));
    let (before, _) = cuda.memory();
    test(&gpu);
    let (after, _) = cuda.memory();
    assert_eq!(before, after, "free memory before and after");
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn buffers_of_all_sizes_hold_what_is_written() {
    on_gpu("buffers_of_all_sizes_hold_what_is_written", |cuda| {
        without_leak(cuda, |gpu| {
            let (free, total) = cuda.memory();
            fact(format_args!(
                "{}, CUDA {}: {total} bytes, {free} free",
                gpu.name(),
                cuda.version()
            ));
            for len in [
                1,
                4 * KIB,
                64 * KIB,
                MIB + 1,
                2 * MIB,
                64 * MIB,
                GIB,
                8 * GIB,
            ] {
                if len as u64 > free / 2 {
                    fact(format_args!("{len} bytes: not tried, too little memory"));
                    continue;
                }
                let start = Instant::now();
                let mut buffer = gpu.alloc(len).expect("memory");
                let seconds = start.elapsed().as_secs_f64();
                assert!(buffer.len() >= len as u64 && buffer.len() < (len + 64 * KIB) as u64);
                assert_eq!(buffer.len() % PAGE, 0);
                assert_eq!(size_of(buffer.dmabuf()), buffer.len());
                // SAFETY: nothing else uses the buffer. A pattern whose words are all 0 does not
                // exist, so the first word must differ.
                let zeroed = unsafe { kernels::check(cuda, buffer.address(), 1, 1) };
                let mut first = [1; 8];
                buffer.read(0, &mut first).expect("inside");
                assert_eq!((zeroed, first), (Some(0), [0; 8]));
                let seed = len as u64;
                fill(cuda, &mut buffer, seed);
                check(cuda, &buffer, seed);
                let checked = cuda.seconds();
                let end = buffer.len() - 3;
                buffer.write(end, b"end").expect("inside");
                let mut read = [0; 3];
                buffer.read(end, &mut read).expect("inside");
                assert_eq!(&read, b"end");
                fact(format_args!(
                    "{len} bytes: zeroed and exported in {:.1} ms, read by a kernel in {:.1} ms",
                    seconds * 1e3,
                    checked * 1e3
                ));
            }
        });
    });
}

fn size_of(dmabuf: BorrowedFd<'_>) -> u64 {
    let mut file = File::from(dmabuf.try_clone_to_owned().expect("a descriptor"));
    file.seek(SeekFrom::End(0))
        .expect("the size of the dma-buf")
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn buffers_are_freed_in_every_order() {
    const SIZES: [usize; 4] = [1, 64 * KIB, MIB, 3 * MIB];
    on_gpu("buffers_are_freed_in_every_order", |cuda| {
        without_leak(cuda, |gpu| {
            let mut orders = 0;
            for order in 0..256_usize {
                let order = [order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6];
                if (0..4).any(|index| !order.contains(&index)) {
                    continue;
                }
                orders += 1;
                let mut buffers: Vec<Option<GpuBuffer>> = Vec::new();
                for (seed, len) in (0..).zip(SIZES) {
                    let mut buffer = gpu.alloc(len).expect("memory");
                    fill(cuda, &mut buffer, seed);
                    buffers.push(Some(buffer));
                }
                for index in order {
                    buffers[index] = None;
                    for (seed, buffer) in (0..).zip(&buffers) {
                        if let Some(buffer) = buffer {
                            check(cuda, buffer, seed);
                        }
                    }
                }
            }
            assert_eq!(orders, 24);
        });
    });
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn exhausted_memory_is_an_error_with_a_remedy() {
    on_gpu("exhausted_memory_is_an_error_with_a_remedy", |cuda| {
        without_leak(cuda, |gpu| {
            let (free, _) = cuda.memory();
            let len = usize::try_from(free / 8).expect("64 bits");
            let mut buffers = Vec::new();
            let error = loop {
                match gpu.alloc(len) {
                    Ok(buffer) => buffers.push(buffer),
                    Err(error) => break error,
                }
                assert!(buffers.len() <= 8, "more memory than there is");
            };
            assert!(
                error.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"),
                "{error}"
            );
            assert!(
                error.help().is_some_and(|help| help.contains("smaller")),
                "{error}"
            );
            fact(format_args!(
                "exhausted after {} buffers of {len} bytes: {error}",
                buffers.len()
            ));
            // The others are still usable.
            let last = buffers.last_mut().expect("at least one");
            fill(cuda, last, 3);
            check(cuda, last, 3);
            for len in [usize::MAX, usize::MAX - 64 * KIB, isize::MAX as usize] {
                let error = gpu.alloc(len).expect_err("too large");
                assert!(error.to_string().contains(&len.to_string()[..4]), "{error}");
            }
        });
    });
}

/// Returns the reason why the processor cannot map a dma-buf. `None`: it can.
fn unmappable(dmabuf: BorrowedFd<'_>) -> Option<Error> {
    let (len, both) = (64 * KIB, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping, which is removed without an access.
    unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            len,
            both,
            libc::MAP_SHARED,
            dmabuf.as_raw_fd(),
            0,
        );
        if start == libc::MAP_FAILED {
            return Some(Error::last_os_error());
        }
        libc::munmap(start, len);
    }
    None
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn memory_is_exported_in_every_way_of_the_driver() {
    on_gpu("memory_is_exported_in_every_way_of_the_driver", |cuda| {
        without_leak(cuda, |gpu| {
            let buffer = gpu.alloc(MIB).expect("memory");
            let address = buffer.address();
            let describe = |result: Result<(), CudaError>| {
                result.map_or_else(|error| cuda.name_of(error), |()| "yes".to_owned())
            };
            let export = |address, len, flags| cuda.export(address, len, flags).map(drop);
            assert_eq!(export(address, MIB as u64, 0), Ok(()));
            // A second dma-buf of the same memory, and one of a part.
            assert_eq!(export(address + PAGE, PAGE, 0), Ok(()));
            for (what, address, len) in [
                ("an address within a page", address + 512, PAGE),
                ("a length within a page", address, 100),
                ("no bytes", address, 0),
            ] {
                let result = export(address, len, 0);
                assert_eq!(result, Err(CudaError::INVALID_VALUE), "{what}");
            }
            fact(format_args!(
                "dma-buf over PCIe (flag 1): {}",
                describe(export(address, PAGE, 1))
            ));
            match unmappable(buffer.dmabuf()) {
                Some(error) => fact(format_args!("the processor cannot map a dma-buf: {error}")),
                None => fact("the processor can map a dma-buf"),
            }
            match cuda.map_virtual(2) {
                None => fact("virtual memory management: not in this libcuda"),
                Some(Err(error)) => {
                    panic!("virtual memory management: {}", cuda.name_of(error));
                }
                Some(Ok(memory)) => {
                    let (address, len) = (memory.address(), memory.granularity());
                    // SAFETY: the memory is mapped, and nothing else uses it.
                    let mismatch = unsafe {
                        kernels::fill(cuda, address, 2 * len / WORD, 5);
                        kernels::check(cuda, address, 2 * len / WORD, 5)
                    };
                    assert_eq!(mismatch, None);
                    let mut bytes = [0; 16];
                    cuda.read(address, &mut bytes).expect("mapped");
                    assert_eq!(bytes[..], kernels::bytes(5, 16));
                    let one = cuda.export(address, len, 0).expect("one allocation");
                    assert_eq!(size_of(one.as_fd()), len);
                    let both = cuda
                        .export(address, 2 * len, 0)
                        .map(|fd| size_of(fd.as_fd()));
                    fact(format_args!(
                        "virtual memory management, granularity {len}: exported; over two \
                         allocations: {}",
                        describe(both.map(drop))
                    ));
                }
            }
        });
    });
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn memory_of_an_open_dma_buf_is_freed_when_it_is_closed() {
    on_gpu(
        "memory_of_an_open_dma_buf_is_freed_when_it_is_closed",
        |cuda| {
            without_leak(cuda, |gpu| {
                let buffer = gpu.alloc(8 * MIB).expect("memory");
                let (used, _) = cuda.memory();
                let dmabuf = buffer.dmabuf().try_clone_to_owned().expect("a descriptor");
                drop(buffer);
                let (freed, _) = cuda.memory();
                fact(format_args!(
                    "a freed buffer with an open dma-buf {} its memory",
                    if freed == used {
                        "keeps"
                    } else {
                        "does not keep"
                    }
                ));
                assert_eq!(size_of(dmabuf.as_fd()), 8 * MIB as u64);
            });
        },
    );
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn accesses_outside_of_a_buffer_are_refused() {
    on_gpu("accesses_outside_of_a_buffer_are_refused", |cuda| {
        without_leak(cuda, |gpu| {
            let mut buffer = gpu.alloc(1).expect("memory");
            let len = buffer.len();
            for (offset, count) in [(len, 1), (len - 1, 2), (u64::MAX, 1), (0, 64 * KIB + 1)] {
                let mut bytes = vec![0; count];
                let read = buffer.read(offset, &mut bytes).expect_err("outside");
                let write = buffer.write(offset, &bytes).expect_err("outside");
                for error in [read, write] {
                    assert!(error.to_string().contains("has 65536 bytes"), "{error}");
                }
            }
            buffer.write(len, &[]).expect("no bytes");
        });
    });
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn second_process_uses_the_gpu_at_the_same_time() {
    const NAME: &str = "second_process_uses_the_gpu_at_the_same_time";
    const CHILD: &str = "GPU_TESTS_SECOND";
    on_gpu(NAME, |cuda| {
        if std::env::var_os(CHILD).is_some() {
            let gpu = gpu();
            let mut buffers: Vec<GpuBuffer> = (0..8)
                .map(|_| gpu.alloc(4 * MIB).expect("memory"))
                .collect();
            for round in 0..20 {
                for (index, buffer) in (0..).zip(&mut buffers) {
                    fill(cuda, buffer, round * 100 + index);
                }
                for (index, buffer) in (0..).zip(&buffers) {
                    check(cuda, buffer, round * 100 + index);
                }
            }
            // The process ends with the memory, whose dma-bufs the kernel closes.
            std::process::exit(0);
        }
        let gpu = gpu();
        let mut buffer = gpu.alloc(32 * MIB).expect("memory");
        let (before, _) = cuda.memory();
        fill(cuda, &mut buffer, 77);
        let second =
            std::thread::spawn(|| process::output(process::ignored_test(NAME).env(CHILD, "1")));
        while !second.is_finished() {
            check(cuda, &buffer, 77);
            fill(cuda, &mut buffer, 77);
        }
        let output = second.join().expect("no panic");
        assert!(output.success(), "{output}");
        check(cuda, &buffer, 77);
        let returned = process::wait_until(process::TIMEOUT, || cuda.memory().0 == before);
        assert!(
            returned,
            "{before} bytes were free, now {}",
            cuda.memory().0
        );
    });
}

#[test]
#[ignore = "needs a GPU or its model: run by ci/gpu or ci/lab"]
fn missing_gpus_are_named_with_a_remedy() {
    const NAME: &str = "missing_gpus_are_named_with_a_remedy";
    const CHILD: &str = "GPU_TESTS_NONE";
    if std::env::var_os(CHILD).is_some() {
        let error = Gpu::cuda(0).expect_err("no GPU");
        assert!(
            error.to_string().contains("CUDA_ERROR_NO_DEVICE"),
            "{error}"
        );
        assert!(
            error.help().is_some_and(|help| help.contains("nvidia-smi")),
            "{error}"
        );
        return;
    }
    on_gpu(NAME, |_| {
        for number in [64, u32::MAX] {
            let error = Gpu::cuda(number).expect_err("no such GPU");
            let text = error.to_string();
            assert!(
                text.contains(&format!("no GPU cuda:{number}; available: cuda:0")),
                "{text}"
            );
        }
        let mut hidden = process::ignored_test(NAME);
        let hidden = hidden
            .env(CHILD, "1")
            .env("CUDA_VISIBLE_DEVICES", "")
            .env("CUDA_MODEL_GPUS", "0");
        let output = process::output(hidden);
        assert!(output.success(), "{output}");
    });
}
