use base::histogram::Latencies;
use host::hardware::Hardware;
use measure::spec::Spec;
use measure::spec::connection::ConnectionInfo;
use measure::spec::modes::{Cm, Wait};
use measure::spec::test::Test;
use measure::stats::cpu::{CpuUse, HostCpuTime};
use measure::stats::port_counters::CounterChanges;
use measure::stats::summary::{Interpretation, Summary};
use measure::stats::{Count, SideStats};

use super::*;
use crate::rperf::report::devices::tests::two_devices;
use crate::rperf::report::record::Measured;
use crate::rperf::report::warning::Warning;

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

fn stats(sent: u64, received: u64, size: u64) -> SideStats {
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
        retransmitted: None,
        jitter: None,
        port_counters: None,
        threads: Vec::new(),
    }
}

fn record(
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

pub(crate) fn one_way() -> Record {
    record(
        Test::RcBw,
        Cm::On,
        stats(11_344, 0, 65_536),
        stats(0, 10_735, 65_536),
        None,
    )
}

pub(crate) fn latency() -> Record {
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

/// Formats a record with the same verbosity for all categories.
fn text(record: &Record, level: u8) -> String {
    let verbosity = Verbosity {
        conf: level,
        stat: level,
        time: level,
        used: level,
    };
    let format = Format {
        verbosity,
        ..Format::default()
    };
    format.render(record)
}

#[test]
fn several_devices_have_a_line_each_after_the_sum() {
    let (bandwidth, latency) = (two_devices(one_way()), two_devices(latency()));
    insta::assert_snapshot!(text(&bandwidth, 0) + &text(&latency, 0));
}

#[test]
fn default_output_has_the_main_results() {
    let bidirectional = record(
        Test::RcBiBw,
        Cm::default(),
        stats(9000, 9000, 65_536),
        stats(9000, 9000, 65_536),
        None,
    );
    insta::assert_snapshot!(text(&one_way(), 0) + &text(&latency(), 0) + &text(&bidirectional, 0));
}

#[test]
fn verbose_output_adds_details() {
    insta::assert_snapshot!(text(&one_way(), 1) + &text(&latency(), 1));
}

#[test]
fn more_verbose_output_has_all_details() {
    insta::assert_snapshot!(text(&one_way(), 2) + &text(&latency(), 2));
}

#[test]
fn equals_signs_align_and_units_do_not_alternate() {
    for record in [one_way(), latency()] {
        let text = text(&record, 2);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let column = lines[0].find('=');
        for line in lines {
            assert_eq!(line.find('='), column, "{text}");
            // Sizes that a user sets are binary, and measured amounts are decimal.
            let is_setting = line.trim_start().starts_with("msg_size")
                || line.trim_start().starts_with("mtu_size");
            assert!(is_setting || !line.contains("iB"), "{line}");
        }
    }
}

#[test]
fn units_and_node_names_can_be_unified() {
    let format = Format {
        style: Style {
            precision: 5,
            unify: true,
            bits: true,
        },
        verbosity: Verbosity {
            stat: 2,
            ..Verbosity::default()
        },
        unify_nodes: true,
    };
    insta::assert_snapshot!(format.render(&one_way()));
}

#[test]
fn conf_prints_both_hosts() {
    let host = HostConf {
        node: "a".into(),
        cpu: "2 × CPU".into(),
        os: "Linux 6.12".into(),
        rperf: "0.1.0".into(),
    };
    let outcome = Outcome::Conf {
        local: host.clone(),
        remote: host,
    };
    let record = Record::new(Test::Conf, None, outcome);
    insta::assert_snapshot!(text(&record, 0));
}

#[test]
fn counters_and_their_cause_are_shown() {
    let with_counters = |change: fn(&mut Measured)| {
        let mut record = one_way();
        if let Outcome::Measured(m) = &mut record.outcome {
            let increased = [
                ("hw_counters/rcvd_seq_err", 5),
                ("hw_counters/sent_pkts", 900),
            ];
            m.local_stats.port_counters = Some(CounterChanges {
                increased: increased.map(|(name, by)| (name.to_owned(), by)).into(),
                unknown: vec!["counters/symbol_error".to_owned()],
            });
            m.remote_stats.port_counters = m.local_stats.port_counters.clone();
            m.warnings.push(Warning {
                kind: "packet_loss".to_owned(),
                text: "packets were lost".to_owned(),
            });
            change(m);
        }
        record
    };
    let one_port = with_counters(|_| {});
    let shown = text(&one_port, 0);
    assert!(
        shown.contains("    counters  =  rcvd_seq_err 5\n"),
        "{shown}"
    );
    assert!(
        shown.contains("    cause     =  packets were lost\n"),
        "{shown}"
    );
    let verbosity = Verbosity {
        stat: 1,
        ..Verbosity::default()
    };
    let format = Format {
        verbosity,
        ..Format::default()
    };
    let all = format.render(&one_port);
    assert!(
        all.contains("=  rcvd_seq_err 5, sent_pkts 900, unknown: counters/symbol_error\n"),
        "{all}"
    );
    let two_ports = with_counters(|m| m.remote.device = "mlx5_0".into());
    let shown = text(&two_ports, 0);
    assert!(
        shown.contains("    loc_counters  =  rcvd_seq_err 5\n"),
        "{shown}"
    );
    assert!(
        shown.contains("    rem_counters  =  rcvd_seq_err 5\n"),
        "{shown}"
    );
}
