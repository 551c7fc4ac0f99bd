//! Tests of sessions over several devices, with a fake data path for the data.

use std::time::{Duration, Instant};

use base::error::Result;
use measure::spec::test::Test;
use measure::spec::{Limit, Spec};
use measure::stats::monitor::MonitorOptions;
use report::record::Measured;
use test_support::text::assert_contains;

use super::devices;
use super::fake_backend::FakeBackend;
use super::report_diagnosis::{Report, measured};
use super::tests::{limited, server_addr, with_server};

/// Returns the specifications of a test over the devices `d0`, `d1` and so on.
fn specs(spec: &Spec, count: usize) -> Vec<Spec> {
    let named = (0..count).map(|number| {
        let mut spec = spec.clone();
        spec.client.id = Some(format!("d{number}").parse().unwrap());
        spec
    });
    named.collect()
}

fn run(address: std::net::SocketAddr, specs: &[Spec], backend: &FakeBackend) -> Result<Measured> {
    let monitor_options = MonitorOptions {
        interval: Some(Duration::from_millis(50)),
        observer: None,
    };
    let server = server_addr(address);
    devices::run(&server, specs, &backend, &Report, monitor_options).map(measured)
}

#[test]
fn sessions_start_together_and_are_summed() {
    with_server(8, |address, backend| {
        let time = Duration::from_secs(1);
        let specs = specs(&limited(Test::RcBw, Limit::Time(time)), 3);
        let m = run(address, &specs, backend).unwrap();
        let names: Vec<&str> = m.devices.iter().map(|d| d.device.as_str()).collect();
        assert_eq!(names, ["d0", "d1", "d2"]);
        assert!(m.devices.iter().any(|d| d.start_offset == 0));
        // Each session begins before the first one ends.
        let offsets = m
            .devices
            .iter()
            .map(|d| Duration::from_nanos(d.start_offset));
        assert!(offsets.max() < Some(time), "{:?}", m.devices);
        let sum: f64 = m
            .devices
            .iter()
            .filter_map(|d| d.measured.summary.bandwidth)
            .sum();
        assert!((m.summary.bandwidth.unwrap() - sum).abs() < 1e-3 * sum);
        let sent = m.devices.iter().map(|d| d.measured.local_stats.sent.msgs);
        assert_eq!(m.local_stats.sent.msgs, sent.sum::<u64>());
        let monitored: u64 = m.intervals.iter().map(|interval| interval.msgs).sum();
        assert_eq!(monitored, m.local_stats.sent.msgs);
    });
}

#[test]
fn threads_of_all_sessions_are_monitored() {
    with_server(8, |address, backend| {
        let spec = Spec {
            limit: Limit::Messages(200),
            threads: 2,
            ..Spec::new(Test::RcBiBw).with_msg_size(1 << 10)
        };
        let specs = specs(&spec, 2);
        let m = run(address, &specs, backend).unwrap();
        let monitored: u64 = m.intervals.iter().map(|interval| interval.msgs).sum();
        assert_eq!(monitored, 800, "{:?}", m.intervals);
        assert_eq!(m.local_stats.threads.len(), 4);
    });
}

#[test]
fn a_failed_session_ends_the_others() {
    with_server(8, |address, backend| {
        let spec = limited(Test::RcBw, Limit::Time(Duration::from_secs(60)));
        let mut specs = specs(&spec, 3);
        specs[1].msg_size = 2 << 20;
        let begin = Instant::now();
        let error = run(address, &specs, backend).unwrap_err();
        assert_contains(
            error,
            &["d1: the server: ", "the maximum of fake0 is 1 MiB"],
        );
        assert!(begin.elapsed() < Duration::from_secs(10));
    });
}
