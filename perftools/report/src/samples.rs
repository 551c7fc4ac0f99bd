//! Records of completed tests, for tests.

use base::histogram::Latencies;
use host::hardware::Hardware;
use measure::spec::Spec;
use measure::spec::connection::ConnectionInfo;
use measure::spec::modes::{Cm, Wait};
use measure::spec::test::Test;
use measure::stats::cpu::{CpuUse, HostCpuTime};
use measure::stats::summary::{Interpretation, Summary};
use measure::stats::{Count, SideStats};

use crate::record::{Measured, Outcome, Record};

fn via(cm: bool) -> ConnectionInfo {
    ConnectionInfo {
        device: "rxe0".into(),
        port: 1,
        link: "RoCE v2".into(),
        gid_index: Some(1),
        address: "::ffff:10.99.0.1".into(),
        cm,
        mtu: Some(4096),
        port_mtu: Some(4096),
        memory: None,
        hardware: Hardware::default(),
        wait: Wait::Adaptive,
    }
}

pub(crate) fn stats(sent: u64, received: u64, size: u64) -> SideStats {
    SideStats {
        sent: Count {
            msgs: sent,
            bytes: sent * size,
        },
        received: Count {
            msgs: received,
            bytes: received * size,
        },
        nanos: 2_000_000_000,
        max_cqe: Some(32),
        stalled: Some(0),
        cpu: CpuUse {
            thread: Some(0.5),
            process: Some(0.6),
            host: Some(HostCpuTime {
                kernel: 2.0,
                ..HostCpuTime::default()
            }),
            cpus: 1,
            waited: Some(0.0),
        },
        verified: 0,
        lost: 0,
        duplicates: 0,
        foreign: 0,
        retransmitted: None,
        jitter: None,
        port_counters: None,
        threads: Vec::new(),
    }
}

pub(crate) fn record(
    test: Test,
    use_cm: Cm,
    local: SideStats,
    remote: SideStats,
    latency: Option<Latencies>,
) -> Record {
    let spec = Spec {
        use_cm,
        ..Spec::new(test)
    };
    let cm = spec.use_cm == Cm::On;
    Record::new(
        test,
        Some("node1"),
        Outcome::Measured(Box::new(Measured {
            exceeded: Vec::new(),
            devices: Vec::new(),
            partial: false,
            local_host: None,
            remote_host: None,
            intervals: Vec::new(),
            dips: Vec::new(),
            warnings: Vec::new(),
            spec,
            depth: 128,
            plan: test.plan(),
            local: via(cm),
            remote: via(cm),
            summary: Summary::new(Interpretation::new(test, test.plan()), &local, &remote),
            latency_buckets: Vec::new(),
            latency_samples: Vec::new(),
            latency: latency.and_then(|l| l.percentiles()),
            local_stats: local,
            remote_stats: remote,
        })),
    )
}

/// Returns the record of a one-way test.
pub fn one_way() -> Record {
    record(
        Test::RcBw,
        Cm::On,
        stats(11_344, 0, 65_536),
        stats(0, 10_735, 65_536),
        None,
    )
}

/// Returns the record of a test in both directions, with half of the bandwidth to the client.
pub fn bidirectional() -> Record {
    record(
        Test::RcBiBw,
        Cm::default(),
        stats(9000, 4500, 65_536),
        stats(4500, 9000, 65_536),
        None,
    )
}

/// Returns the record of [`one_way`] with `--flip`.
#[cfg(test)]
pub(crate) fn flipped() -> Record {
    let (local, remote) = (stats(0, 10_735, 65_536), stats(11_344, 0, 65_536));
    let mut record = record(Test::RcBw, Cm::On, local, remote, None);
    if let Outcome::Measured(m) = &mut record.outcome {
        m.spec.flip = true;
        let interpretation = Interpretation::new(record.test, m.plan).with_flip(true);
        m.summary = Summary::new(interpretation, &m.local_stats, &m.remote_stats);
    }
    record
}

/// Returns the record of a latency test.
pub fn latency() -> Record {
    let mut l = Latencies::new();
    (1..=10_000).for_each(|n| l.record(100_000 + n * 10));
    record(
        Test::RcLat,
        Cm::default(),
        stats(6000, 6000, 1),
        stats(6000, 6000, 1),
        Some(l),
    )
}
