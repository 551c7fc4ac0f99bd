//! Memory of another device: dma-bufs. `/dev/udmabuf` makes them of host memory, so that the test
//! sees what the RDMA device writes. Only the model of mlx5 supports them.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use ibverbs::{AccessFlags, DeviceRegion, ErrorKind, ProtectionDomain, QpOptions, Rc, wr};
use test_support::lab::{report_device, report_no_device, use_model};
use test_support::process;
use test_support::udmabuf::{self, PAGE};

use crate::lab::{Pair, REMOTE_ACCESS, devices, expect_unsupported, is_mlx5, pair_with_access};

/// Size of the memory in bytes.
const LEN: u64 = 4 * PAGE;

/// Memory, and its dma-buf.
struct Exported {
    file: File,
    dmabuf: OwnedFd,
}

impl Exported {
    fn new() -> Self {
        let file = udmabuf::memory(LEN).expect("memory");
        let dmabuf = udmabuf::export(&file, 0, LEN).expect("dma-buf");
        Self { file, dmabuf }
    }

    fn register(&self, pd: &ProtectionDomain) -> DeviceRegion {
        let len = usize::try_from(LEN).expect("a size");
        let region = pd.reg_dmabuf(self.dmabuf.as_fd(), 0, len, REMOTE_ACCESS);
        region.expect("region")
    }

    fn write(&self, bytes: &[u8], offset: u64) {
        self.file.write_all_at(bytes, offset).expect("in range");
    }

    fn read(&self, offset: u64) -> [u8; 5] {
        let mut bytes = [0; 5];
        self.file.read_exact_at(&mut bytes, offset).expect("range");
        bytes
    }
}

fn errno(result: ibverbs::Result<DeviceRegion>) -> Option<i32> {
    let error = result.expect_err("rejected");
    assert_ne!(error.kind(), ErrorKind::Unsupported, "{error}");
    error.errno().map(|errno| errno.0)
}

/// Checks the errors of the kernel's core for what is not a dma-buf, or not inside.
fn reject_other_memory(pd: &ProtectionDomain, exported: &Exported) {
    let (len, whole) = (
        usize::try_from(LEN).expect("a size"),
        exported.dmabuf.as_fd(),
    );
    let local = AccessFlags::empty();
    for (offset, len) in [(0, len + 1), (LEN, 1), (u64::MAX, 2), (PAGE, len)] {
        let result = pd.reg_dmabuf(whole, offset, len, local);
        assert_eq!(errno(result), Some(libc::EINVAL), "{len} at {offset}");
    }
    let file = exported.file.as_fd();
    let result = pd.reg_dmabuf(file, 0, len, local);
    assert_eq!(errno(result), Some(libc::EINVAL), "not a dma-buf");
}

/// Moves data between two dma-bufs with every verb that reads or writes memory.
fn move_data(pair: &mut Pair, source: &Exported, target: &Exported) {
    let [from, to] = [source, target].map(|exported| exported.register(&pair.pd));
    let remote = to.remote().expect("remote access");
    let held = pair.a.hold(&from).expect("held");
    let received = pair.b.hold(&to).expect("held");
    let slot = |start: usize| held.slice(start..start + 5).expect("in range");
    let page = usize::try_from(PAGE).expect("a size");

    source.write(b"write", PAGE - 2);
    let place = remote.slice(7..12).expect("in range");
    pair.a
        .post_send(wr::write(slot(page - 2), place))
        .expect("write");
    pair.retire(1)[0].check().expect("written");
    assert_eq!(&target.read(7), b"write");

    source.write(b"-send", 0);
    let slice = received.slice(100..105).expect("in range");
    pair.b.post_recv(wr::recv(slice)).expect("receive");
    pair.a.post_send(wr::send(slot(0))).expect("send");
    assert!(pair.retire(2).iter().all(|retired| retired.check().is_ok()));
    assert_eq!(&target.read(100), b"-send");

    target.write(b"-read", 2 * PAGE + 1);
    let place = remote
        .slice(2 * PAGE + 1..2 * PAGE + 1 + 5)
        .expect("in range");
    pair.a.post_send(wr::read(slot(50), place)).expect("read");
    pair.retire(1)[0].check().expect("read");
    assert_eq!(&source.read(50), b"-read");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dma_bufs_carry_data_or_are_unsupported() {
    for context in devices() {
        let name = context.device_name();
        if !udmabuf::is_available() {
            println!(
                "unsupported: {name} dma-buf, because there is no {}",
                udmabuf::DEVICE
            );
            continue;
        }
        println!("device: {name}");
        let [source, target] = [(); 2].map(|()| Exported::new());
        let pd = context.alloc_pd().expect("protection domain");
        if !is_mlx5(&context) {
            let len = usize::try_from(LEN).expect("a size");
            let local = AccessFlags::empty();
            let result = pd.reg_dmabuf(source.dmabuf.as_fd(), 0, len, local);
            expect_unsupported(result);
            continue;
        }
        reject_other_memory(&pd, &source);
        let mut pair = pair_with_access::<Rc>(
            &context,
            QpOptions::new().device_addresses(true),
            REMOTE_ACCESS,
        );
        move_data(&mut pair, &source, &target);
    }
}

/// The memory of a region stays in use after its files are closed.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn region_outlives_the_files_of_its_dma_buf() {
    for context in devices() {
        let name = context.device_name();
        if !is_mlx5(&context) || !udmabuf::is_available() {
            println!("unsupported: {name} dma-buf");
            continue;
        }
        println!("device: {name}");
        let mut pair = pair_with_access::<Rc>(
            &context,
            QpOptions::new().device_addresses(true),
            REMOTE_ACCESS,
        );
        let exported = Exported::new();
        let region = exported.register(&pair.pd);
        drop(exported);
        let target = region.remote().and_then(|remote| remote.slice(0..5));
        let target = target.expect("in range");
        pair.a
            .post_send(wr::write(wr::Inline(b"hello"), target))
            .expect("write");
        pair.retire(1)[0].check().expect("written");
        let buffer = pair.pd.buf(5).expect("buffer");
        pair.a.post_send(wr::read(buffer, target)).expect("read");
        let read = pair.retire(1).remove(0).into_buf().expect("a buffer");
        assert_eq!(&read[..], b"hello");
    }
}

/// Runs the tests above on the model, which needs no device, in a kernel that has `/dev/udmabuf`.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dma_bufs_work_on_the_model() {
    if test_support::lab::is_model() {
        return report_no_device("this process has the model");
    }
    if !udmabuf::is_available() {
        return report_no_device("there is no /dev/udmabuf");
    }
    for test in [
        "dmabuf::dma_bufs_carry_data_or_are_unsupported",
        "dmabuf::region_outlives_the_files_of_its_dma_buf",
    ] {
        let mut command = process::ignored_test(test);
        use_model(&mut command);
        let output = process::output(&mut command);
        assert!(output.success(), "{output}");
        assert!(output.stdout.contains("device: mlx5_0"), "{output}");
    }
    report_device("mlx5_0");
}
