//! Verbs that are newer than rdma-core 44. With an older library they must fail with a clear error;
//! with rdma-core 65, the table in `docs/drivers.md` must match the devices (`ci/test
//! newer_verbs`).

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use ibverbs::{
    AccessFlags, Context, Error, ErrorKind, MemoryOptions, ProtectionDomain, QpOptions, Rc,
    SharedRegion,
    counter::CounterKind,
    device::TransportType,
    mr::{Backing, ProcessingHint, SteeringTarget},
    qp::OptionalOps,
    wr,
};
use test_support::lab::{report_device, report_no_device, use_model};
use test_support::{process, udmabuf};

use crate::lab::{
    self, devices, installed_version, is_efa, is_iwarp, is_mlx5, pair_with_access, roce_with, verb,
};

const REMOTE: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

/// Returns the version that has introduced each verb, and its support by the provider of the
/// device.
fn table(context: &Context) -> BTreeMap<&'static str, (u32, &'static str)> {
    let column = match context.device().transport() {
        TransportType::IWARP => 3,
        _ if is_mlx5(context) => 4,
        _ if is_efa(context) => 5,
        _ => 2,
    };
    let text = include_str!("../../../docs/drivers.md");
    let (_, rest) = text.split_once("### Verbs newer").expect("the section");
    let (section, _) = rest.split_once("\n## ").expect("a following section");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        (
            cells[0],
            (cells[1].parse().expect("a version"), cells[column]),
        )
    })
    .collect()
}

fn shared(pd: &ProtectionDomain, options: MemoryOptions) -> Result<SharedRegion, Error> {
    let context = pd.context();
    let access = if is_efa(context) {
        AccessFlags::REMOTE_READ
    } else if is_iwarp(context) {
        // Soft-iWARP may read memory after it was freed.
        AccessFlags::REMOTE_WRITE
    } else {
        REMOTE
    };
    pd.shared_with(4096, access, options)
}

