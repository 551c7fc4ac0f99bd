//! Memory of the device and dma-bufs: their regions, bounds and rights.

#![allow(unsafe_code, reason = "creates a file in memory")]

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, FromRawFd};

use crate::fixture::{Fake, PROFILES, Pair, buf_bytes, open, small};
use fake_provider::Profile;
use ibverbs::{AccessFlags, CqOptions, ErrorKind, MemoryOptions, Rc, SrqOptions, WcStatus, wr};

const REMOTE_RW: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

/// Connects two queue pairs of a device that has memory.
fn pair(profile: Profile) -> Pair {
    Pair::new(Profile {
        more_verbs: true,
        ..profile
    })
}

#[test]
fn requests_and_peers_use_device_memory_until_the_last_one() {
    for profile in PROFILES {
        let mut pair = pair(profile);
        let memory = pair.context.alloc_dm(64, 3).expect("memory");
        memory.write(8, b"from the device").expect("in bounds");
        let region = pair.pd.reg_dm(&memory, 8, 48, REMOTE_RW).expect("region");
        assert_eq!(region.len(), 48);
        let remote = region.remote().expect("peers have access");
        assert_eq!((remote.addr, remote.len), (0, 48));
        let held = pair.a.hold(&region).expect("hold");
        assert_eq!(held.len(), 48);
        pair.post_recvs(1);
        let text = held.slice(0..15).expect("in range");
        pair.a.post_send(wr::send(text)).expect("send");
        let (_, mut received) = pair.retire();
        assert_eq!(buf_bytes(received.remove(0)), b"from the device");
        let target = remote.slice(9..15).expect("in range");
        let write = wr::write(wr::Inline(b"a peer"), target);
        pair.b.post_send(write).expect("write");
        drop(pair.retire());
        let buf = pair.pool.take().expect("a free buffer");
        let source = remote.slice(0..15).expect("in range");
        pair.b.post_send(wr::read(buf, source)).expect("read");
        let (_, mut read) = pair.retire();
        assert_eq!(buf_bytes(read.remove(0)), b"from the a peer");
        let mut seen = [0; 17];
        memory.read(7, &mut seen).expect("in bounds");
        assert_eq!(&seen, b"\0from the a peer\0");
        drop((region, memory));
        assert_eq!(pair.fake.live().dms, 1, "the queue pair holds the region");
    }
}

#[test]
fn memory_without_functions_cannot_be_copied() {
    let fake = Fake::new(Profile {
        more_verbs: true,
        unset: &["memcpy_to_dm", "memcpy_from_dm"],
        ..Profile::RXE
    });
    let context = open(&fake);
    let memory = context.alloc_dm(64, 0).expect("memory");
    for copied in [memory.write(0, &[1; 8]), memory.read(0, &mut [0; 8])] {
        let error = copied.expect_err("no function");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error
                .help()
                .expect("help")
                .contains("let the device access it")
        );
    }
    let error = memory.write(60, &[1; 8]).expect_err("out of bounds");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let pd = context.alloc_pd().expect("protection domain");
    let _region = pd.reg_dm(&memory, 0, 64, REMOTE_RW).expect("region");
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot map files")]
fn requests_and_peers_use_a_dma_buf() {
    for profile in PROFILES {
        let mut pair = pair(profile);
        // SAFETY: the name ends with NUL, and the descriptor has no other owner.
        let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"dma-buf".as_ptr(), 0)) };
        file.write_all(b"some bytes of another device")
            .expect("write");
        let region = pair.pd.reg_dmabuf(file.as_fd(), 5, 16, REMOTE_RW);
        let region = region.expect("region");
        let held = pair.a.hold(&region).expect("hold");
        pair.post_recvs(1);
        let text = held.slice(0..5).expect("in range");
        pair.a.post_send(wr::send(text)).expect("send");
        let (_, mut received) = pair.retire();
        assert_eq!(buf_bytes(received.remove(0)), b"bytes");
        let remote = region.remote().expect("peers have access");
        let write = wr::write(wr::Inline(b"BYTES"), remote.slice(0..5).expect("in range"));
        pair.b.post_send(write).expect("write");
        let (_, written) = pair.retire();
        written[0].check().expect("written");
        pair.b.post_recv(wr::recv(held)).expect_err("of the other");
        let held = pair.b.hold(&region).expect("hold");
        let end = held.slice(5..16).expect("in range");
        pair.b.post_recv(wr::recv(end)).expect("receive");
        let send = wr::send(wr::Inline(b" RECEIVED"));
        pair.a.post_send(send).expect("send");
        let (_, received) = pair.retire();
        received[0].check().expect("received");
        let mut seen = String::new();
        file.rewind().expect("rewind");
        file.read_to_string(&mut seen).expect("read");
        assert_eq!(seen, "some BYTES RECEIVEDer device");
    }
}

