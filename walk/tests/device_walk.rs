//! The walk on real drivers.

use std::process;
use std::time::Duration;

use ibverbs::{AccessFlags, Context, GidQuery, RcPath};
use test_support::lab::{devices, ip_addresses, is_iwarp, netdev, report_device};
use walk::{Options, Setup, run};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_walk_on_a_device_finds_no_violation() {
    for context in devices() {
        let name = context.device_name().to_owned();
        report_device(&name);
        let options = Options::from_env(1000);
        // A violation can be followed by a crash: name the walk first.
        println!(
            "walk on {name}: seed {}, process {}",
            options.seed,
            process::id()
        );
        run(options, false, |_| (setup(&context), ())).check();
    }
}

fn setup(context: &Context) -> Setup {
    let name = context.device_name();
    let iwarp = is_iwarp(name);
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let path = || {
        let gid = context
            .select_gid(1, &GidQuery::default())
            .expect("a GID")
            .entry;
        let mtu = context.query_port(1).expect("port 1").active_mtu;
        RcPath::new(1, gid.index, mtu)
            // 67 ms. On a slow machine, a shorter timeout expires before the peer gets CPU time.
            .timeout(14)
            .retry_cnt(6)
            .max_rd_atomic(4)
            .max_dest_rd_atomic(4)
            .access(access)
    };
    // The model of an mlx5 adapter has no rdma_cm.
    let address = || *ip_addresses(&netdev(name)).first().expect("an address");
    Setup {
        // Soft-iWARP fails to create queue pairs on a context that had many.
        context: context.device().open().expect("open device"),
        path: (!iwarp).then(path),
        address: (!name.starts_with("mlx5")).then(address),
        is_ib: !iwarp,
        in_order: !iwarp,
        sends_wait: false,
        timeout: Duration::from_secs(20),
        buf_sizes: &[16, 64, 256, 8192],
    }
}
