//! The message with the statistics of one end.

use measure::stats::cpu::{CpuUse, HostCpuTime};
use measure::stats::{Count, SideStats};

use super::bytes::{Reader, Writer};

/// Length of the encoded statistics in bytes, including padding.
pub const LEN: usize = 256;
/// Ticks per second in messages from this end. qperf divides by the received value, so this end can
/// use nanoseconds.
const TICKS_PER_SECOND: u32 = 1_000_000_000;

/// Counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QperfCounts {
    /// Bytes.
    pub bytes: u64,
    /// Messages.
    pub msgs: u64,
    /// Errors.
    pub errs: u64,
}

/// Wall clock and CPU times of the host at one moment, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are those of /proc/stat.
pub struct Clocks {
    pub real: u64,
    pub user: u64,
    pub nice: u64,
    pub kernel: u64,
    pub idle: u64,
    pub iowait: u64,
    pub irq: u64,
    pub softirq: u64,
    pub steal: u64,
}

/// Statistics of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Number of CPUs of the host.
    pub no_cpus: u32,
    /// Ticks per second of the clocks.
    pub no_ticks: u32,
    /// Largest number of completions returned by one poll.
    pub max_cqes: u32,
    /// Clocks at the beginning of the test.
    pub start: Clocks,
    /// Clocks at the end of the test.
    pub end: Clocks,
    /// Messages sent by this end.
    pub sent: QperfCounts,
    /// Messages received by this end.
    pub received: QperfCounts,
    /// Messages sent by the peer's device alone: RDMA reads of this end.
    pub peer_sent: QperfCounts,
    /// Messages received by the peer's device alone: atomics of this end.
    pub peer_received: QperfCounts,
}

impl Stat {
    /// Encodes the statistics.
    pub fn encode(&self) -> [u8; LEN] {
        let w = Writer::new()
            .u32(self.no_cpus)
            .u32(self.no_ticks)
            .u32(self.max_cqes);
        let w = [self.start, self.end].into_iter().fold(w, |w, c| {
            let all = [
                c.real, c.user, c.nice, c.kernel, c.idle, c.iowait, c.irq, c.softirq, c.steal,
            ];
            all.into_iter().fold(w, Writer::u64)
        });
        let counts = [self.sent, self.received, self.peer_sent, self.peer_received];
        counts
            .into_iter()
            .fold(w, |w, c| w.u64(c.bytes).u64(c.msgs).u64(c.errs))
            .finish()
    }

    /// Decodes statistics.
    pub fn decode(bytes: &[u8; LEN]) -> Self {
        let mut r = Reader(bytes);
        let (no_cpus, no_ticks, max_cqes) = (r.u32(), r.u32(), r.u32());
        let mut clocks = || Clocks {
            real: r.u64(),
            user: r.u64(),
            nice: r.u64(),
            kernel: r.u64(),
            idle: r.u64(),
            iowait: r.u64(),
            irq: r.u64(),
            softirq: r.u64(),
            steal: r.u64(),
        };
        let (start, end) = (clocks(), clocks());
        let mut counts = || QperfCounts {
            bytes: r.u64(),
            msgs: r.u64(),
            errs: r.u64(),
        };
        let [sent, received, peer_sent, peer_received] = [counts(), counts(), counts(), counts()];
        Self {
            no_cpus,
            no_ticks,
            max_cqes,
            start,
            end,
            sent,
            received,
            peer_sent,
            peer_received,
        }
    }

    /// Converts the statistics of this end for a qperf peer.
    pub(crate) fn from_side_stats(side: &SideStats) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // The times are short enough.
        let ticks = |secs: f64| (secs * f64::from(TICKS_PER_SECOND)) as u64;
        // qperf has no unknown times.
        let host = side.cpu.host.unwrap_or_default();
        Self {
            no_cpus: side.cpu.cpus,
            no_ticks: TICKS_PER_SECOND,
            max_cqes: side.max_cqe.unwrap_or(0),
            start: Clocks::default(),
            end: Clocks {
                real: side.nanos,
                user: ticks(host.user),
                kernel: ticks(host.kernel),
                iowait: ticks(host.iowait),
                irq: ticks(host.intr),
                ..Clocks::default()
            },
            sent: side.sent.into(),
            received: side.received.into(),
            ..Self::default()
        }
    }

    /// Converts the statistics of a qperf peer. Its counts for this end (`peer_sent`,
    /// `peer_received`) are omitted.
    #[allow(clippy::cast_precision_loss)] // Tick counts are below 2^53.
    pub fn to_side_stats(self) -> SideStats {
        let (start, end) = (&self.start, &self.end);
        let ticks = f64::from(self.no_ticks.max(1));
        let secs = |from: u64, to: u64| to.saturating_sub(from) as f64 / ticks;
        let real = u128::from(end.real.saturating_sub(start.real)) * 1_000_000_000
            / u128::from(self.no_ticks.max(1));
        SideStats {
            sent: self.sent.into(),
            received: self.received.into(),
            nanos: u64::try_from(real).unwrap_or(u64::MAX),
            // Tests over sockets have no completions.
            max_cqe: Some(self.max_cqes).filter(|count| *count > 0),
            cpu: CpuUse {
                host: Some(HostCpuTime {
                    user: secs(start.user, end.user) + secs(start.nice, end.nice),
                    kernel: secs(start.kernel, end.kernel) + secs(start.steal, end.steal),
                    intr: secs(start.irq, end.irq) + secs(start.softirq, end.softirq),
                    iowait: secs(start.iowait, end.iowait),
                }),
                cpus: self.no_cpus,
                ..CpuUse::default()
            },
            ..SideStats::default()
        }
    }
}

