use host::host_conf::HostConf;
use measure::stats::interval::{Dip, DipKind};
use measure::stats::port_counters::CounterChanges;
use test_support::text::assert_contains;

use super::*;
use crate::record::{Outcome, Record};
use crate::samples::{bidirectional, flipped, latency, one_way};
use crate::warning::{Warning, WarningKind};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn run(name: &str, tests: Vec<Record>) -> NamedRun {
    NamedRun {
        name: name.into(),
        records: Records::new(tests),
    }
}

fn changed(mut record: Record, change: impl FnOnce(&mut Measured)) -> Record {
    if let Outcome::Measured(m) = &mut record.outcome {
        change(m);
    }
    record
}

fn with_size(size: u64, bandwidth: f64) -> Record {
    changed(one_way(), |m| {
        m.spec = m.spec.with_msg_size(size);
        m.summary.bandwidth = Some(bandwidth);
    })
}

fn with_intervals(record: Record) -> Record {
    changed(record, |m| {
        let is_bandwidth = m.latency.is_none();
        m.intervals = (0..5)
            .map(|n| Interval {
                from: n * SECOND,
                to: (n + 1) * SECOND,
                msgs: 7,
                bytes: 7000,
                bandwidth: is_bandwidth.then_some(7000.0),
                latency_mean: (!is_bandwidth).then_some(1000.0),
                latency_max: (!is_bandwidth).then_some(90_000),
                to_server: m.is_bidirectional().then_some(5000.0),
                to_client: m.is_bidirectional().then_some(2000.0),
            })
            .collect();
        m.dips = vec![Dip {
            kind: DipKind::Stall,
            from: SECOND,
            to: SECOND * 2,
            share: 0.0,
        }];
    })
}

/// Returns the names of all elements of a page, in order.
fn elements(page: &str) -> Vec<&str> {
    page.split('<')
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| c.is_whitespace() || c == '>').next())
        .collect()
}

#[test]
fn the_second_line_of_a_color_is_dashed() {
    let page_of = |record| page(&[run("a", vec![record])]);
    assert!(page_of(with_intervals(latency())).contains("stroke-dasharray=\"6 4\""));
    assert!(!page_of(with_intervals(one_way())).contains("stroke-dasharray"));
}

#[test]
fn pages_are_self_contained() {
    let page = page(&[run(
        "a",
        vec![
            with_intervals(one_way()),
            with_intervals(latency()),
            with_size(64, 5e6),
        ],
    )]);
    for reference in [
        "http:", "https:", "url(", "src=", "href=", "@import", "<script",
    ] {
        assert!(!page.contains(reference), "{reference}");
    }
    for plot in [
        "Bandwidth against message size",
        "Latency by percentile",
        "Bandwidth over time",
        "Latency over time",
    ] {
        assert!(page.contains(plot), "{plot}");
    }
    assert!(page.contains("default-src 'none'") && page.contains("prefers-color-scheme: dark"));
}

#[test]
fn each_message_size_has_a_plot_of_percentiles() {
    let record = |size: &u64| changed(latency(), |m| m.spec = m.spec.with_msg_size(*size));
    let sizes = [1, 2, 4, 8, 16, 32];
    let page = page(&[
        run("old", sizes.iter().map(record).collect()),
        run("new", sizes.iter().map(record).collect()),
    ]);
    let (_, plots) = page.split_once("<h2>Latency by percentile").unwrap();
    let plots = plots.split("</figure>").next().unwrap();
    assert_eq!(plots.matches("<svg ").count(), sizes.len());
    // Each plot has a line for each run, and one legend explains them all.
    assert_eq!(plots.matches("stroke-width=\"2\"").count(), 2 * sizes.len());
    assert_eq!(plots.matches("class=\"swatch").count(), 2);
}

