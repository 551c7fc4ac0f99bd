//! The walk on real drivers.

use std::process;
use std::time::Duration;

use ibverbs::device::TransportType;
use ibverbs::{AccessFlags, Context, GidQuery, RcPath};
use test_support::lab::{devices, ip_addresses, is_model, netdev, report_device};
use walk::{Options, Setup, Support, run};

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
    let transport = context.device().transport();
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
    let address = || *ip_addresses(&netdev(name)).first().expect("an address");
    let is_efa = transport == TransportType::UNSPECIFIED;
    // Soft-iWARP fails to create queue pairs on a context that had many.
    let context = context.device().open().expect("open device");
    Setup {
        support: Support::of(&context).expect("supported operations"),
        context,
        path: (transport == TransportType::IB).then(path),
        // EFA has no rdma_cm.
        address: (!is_efa).then(address),
        in_order: transport == TransportType::IB,
        sends_wait: false,
        keeps_failed: false,
        leaks_busy: false,
        loses_no_datagrams: is_model(),
        timeout: Duration::from_secs(20),
        buf_sizes: &[16, 64, 256, 8192],
    }
}