impl From<Count> for QperfCounts {
    fn from(count: Count) -> Self {
        Self {
            bytes: count.bytes,
            msgs: count.msgs,
            errs: 0,
        }
    }
}

impl From<QperfCounts> for Count {
    fn from(counts: QperfCounts) -> Self {
        Self {
            msgs: counts.msgs,
            bytes: counts.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_offsets_match_qperf() {
        let stat = Stat {
            no_cpus: 1,
            no_ticks: 2,
            max_cqes: 3,
            start: Clocks {
                real: 4,
                steal: 5,
                ..Clocks::default()
            },
            end: Clocks {
                real: 6,
                steal: 7,
                ..Clocks::default()
            },
            sent: QperfCounts {
                bytes: 8,
                msgs: 9,
                errs: 10,
            },
            received: QperfCounts {
                bytes: 11,
                ..QperfCounts::default()
            },
            peer_sent: QperfCounts {
                bytes: 12,
                ..QperfCounts::default()
            },
            peer_received: QperfCounts {
                errs: 13,
                ..QperfCounts::default()
            },
        };
        let bytes = stat.encode();
        let at = [0, 4, 8, 12, 76, 84, 148, 156, 164, 172, 180, 204, 244];
        assert_eq!(
            at.map(|at: usize| bytes[at]),
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
        );
        assert_eq!(Stat::decode(&bytes), stat);
    }

    #[test]
    fn ticks_of_the_peer_are_converted_to_seconds() {
        let stat = Stat {
            no_ticks: 100,
            start: Clocks {
                real: 1000,
                user: 10,
                idle: 7,
                ..Clocks::default()
            },
            end: Clocks {
                real: 1200,
                user: 60,
                nice: 10,
                kernel: 20,
                steal: 5,
                softirq: 30,
                idle: 999,
                ..Clocks::default()
            },
            ..Stat::default()
        };
        let side = stat.to_side_stats();
        assert_eq!(side.nanos, 2_000_000_000);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let host = side.cpu.host.unwrap();
        assert!(
            close(host.user, 0.6) && close(host.kernel, 0.25) && close(host.intr, 0.3),
            "{host:?}"
        );
    }

    #[test]
    fn statistics_survive_a_round_trip() {
        let side = SideStats {
            lost: 0,
            duplicates: 0,
            foreign: 0,
            retransmitted: None,
            jitter: None,
            port_counters: None,
            sent: Count {
                msgs: 3,
                bytes: 300,
            },
            received: Count {
                msgs: 4,
                bytes: 400,
            },
            nanos: 1_234_567_890,
            max_cqe: Some(9),
            stalled: None,
            cpu: CpuUse {
                host: Some(HostCpuTime {
                    user: 0.25,
                    kernel: 0.5,
                    intr: 0.125,
                    iowait: 1.0,
                }),
                cpus: 2,
                ..CpuUse::default()
            },
            verified: 0,
            threads: Vec::new(),
        };
        assert_eq!(Stat::from_side_stats(&side).to_side_stats(), side);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_decode_and_encode_to_the_same(quarters: [[u8; 32]; 7], rest: [u8; 28]) {
            let mut bytes = [0; LEN];
            bytes[..224].copy_from_slice(quarters.as_flattened());
            bytes[224..252].copy_from_slice(&rest);
            let stat = Stat::decode(&bytes);
            let _ = stat.to_side_stats();
            proptest::prop_assert_eq!(stat.encode(), bytes);
        }
    }
}
