use std::time::Duration;

use base::error::{Error, Kind};
use base::units::Style;
use measure::spec::modes::Wait;
use measure::spec::test::Test;
use measure::stats::cpu::HostCpuTime;
use report::advice::Bottleneck;
use report::record::Outcome;
use report::samples::{latency, one_way};

use super::settings::SearchSettings;
use super::*;
use crate::rperf::args::command_line::Options;
use clap::Parser;

/// Simulated pair of hosts. `simulate` returns the result of a test with given settings.
struct FakePair<F> {
    runs: u32,
    simulate: F,
}

/// Simulated result: bytes per second (or a latency in nanoseconds), and the load of the threads
/// and hosts of both ends.
struct FakeRun {
    figure: f64,
    threads: [f64; 2],
    hosts: [f64; 2],
}

impl<F: FnMut(Test, SearchSettings) -> Result<FakeRun>> Runner for FakePair<F> {
    fn run(&mut self, spec: &Spec) -> Result<Measured> {
        self.runs += 1;
        let run = (self.simulate)(spec.test, SearchSettings::from_spec(spec))?;
        let record = if spec.test.is_latency() {
            latency()
        } else {
            one_way()
        };
        let Outcome::Measured(mut m) = record.outcome else {
            panic!()
        };
        m.spec = spec.clone();
        m.depth = spec.depth;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        if let Some(p) = &mut m.latency {
            p.p50 = run.figure as u64;
        } else {
            m.summary.bandwidth = Some(run.figure);
            m.summary.msg_rate = run.figure / spec.msg_size as f64;
        }
        for (side, (thread, host)) in [&mut m.local_stats, &mut m.remote_stats]
            .into_iter()
            .zip(run.threads.into_iter().zip(run.hosts))
        {
            // The measurement took two seconds, on hosts with one processor.
            side.cpu.thread = Some(thread * 2.0);
            side.cpu.host = Some(HostCpuTime {
                kernel: host * 2.0,
                ..HostCpuTime::default()
            });
        }
        Ok(*m)
    }
}

fn find(
    simulate: impl FnMut(Test, SearchSettings) -> Result<FakeRun>,
    link: Option<f64>,
) -> (TuneResult, u32) {
    find_within(MAX_MEASUREMENTS, simulate, link)
}

fn find_within(
    max_measurements: u32,
    simulate: impl FnMut(Test, SearchSettings) -> Result<FakeRun>,
    link: Option<f64>,
) -> (TuneResult, u32) {
    let spec = Options::try_parse_from(["rperf"])
        .unwrap()
        .to_spec(Test::RcBw)
        .unwrap();
    let mut pair = FakePair { runs: 0, simulate };
    let path_limits = |_: &Measured| PathLimits {
        link,
        one_host: false,
    };
    let advice = run(
        &mut pair,
        &spec,
        Limit::Time(Duration::from_millis(100)),
        max_measurements,
        path_limits,
        |test| format!("rperf node {}", test.name()),
    )
    .unwrap();
    (advice, pair.runs)
}

fn idle(figure: f64) -> FakeRun {
    FakeRun {
        figure,
        threads: [0.2, 0.3],
        hosts: [0.3, 0.4],
    }
}

fn bounds(advice: &TuneResult) -> Vec<Option<Bottleneck>> {
    advice.findings.iter().map(|f| f.bound).collect()
}

#[test]
fn the_best_settings_become_a_command() {
    let (advice, runs) = find(
        |test, s| {
            if test.is_latency() {
                return Ok(idle(if s.wait == Wait::Poll { 5e3 } else { 9e3 }));
            }
            let wait = if s.wait == Wait::Poll { 2.0 } else { 1.0 };
            let depth = if s.depth >= 64 { 1.0 } else { 3.0 };
            let list = if s.post_list == 64 { 1.5 } else { 1.0 };
            Ok(idle(
                1e8 * wait * depth * list * if s.qps == 4 { 1.3 } else { 1.0 },
            ))
        },
        None,
    );
    let commands: Vec<&str> = advice.findings.iter().map(|f| f.command.as_str()).collect();
    assert_eq!(commands[0], "rperf node rc_lat --msg-size 1 --wait poll");
    assert_eq!(
        commands[1],
        "rperf node rc_bw --msg-size 64 --wait poll --depth 16 --post-list 64 --qps 4"
    );
    assert_eq!(
        commands[2],
        "rperf node rc_bw --msg-size 65536 --wait poll --depth 16 --qps 4"
    );
    assert!(
        (advice.findings[1].gain() - 11.7).abs() < 0.1
            && (advice.findings[0].gain() - 1.8).abs() < 0.1
    );
    assert!(
        runs <= MAX_MEASUREMENTS && runs == advice.measurements,
        "{runs}"
    );
    assert_eq!(
        bounds(&advice),
        [None, Some(Bottleneck::Unknown), Some(Bottleneck::Unknown)]
    );
    assert!(
        advice.findings[0]
            .why
            .contains("polling is 1.8 times as fast"),
        "{}",
        advice.findings[0].why
    );
}

#[test]
fn few_measurements_suffice_for_every_goal() {
    for max in [5, 6, 9, 20] {
        let (advice, runs) = find_within(max, |_, s| Ok(busy_thread(s)), None);
        assert_eq!((runs, advice.measurements), (advice.measurements, runs));
        assert!(runs <= max, "{runs} of {max}");
        assert_eq!(
            bounds(&advice),
            [
                None,
                Some(Bottleneck::LocalThread),
                Some(Bottleneck::LocalThread)
            ],
            "{max}"
        );
    }
}

