use measure::spec::test::Test;
use measure::stats::ThreadStats;
use measure::stats::port_counters::CounterChanges;
use test_support::text::assert_contains;

use super::*;
use crate::devices::tests::two_devices;
use crate::record::Measured;
use crate::warning::Warning;

use crate::samples::{bidirectional, flipped, latency, one_way};
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
    insta::assert_snapshot!(
        text(&one_way(), 0) + &text(&latency(), 0) + &text(&bidirectional(), 0)
    );
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
fn units_can_be_unified() {
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
        boot: None,
    };
    let outcome = Outcome::Conf {
        local: host.clone(),
        remote: host,
    };
    let record = Record::new(Test::Conf, None, outcome);
    insta::assert_snapshot!(text(&record, 0));
}

/// Returns the record of a one-way test after a change.
fn changed(change: impl FnOnce(&mut Measured)) -> Record {
    let mut record = one_way();
    if let Outcome::Measured(m) = &mut record.outcome {
        change(m);
    }
    record
}

/// Formats a record with this level of statistics.
fn statistics(record: &Record, stat: u8) -> String {
    let verbosity = Verbosity {
        stat,
        ..Verbosity::default()
    };
    let format = Format {
        verbosity,
        ..Format::default()
    };
    format.render(record)
}

#[test]
fn a_cause_has_one_line_and_its_counters_need_verbosity() {
    let with_counters = |m: &mut Measured| {
        let increased = [
            ("hw_counters/rcvd_seq_err", 5),
            ("hw_counters/sent_pkts", 900),
        ];
        m.local_stats.port_counters = Some(CounterChanges {
            increased: increased.map(|(name, by)| (name.to_owned(), by)).into(),
            unknown: vec!["counters/symbol_error".to_owned()],
        });
        m.remote_stats.port_counters = m.local_stats.port_counters.clone();
        let text = "packets were lost (rcvd_seq_err 5)";
        let warning = Warning::new(WarningKind::PacketLoss, text);
        m.warnings.push(warning.with_help("look at the ports"));
    };
    let one_port = changed(with_counters);
    let shown = text(&one_port, 0);
    assert_eq!(
        shown.lines().last(),
        Some("    cause  =  packets were lost (rcvd_seq_err 5)")
    );
    assert!(!shown.contains("    rcvd_seq_err"), "{shown}");
    let shown = statistics(&one_port, 1);
    let has = |shown: &str, line: [&str; 3]| {
        let mut lines = shown.lines().map(|line| line.split_whitespace());
        lines.any(|words| words.eq(line))
    };
    assert!(has(&shown, ["rcvd_seq_err", "=", "5"]), "{shown}");
    assert!(shown.contains("; help: look at the ports"), "{shown}");
    assert!(!shown.contains("sent_pkts"), "{shown}");
    let without_cause = changed(|m| {
        with_counters(m);
        m.warnings.clear();
    });
    let shown = statistics(&without_cause, 1);
    assert!(!shown.contains("rcvd_seq_err"), "{shown}");
    let shown = statistics(&one_port, 2);
    assert!(has(&shown, ["sent_pkts", "=", "900"]), "{shown}");
    let unknown = ["unknown_counters", "=", "counters/symbol_error"];
    assert!(has(&shown, unknown), "{shown}");
    let two_ports = changed(|m| {
        with_counters(m);
        m.remote.device = "mlx5_0".into();
    });
    let shown = statistics(&two_ports, 1);
    assert!(shown.contains("    loc_rcvd_seq_err  = "), "{shown}");
    assert!(shown.contains("    rem_rcvd_seq_err  = "), "{shown}");
}

#[test]
fn retransmissions_are_shown_if_there_were_any() {
    for (count, shown) in [(Some(0), false), (None, false), (Some(3), true)] {
        let record = changed(|m| m.local_stats.retransmitted = count);
        for level in [0, 2] {
            let text = text(&record, level);
            assert_eq!(text.contains("retransmitted"), shown, "{text}");
        }
    }
    let with_cause = changed(|m| {
        m.local_stats.retransmitted = Some(3);
        let text = "packets were lost (RetransSegs 3)";
        m.warnings.push(Warning::new(WarningKind::PacketLoss, text));
    });
    assert!(!text(&with_cause, 0).contains("retransmitted"));
}

#[test]
fn a_loss_with_a_cause_has_no_warning_of_its_own() {
    let lossy = |has_cause: bool| {
        changed(|m| {
            m.warnings.push(Warning::new(
                WarningKind::Lost,
                "5 of 9 messages were lost".to_owned(),
            ));
            if has_cause {
                let text = "a host discarded packets (RcvbufErrors 5)".to_owned();
                m.warnings.push(Warning::new(WarningKind::Discards, text));
            }
        })
    };
    assert!(text(&lossy(false), 0).contains("5 of 9"));
    assert!(!text(&lossy(true), 0).contains("5 of 9"));
    assert!(statistics(&lossy(true), 1).contains("5 of 9"));
}

#[test]
fn the_direction_is_shown_if_the_server_sends() {
    assert!(!text(&one_way(), 0).contains("to_"));
    let flipped = text(&flipped(), 0);
    assert_contains(&flipped, &["    to_client  =  352 MB/sec\n"]);
    assert!(!flipped.contains("to_server"), "{flipped}");
}

#[test]
fn no_line_is_longer_than_100_columns() {
    let long = |m: &mut Measured| {
        let words = "a condition that is described at length ".repeat(5);
        m.warnings
            .push(Warning::new(WarningKind::Other, &words).with_help(&words));
        m.local.address = "fe80:0000:0000:0000:0202:c9ff:fe00:0001 ".repeat(4);
        m.remote_stats.threads = vec![ThreadStats::default(); 64];
    };
    for level in 0..3 {
        let text = text(&changed(long), level);
        assert!(text.contains("warning"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