/// Calls each verb of the table, except those of librdmacm, and returns the results.
fn call_all(context: &Context) -> Vec<(&'static str, Result<(), Error>)> {
    let pd = context.alloc_pd().expect("protection domain");
    let cq = lab::cq(context);
    let flush = QpOptions::new().optional_ops(OptionalOps::FLUSH);
    let handle = || context.alloc_dma_handle(ProcessingHint::TARGET, None);
    let of_provider = || shared(&pd, MemoryOptions::new().backing(Backing::Provider));
    vec![
        (
            "`ibv_wr_flush`",
            pd.create_qp::<Rc>(&cq, &cq, flush).map(drop),
        ),
        // The memory of the provider is registered with this verb.
        ("`ibv_reg_mr_ex`", of_provider().map(drop)),
        ("`ibv_alloc_buf`", of_provider().map(drop)),
        ("`ibv_alloc_dmah`", handle().map(drop)),
        (
            "`ibv_query_port_speed`",
            context.query_port_speed(1).map(drop),
        ),
        (
            "`ibv_dm_export_dmabuf_fd`",
            context
                .alloc_dm(4096, 3)
                .and_then(|memory| memory.export_dmabuf().map(drop)),
        ),
        (
            "`ibv_create_comp_cntr`",
            context.create_counter(CounterKind::REQUESTS).map(drop),
        ),
    ]
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn newer_verbs_work_as_the_table_says_or_name_their_version() {
    let version = installed_version();
    for context in devices() {
        let device = context.device_name();
        println!("device: {device}");
        let mut table = table(&context);
        table.remove("`rdma_resolve_addrinfo`");
        if !udmabuf::is_available() {
            // The model exports memory with it.
            table.insert("`ibv_dm_export_dmabuf_fd`", (62, "**no**"));
        }
        let results = call_all(&context);
        assert_eq!(table.len(), results.len(), "every row must be tested");
        for (verb, result) in results {
            let (since, support) = table[verb];
            let expected = if since <= version { support } else { "**no**" };
            match result {
                Ok(()) => assert_eq!(expected, "yes", "{verb} on {device}"),
                Err(error) => {
                    assert_eq!(expected, "**no**", "{verb} on {device}: {error}");
                    assert!(error.is_unsupported(), "{verb} on {device}: {error}");
                    let is_missing = error.errno().is_some_and(|errno| errno.0 == libc::ENOSYS);
                    if is_missing {
                        let help = error.help().expect("what to install");
                        assert!(help.starts_with("install rdma-core "), "{error}");
                    }
                    println!("{device}: {error}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn memory_of_the_provider_carries_data_in_every_class() {
    if installed_version() < 64 {
        return report_no_device("rdma-core 64 or newer is not installed");
    }
    let options = || MemoryOptions::new().backing(Backing::Provider);
    for context in roce_with(&[verb::RC]) {
        let mut pair = pair_with_access::<Rc>(&context, QpOptions::new(), REMOTE);
        let pool = pair.pd.pool_with(3, 100, options()).expect("pool");
        let sink = pair.pd.sink_with(100, options()).expect("sink");
        let region = pair.pd.shared_with(101, REMOTE, options()).expect("region");
        let error = pair
            .pd
            .shared_with(0, REMOTE, options())
            .expect_err("empty");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let mut zeros = [1; 101];
        region.read(0, &mut zeros).expect("inside");
        assert_eq!(zeros, [0; 101]);

        let mut message = pool.take().expect("buffer");
        message.set_len(5);
        message.copy_from_slice(b"hello");
        let into = pair.pd.buf(100).expect("buffer");
        pair.b.post_recv(wr::recv(into)).expect("receive");
        pair.a.post_send(wr::send(message)).expect("send");
        for retired in pair.retire(2) {
            retired.check().expect("success");
            let buf = retired.into_buf().expect("a buffer");
            assert_eq!(&buf[..], b"hello");
        }
        // Into memory of the provider, which peers then read back.
        let mut source = pool.take().expect("buffer");
        source.set_len(3);
        source.copy_from_slice(b"far");
        let there = region.remote().slice(97..100).expect("inside");
        pair.a.post_send(wr::write(source, there)).expect("write");
        pair.retire(1).remove(0).check().expect("success");
        pair.a
            .post_send(wr::read(pool.take().expect("buffer"), there))
            .expect("read");
        let read = pair.retire(1).remove(0).into_buf().expect("a buffer");
        assert_eq!(&read[..], b"far");
        let held = pair.b.hold(&sink).expect("hold");
        pair.b.post_recv(wr::recv(held)).expect("receive");
        pair.a.post_send(wr::send(wr::Empty)).expect("send");
        assert!(pair.retire(2).iter().all(ibverbs::Retired::is_success));

        // It belongs to one protection domain.
        let other = context.alloc_pd().expect("protection domain");
        let error = region
            .register_in(&other, REMOTE)
            .expect_err("other domain");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        // The buffers outlive their domain, and return to local use.
        drop((pair, held));
        let clone = region.slice(0..8).expect("inside");
        drop(region);
        clone.store(0, 7, Ordering::Relaxed).expect("aligned");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn provider_memory_that_is_read_after_its_end_is_refused() {
    for context in devices() {
        let device = context.device_name();
        if !is_iwarp(&context) {
            println!("unsupported: {device} finishes reads");
            continue;
        }
        println!("device: {device}");
        let pd = context.alloc_pd().expect("protection domain");
        let options = MemoryOptions::new().backing(Backing::Provider);
        let error = pd.shared_with(64, AccessFlags::REMOTE_READ, options);
        let error = error.expect_err("refused");
        assert!(error.is_unsupported(), "{error}");
        assert!(
            error.to_string().contains("after they were freed"),
            "{error}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dma_handles_are_hints_of_regions_that_keep_them_alive() {
    if installed_version() < 59 {
        return report_no_device("rdma-core 59 or newer is not installed");
    }
    for context in devices() {
        let device = context.device_name();
        let target = |cpu| {
            let persistent = false;
            Some(SteeringTarget { cpu, persistent })
        };
        let cpu = (0..64).map(|cpu| context.alloc_dma_handle(ProcessingHint::TARGET, target(cpu)));
        if !is_mlx5(&context) {
            println!("unsupported: {device} `ibv_alloc_dmah`");
            for handle in cpu.take(1) {
                assert!(handle.expect_err("no handles").is_unsupported());
            }
            continue;
        }
        println!("device: {device}");
        // One of the processors is this thread's.
        let mut cpu = cpu;
        let steered = cpu.find_map(Result::ok).expect("a processor");
        let denied = context.alloc_dma_handle(ProcessingHint::TARGET, target(1 << 20));
        let denied = denied.expect_err("no such processor");
        assert_eq!(denied.kind(), ErrorKind::PermissionDenied, "{denied}");
        let invalid = context.alloc_dma_handle(ProcessingHint(4), None);
        assert_eq!(
            invalid.expect_err("two bits").kind(),
            ErrorKind::InvalidInput
        );

        let plain = context.alloc_dma_handle(ProcessingHint::REQUESTER, None);
        let plain = plain.expect("a handle");
        let mut pair = pair_with_access::<Rc>(&context, QpOptions::new(), REMOTE);
        for handle in [&steered, &plain] {
            for backing in [Backing::Heap, Backing::Provider] {
                let zero_based = matches!(backing, Backing::Heap);
                let options = MemoryOptions::new().backing(backing).dma_handle(handle);
                let region = shared(&pair.pd, options.zero_based(zero_based)).expect("region");
                let mut buf = pair.pd.buf(8).expect("buffer");
                buf.copy_from_slice(b"hinted!!");
                let there = region.remote().slice(16..24).expect("inside");
                pair.a.post_send(wr::write(buf, there)).expect("write");
                pair.retire(1).remove(0).check().expect("success");
                let mut bytes = [0; 8];
                region.read(16, &mut bytes).expect("inside");
                assert_eq!(&bytes, b"hinted!!");
                let other = context.alloc_pd().expect("protection domain");
                let error = region.register_in(&other, REMOTE).expect_err("one device");
                assert!(error.is_unsupported(), "{error}");
            }
        }
        let options = MemoryOptions::new().dma_handle(&plain);
        let pool = pair.pd.pool_with(2, 64, options).expect("pool");
        // The region holds the handle.
        drop(plain);
        let buf = pool.take().expect("buffer");
        drop((pool, buf));

        let same = context.device().open().expect("a second context");
        let options = MemoryOptions::new().dma_handle(&steered);
        let pd = same.alloc_pd().expect("protection domain");
        let error = pd
            .pool_with(2, 64, options)
            .expect_err("of another context");
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn port_speed_is_that_of_the_link() {
    if installed_version() < 62 {
        return report_no_device("rdma-core 62 or newer is not installed");
    }
    for context in devices() {
        let device = context.device_name();
        match context.query_port_speed(1) {
            Ok(mbps) => {
                println!("device: {device}");
                assert_eq!(mbps, 100_000);
                let error = context.query_port_speed(2).expect_err("no such port");
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            }
            Err(error) => {
                assert!(error.is_unsupported(), "{error}");
                println!("unsupported: {device} `ibv_query_port_speed`");
            }
        }
    }
}

/// Device memory that is registered as a dma-buf is the same memory.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn device_memory_is_exported_as_a_dma_buf() {
    if installed_version() < 62 || !udmabuf::is_available() {
        return report_no_device("rdma-core 62 and /dev/udmabuf are needed");
    }
    for context in devices() {
        if !is_mlx5(&context) {
            println!("unsupported: {} `ibv_alloc_dm`", context.device_name());
            continue;
        }
        report_device(context.device_name());
        let mut pair = pair_with_access::<Rc>(&context, QpOptions::new(), REMOTE);
        let memory = context.alloc_dm(4096, 3).expect("device memory");
        let dmabuf = memory.export_dmabuf().expect("dma-buf");
        let region = pair.pd.reg_dmabuf(dmabuf.as_fd(), 0, 4096, REMOTE);
        let region = region.expect("region");
        memory.write(64, b"from the processor..").expect("inside");
        let there = region.remote().and_then(|all| all.slice(64..84));
        let there = there.expect("inside");
        let buf = pair.pd.buf(20).expect("buffer");
        pair.a.post_send(wr::read(buf, there)).expect("read");
        let read = pair.retire(1).remove(0).into_buf().expect("a buffer");
        assert_eq!(&read[..], b"from the processor..");
        // The dma-buf outlives the memory's handle.
        drop(memory);
        let buf = pair.pd.buf(20).expect("buffer");
        pair.a.post_send(wr::read(buf, there)).expect("read");
        let read = pair.retire(1).remove(0).into_buf().expect("a buffer");
        assert_eq!(&read[..], b"from the processor..");
    }
}

/// Runs the test above on the model, which needs a kernel with `/dev/udmabuf`.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn device_memory_of_the_model_is_exported() {
    if test_support::lab::is_model() {
        return report_no_device("this process has the model");
    }
    if installed_version() < 62 || !udmabuf::is_available() {
        return report_no_device("rdma-core 62 and /dev/udmabuf are needed");
    }
    let mut command = process::ignored_test("newer::device_memory_is_exported_as_a_dma_buf");
    use_model(&mut command);
    let output = process::output(&mut command);
    assert!(output.success(), "{output}");
    assert!(output.stdout.contains("device: mlx5_0"), "{output}");
    report_device("mlx5_0");
}