/// libmlx5 accesses the bytes of the host as words.
#[test]
fn bytes_of_any_alignment_are_copied_to_and_from_device_memory() {
    let pair = pair(Profile::RXE);
    let memory = pair.context.alloc_dm(16, 3).expect("memory");
    let words = *b"0123456789abcdef";
    for start in 0..4 {
        let (from, mut into) = (&words[start..start + 8], [0; 12]);
        memory.write(4, from).expect("in bounds");
        let into = &mut into[start..start + 8];
        memory.read(4, into).expect("in bounds");
        assert_eq!(into, from, "at {start}");
    }
}

/// A provider that copies to the address of an entry would copy to any memory of the process.
#[test]
fn addresses_of_a_device_need_a_queue_that_was_created_for_them() {
    let fake = Fake::new(Profile {
        more_verbs: true,
        ..Profile::RXE
    });
    let context = open(&fake);
    let pd = context.alloc_pd().expect("domain");
    let cq = context.create_cq(CqOptions::new().depth(15)).expect("cq");
    let memory = context.alloc_dm(64, 0).expect("memory");
    let device = pd.reg_dm(&memory, 0, 64, REMOTE_RW).expect("region");
    let zero_based = MemoryOptions::new().zero_based(true);
    let zero_based = pd.shared_with(64, REMOTE_RW, zero_based).expect("region");
    let shared = pd.shared(64, REMOTE_RW).expect("region");
    for allowed in [false, true] {
        let options = small().device_addresses(allowed);
        let mut qp = pd.create_qp::<Rc>(&cq, &cq, options).expect("qp");
        let options = SrqOptions::new().device_addresses(allowed);
        let mut srq = pd.create_srq(options).expect("srq");
        let mut errors = vec![
            qp.hold(&device).err(),
            qp.hold(&zero_based).err(),
            srq.hold(&device).err(),
            srq.hold(&zero_based).err(),
        ];
        assert!(errors.iter().all(|error| error.is_none() == allowed));
        for error in errors.drain(..).flatten() {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(
                error
                    .help()
                    .is_some_and(|help| help.contains("device_addresses"))
            );
        }
        qp.hold(&shared).expect("an address of this process");
        srq.hold(&shared).expect("an address of this process");
    }
}

#[test]
fn each_held_region_of_device_memory_stays_registered() {
    let mut pair = pair(Profile::RXE);
    let memory = pair.context.alloc_dm(64, 0).expect("memory");
    let before = pair.fake.live().mrs;
    for count in 1..=2 {
        let region = pair.pd.reg_dm(&memory, 0, 64, REMOTE_RW).expect("region");
        for _ in 0..2 {
            assert!(!pair.a.hold(&region).expect("hold").is_empty());
        }
        drop(region);
        assert_eq!(pair.fake.live().mrs, before + count);
    }
}

#[test]
fn a_region_of_device_memory_has_bounds_rights_and_one_device() {
    let mut pair = pair(Profile::RXE);
    let memory = pair.context.alloc_dm(64, 0).expect("memory");
    for (offset, len) in [(0, 65), (60, 5), (u64::MAX, 1)] {
        let error = pair.pd.reg_dm(&memory, offset, len, REMOTE_RW);
        let error = error.expect_err("out of bounds");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    let other = open(&pair.fake).alloc_pd().expect("protection domain");
    let error = other
        .reg_dm(&memory, 0, 8, REMOTE_RW)
        .expect_err("of another context");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    drop(other);
    let local = pair
        .pd
        .reg_dm(&memory, 0, 8, AccessFlags::empty())
        .expect("region");
    assert_eq!(local.remote(), None);
    // The device itself may write to it.
    let held = pair.b.hold(&local).expect("hold");
    pair.b.post_recv(wr::recv(held)).expect("receive");
    pair.a
        .post_send(wr::send(wr::Inline(b"received")))
        .expect("send");
    let (_, received) = pair.retire();
    assert_eq!(received[0].status(), WcStatus::SUCCESS);
    let mut seen = [0; 8];
    memory.read(0, &mut seen).expect("in bounds");
    assert_eq!(&seen, b"received");
}
