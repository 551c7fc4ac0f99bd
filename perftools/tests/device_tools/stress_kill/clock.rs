//! Jumps of the wall clock. Only the monotonic clock counts.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use test_support::process::{self, Process, send_signal};
use test_support::temp_dir::TempDir;

use crate::common::{Server, devices, json, rperf, run};

/// The wall clock of the lab. It is set to the right time on drop.
struct WallClock {
    begin: Instant,
    time: SystemTime,
}

impl WallClock {
    fn new() -> Self {
        Self {
            begin: Instant::now(),
            time: SystemTime::now(),
        }
    }

    /// Sets the clock to a time after the right one, in seconds.
    fn jump(&self, seconds: i64) {
        let right = self.time + self.begin.elapsed();
        let right = right.duration_since(UNIX_EPOCH).expect("after 1970");
        let right = i64::try_from(right.as_secs()).expect("a time");
        process::run_line(&format!("date -s @{}", right + seconds));
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        self.jump(0);
    }
}

/// Calls `body` while the clock jumps forward and back every 100 ms.
fn with_jumps<T>(body: impl FnOnce() -> T) -> T {
    let clock = WallClock::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for jump in [3600, -3600, 86_400, 1, -86_400, 0].iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                clock.jump(*jump);
                sleep(Duration::from_millis(100));
            }
        });
        // A failed assertion must end the thread.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        is_over.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns the option with a file that has this token.
fn token(directory: &TempDir, name: &str, text: &str) -> String {
    let path = directory.write(name, text);
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("own file");
    format!("--token-file {}", path.display())
}

/// Runs tests and returns the time that each side measured, in seconds.
fn measured_seconds(line: &str) -> Vec<f64> {
    let records = json(line);
    let sides = records.iter().flat_map(|record| {
        ["local_stats", "remote_stats"].map(|side| &record["outcome"]["measured"][side]["nanos"])
    });
    let nanos = sides.map(|nanos| nanos.as_f64().expect("a time"));
    nanos.map(|nanos| nanos / 1e9).collect()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn jumps_of_the_clock_change_no_result() {
    let directory = TempDir::new();
    let right = token(&directory, "right", "a secret of some length");
    let wrong = token(&directory, "wrong", "another one of some length");
    let mut options: Vec<&str> = right.split(' ').collect();
    options.extend(["--mesh", "--allow", "127.0.0.0/8"]);
    let (server, other) = (
        Server::with_options(&options),
        Server::with_options(&options),
    );
    for device in devices() {
        let line = format!(
            "monitor --json --interval 50ms --timeout 5s --devices {device} {right} localhost:{}",
            server.port
        );
        let monitor = Process::spawn(rperf().args(line.split_whitespace()));
        monitor.next_stdout_line("\"to\":\"up\"");
        with_jumps(|| {
            for test in ["rc_bw", "rc_lat"] {
                let line = format!("{} {right} -i {device} -t 1 {test}", server.target());
                for seconds in measured_seconds(&line) {
                    assert!((0.9..10.0).contains(&seconds), "{line}: {seconds}");
                }
            }
            let begin = Instant::now();
            let output = run(&format!("{} {wrong} conf", server.target()));
            assert!(output.stderr.contains("token differs"), "{output}");
            let taken = begin.elapsed();
            assert!((1..20).contains(&taken.as_secs()), "{taken:?}");
        });
        send_signal(monitor.id(), "TERM");
        let output = monitor.wait();
        assert!(output.success(), "{output}");
        assert!(!output.stdout.contains("\"to\":\"lost\""), "{output}");
        let last = output.stdout.lines().last().expect("a line of the path");
        println!("{device}: {last}");
        let last: Value = serde_json::from_str(last).expect("JSON");
        for time in ["/network_ns/max", "/host_avg_ns", "/peer_avg_ns"] {
            let nanos = last.pointer(time).and_then(Value::as_u64);
            assert!(nanos.is_some_and(|nanos| nanos < 5_000_000_000), "{last}");
        }
    }
    // Tests that start at the same time.
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", server.port, other.port);
    let line = format!("mesh --pattern bisect {right} {hosts} -t 300ms tcp_bw");
    let output = with_jumps(|| run(&line));
    assert!(matches!(output.code(), Some(0 | 3)), "{output}");
}
