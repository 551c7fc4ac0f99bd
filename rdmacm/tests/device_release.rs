//! Release of held memory while the connection lives.

#![allow(unsafe_code)]

mod lab;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ibverbs::mr::{Backing, CallerMemory};
use ibverbs::{AccessFlags, MemoryOptions, PostError, wr};
use lab::{assert_no_leaks, one_endpoint_each};

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
    for endpoint in one_endpoint_each() {
        println!("device: {}", endpoint.name());
        assert_no_leaks(&endpoint, || {
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
                received.ok().expect("received");
                assert_eq!(*received.into_buf().expect("posted"), [number; 64]);
                a.retire().ok().expect("sent");
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
            assert_eq!(b.retire().byte_len(), 4, "an older token is valid");
            a.retire().ok().expect("sent");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_released_region_is_read_until_its_requests_complete() {
    const REMOTE: AccessFlags = AccessFlags::REMOTE_WRITE;
    for endpoint in one_endpoint_each() {
        println!("device: {}", endpoint.name());
        assert_no_leaks(&endpoint, || {
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
                    a.retire().ok().expect("written");
                }
                assert!(a.connection.qp_mut().release(held).expect("own token"));
                let mut seen = vec![0; LEN];
                a.send(b"written");
                let received = b.retire();
                received.ok().expect("received");
                b.receive();
                target.read(0, &mut seen).expect("in range");
                assert!(seen.iter().all(|&byte| byte == fill), "{fill}");
                a.retire().ok().expect("sent");
            }
        });
    }
}
