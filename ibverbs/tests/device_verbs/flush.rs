//! ATOMIC WRITE and FLUSH: operations that few devices have, and that a queue pair has on request.

use std::sync::atomic::{AtomicBool, Ordering};

use ibverbs::{
    AccessFlags, Context, Error, ErrorKind, PostError, QpOptions, Rc, RemoteMemory, Ud, WcOpcode,
    WcStatus,
    caps::DeviceCapFlags,
    qp::OptionalOps,
    wr::{self, FlushPlacement},
};

use crate::lab::{self, Pair, devices_with, pair_with_access, roce_with, until, verb};

const WRITES: AccessFlags = AccessFlags::REMOTE_WRITE;
const FLUSHES: AccessFlags = AccessFlags::REMOTE_WRITE.union(AccessFlags::FLUSH_GLOBAL);

fn connected(context: &Context, ops: OptionalOps, access: AccessFlags) -> Pair {
    let options = QpOptions::new().optional_ops(ops).max_inline_data(8);
    let pair = pair_with_access::<Rc>(context, options, access);
    assert!(pair.a.is_extended());
    pair
}

/// Returns the devices whose queue pairs can flush, which also depends on the installed library.
/// The others must reject such queue pairs.
fn flushing_devices() -> impl Iterator<Item = Context> {
    devices_with(&[]).filter(|context| {
        let pd = context.alloc_pd().expect("protection domain");
        let cq = lab::cq(context);
        let options = QpOptions::new().optional_ops(OptionalOps::FLUSH);
        match pd.create_qp::<Rc>(&cq, &cq, options) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(error.to_string().contains("FLUSH"), "{error}");
                false
            }
        }
    })
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn atomic_write_stores_eight_bytes_after_earlier_writes() {
    const LEN: usize = 64 << 10;
    for context in roce_with(&[verb::ATOMIC_WRITE]) {
        let all = context.query_device_ex().expect("extended attributes");
        assert!(
            all.device_cap_flags_ex
                .contains(DeviceCapFlags::ATOMIC_WRITE)
        );
        let mut pair = connected(&context, OptionalOps::ATOMIC_WRITE, WRITES);
        let region = pair.pd.shared(LEN + 8, WRITES).expect("region");
        let all = region.remote();
        let (data, flag) = (
            all.slice(0..LEN as u64),
            all.slice(LEN as u64..LEN as u64 + 8),
        );
        let (data, flag) = (data.expect("inside"), flag.expect("inside"));
        for round in 1..=50_u64 {
            let mut buf = pair.pd.buf(LEN).expect("buffer");
            buf.fill(round.to_le_bytes()[0]);
            let write = wr::write(buf, data).signaled(false);
            pair.a.post_send(write).expect("write");
            let publish = wr::atomic_write(flag, round.to_ne_bytes()).tag(round);
            pair.a.post_send(publish).expect("atomic write");
            // The word becomes visible after the data.
            until("the word", || {
                region.load(LEN, Ordering::Acquire).expect("aligned") == round
            });
            let mut bytes = vec![0; LEN];
            region.read(0, &mut bytes).expect("inside");
            assert!(bytes.iter().all(|byte| *byte == round.to_le_bytes()[0]));
            let retired = pair.retire(1).remove(0);
            assert_eq!(retired.opcode(), WcOpcode::ATOMIC_WRITE);
            assert_eq!(
                (retired.status(), retired.tag()),
                (WcStatus::SUCCESS, round)
            );
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn atomic_write_is_never_seen_in_part() {
    for context in roce_with(&[verb::ATOMIC_WRITE]) {
        let mut pair = connected(&context, OptionalOps::ATOMIC_WRITE, WRITES);
        let region = pair.pd.shared(8, WRITES).expect("region");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut changes = 0;
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let word = region.load(0, Ordering::Relaxed).expect("aligned");
                    assert!(word == 0 || word == u64::MAX, "{word:#x}");
                    changes += u32::from(word != last);
                    last = word;
                    std::thread::yield_now();
                }
                changes
            });
            for round in 0..500_u32 {
                let word = if round % 2 == 0 { u64::MAX } else { 0 };
                let request = wr::atomic_write(region.remote(), word.to_ne_bytes());
                pair.a.post_send(request).expect("atomic write");
                pair.retire(1).remove(0).check().expect("success");
            }
            done.store(true, Ordering::Relaxed);
            let changes = reader.join().expect("the reader saw whole words");
            println!(
                "{}: the reader saw {changes} changes",
                context.device_name()
            );
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn atomic_write_needs_an_aligned_writable_word() {
    for context in roce_with(&[verb::ATOMIC_WRITE]) {
        let mut pair = connected(&context, OptionalOps::ATOMIC_WRITE, WRITES);
        let region = pair.pd.shared(64, WRITES).expect("region");
        let post = |pair: &mut Pair, remote: RemoteMemory| {
            pair.a.post_send(wr::atomic_write(remote, [1; 8]))
        };
        let word = |start, len| region.remote().slice(start..start + len).expect("inside");
        let rejected = post(&mut pair, word(4, 8)).expect_err("not aligned");
        let addr = region.remote().addr + 4;
        assert_eq!(rejected.error(), PostError::Misaligned { addr });
        let rejected = post(&mut pair, word(0, 7)).expect_err("too short");
        assert!(matches!(rejected.error(), PostError::BeyondRemote { .. }));
        // Nothing was posted, and the queue pair works.
        post(&mut pair, word(8, 8)).expect("posted");
        pair.retire(1).remove(0).check().expect("success");
        assert_eq!(
            region.load(8, Ordering::Relaxed).expect("aligned"),
            0x0101_0101_0101_0101
        );

        let read_only = pair.pd.shared(8, AccessFlags::REMOTE_READ).expect("region");
        post(&mut pair, read_only.remote()).expect("posted");
        let status = pair.retire(1).remove(0).status();
        assert_eq!(status, WcStatus::REM_ACCESS_ERR, "{status}");
        assert_eq!(read_only.load(0, Ordering::Relaxed).expect("aligned"), 0);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn operations_must_be_requested_at_creation() {
    for context in roce_with(&[verb::RC]) {
        for classic_only in [false, true] {
            let options = QpOptions::new().classic_only(classic_only);
            let mut pair = pair_with_access::<Rc>(&context, options, WRITES);
            let region = pair.pd.shared(8, WRITES).expect("region");
            let request = wr::atomic_write(region.remote(), [0; 8]);
            let rejected = pair.a.post_send(request).expect_err("not requested");
            assert_eq!(rejected.error(), PostError::NotRequested);
            assert!(Error::from(rejected).to_string().contains("optional_ops"));
            let request = wr::flush(region.remote(), FlushPlacement::GLOBAL);
            let rejected = pair.a.post_send(request).expect_err("not requested");
            assert_eq!(rejected.error(), PostError::NotRequested);
        }
        let pd = context.alloc_pd().expect("protection domain");
        let cq = lab::cq(&context);
        let options = QpOptions::new().optional_ops(OptionalOps::ATOMIC_WRITE);
        let error = pd.create_qp::<Rc>(&cq, &cq, options.classic_only(true));
        let error = error.expect_err("the classic verbs lack it");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(
            error
                .help()
                .is_some_and(|help| help.contains("classic_only"))
        );
        let error = pd.create_qp::<Ud>(&cq, &cq, options);
        let error = error.expect_err("datagrams lack it");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn flush_completes_after_the_writes_before_it() {
    const LEN: usize = 10_000;
    for context in flushing_devices() {
        let ops = OptionalOps::FLUSH | OptionalOps::ATOMIC_WRITE;
        let mut pair = connected(&context, ops, FLUSHES);
        let region = pair.pd.shared(LEN, FLUSHES).expect("region");
        for round in 1..=50_u8 {
            let mut buf = pair.pd.buf(LEN).expect("buffer");
            buf.fill(round);
            let write = wr::write(buf, region.remote()).signaled(false);
            pair.a.post_send(write).expect("write");
            let flush = if round % 2 == 0 {
                wr::flush(region.remote(), FlushPlacement::GLOBAL)
            } else {
                let any = region.remote().slice(0..0).expect("inside");
                wr::flush_region(any, FlushPlacement::GLOBAL)
            };
            pair.a.post_send(flush.tag(round.into())).expect("flush");
            let retired = pair.retire(1).remove(0);
            assert_eq!(retired.status(), WcStatus::SUCCESS);
            assert_eq!(retired.opcode(), WcOpcode::FLUSH);
            assert_eq!(retired.tag(), round.into());
            let mut bytes = vec![0; LEN];
            region.read(0, &mut bytes).expect("inside");
            assert!(bytes.iter().all(|byte| *byte == round), "round {round}");
        }
        // In a batch, with the write that publishes the data.
        let remote = region.remote().slice(8..16).expect("inside");
        pair.a
            .batch(|batch| -> Result<(), Error> {
                batch.send(wr::flush(region.remote(), FlushPlacement::GLOBAL).signaled(false))?;
                batch.send(wr::atomic_write(remote, 7_u64.to_ne_bytes()))?;
                Ok(())
            })
            .expect("batch");
        pair.retire(1).remove(0).check().expect("success");
        assert_eq!(pair.a.send_slots_free(), pair.a.caps().max_send_wr as usize);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn flush_needs_access_rights_of_its_placement() {
    for context in flushing_devices() {
        let fails = |access, rights, placement| {
            let mut pair = connected(&context, OptionalOps::FLUSH, access);
            let region = pair.pd.shared(64, rights).expect("region");
            let flush = wr::flush(region.remote(), placement);
            pair.a.post_send(flush).expect("posted");
            pair.retire(1).remove(0).status()
        };
        let global = FlushPlacement::GLOBAL;
        assert_eq!(fails(FLUSHES, FLUSHES, global), WcStatus::SUCCESS);
        let status = fails(FLUSHES, WRITES, global);
        assert_eq!(status, WcStatus::REM_ACCESS_ERR, "{status}");
        let status = fails(WRITES, FLUSHES, global);
        assert_eq!(status, WcStatus::REM_INV_REQ_ERR, "{status}");
        let status = fails(FLUSHES, FLUSHES, global | FlushPlacement::PERSISTENT);
        assert_eq!(status, WcStatus::REM_INV_REQ_ERR, "{status}");
        // Memory of the process is not persistent.
        let pd = context.alloc_pd().expect("protection domain");
        let error = pd.shared(64, AccessFlags::FLUSH_PERSISTENT | WRITES);
        let error = error.expect_err("not persistent");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}
