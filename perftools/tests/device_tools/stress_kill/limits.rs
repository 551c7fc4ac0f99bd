//! Memory, descriptors and disk space that run out.

use std::process::Command;
use std::time::Duration;

use test_support::leak_check::objects_of;
use test_support::process::{self, Finished, Process};
use test_support::temp_dir::TempDir;

use super::{CLIENT_LIMIT, assert_clean_end, assert_objects_released, random, setting};
use crate::common::{Server, devices, json, run};

const RPERF: &str = env!("CARGO_BIN_EXE_rperf");
/// Limits of the address space, in MiB, among which one is chosen at random. The program and its
/// libraries need the lower one.
const MEMORY_MIB: std::ops::Range<usize> = 22..120;
/// Limits of the descriptors.
const FILES: std::ops::Range<usize> = 8..48;

/// Returns the command of `rperf` with an option of `prlimit`.
fn limited(limit: &str, line: &str) -> Command {
    process::command(&format!("prlimit {limit} {RPERF} {line}"))
}

/// Tries servers and clients with limits chosen at random.
fn test_with_limits(kind: &str, mut limit: impl FnMut() -> String) {
    let count = setting("STRESS_LIMITS", 1);
    for device in devices() {
        let objects = objects_of(&device);
        let (mut succeeded, mut failed) = (0, 0);
        let server = Server::start();
        let tests = [
            format!("-i {device} -to 2 -ws 1 -n 20 -m 1M --threads 3 rc_bw rc_rdma_read_bw"),
            format!("-to 2 -ws 1 -n 20 -m 1M --verify tcp_lat tcp_bw -i {device} rc_lat"),
        ];
        let mut check = |what: &str, output: Finished| {
            assert_clean_end(what, &output);
            // The end that lacks something says so, also to the other end.
            let is_vague = output.stderr.contains("in the middle of the test");
            assert!(!is_vague, "{what}: {output}");
            if output.success() {
                succeeded += 1;
            } else {
                failed += 1;
            }
        };
        for test in tests.iter().cycle().take(count) {
            // Both ends in one process, the client, and the server.
            let limit = limit();
            for target in ["", &server.target()] {
                let line = format!("{target} {test}");
                let client = Process::spawn(&mut limited(&limit, &line));
                let output = client.wait_timeout(CLIENT_LIMIT);
                check(&format!("{limit} {line}"), output);
            }
            server.assert_responds();
            let small = Server::spawn(&mut limited(&limit, "-lp 0"));
            let line = format!("{} {test}", small.target());
            for _ in 0..2 {
                check(&format!("server {limit}: {line}"), run(&line));
            }
            small.signal("TERM");
            let output = small.wait_for_exit();
            assert!(
                output.success() && !output.stderr.contains("panicked"),
                "{limit}: {output}"
            );
        }
        println!("{device}: {kind}: {succeeded} clients succeeded, {failed} failed");
        drop(server);
        assert_objects_released(&device, &objects);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn lack_of_memory_is_an_error_of_the_test() {
    let mut random = random();
    test_with_limits("limited memory", || {
        let mib = MEMORY_MIB.start + random.below(MEMORY_MIB.len());
        format!("--as={}", mib << 20)
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn lack_of_descriptors_is_an_error_of_the_test() {
    let mut random = random();
    test_with_limits("limited descriptors", || {
        format!("--nofile={}", FILES.start + random.below(FILES.len()))
    });
}

/// A file system with a few pages of memory.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new() -> Self {
        let directory = TempDir::new();
        let path = directory.path().display();
        process::run_line(&format!("mount -t tmpfs -o size=16k none {path}"));
        Self(directory)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn full_disk_is_reported_for_every_kind_of_output() {
    let disk = SmallDisk::new();
    let directory = disk.0.path().display().to_string();
    for device in devices() {
        let record = TempDir::new();
        let document = run(&format!("-i {device} -n 20 --json --sizes 1..1M rc_bw"));
        let record = record.write("record.json", document.stdout);
        let test = format!("-i {device} -n 20 --sizes 1..1M rc_bw");
        for line in [
            format!("{RPERF} {test} --json >{directory}/out"),
            format!("{RPERF} {test} >/dev/full"),
            format!("{RPERF} report {} -o {directory}/out", record.display()),
            format!("{RPERF} report {} >{directory}/out", record.display()),
            format!("{RPERF} compare {0} {0} >/dev/full", record.display()),
            format!("{RPERF} --help >/dev/full"),
            format!("{} check >/dev/full", env!("CARGO_BIN_EXE_ribinfo")),
            format!("{} facts --json >/dev/full", env!("CARGO_BIN_EXE_ribinfo")),
        ] {
            let mut command = Command::new("sh");
            let process = Process::spawn(command.args(["-c", &line]));
            let output = process.wait_timeout(CLIENT_LIMIT + Duration::from_secs(60));
            assert_eq!(output.code(), Some(1), "{line}: {output}");
            let text = &output.stderr;
            assert!(
                text.contains("No space left on device") && !text.contains("panicked"),
                "{line}: {output}"
            );
            let _ = std::fs::remove_file(format!("{directory}/out"));
        }
        json(&format!("-i {device} -n 10 rc_bw"));
    }
}
