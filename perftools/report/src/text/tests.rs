use measure::spec::modes::Cm;
use measure::spec::test::Test;
use measure::stats::port_counters::CounterChanges;

use super::*;
use crate::devices::tests::two_devices;
use crate::record::Measured;
use crate::warning::Warning;

use crate::samples::{latency, one_way, record, stats};
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
