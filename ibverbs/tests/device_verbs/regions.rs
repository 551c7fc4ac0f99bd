//! Shared regions: remote access, slices, and conversion to buffers.

use std::sync::atomic::Ordering;

use ibverbs::{AccessFlags, ErrorKind, MemoryOptions, QpOptions, Rc, RemoteMemory, WcStatus, wr};

use crate::lab::{
    self, REMOTE_ACCESS, devices_with, expect_unsupported, for_each_device_with, is_iwarp,
    pair_with_access, roce, roce_paths, verb,
};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn shared_region_converts_to_buf_only_when_unreachable() {
    for_each_device_with(&[verb::RC], |context, pd| {
        // What peers could read on an iWARP device cannot be converted.
        let access = if is_iwarp(context) {
            AccessFlags::REMOTE_WRITE
        } else {
            REMOTE_ACCESS
        };
        let region = pd.shared(5000, access).expect("region");
        region.write(4990, b"kept").expect("in range");
        let cq = lab::cq(context);
        let mut qp = lab::qp::<Rc>(pd, &cq);
        qp.hold(&region).expect("hold");
        let failed = region.try_into_buf().expect_err("a queue pair is alive");
        assert!(
            failed
                .to_string()
                .contains("1 queue pairs of its protection domain"),
            "{failed}"
        );
        drop(qp);
        let region = failed.into_region();
        let slice = region.slice(10..20).expect("in range");
        let failed = region.try_into_buf().expect_err("a slice shares it");
        assert_eq!(failed.error().kind(), ErrorKind::Mismatch);
        drop(failed.into_region());
        let buf = slice
            .try_into_buf()
            .expect("the last reference, and no queue pair");
        assert_eq!(buf.len(), 5000, "the whole region");
        assert_eq!(&buf[4990..4994], b"kept");
        // A region without remote access can be converted while a queue pair exists.
        let _qp = lab::qp::<Rc>(pd, &cq);
        pd.shared(64, AccessFlags::empty())
            .expect("region")
            .try_into_buf()
            .expect("no remote access");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rkey_is_invalid_after_reclaim() {
    for context in roce() {
        let lab::Pair { pd, cq, a, b } =
            pair_with_access::<Rc>(&context, QpOptions::default(), REMOTE_ACCESS);
        let region = pd.shared(64, REMOTE_ACCESS).expect("region");
        let remote = region.remote();
        drop((a, b, cq));
        let buf = region
            .try_into_buf()
            .expect("the queue pairs were destroyed");
        // Connects again, in another domain.
        let mut other = pair_with_access::<Rc>(&context, QpOptions::default(), REMOTE_ACCESS);
        other
            .a
            .post_send(wr::write(wr::Inline(&[]), remote))
            .expect("an empty write does not access memory");
        other.retire(1);
        other
            .a
            .post_send(wr::read(other.pd.buf(64).expect("buffer"), remote))
            .expect("post");
        assert_eq!(other.retire(1)[0].status(), WcStatus::REM_ACCESS_ERR);
        assert!(buf.iter().all(|&byte| byte == 0));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn frozen_memory_is_read_only_for_peers() {
    for (context, options) in roce_paths() {
        for writes in [false, true] {
            let mut pair = pair_with_access::<Rc>(&context, options, REMOTE_ACCESS);
            let frozen = pair
                .pd
                .frozen_shared(100, MemoryOptions::default(), |bytes| bytes.fill(9))
                .expect("frozen");
            let remote = frozen.remote().expect("remote access");
            if writes {
                pair.a
                    .post_send(wr::write(pair.pd.buf(8).expect("buffer"), remote))
                    .expect("post");
                assert_eq!(pair.retire(1)[0].status(), WcStatus::REM_ACCESS_ERR);
            } else {
                pair.a
                    .post_send(wr::read(pair.pd.buf(100).expect("buffer"), remote))
                    .expect("read");
                let read = pair.retire(1).remove(0);
                read.check().expect("read");
                assert_eq!(
                    read.into_buf().expect("posted with a buffer")[..],
                    frozen[..]
                );
                let held = pair.b.hold(&frozen).expect("hold");
                pair.a
                    .post_recv(wr::recv(pair.pd.buf(100).expect("buffer")))
                    .expect("receive");
                pair.b
                    .post_send(wr::send(held))
                    .expect("frozen memory can be sent");
                pair.retire(2)
                    .iter()
                    .for_each(|one| one.check().expect("success"));
            }
            assert!(frozen.iter().all(|&byte| byte == 9));
            assert!(frozen.try_thaw().is_err(), "peers can read it");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn slices_are_addressed_and_bounds_checked() {
    for context in roce() {
        let mut pair = pair_with_access::<Rc>(&context, QpOptions::default(), REMOTE_ACCESS);
        let region = pair.pd.shared(4096, REMOTE_ACCESS).expect("region");
        let slice = region
            .slice(1000..1064)
            .expect("in range")
            .slice(3..60)
            .expect("in range");
        assert_eq!(
            slice.remote(),
            region.remote().slice(1003..1060).expect("in range")
        );
        let held = pair.a.hold(&slice).expect("hold");
        assert_eq!(held.len(), 57);
        region.write(0, &[8; 4096]).expect("in range");
        slice.write(0, &[5; 57]).expect("in range");
        pair.a
            .post_send(wr::write(
                held,
                region.remote().slice(0..57).expect("in range"),
            ))
            .expect("write");
        pair.retire(1)[0].check().expect("written");
        let mut bytes = [0; 58];
        region.read(0, &mut bytes).expect("in range");
        assert!(bytes[..57].iter().all(|&byte| byte == 5) && bytes[57] == 8);
        assert_eq!(
            slice.read(1, &mut bytes[..57]).expect_err("beyond").kind(),
            ErrorKind::InvalidInput
        );
        assert!(region.slice(4000..4097).is_none());
        assert_eq!(
            slice
                .load(0, Ordering::Relaxed)
                .expect_err("offset 1003 is not a multiple of 8")
                .kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            slice
                .load(5, Ordering::Relaxed)
                .expect("offset 1008 is a multiple of 8"),
            0x0505_0505_0505_0505
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn device_memory_is_used_by_requests_and_peers() {
    for context in devices_with(&[verb::DEVICE_MEMORY, verb::RC]) {
        let options = QpOptions::new().device_addresses(true);
        let mut pair = pair_with_access::<Rc>(&context, options, REMOTE_ACCESS);
        let memory = context.alloc_dm(64, 3).expect("device memory");
        memory.write(8, b"from the device!").expect("in bounds");
        let region = pair.pd.reg_dm(&memory, 8, 48, REMOTE_ACCESS);
        let region = region.expect("region");
        let remote = region.remote().expect("remote access");
        assert_eq!((region.len(), remote.addr, remote.len), (48, 0, 48));
        let held = pair.b.hold(&region).expect("hold");
        let target = pair.pd.buf(16).expect("buffer");
        pair.a.post_recv(wr::recv(target)).expect("receive");
        let text = held.slice(0..16).expect("in range");
        pair.b.post_send(wr::send(text)).expect("send");
        let mut received = Vec::new();
        for retired in pair.retire(2) {
            retired.check().expect("success");
            received.extend(retired.into_buf());
        }
        assert_eq!(received[0][..], *b"from the device!");
        // A peer writes and reads, and a request of this side receives into it.
        let there = remote.slice(8..16).expect("in range");
        let write = wr::write(wr::Inline(b"a peer's"), there);
        pair.a.post_send(write).expect("write");
        pair.retire(1)[0].check().expect("written");
        let buf = pair.pd.buf(16).expect("buffer");
        let there = remote.slice(0..16).expect("in range");
        pair.a.post_send(wr::read(buf, there)).expect("read");
        let read = pair.retire(1).remove(0);
        read.check().expect("read");
        assert_eq!(read.into_buf().expect("buffer")[..], *b"from thea peer's");
        let rest = held.slice(16..20).expect("in range");
        pair.b.post_recv(wr::recv(rest)).expect("receive");
        let send = wr::send(wr::Inline(b"text"));
        pair.a.post_send(send).expect("send");
        pair.retire(2);
        let mut seen = [0; 24];
        memory.read(8, &mut seen).expect("in bounds");
        assert_eq!(&seen, b"from thea peer'stext\0\0\0\0");
        let other = context.alloc_pd().expect("protection domain");
        let beyond = other.reg_dm(&memory, 60, 8, REMOTE_ACCESS);
        assert_eq!(
            beyond.expect_err("8 of 4 bytes").kind(),
            ErrorKind::InvalidInput
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn zero_based_region_is_addressed_from_0() {
    for context in devices_with(&[verb::RC]) {
        let options = || MemoryOptions::new().zero_based(true);
        if is_iwarp(&context) {
            expect_unsupported(context.alloc_pd().expect("protection domain").shared_with(
                4096,
                REMOTE_ACCESS,
                options(),
            ));
            continue;
        }
        let qp_options = QpOptions::new().device_addresses(true);
        let mut pair = pair_with_access::<Rc>(&context, qp_options, REMOTE_ACCESS);
        let region = pair
            .pd
            .shared_with(8192, REMOTE_ACCESS, options())
            .expect("region");
        assert_eq!(
            region.slice(5000..5004).expect("in range").remote().addr,
            5000
        );
        let target = RemoteMemory {
            addr: 5000,
            len: 4,
            ..region.remote()
        };
        pair.a
            .post_send(wr::write(wr::Empty, target))
            .expect("write");
        let held = pair
            .a
            .hold(&region)
            .expect("hold")
            .slice(0..4)
            .expect("in range");
        region.write(0, b"base").expect("in range");
        pair.a.post_send(wr::write(held, target)).expect("write");
        pair.retire(2)
            .iter()
            .for_each(|one| one.check().expect("written"));
        let mut bytes = [0; 4];
        region.read(5000, &mut bytes).expect("in range");
        assert_eq!(&bytes, b"base");

        let held = pair.b.hold(&region).expect("hold");
        let place = held.slice(100..164).expect("in range");
        pair.b.post_recv(wr::recv(place)).expect("receive");
        let mut message = pair.pd.buf(4).expect("buffer");
        message.copy_from_slice(b"sent");
        pair.a.post_send(wr::send(message)).expect("send");
        pair.retire(2)
            .iter()
            .for_each(|one| one.check().expect("received"));
        region.read(100, &mut bytes).expect("in range");
        assert_eq!(&bytes, b"sent");
    }
}
