//! Release of held memory while the connection lives, and memory of values that the program owns.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ibverbs::mr::{Backing, CallerMemory};
use ibverbs::{AccessFlags, MemoryOptions, PostError, wr};

use crate::lab::{leak_checked, one_endpoint_each};

const LEN: usize = 1 << 20;

/// Tells that the library has dropped the memory.
struct Freed(Vec<u8>, Arc<AtomicBool>);

impl Drop for Freed {
    fn drop(&mut self) {
        self.0.clear();
        self.1.store(true, Ordering::Release);
    }
}

/// Returns memory, and a flag that is `true` once it is freed.
fn memory(fill: u8) -> (CallerMemory, Arc<AtomicBool>) {
    let is_freed = Arc::new(AtomicBool::new(false));
    let mut bytes = vec![fill; LEN];
    let start = NonNull::from(&mut bytes[..]).cast();
    // SAFETY: the vector is only used to free the memory, when the library drops it.
    let memory = unsafe { CallerMemory::new(start, LEN, Freed(bytes, is_freed.clone())) };
    (memory, is_freed)
}

/// A cache of registered memory: each region is held, sent once, and released.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn released_memory_is_freed_while_the_connection_lives() {
    for endpoint in leak_checked(one_endpoint_each()) {
        println!("device: {}", endpoint.name());
        let (mut a, mut b) = endpoint.pair();
        let (mut next, kept) = (b.resources.pd.buf(64), a.resources.pd.buf(4));
        let kept = kept.expect("buffer").freeze();
        let kept = a.connection.qp_mut().hold(&kept).expect("hold");
        for number in 0..16 {
            let (memory, is_freed) = memory(number);
            let options = MemoryOptions::new().backing(Backing::Caller(memory));
            let pool = a.resources.pd.pool_with(1, LEN, options).expect("pool");
            let frozen = pool.take().expect("a buffer").freeze();
            let qp = a.connection.qp_mut();
            let held = qp
                .hold(&frozen)
                .expect("hold")
                .slice(0..64)
                .expect("in range");
            drop((pool, frozen));
            qp.post_send(wr::send(held)).expect("send");
            let mut is_released = qp.release(held).expect("own token");
            let error = qp.post_send(wr::send(held)).expect_err("released").error();
            assert_eq!(error, PostError::WrongQueue);
            assert!(!is_freed.load(Ordering::Acquire), "a request is in flight");
            assert!(!is_released, "a request is in flight");
            let received = b.retire();
            received.check().expect("received");
            assert_eq!(*received.into_buf().expect("posted"), [number; 64]);
            a.retire().check().expect("sent");
            is_released |= a.connection.qp_mut().release(held).expect("own token");
            assert!(is_released && is_freed.load(Ordering::Acquire), "{number}");
            let buf = std::mem::replace(&mut next, b.resources.pd.buf(64));
            let qp = b.connection.qp_mut();
            qp.post_recv(wr::recv(buf.expect("buffer")))
                .expect("receive");
        }
        a.connection
            .qp_mut()
            .post_send(wr::send(kept))
            .expect("send");
        assert_eq!(b.retire().received_len(), 4, "an older token is valid");
        a.retire().check().expect("sent");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_released_region_is_read_until_its_requests_complete() {
    const REMOTE: AccessFlags = AccessFlags::REMOTE_WRITE;
    for endpoint in leak_checked(one_endpoint_each()) {
        println!("device: {}", endpoint.name());
        let (mut a, mut b) = endpoint.pair_with_access(REMOTE);
        let target = b.resources.pd.shared(LEN, REMOTE).expect("region");
        for fill in 1..=8 {
            let region = a
                .resources
                .pd
                .shared(LEN, AccessFlags::empty())
                .expect("region");
            region.write(0, &vec![fill; LEN]).expect("in range");
            let qp = a.connection.qp_mut();
            let held = qp.hold(&region).expect("hold");
            drop(region);
            for _ in 0..4 {
                qp.post_send(wr::write(held, target.remote()))
                    .expect("write");
            }
            let _ = qp.release(held).expect("own token");
            for _ in 0..4 {
                a.retire().check().expect("written");
            }
            assert!(a.connection.qp_mut().release(held).expect("own token"));
            let mut seen = vec![0; LEN];
            a.send(b"written");
            let received = b.retire();
            received.check().expect("received");
            b.receive();
            target.read(0, &mut seen).expect("in range");
            assert!(seen.iter().all(|&byte| byte == fill), "{fill}");
            a.retire().check().expect("sent");
        }
    }
}

/// A file that is mapped for reading only.
struct Mapping(NonNull<libc::c_void>, usize);

// SAFETY: plain memory that is only read.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(file: &File, len: usize) -> Self {
        let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE);
        // SAFETY: a new mapping affects no other memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, read, private, file.as_raw_fd(), 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self(NonNull::new(start).expect("not null"), len)
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping has this length, and the file of the test does not change.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.1) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and unmapped once.
        unsafe { libc::munmap(self.0.as_ptr(), self.1) };
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn values_and_mapped_files_are_sent_and_received_without_a_copy() {
    const LEN: usize = 100_000;
    let numbers: Vec<u8> = (0..=255).cycle().take(LEN).collect();
    let path = std::env::temp_dir().join(format!("mapped-{}", std::process::id()));
    std::fs::write(&path, &numbers).expect("a file");
    let file = File::open(&path).expect("the file");
    std::fs::remove_file(&path).expect("the file");
    for endpoint in leak_checked(one_endpoint_each()) {
        println!("device: {}", endpoint.name());
        let (mut a, mut b) = endpoint.pair();
        a.send(b"takes the receive of the connection");
        drop((a.retire(), b.retire()));
        let pd = a.resources.pd.clone();
        let shared = Arc::<[u8]>::from(&numbers[..]);
        let values = [
            pd.frozen_from(numbers.clone()).expect("vector"),
            pd.frozen_from(Arc::clone(&shared)).expect("shared bytes"),
            pd.frozen_from(numbers.clone().into_boxed_slice())
                .expect("box"),
            pd.frozen_from(Mapping::new(&file, LEN)).expect("mapping"),
        ];
        for value in values {
            let into = vec![0; LEN];
            let address = into.as_ptr();
            let into = b.resources.pd.buf_from(into).expect("buffer");
            b.connection
                .qp_mut()
                .post_recv(wr::recv(into))
                .expect("receive");
            let qp = a.connection.qp_mut();
            let held = qp.hold(&value).expect("hold");
            drop(value);
            qp.post_send(wr::send(held)).expect("send");
            a.retire().check().expect("sent");
            assert!(a.connection.qp_mut().release(held).expect("own token"));
            let received = b.retire();
            received.check().expect("received");
            let received = received.into_buf().expect("posted with a buffer");
            let received = received.try_into_vec().expect("from a vector");
            assert_eq!(received.as_ptr(), address, "copied");
            assert!(received == numbers);
        }
        assert_eq!(Arc::strong_count(&shared), 1, "freed");
    }
}
