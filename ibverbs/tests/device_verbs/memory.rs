//! Memory of every class and source: registration, rejection, reclaim and release.

#![allow(
    unsafe_code,
    reason = "the tests create caller memory and change resource limits and capabilities"
)]

use std::ffi::c_char;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ibverbs::{
    AccessFlags, ErrorKind, MemoryOptions,
    mr::{Advice, Backing, CallerMemory, HugePageSize},
};

use crate::lab::{
    REMOTE_ACCESS, expect_unsupported, for_each_device, for_each_device_with, is_iwarp, is_mlx5,
    verb,
};

fn backed(backing: Backing) -> MemoryOptions {
    MemoryOptions::new().backing(backing)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn every_memory_class_registers_heap_and_pages() {
    for_each_device_with(&[verb::REMOTE_WRITE], |_, pd| {
        for backing in [|| Backing::Heap, || Backing::Pages] {
            let pool = pd.pool_with(3, 1000, backed(backing())).expect("pool");
            let mut buf = pool.take().expect("a free buffer");
            assert!(
                buf.len() == 1000 && buf.iter().all(|&byte| byte == 0),
                "zeroed"
            );
            buf.fill(1);
            pd.sink_with(5000, backed(backing())).expect("sink");
            let region = pd
                .shared_with(5001, REMOTE_ACCESS, backed(backing()))
                .expect("region");
            region.write(5000, &[7]).expect("the last byte");
            let frozen = pd
                .frozen_shared(5001, backed(backing()), |bytes| bytes.fill(9))
                .expect("frozen");
            assert!(frozen.len() == 5001 && frozen.iter().all(|&byte| byte == 9));
        }
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn huge_pages_are_used_or_the_help_says_how() {
    for_each_device(|_, pd| {
        for size in [HugePageSize::Mib2, HugePageSize::Gib1] {
            match pd.pool_with(2, size.bytes() / 4, backed(Backing::HugePages(size))) {
                Ok(pool) => {
                    println!("{size:?} pages are reserved");
                    pool.take().expect("a free buffer").fill(3);
                }
                Err(error) => {
                    assert_eq!(error.call(), "mmap", "{error}");
                    assert!(
                        error
                            .help()
                            .is_some_and(|hint| hint.contains("nr_hugepages")),
                        "{error}"
                    );
                }
            }
        }
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn region_in_huge_pages_registers() {
    // Reserves huge pages, if the kernel supports them.
    let setting = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    let before = std::fs::read_to_string(setting).ok();
    let reserved = before.is_some() && std::fs::write(setting, "4").is_ok();
    for_each_device_with(&[verb::REMOTE_WRITE], |_, pd| {
        let result = pd.shared_with(
            3 << 20,
            REMOTE_ACCESS,
            backed(Backing::HugePages(HugePageSize::Mib2)),
        );
        if reserved {
            let region = result.expect("registers");
            region.write((3 << 20) - 1, &[1]).expect("in range");
        } else {
            println!("no huge pages in this kernel");
            result.expect_err("no huge pages");
        }
    });
    if let Some(before) = before.filter(|_| reserved) {
        std::fs::write(setting, before).expect("restored");
    }
}

/// Names the test that leaks on purpose, for LeakSanitizer: memory that peers could read over
/// Soft-iWARP is never released.
#[unsafe(no_mangle)]
extern "C" fn __lsan_default_suppressions() -> *const c_char {
    c"leak:caller_memory_is_released_after_deregistration".as_ptr()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn caller_memory_is_released_after_deregistration() {
    for_each_device_with(&[verb::REMOTE_WRITE], |_, pd| {
        let arena = Box::into_raw(Box::new([0x5a_u8; 8192]));
        let start = NonNull::new(arena.cast::<u8>()).expect("allocated");
        let owner = Arc::new(());
        // SAFETY: the array never moves and is not used otherwise until the owner is dropped.
        let memory = |len| unsafe { CallerMemory::new(start, len, Arc::clone(&owner)) };
        let pool = pd
            .pool_with(2, 4096, backed(Backing::Caller(memory(8192))))
            .expect("pool");
        let buf = pool.take().expect("a free buffer");
        assert!(buf.iter().all(|&byte| byte == 0x5a), "unchanged");
        drop(pool);
        assert_eq!(Arc::strong_count(&owner), 2, "the buffer keeps it");
        drop(buf);
        assert_eq!(Arc::strong_count(&owner), 1);
        let error = pd
            .pool_with(3, 4096, backed(Backing::Caller(memory(8192))))
            .expect_err("too small");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = pd
            .shared_with(100, REMOTE_ACCESS, backed(Backing::Caller(memory(100))))
            .expect_err("not a multiple of 8 bytes");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(Arc::strong_count(&owner), 1);
        let caller = backed(Backing::Caller(memory(104)));
        pd.shared_with(104, AccessFlags::REMOTE_WRITE, caller)
            .expect("a multiple of 8 bytes");
        assert_eq!(Arc::strong_count(&owner), 1);
        let caller = backed(Backing::Caller(memory(104)));
        pd.shared_with(104, REMOTE_ACCESS, caller).expect("region");
        if is_iwarp(pd.context()) {
            // Peers could read it, so the device may still transmit it.
            assert_eq!(Arc::strong_count(&owner), 2, "never released");
            return;
        }
        assert_eq!(Arc::strong_count(&owner), 1);
        // SAFETY: the pointer is from `Box::into_raw` above, and no region of the memory is
        // registered.
        drop(unsafe { Box::from_raw(arena) });
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn read_only_caller_memory_is_rejected_with_a_reason() {
    for_each_device(|_, pd| {
        // SAFETY: a new mapping affects no other memory.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED);
        let start = NonNull::new(map.cast::<u8>()).expect("mapped");
        // SAFETY: the memory is mapped. It is not writable, but registration must detect that
        // before any write.
        let memory = unsafe { CallerMemory::new(start, 4096, ()) };
        let error = pd
            .sink_with(4096, backed(Backing::Caller(memory)))
            .expect_err("read-only");
        assert_eq!(
            error.errno().map(|errno| errno.0),
            Some(libc::EFAULT),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains("ProtectionDomain::frozen_from"), "{text}");
        // SAFETY: mapped above and not in use.
        unsafe { libc::munmap(map, 4096) };
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn remote_access_includes_local_write() {
    for_each_device_with(&[verb::REMOTE_WRITE], |_, pd| {
        for access in [
            AccessFlags::REMOTE_WRITE,
            AccessFlags::REMOTE_ATOMIC,
            AccessFlags::empty(),
        ] {
            let region = pd.shared(64, access).expect("region");
            assert_eq!(region.access(), access | AccessFlags::LOCAL_WRITE);
        }
        // Unknown bits are ignored.
        pd.shared(64, AccessFlags::from_bits_retain(1 << 7) | REMOTE_ACCESS)
            .expect("region");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn relaxed_ordering_is_ignored_and_odp_is_unsupported() {
    for_each_device_with(&[verb::REMOTE_WRITE], |_, pd| {
        let relaxed = MemoryOptions::new().relaxed_ordering(true);
        pd.pool_with(1, 64, relaxed)
            .expect("devices without support ignore it");
        expect_unsupported(pd.shared_with(64, REMOTE_ACCESS, MemoryOptions::new().on_demand(true)));
        let region = pd.shared(4096, REMOTE_ACCESS).expect("region");
        for advice in [
            Advice::PREFETCH,
            Advice::PREFETCH_WRITE,
            Advice::PREFETCH_NO_FAULT,
        ] {
            let error = region.advise(advice, true).expect_err("pinned memory");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(
                error.to_string().contains("is not registered for"),
                "{error}"
            );
        }
    });
}

/// Linux 7.3 supports it, but damages memory (fault 47 of `docs/drivers.md`).
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn odp_of_soft_roce_is_refused() {
    for_each_device_with(&[verb::REMOTE_WRITE], |context, pd| {
        let on_demand = MemoryOptions::new().on_demand(true);
        let error = pd.pool_with(1, 64, on_demand).expect_err("no support");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let refused = error.to_string().contains("damages memory");
        assert_eq!(refused, !is_iwarp(context) && !is_mlx5(context), "{error}");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn device_memory_works_or_is_unsupported() {
    for_each_device(|context, pd| {
        expect_unsupported(pd.null_region());
        let memory = context.alloc_dm(64, 3);
        if is_mlx5(context) {
            drop(memory.expect("device memory"));
        } else {
            expect_unsupported(memory);
        }
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn failed_rereg_returns_unchanged_region() {
    for_each_device(|context, pd| {
        let region = pd.shared(64, AccessFlags::REMOTE_READ).expect("region");
        region.write(0, b"kept").expect("in range");
        let clone = region.clone();
        let failed = region.rereg(REMOTE_ACCESS).expect_err("a clone exists");
        assert_eq!(failed.error().kind(), ErrorKind::Mismatch);
        drop(clone);
        let remote = failed
            .into_region()
            .map(|region| (region.remote(), region))
            .expect("unchanged");
        let (remote, region) = remote;
        let changed = region.rereg(REMOTE_ACCESS);
        if is_mlx5(context) {
            let region = changed.expect("supported");
            let mut kept = [0; 4];
            region.read(0, &mut kept).expect("in range");
            assert_eq!(&kept, b"kept");
            return;
        }
        let failed = changed.expect_err("unsupported by these drivers");
        assert_eq!(failed.error().kind(), ErrorKind::Unsupported, "{failed}");
        let region = failed.into_region().expect("unchanged");
        assert_eq!(region.remote(), remote);
        let mut kept = [0; 4];
        region.read(0, &mut kept).expect("in range");
        assert_eq!(&kept, b"kept");
    });
}

/// Runs `test` with a limit on locked memory for the calling thread.
fn with_locked_memory_of(bytes: u64, test: impl FnOnce()) {
    const CAP_IPC_LOCK: u32 = 14;
    let mut before = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let mut header = [0x2008_0522_u32, 0];
    // Effective, permitted and inheritable capabilities: 0 to 31, and from 32.
    let mut data = [[0_u32; 3]; 2];
    // SAFETY: the structures are in this frame and have the layout that the kernel documents.
    // Capabilities are changed for this thread only.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut before), 0);
        let limit = libc::rlimit {
            rlim_cur: bytes,
            ..before
        };
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit), 0);
        assert_eq!(
            libc::syscall(libc::SYS_capget, header.as_mut_ptr(), data.as_mut_ptr()),
            0
        );
        data[0][0] &= !(1 << CAP_IPC_LOCK);
        assert_eq!(
            libc::syscall(libc::SYS_capset, header.as_mut_ptr(), data.as_ptr()),
            0
        );
    }
    test();
    data[0][0] |= 1 << CAP_IPC_LOCK;
    // SAFETY: as above; the capability is still permitted.
    unsafe {
        assert_eq!(
            libc::syscall(libc::SYS_capset, header.as_mut_ptr(), data.as_ptr()),
            0
        );
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const before), 0);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn locked_memory_limit_is_shown_in_the_error() {
    for_each_device(|_, pd| {
        with_locked_memory_of(64 << 10, || {
            let error = pd.pool(1, 1 << 20).expect_err("more than the limit");
            assert_eq!(error.kind(), ErrorKind::LockedMemory, "{error}");
            assert!(error.to_string().contains("64 KiB"), "{error}");
            pd.pool(1, 4096).expect("within the limit");
        });
    });
}
