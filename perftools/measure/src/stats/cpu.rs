//! Processor time of a thread and its process from `clock_gettime`, and of the whole host from
//! `/proc/stat`.

use std::fs;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Unit of `/proc/stat` in seconds. `USER_HZ` is 100 on every architecture on which Linux supports
/// RDMA.
const TICK: f64 = 0.01;

/// Processor time used between two clock readings, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct CpuUse {
    /// Time of the thread that ran the test. Null if it is unknown, as for a peer that is qperf.
    #[serde(default)]
    pub thread: Option<f64>,
    /// Time of its process. This includes the other end if both ends run in one process. Null if
    /// it is unknown, as for a peer that is qperf.
    #[serde(default)]
    pub process: Option<f64>,
    /// Time of the whole host, with a resolution of 10 ms. Null if `/proc/stat` cannot be read.
    #[serde(default)]
    pub host: Option<HostCpuTime>,
    /// Number of processors that the process may use.
    pub cpus: u32,
    /// Time for which the thread that ran the test was runnable, but waited for a processor. Null
    /// if it is unknown: for a peer that is qperf, or if the kernel does not count it.
    #[serde(default)]
    pub waited: Option<f64>,
}

impl Eq for CpuUse {}

/// Processor time of the whole host in seconds, summed over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "Host"))]
pub struct HostCpuTime {
    /// User mode (`user` and `nice`).
    pub user: f64,
    /// Kernel mode, and time taken by the hypervisor (`system` and `steal`).
    pub kernel: f64,
    /// Interrupts (`irq` and `softirq`).
    pub intr: f64,
    /// Idle while waiting for storage (`iowait`).
    pub iowait: f64,
}

impl HostCpuTime {
    /// Returns the time that was not idle. Waiting for storage counts as busy, like in qperf.
    pub fn busy(&self) -> f64 {
        self.user + self.kernel + self.intr + self.iowait
    }

    /// Parses the first line of `/proc/stat`: user nice system idle iowait irq softirq steal.
    pub fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let mut f = [0.0; 8];
        for (to, from) in f.iter_mut().zip(line.split_whitespace()) {
            *to = from.parse::<f64>().ok()? * TICK;
        }
        Some(Self {
            user: f[0] + f[1],
            kernel: f[2] + f[7],
            intr: f[5] + f[6],
            iowait: f[4],
        })
    }

    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Returns the time since an earlier reading.
    fn since(self, earlier: Self) -> Self {
        Self {
            user: (self.user - earlier.user).max(0.0),
            kernel: (self.kernel - earlier.kernel).max(0.0),
            intr: (self.intr - earlier.intr).max(0.0),
            iowait: (self.iowait - earlier.iowait).max(0.0),
        }
    }
}

/// Values of all clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    wall: Instant,
    thread: Duration,
    process: Duration,
    host: Option<HostCpuTime>,
    waited: Option<Duration>,
}

impl ClockReading {
    /// Reads the clocks of the calling thread, its process and the host. The wall clock is read
    /// last, so that work which starts after this call is timed without the reading itself.
    pub fn now() -> Self {
        let clock = |id| clock_gettime(id).map(Duration::from).unwrap_or_default();
        let host = HostCpuTime::now();
        let thread = clock(ClockId::CLOCK_THREAD_CPUTIME_ID);
        let process = clock(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        let waited = read_wait_time();
        Self {
            wall: Instant::now(),
            thread,
            process,
            host,
            waited,
        }
    }

    /// Does the same as [`ClockReading::now`], but reads the wall clock first. Use this after
    /// counting completions: on a busy processor, reading the other clocks may take milliseconds,
    /// which must not be added to the time of the counted messages.
    pub fn now_wall_first() -> Self {
        let wall = Instant::now();
        Self {
            wall,
            ..Self::now()
        }
    }

    /// Returns the time of the reading.
    pub fn wall(&self) -> Instant {
        self.wall
    }

    /// Returns the processor time used since `earlier`, which must come from the same thread.
    pub fn since(&self, earlier: &ClockReading) -> CpuUse {
        let seconds = |to: Duration, from: Duration| to.saturating_sub(from).as_secs_f64();
        let waited = self.waited.zip(earlier.waited);
        CpuUse {
            thread: Some(seconds(self.thread, earlier.thread)),
            process: Some(seconds(self.process, earlier.process)),
            host: self.host.zip(earlier.host).map(|(to, from)| to.since(from)),
            cpus: available_cpus(),
            waited: waited.map(|(to, from)| seconds(to, from)),
        }
    }
}

/// Reads the time for which the calling thread has waited for a processor: the second number of its
/// `schedstat`, in nanoseconds. A kernel without `CONFIG_SCHED_INFO` does not have it.
fn read_wait_time() -> Option<Duration> {
    parse_wait_time(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

fn parse_wait_time(schedstat: &str) -> Option<Duration> {
    let nanos = schedstat.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// Returns the number of processors that this process may use.
pub(crate) fn available_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat_fields_are_parsed() {
        let host = HostCpuTime::parse("cpu  100 20 300 9999 50 6 7 8 0 0\ncpu0 1 2 3 4\n").unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            close(host.user, 1.2)
                && close(host.kernel, 3.08)
                && close(host.intr, 0.13)
                && close(host.iowait, 0.5)
        );
        assert!(close(host.busy(), 4.91));
        assert_eq!(HostCpuTime::parse("intr 1 2 3"), None);
        assert_eq!(HostCpuTime::parse(""), None);
    }

    #[test]
    fn work_increases_thread_and_process_time() {
        let before = ClockReading::now();
        let mut x = 1_u64;
        while before.wall.elapsed() < Duration::from_millis(20) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let used = ClockReading::now().since(&before);
        assert!(
            used.thread.unwrap() > 0.001 && used.process.unwrap() >= used.thread.unwrap() * 0.5,
            "{used:?}"
        );
    }

    #[test]
    fn times_that_the_kernel_does_not_count_are_unknown() {
        assert_eq!(
            parse_wait_time("7 5000 3\n"),
            Some(Duration::from_micros(5))
        );
        assert_eq!(parse_wait_time(""), None);
        let known = ClockReading::now();
        let unknown = ClockReading {
            host: None,
            waited: None,
            ..known
        };
        for used in [known.since(&unknown), unknown.since(&known)] {
            assert_eq!((used.host, used.waited), (None, None));
        }
    }
}