#[test]
fn two_runs_have_a_table_of_changes() {
    let page = page(&[
        run("old", vec![with_size(4096, 1e8), latency()]),
        run("new", vec![with_size(4096, 2e8), latency()]),
    ]);
    let (_, table) = page.split_once("Changes from old to new").unwrap();
    let table = table.split("</table>").next().unwrap();
    for cell in [
        "<td>100 MB/sec</td>",
        "<td>200 MB/sec</td>",
        "+100.0 %",
        "unclear (one run: repeat with --repeat 5)",
        "same",
    ] {
        assert!(table.contains(cell), "{cell}: {table}");
    }
}

#[test]
fn pages_show_the_environment() {
    let mut record = changed(one_way(), |m| {
        m.local.hardware.firmware = Some("16.35.2000".into());
    });
    record.started = Some("2026-11-22T20:00:00Z".into());
    record.command = Some("rperf node1 rc_bw".into());
    let page = page(&[run("a", vec![record])]);
    for text in ["16.35.2000", "2026-11-22T20:00:00Z", "rperf node1 rc_bw"] {
        assert!(
            page.contains(&format!("<td class=\"text\">{text}</td>")),
            "{text}"
        );
    }
}

#[test]
fn columns_without_values_are_omitted() {
    let page = page(&[run("a", vec![one_way()])]);
    assert!(page.contains(">bandwidth</th>") && !page.contains(">p99.9</th>"));
}

#[test]
fn directions_have_columns_and_lines() {
    let figures = ["295 MB/sec", "147 MB/sec"].map(|f| format!(">{f}</td>"));
    let page = |record| page(&[run("a", vec![with_intervals(record)])]);
    let both = page(bidirectional());
    for text in [&figures[0], &figures[1], ">to server</th>", ", to client"] {
        assert!(both.contains(text), "{text}: {both}");
    }
    let one = page(flipped());
    assert!(one.contains(">to client</th>"), "{one}");
    assert!(!one.contains("to server"), "{one}");
}

#[test]
fn text_of_records_is_never_markup() {
    let page_with = |hostile_text: &str| {
        let replace = |text: &mut String| hostile_text.clone_into(text);
        let host = HostConf {
            node: hostile_text.into(),
            cpu: hostile_text.into(),
            os: hostile_text.into(),
            rperf: hostile_text.into(),
            boot: None,
        };
        let record = changed(with_intervals(one_way()), |m| {
            for via in [&mut m.local, &mut m.remote] {
                [&mut via.device, &mut via.link, &mut via.address]
                    .into_iter()
                    .for_each(replace);
            }
            m.spec.client.id = Some(base::device_id::DeviceId {
                name: hostile_text.into(),
                port: None,
            });
            m.warnings =
                vec![Warning::new(WarningKind::Other, hostile_text).with_help(hostile_text)];
        });
        let failed = Record {
            outcome: Outcome::Failed {
                error: hostile_text.into(),
            },
            host: Some(hostile_text.into()),
            ..latency()
        };
        let conf = Record {
            outcome: Outcome::Conf {
                local: host.clone(),
                remote: host,
            },
            ..latency()
        };
        let plain = changed(one_way(), |m| m.spec.msg_size = 64);
        let first = run(hostile_text, vec![record, failed, conf, plain, latency()]);
        page(&[first, run("good", vec![one_way(), latency()])])
    };
    let harmless = page_with("harmless");
    for hostile_text in [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "'onmouseover='alert(1)'",
        "</title></style></svg><script>alert(1)//",
        "&lt;<!--",
        "]]><x>",
    ] {
        let page = page_with(hostile_text);
        assert_eq!(elements(&page), elements(&harmless), "{hostile_text}");
        // Attributes are in double quotes, so a single quote needs no escape.
        let is_quote_only = !hostile_text.contains(['<', '>', '"', '&']);
        assert!(
            is_quote_only || !page.contains(hostile_text),
            "{hostile_text}"
        );
    }
}

