//! Memory that values of the caller own, and a pool that grows, on the fake device.

use std::sync::Arc;

use crate::fixture::{self, Aligned, Owner, PROFILES, Pair, Words, pairs};
use fake_provider::{Profile, Verb};
use ibverbs::mr::GrowingPool;
use ibverbs::{AccessFlags, ErrorKind, Frozen, wr};

#[test]
fn values_of_every_kind_are_sent_without_a_copy() {
    for mut pair in pairs(PROFILES) {
        let (vec, shared) = (b"vector".to_vec(), Arc::<[u8]>::from(&b"shared"[..]));
        let addresses = [vec.as_ptr(), shared.as_ptr()];
        let values: Vec<(Frozen, &[u8])> = vec![
            (pair.pd.frozen_from(vec).expect("vector"), b"vector"),
            (
                pair.pd.frozen_from(Arc::clone(&shared)).expect("shared"),
                b"shared",
            ),
            (
                pair.pd
                    .frozen_from(b"boxed".to_vec().into_boxed_slice())
                    .expect("box"),
                b"boxed",
            ),
            (pair.pd.frozen_from(*b"array").expect("array"), b"array"),
            (pair.pd.frozen_from("static").expect("static"), b"static"),
            (
                pair.pd.frozen_from(String::from("text")).expect("text"),
                b"text",
            ),
        ];
        for (address, (value, _)) in addresses.into_iter().zip(&values) {
            assert_eq!(address, value.as_ptr(), "copied");
        }
        for (value, expected) in values {
            pair.post_recvs(1);
            assert!(value == *expected && value.remote().is_none());
            let held = pair.a.hold(&value).expect("hold");
            drop(value);
            pair.a.post_send(wr::send(held)).expect("send");
            let received = pair.retire().1.remove(0);
            assert_eq!(fixture::buf_bytes(received), *expected);
            assert!(pair.a.release(held).expect("own token"));
        }
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}

#[test]
fn a_value_is_dropped_after_its_requests() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(1);
        let alive = Arc::new(());
        let owner = Owner(b"value".to_vec(), Arc::clone(&alive));
        let frozen = pair.pd.frozen_from(owner).expect("frozen");
        let held = pair.a.hold(&frozen).expect("hold");
        let frozen = frozen.try_into_owner::<Owner>().expect_err("it is held");
        drop(frozen);
        pair.fake.stall();
        pair.a.post_send(wr::send(held)).expect("send");
        assert!(!pair.a.release(held).expect("own token"));
        assert_eq!(Arc::strong_count(&alive), 2);
        pair.fake.resume();
        drop(pair.retire());
        assert!(pair.a.release(held).expect("own token"));
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

#[test]
fn a_value_comes_back_with_its_last_reference() {
    for pair in pairs(PROFILES) {
        let vec = b"value".to_vec();
        let address = vec.as_ptr();
        let frozen = pair.pd.frozen_from(vec).expect("frozen");
        let clone = frozen.clone();
        let frozen = frozen.try_into_owner::<Vec<u8>>().expect_err("a clone");
        drop(clone);
        let frozen = frozen.try_into_owner::<String>().expect_err("another type");
        pair.fake.fail_next(Verb::DeregMr, 16);
        let frozen = frozen
            .try_into_owner::<Vec<u8>>()
            .expect_err("still registered");
        let frozen = frozen.try_thaw().expect_err("not a buffer");
        assert_eq!(frozen, b"value");
        let vec = frozen
            .try_into_owner::<Vec<u8>>()
            .expect("the last reference");
        assert_eq!((vec.as_ptr(), &vec[..]), (address, &b"value"[..]));
        let buf = pair.buf(b"pool").freeze();
        drop(
            buf.try_into_owner::<Vec<u8>>()
                .expect_err("not from a value"),
        );
    }
}

#[test]
fn a_message_is_received_into_a_vector() {
    for mut pair in pairs(PROFILES) {
        let mut vec = vec![7; 64];
        vec.reserve_exact(100);
        let (address, capacity) = (vec.as_ptr(), vec.capacity());
        let buf = pair.pd.buf_from(vec).expect("buffer");
        assert_eq!((buf.len(), buf.capacity(), buf[63]), (64, 64, 7));
        pair.b.post_recv(wr::recv(buf)).expect("receive");
        pair.a
            .post_send(wr::send(wr::Inline(b"message")))
            .expect("send");
        let received = pair.retire().1.remove(0);
        received.check().expect("received");
        let buf = received.into_buf().expect("posted with a buffer");
        pair.fake.fail_next(Verb::DeregMr, 16);
        let buf = buf.try_into_vec().expect_err("still registered");
        assert_eq!(buf, b"message");
        let vec = buf.try_into_vec().expect("registered from a vector");
        assert_eq!(vec, b"message");
        assert_eq!((vec.as_ptr(), vec.capacity()), (address, capacity));
        // A buffer that is dropped frees its vector.
        drop(pair.pd.buf_from(vec).expect("buffer"));
        let other = pair.buf(b"other");
        let taken = pair.buf(b"pool").try_into_vec().expect_err("of a pool");
        assert_eq!((&other[..], &taken[..]), (&b"other"[..], &b"pool"[..]));
        let single = pair.pd.buf(8).expect("buffer");
        assert_eq!(
            single.try_into_vec().expect_err("not from a vector").len(),
            8
        );
    }
}

#[test]
fn peers_write_into_a_value_without_a_copy() {
    for mut pair in pairs(PROFILES) {
        let alive = Arc::new(());
        let owner = Words(Box::new(Aligned([7; 64])), Arc::clone(&alive));
        let address = owner.0.0.as_ptr() as u64;
        let access = AccessFlags::REMOTE_WRITE;
        let region = pair.pd.shared_from(owner, access).expect("region");
        let remote = region.remote();
        assert_eq!((remote.addr, remote.len), (address, 64), "copied");
        let place = remote.slice(8..13).expect("in range");
        let write = wr::write(wr::Inline(b"hello"), place);
        pair.a.post_send(write).expect("write");
        drop(pair.retire());
        let mut bytes = [0; 16];
        region.read(0, &mut bytes).expect("in range");
        assert_eq!(&bytes, b"\x07\x07\x07\x07\x07\x07\x07\x07hello\x07\x07\x07");
        let held = pair.b.hold(&region).expect("hold");
        drop(region);
        assert_eq!(Arc::strong_count(&alive), 2, "the queue pair holds it");
        assert!(pair.b.release(held).expect("own token"));
        assert_eq!(Arc::strong_count(&alive), 1);
        for bytes in [vec![], vec![0; 12]] {
            let error = pair.pd.shared_from(bytes, access).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
    }
}

#[test]
fn values_without_bytes_and_refused_ones_are_errors() {
    let pair = Pair::new(Profile::RXE);
    let error = pair.pd.frozen_from(Vec::new()).expect_err("no bytes");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(pair.pd.buf_from(Vec::new()).is_err());
    let alive = Arc::new(());
    let owner = || Owner(vec![1], Arc::clone(&alive));
    pair.fake.fail_next(Verb::RegMr, 14);
    let error = pair.pd.frozen_from(owner()).expect_err("refused");
    assert!(
        error
            .help()
            .is_some_and(|help| help.contains("frozen_from")),
        "{error}"
    );
    assert_eq!(Arc::strong_count(&alive), 1, "dropped");
}

#[test]
fn a_growing_pool_registers_up_to_its_limit_and_shrinks() {
    let pair = Pair::new(Profile::RXE);
    let before = pair.fake.live().mrs;
    let mut pool = GrowingPool::new(&pair.pd, 4, 64, 10);
    assert!(pool.is_empty() && pool.buf_size() == 64);
    let take = |pool: &mut GrowingPool| pool.take().expect("no error");
    let mut bufs: Vec<_> = std::iter::from_fn(|| take(&mut pool)).collect();
    assert_eq!((bufs.len(), pool.len(), pool.available()), (10, 10, 0));
    assert_eq!(pair.fake.live().mrs, before + 3);
    // The first pool has a free buffer, which is found.
    drop(bufs.remove(0));
    bufs.push(take(&mut pool).expect("a free buffer"));
    assert!(take(&mut pool).is_none());
    // Those of the second pool.
    drop(bufs.drain(3..7));
    pool.shrink();
    assert_eq!((pool.len(), pool.available()), (6, 0));
    assert_eq!(pair.fake.live().mrs, before + 2);
    drop(bufs);
    assert!(!pool.is_empty());
    assert_eq!(pool.available(), 6);
    pool.shrink();
    assert_eq!((pool.len(), pair.fake.live().mrs), (0, before));
    pair.fake.fail_next(Verb::RegMr, libc::EIO);
    let error = pool.take().expect_err("refused");
    assert_eq!(error.errno(), Some(ibverbs::Errno(libc::EIO)));
    drop(pool.take().expect("registered").expect("a buffer"));
}