/// Simulates a busy local thread, and a bandwidth proportional to the number of queue pairs.
#[allow(clippy::cast_lossless)]
fn busy_thread(s: SearchSettings) -> FakeRun {
    FakeRun {
        figure: 1e8 * f64::from(s.qps),
        threads: [0.95, 0.3],
        hosts: [0.3, 0.3],
    }
}

#[test]
fn a_full_link_limits_bandwidth_and_a_busy_thread_the_rate() {
    let (advice, _) = find(
        |_, s| {
            Ok(FakeRun {
                figure: 12e9,
                threads: [if s.wait == Wait::Events { 0.97 } else { 1.0 }, 0.4],
                hosts: [0.5, 0.5],
            })
        },
        Some(1e11),
    );
    assert_eq!(
        bounds(&advice),
        [None, Some(Bottleneck::LocalThread), Some(Bottleneck::Link)]
    );
    let text = advice.render(Style::default());
    assert!(
        text.contains("the link: payload takes 96 Gb/sec of 100 Gb/sec"),
        "{text}"
    );
    assert!(
        text.contains("the thread of the client, which is busy 97 % of the time"),
        "{text}"
    );
}

#[test]
fn a_busy_server_host_is_the_bottleneck() {
    let (advice, _) = find(
        |_, _| {
            Ok(FakeRun {
                figure: 1e8,
                threads: [0.1, 0.2],
                hosts: [0.3, 0.99],
            })
        },
        None,
    );
    assert_eq!(bounds(&advice)[1], Some(Bottleneck::RemoteHost));
    assert!(
        advice.findings[1].why.contains("the server's host")
            && advice.findings[1].why.contains("100 % of it in the kernel")
    );
}

#[test]
fn latency_limits_if_deeper_queues_still_help() {
    let (advice, _) = find(
        |test, s| {
            Ok(idle(if test.is_latency() {
                1e6
            } else {
                1e5 * f64::from(s.depth)
            }))
        },
        None,
    );
    assert_eq!(bounds(&advice)[2], Some(Bottleneck::Latency));
    assert!(advice.findings[2].command.ends_with("--depth 1024"));
}

#[test]
fn refused_settings_are_listed_and_skipped() {
    let refuse = |_: Test, s: SearchSettings| match s {
        SearchSettings { qps, .. } if qps > 1 => Err(Error::limit("one queue pair only")),
        _ => Ok(idle(1e8)),
    };
    let (advice, _) = find(refuse, None);
    assert!(
        advice
            .refused
            .iter()
            .any(|line| line == "--qps 2: one queue pair only"),
        "{:?}",
        advice.refused
    );
    assert_eq!(advice.crossing, None);
}

#[test]
fn a_lost_peer_ends_the_search() {
    let spec = Options::try_parse_from(["rperf"])
        .unwrap()
        .to_spec(Test::RcBw)
        .unwrap();
    let mut runs = 0;
    let simulate = |_, _| {
        runs += 1;
        if runs > 3 {
            Err(Error::new(Kind::Gone, "gone"))
        } else {
            Ok(idle(1e8))
        }
    };
    let path_limits = |_: &Measured| PathLimits {
        link: None,
        one_host: true,
    };
    let error = run(
        &mut FakePair { runs: 0, simulate },
        &spec,
        Limit::Time(Duration::from_secs(1)),
        MAX_MEASUREMENTS,
        path_limits,
        |test| test.name().to_owned(),
    )
    .unwrap_err();
    assert_eq!(error.kind(), Kind::Gone);
    assert_eq!(runs, 4);
}

#[test]
fn counters_that_show_a_cause_name_the_path() {
    let (advice, _) = find(
        |test, _| {
            let figure = if test.is_latency() { 2000.0 } else { 1e9 };
            Ok(FakeRun {
                figure,
                threads: [0.99, 0.99],
                hosts: [0.99, 0.99],
            })
        },
        None,
    );
    assert!(
        advice
            .findings
            .iter()
            .all(|f| f.bound != Some(Bottleneck::Path))
    );
    let mut lossy = LossyPair;
    let spec = Options::try_parse_from(["rperf"])
        .unwrap()
        .to_spec(Test::RcBw)
        .unwrap();
    let limits = |_: &Measured| verdict::PathLimits {
        link: None,
        one_host: false,
    };
    let command = |test: Test| test.name().to_owned();
    let advice = run(&mut lossy, &spec, Limit::Messages(100), 10, limits, command).unwrap();
    for finding in &advice.findings {
        let is_latency = finding.goal == Goal::Latency;
        assert_eq!(
            finding.bound == Some(Bottleneck::Path),
            !is_latency,
            "{finding:?}"
        );
        assert_eq!(finding.why, "the path: packets were lost", "{finding:?}");
    }
}

/// Hosts whose counters show lost packets in each test.
struct LossyPair;

impl Runner for LossyPair {
    fn run(&mut self, spec: &Spec) -> Result<Measured> {
        let record = if spec.test.is_latency() {
            latency()
        } else {
            one_way()
        };
        let Outcome::Measured(mut m) = record.outcome else {
            panic!()
        };
        m.spec = spec.clone();
        let kind = report::warning::WarningKind::PacketLoss;
        m.warnings
            .push(report::warning::Warning::new(kind, "packets were lost"));
        Ok(*m)
    }
}
