use super::*;
use crate::common::histogram::Latencies;
use crate::rperf::report::devices::tests::two_devices;
use crate::rperf::report::record::Measured;
use crate::rperf::report::warning::Warning;
use crate::rperf::spec::connection::{ConnectionInfo, Hardware};
use crate::rperf::spec::modes::{Cm, Wait};
use crate::rperf::spec::test::Test;
use crate::rperf::stats::cpu::{CpuUse, HostCpuTime};
use crate::rperf::stats::port_counters::CounterChanges;
use crate::rperf::stats::summary::{Interpretation, Summary};
use crate::rperf::stats::{Count, SideStats};
use clap::Parser;

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
    options: &[&str],
    local: SideStats,
    remote: SideStats,
    latency: Option<Latencies>,
) -> Record {
    let options =
        Options::try_parse_from(std::iter::once("rperf").chain(options.iter().copied())).unwrap();
    let spec = options.to_spec(test).unwrap();
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
        &["--use-cm=on"],
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
        &[],
        stats(6000, 6000, 1),
        stats(6000, 6000, 1),
        Some(l),
    )
}

fn text(record: &Record, options: &[&str]) -> String {
    let options =
        Options::try_parse_from(std::iter::once("rperf").chain(options.iter().copied())).unwrap();
    Format::new(&options).render(record)
}

#[test]
fn several_devices_have_a_line_each_after_the_sum() {
    let (bandwidth, latency) = (two_devices(one_way()), two_devices(latency()));
    insta::assert_snapshot!(text(&bandwidth, &[]) + &text(&latency, &[]));
}

#[test]
fn default_output_has_the_main_results() {
    let bidirectional = record(
        Test::RcBiBw,
        &[],
        stats(9000, 9000, 65_536),
        stats(9000, 9000, 65_536),
        None,
    );
    insta::assert_snapshot!(
        text(&one_way(), &[]) + &text(&latency(), &[]) + &text(&bidirectional, &[])
    );
}

#[test]
fn verbose_output_adds_details() {
    insta::assert_snapshot!(text(&one_way(), &["--verbose"]) + &text(&latency(), &["--verbose"]));
}

#[test]
fn more_verbose_output_has_all_details() {
    insta::assert_snapshot!(
        text(&one_way(), &["--verbose-more"]) + &text(&latency(), &["--verbose-more"])
    );
}

#[test]
fn equals_signs_align_and_units_do_not_alternate() {
    for record in [one_way(), latency()] {
        let text = text(&record, &["--verbose-more"]);
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
    let options = [
        "--verbose-more-stat",
        "--unify-nodes",
        "--unify-units",
        "--precision=5",
        "--bits",
    ];
    insta::assert_snapshot!(text(&one_way(), &options));
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
    insta::assert_snapshot!(text(&record, &[]));
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
    let shown = text(&one_port, &[]);
    assert!(
        shown.contains("    counters  =  rcvd_seq_err 5\n"),
        "{shown}"
    );
    assert!(
        shown.contains("    cause     =  packets were lost\n"),
        "{shown}"
    );
    let all = text(&one_port, &["--verbose-stat"]);
    assert!(
        all.contains("=  rcvd_seq_err 5, sent_pkts 900, unknown: counters/symbol_error\n"),
        "{all}"
    );
    let two_ports = with_counters(|m| m.remote.device = "mlx5_0".into());
    let shown = text(&two_ports, &[]);
    assert!(
        shown.contains("    loc_counters  =  rcvd_seq_err 5\n"),
        "{shown}"
    );
    assert!(
        shown.contains("    rem_counters  =  rcvd_seq_err 5\n"),
        "{shown}"
    );
}
