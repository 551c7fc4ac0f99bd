//! Many tests in a row, and many clients at once.

use std::time::Instant;

use test_support::leak_check::objects_of;
use test_support::process::Process;

use super::{CLIENT_LIMIT, assert_objects_released, setting};
use crate::common::{Server, devices, json, rperf};
use test_support::usage::Usage;

/// Tests that one client runs.
const SOCKET_TESTS: &str = "tcp_bw tcp_lat udp_bw";
const RDMA_TESTS: &str = "rc_bw rc_lat rc_bi_bw rc_rdma_read_bw rc_rdma_write_bw";
const TESTS_OF_A_CLIENT: usize = 8;
/// Maximum growth of a server, in KiB. Most of it is the heaps of its threads.
const MAX_GROWTH_KIB: u64 = 16 << 10;

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn many_tests_in_a_row_leave_nothing_behind() {
    let count = setting("STRESS_TESTS", 8);
    for device in devices() {
        let objects = objects_of(&device);
        let server = Server::start();
        let line = format!(
            "{} -n 20 -m 4K {SOCKET_TESTS} -i {device} {RDMA_TESTS}",
            server.target()
        );
        json(&line);
        let before = Usage::of(server.id());
        let busy = objects_of(&device);
        let begin = Instant::now();
        for _ in 0..count.div_ceil(TESTS_OF_A_CLIENT) {
            assert_eq!(json(&line).len(), TESTS_OF_A_CLIENT);
        }
        let after = before.wait_until_released(server.id());
        println!(
            "{device}: {count} tests in {:?}: {before}, then {after}",
            begin.elapsed()
        );
        assert!(
            after.resident_kib < before.resident_kib + MAX_GROWTH_KIB,
            "before: {before}; after: {after}"
        );
        assert_objects_released(&device, &busy);
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
        assert_objects_released(&device, &objects);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn many_clients_at_once_leave_nothing_behind() {
    let clients = setting("STRESS_CLIENTS", 4);
    for device in devices() {
        let objects = objects_of(&device);
        // A session ends shortly after its client.
        let server = Server::with_options(&["--max-clients", &(2 * clients).to_string()]);
        let line = format!(
            "{} -i {device} --verify -to 60 -n 50 -m 4K rc_bw rc_lat",
            server.target()
        );
        json(&line);
        let before = Usage::of(server.id());
        let begin = Instant::now();
        for _ in 0..2 {
            let start = |_| Process::spawn(rperf().args(line.split_whitespace()));
            let running: Vec<Process> = (0..clients).map(start).collect();
            for client in running {
                let output = client.wait_timeout(4 * CLIENT_LIMIT);
                assert!(output.success(), "{line}: {output}");
            }
        }
        let after = before.wait_until_released(server.id());
        println!(
            "{device}: twice {clients} clients at once in {:?}: {before}, then {after}",
            begin.elapsed()
        );
        // Each thread that ever ran at the same time has a heap of its own.
        let limit = before.resident_kib + MAX_GROWTH_KIB + 512 * clients as u64;
        assert!(
            after.resident_kib < limit,
            "before: {before}; after: {after}"
        );
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
        assert_objects_released(&device, &objects);
    }
}