#[test]
fn lines_are_named_by_differing_parameters() {
    let deep = |size| changed(with_size(size, 2e8), |m| m.spec.depth = 512);
    let page = page(&[
        run(
            "old",
            vec![
                with_size(64, 1e6),
                with_size(4096, 1e8),
                deep(64),
                deep(4096),
            ],
        ),
        run("new", vec![with_size(64, 2e6), with_size(4096, 2e8)]),
    ]);
    for name in ["old, rc_bw", "old, rc_bw, depth 512", "new, rc_bw"] {
        assert!(page.contains(&format!("</span>{name}</li>")), "{name}");
    }
}

#[test]
fn default_depths_do_not_split_lines() {
    let page = page(&[run(
        "old",
        [64, 65536, 1 << 20].map(|size| with_size(size, 1e8)).into(),
    )]);
    assert!(!page.contains("rc_bw, depth"));
}

#[test]
fn repeated_runs_are_one_point_with_a_spread() {
    let page = page(&[run(
        "a",
        vec![
            with_size(64, 1e6),
            with_size(64, 3e6),
            with_size(64, 2e6),
            with_size(128, 2e6),
        ],
    )]);
    assert_contains(
        &page,
        &["64 B: 2 MB/sec (median of 3, 1 MB/sec to 3 MB/sec)"],
    );
}

#[test]
fn single_sizes_are_drawn_as_bars() {
    let page = page(&[run("a", vec![one_way()]), run("b", vec![one_way()])]);
    assert!(page.contains("Bandwidth, 64 KiB messages") && page.contains("<td class=\"bar\">"));
    // Two tests with one size each are bars too.
    let other = Record {
        test: measure::spec::test::Test::UcBw,
        ..with_size(64, 1e6)
    };
    let both = super::page(&[run("a", vec![one_way(), other])]);
    assert_contains(&both, &["rc_bw, 64 KiB</th>", "uc_bw, 64 B</th>"]);
}

#[test]
fn failed_tests_alone_make_a_page() {
    let failed = Record {
        outcome: Outcome::Failed {
            error: "no device".into(),
        },
        ..one_way()
    };
    let page = page(&[run("a", vec![failed])]);
    assert!(page.contains("rc_bw failed: no device") && !page.contains("<figure>"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_values_make_a_page(figures in proptest::collection::vec((any::<u64>(), proptest::num::f64::ANY), 1..5), times: [u64; 3]) {
        let mut records: Vec<_> = figures.iter().map(|(size, value)| with_intervals(with_size(*size, *value))).collect();
        records.extend(figures.iter().map(|(size, value)| changed(with_intervals(latency()), |m| {
            m.spec.msg_size = *size;
            (m.local_stats.lost, m.remote_stats.lost) = (*size, u64::MAX);
            m.intervals[0] = Interval { from: times[0], to: times[1], latency_mean: Some(*value), latency_max: Some(times[2]), ..m.intervals[0] };
            if let Some(p) = &mut m.latency {
                (p.samples, p.p50, p.max) = (times[0], times[1], times[2]);
            }
        })));
        let page = page(&[run("a", records)]);
        for drawn in page.split('<').filter(|e| e.starts_with("path") || e.starts_with("rect") || e.starts_with("circle")) {
            prop_assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
    }
}

#[test]
fn counters_that_show_a_cause_are_listed() {
    let record = changed(one_way(), |m| {
        let increased = [
            ("hw_counters/out_of_sequence", 7),
            ("hw_counters/rx_pkts", 900),
        ];
        m.remote.device = "mlx5_1".to_owned();
        m.remote_stats.port_counters = Some(CounterChanges {
            increased: increased.map(|(name, by)| (name.to_owned(), by)).into(),
            unknown: Vec::new(),
        });
        m.warnings
            .push(Warning::new(WarningKind::PacketLoss, "packets were lost"));
    });
    let page = page(&[run("old", vec![one_way()]), run("new", vec![record])]);
    assert!(page.contains("out_of_sequence</td><td>7</td>"), "{page}");
    assert!(
        page.contains("server, mlx5_1") && !page.contains("rx_pkts"),
        "{page}"
    );
    assert!(page.contains("new, rc_bw: packets were lost"), "{page}");
    assert!(page.contains("cause: packets were lost"), "{page}");
}
