//! Signals to either side at random times.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use test_support::leak_check::objects_of;
use test_support::process::{self, Process, send_signal};
use test_support::random::Random;

use super::{
    CLIENT_LIMIT, assert_clean_end, assert_objects_released, pick, random, random_time, setting,
};
use crate::common::{Server, connects_directly, devices, rperf, run};
use test_support::usage::Usage;

/// Tests during which a side is killed or stopped.
const TESTS: &[&str] = &[
    "rc_bw",
    "rc_lat",
    "rc_bi_bw",
    "rc_rdma_read_bw",
    "rc_rdma_write_bw",
    "rc_rdma_write_poll_lat",
    "tcp_bw",
    "tcp_lat",
];
/// Tests that only RoCE has.
const ROCE_TESTS: &[&str] = &["ud_bw", "uc_lat", "rc_fetch_add_mr", "udp_bw"];
/// Seconds without progress after which a test fails.
const TIMEOUT: u64 = 2;

/// The fate of a side.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Killed,
    /// Stopped for less than the timeout of a test, or longer.
    Stopped(Duration),
}

impl Fate {
    fn random(random: &mut Random) -> Self {
        match random.below(10) {
            0..=4 => Self::Killed,
            5..=8 => Self::Stopped(random_time(random, Duration::from_millis(500))),
            _ => Self::Stopped(Duration::from_secs(2 * TIMEOUT + 1)),
        }
    }

    fn meet(self, pid: u32) {
        match self {
            Self::Killed => send_signal(pid, "KILL"),
            Self::Stopped(time) => {
                send_signal(pid, "STOP");
                sleep(time);
                send_signal(pid, "CONT");
            }
        }
    }
}

/// Starts a server whose clients may be killed and come again at once.
fn start_server() -> Server {
    Server::with_options(&["--max-clients", "16", "--max-timeout", "2"])
}

/// Returns the time that a test of 300 ms takes, including the start of the client.
fn usual_time(server: &Server, device: &str) -> Duration {
    let begin = Instant::now();
    let line = format!("{} -i {device} -t 300ms rc_bw", server.target());
    assert!(run(&line).success());
    begin.elapsed()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn killed_and_stopped_sides_leave_nothing_behind() {
    let count = setting("STRESS_KILLS", 3);
    let mut random = random();
    for device in devices() {
        let objects = objects_of(&device);
        let mut server = start_server();
        let usual = usual_time(&server, &device);
        let mut usage = Usage::of(server.id());
        let (mut succeeded, mut failed, mut killed) = (0, 0, 0);
        let mut tests = TESTS.to_vec();
        if connects_directly(&device) {
            tests.extend(ROCE_TESTS);
        }
        for number in 0..count {
            let test = pick(&mut random, &tests);
            let id = if ["tcp", "udp"].contains(&&test[..3]) {
                String::new()
            } else {
                format!("-i {device}")
            };
            let line = format!("{} {id} -to {TIMEOUT} -t 300ms {test}", server.target());
            let mut command = rperf();
            let client = Process::spawn(command.args(line.split_whitespace()));
            sleep(random_time(&mut random, usual));
            let fate = Fate::random(&mut random);
            let hits_server = random.below(2) == 0;
            fate.meet(if hits_server {
                server.id()
            } else {
                client.id()
            });
            let what = format!("{number}: {line}: server {hits_server}, {fate:?}");
            let output = client.wait_timeout(CLIENT_LIMIT);
            if !hits_server && fate == Fate::Killed && output.code().is_none() {
                assert!(output.status.is_some(), "{what}: {output}");
                killed += 1;
            } else {
                assert_clean_end(&what, &output);
                if output.success() {
                    succeeded += 1;
                } else {
                    failed += 1;
                }
            }
            if hits_server && fate == Fate::Killed {
                server = start_server();
                usual_time(&server, &device);
                usage = Usage::of(server.id());
            } else {
                server.assert_responds();
            }
        }
        let after = usage.wait_until_released(server.id());
        println!(
            "{device}: {count} signals: {succeeded} clients succeeded, {failed} failed, \
             {killed} were killed; the last server: {usage}, then {after}"
        );
        server.signal("TERM");
        let output = server.wait_for_exit();
        assert!(
            output.success() && !output.stderr.contains("panicked"),
            "{output}"
        );
        assert_objects_released(&device, &objects);
    }
}

fn ping_server() -> Process {
    let server = Process::spawn(Command::new(env!("CARGO_BIN_EXE_ribping")).arg("-S"));
    server.next_stderr_line("answering connections");
    server
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn pings_go_on_when_a_side_is_killed_or_stopped() {
    let count = setting("STRESS_KILLS", 3).div_ceil(3);
    let mut random = random();
    for device in devices() {
        let objects = objects_of(&device);
        let address = crate::common::ipv4_address(&device);
        let mut server = ping_server();
        let (mut answered, mut sent) = (0, 0);
        for number in 0..count {
            let line = format!(
                "{} --json -c 30 -i 0.02 -t 1000 {address}",
                env!("CARGO_BIN_EXE_ribping")
            );
            let client = Process::spawn(&mut process::command(&line));
            sleep(random_time(&mut random, Duration::from_secs(1)));
            let fate = Fate::random(&mut random);
            let hits_server = random.below(2) == 0;
            fate.meet(if hits_server {
                server.id()
            } else {
                client.id()
            });
            if hits_server && fate == Fate::Killed {
                drop(server);
                server = ping_server();
            }
            let what = format!("{number}: {line}: server {hits_server}, {fate:?}");
            let output = client.wait_timeout(CLIENT_LIMIT);
            if output.code().is_none() {
                let is_killed = !hits_server && fate == Fate::Killed && output.status.is_some();
                assert!(is_killed, "{what}: {output}");
                continue;
            }
            assert_clean_end(&what, &output);
            let report: serde_json::Value = serde_json::from_str(&output.stdout)
                .unwrap_or_else(|e| panic!("{what}: {e}: {output}"));
            let number = |name: &str| report[name].as_u64().expect("a number");
            assert_eq!(number("transmitted"), 30, "{what}: {report}");
            assert_eq!(number("received") + number("lost"), 30, "{what}: {report}");
            answered += number("received");
            sent += 30;
        }
        println!("{device}: {count} signals: {answered} of {sent} pings answered");
        server.interrupt();
        let output = server.wait_timeout(CLIENT_LIMIT);
        assert!(output.success(), "{output}");
        assert_objects_released(&device, &objects);
    }
}
