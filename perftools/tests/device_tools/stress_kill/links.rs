//! Links that go down and come back during tests.

use std::thread::sleep;
use std::time::Duration;

use test_support::lab::{LinkDown, netdev};
use test_support::leak_check::objects_of;
use test_support::process::{Process, wait_until};

use super::{
    CLIENT_LIMIT, assert_clean_end, assert_objects_released, pick, random, random_time, setting,
};
use crate::common::{Server, devices, rperf, run};

/// Tests during which the link changes.
const TESTS: &[&str] = &["rc_bw", "rc_lat", "rc_bi_bw", "rc_rdma_read_bw"];
/// Time of each test.
const TIME: Duration = Duration::from_millis(600);

fn start_client(server: &Server, device: &str, test: &str) -> (String, Process) {
    let line = format!("{} -i {device} -to 2 -t 600ms {test}", server.target());
    let mut command = rperf();
    let client = Process::spawn(command.args(line.split_whitespace()));
    (line, client)
}

/// Waits until a test over the device succeeds.
fn wait_until_usable(server: &Server, device: &str) {
    let line = format!("{} -i {device} --verify -n 10 rc_bw", server.target());
    assert!(
        wait_until(Duration::from_secs(30), || run(&line).success()),
        "{line}: {}",
        run(&line)
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn tests_end_and_work_again_when_the_link_fails() {
    let count = setting("STRESS_LINKS", 1);
    let mut random = random();
    for device in devices() {
        let objects = objects_of(&device);
        let server = Server::with_options(&["--max-timeout", "2"]);
        let mut failed = 0;
        for _ in 0..count {
            let test = pick(&mut random, TESTS);
            let (line, client) = start_client(&server, &device, test);
            sleep(random_time(&mut random, 2 * TIME));
            let down = LinkDown::new(&netdev(&device));
            sleep(random_time(&mut random, TIME));
            drop(down);
            let output = client.wait_timeout(CLIENT_LIMIT);
            assert_clean_end(&line, &output);
            failed += u32::from(!output.success());
            wait_until_usable(&server, &device);
        }
        println!("{device}: link down and up {count} times: {failed} tests failed");
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
        assert_objects_released(&device, &objects);
    }
}
