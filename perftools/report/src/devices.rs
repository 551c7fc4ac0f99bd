//! The sum of the results of several devices that were measured at the same time.

use host::hardware::Hardware;
use measure::spec::connection::ConnectionInfo;
use measure::stats::SideStats;
use measure::stats::summary::{Interpretation, Summary};

use super::record::{DeviceResult, Measured};
use super::warning::Warning;

/// Returns the result of all devices together, which includes the result of each of them.
///
/// Rates are the sums of the rates of the devices, each over its own measured time. Latencies are
/// those of the slowest device, which has the highest mean.
///
/// # Panics
/// Panics if there is no device.
pub(crate) fn sum(mut devices: Vec<DeviceResult>) -> Measured {
    let stats = |end: fn(&Measured) -> &SideStats| {
        let all: Vec<_> = devices.iter().map(|d| end(&d.measured).clone()).collect();
        SideStats::sum(&all)
    };
    let (local_stats, remote_stats) = (stats(|m| &m.local_stats), stats(|m| &m.remote_stats));
    let mut total = slowest(&devices).measured.clone();
    if !total.spec.test.is_latency() {
        total.summary = sum_of_rates(&devices, &total, &local_stats, &remote_stats);
    }
    (total.local_stats, total.remote_stats) = (local_stats, remote_stats);
    total.partial = devices.iter().any(|d| d.measured.partial);
    let depth = devices.iter().map(|d| d.measured.depth);
    total.depth = depth.fold(0, u32::saturating_add);
    let names: Vec<&str> = devices.iter().map(|d| d.device.as_str()).collect();
    total.local = ConnectionInfo {
        device: names.join(","),
        ..joined(&devices, |m| &m.local)
    };
    total.remote = joined(&devices, |m| &m.remote);
    total.warnings = warnings(&devices);
    for side in [&mut total.spec.client, &mut total.spec.server] {
        (side.id, side.cpu_offset) = (None, None);
    }
    for DeviceResult { measured, .. } in &mut devices {
        for side in [&mut measured.local_stats, &mut measured.remote_stats] {
            (side.cpu.process, side.cpu.host) = (None, None);
        }
        (measured.summary.send_cost, measured.summary.recv_cost) = (None, None);
        (measured.local_host, measured.remote_host) = (None, None);
    }
    total.devices = devices;
    total
}

/// Returns the device with the highest mean latency, or the first one if there are no latencies.
pub(super) fn slowest(devices: &[DeviceResult]) -> &DeviceResult {
    let latency = |d: &DeviceResult| d.measured.summary.latency.unwrap_or(0.0);
    let slower = |a, b| if latency(b) > latency(a) { b } else { a };
    devices.iter().reduce(slower).expect("at least one device")
}

/// Sums the rates of the devices. The costs are those of the host for the data of all devices; they
/// are unknown if the devices count different things (immediate data).
fn sum_of_rates(
    devices: &[DeviceResult],
    m: &Measured,
    local: &SideStats,
    remote: &SideStats,
) -> Summary {
    let summaries = || devices.iter().map(|d| d.measured.summary);
    let interpretation = Interpretation::new(m.spec.test, m.plan).with_flip(m.spec.flip);
    let same_plan = devices.iter().all(|d| d.measured.plan == m.plan);
    let costs = Some(Summary::new(interpretation, local, remote)).filter(|_| same_plan);
    Summary {
        bandwidth: summaries().map(|s| s.bandwidth).sum(),
        send_bandwidth: summaries().map(|s| s.send_bandwidth).sum(),
        to_server: summaries().map(|s| s.to_server).sum(),
        to_client: summaries().map(|s| s.to_client).sum(),
        msg_rate: summaries().map(|s| s.msg_rate).sum(),
        ..costs.unwrap_or_default()
    }
}

/// Joins the descriptions of one end. Properties that differ between the devices are unknown.
fn joined(devices: &[DeviceResult], end: fn(&Measured) -> &ConnectionInfo) -> ConnectionInfo {
    let ends: Vec<&ConnectionInfo> = devices.iter().map(|d| end(&d.measured)).collect();
    let first = ends[0];
    let list = |text: fn(&ConnectionInfo) -> &str| {
        let mut all: Vec<&str> = ends.iter().map(|end| text(end)).collect();
        all.dedup();
        all.join(",")
    };
    let same_mtu = ends
        .iter()
        .all(|end| (end.mtu, end.port_mtu) == (first.mtu, first.port_mtu));
    let same_hardware = ends.iter().all(|end| end.hardware == first.hardware);
    ConnectionInfo {
        device: list(|end| &end.device),
        port: 0,
        link: list(|end| &end.link),
        gid_index: None,
        address: list(|end| &end.address),
        cm: ends.iter().any(|end| end.cm),
        mtu: first.mtu.filter(|_| same_mtu),
        port_mtu: first.port_mtu.filter(|_| same_mtu),
        // All devices of an end use the same GPU.
        memory: first.memory.clone(),
        hardware: if same_hardware {
            first.hardware.clone()
        } else {
            Hardware::default()
        },
        wait: first.wait,
    }
}

/// Returns the warnings of all devices. Those that not all devices have begin with the name of
/// their device.
fn warnings(devices: &[DeviceResult]) -> Vec<Warning> {
    let has = |d: &DeviceResult, warning| d.measured.warnings.contains(warning);
    let mut all: Vec<Warning> = Vec::new();
    for device in devices {
        for warning in &device.measured.warnings {
            if !devices.iter().all(|d| has(d, warning)) {
                all.push(warning.clone().context(&device.device));
            } else if !all.contains(warning) {
                all.push(warning.clone());
            }
        }
    }
    all
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::{Outcome, Record};
    use crate::samples::{latency, one_way};
    use crate::warning::WarningKind;

    /// Returns the results of `record` for two devices. The second one is twice as slow.
    pub(crate) fn two_devices(record: Record) -> Record {
        let Outcome::Measured(first) = record.outcome else {
            panic!("{:?}", record.outcome)
        };
        let mut second = first.clone();
        second.local.device = "rxe1".into();
        second.remote.device = "rxe1".into();
        second.local_stats.nanos *= 2;
        second.remote_stats.nanos *= 2;
        let s = &mut second.summary;
        s.bandwidth = s.bandwidth.map(|bandwidth| bandwidth / 2.0);
        s.msg_rate /= 2.0;
        s.latency = s.latency.map(|latency| latency * 2.0);
        let result = |device: &str, start_offset, measured| DeviceResult {
            device: device.into(),
            start_offset,
            measured,
        };
        let sum = sum(vec![
            result("rxe0", 0, *first),
            result("rxe1", 40_000, *second),
        ]);
        Record {
            outcome: Outcome::Measured(Box::new(sum)),
            ..record
        }
    }

    fn measured(record: Record) -> Measured {
        match record.outcome {
            Outcome::Measured(m) => *m,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rates_are_summed_each_over_its_own_time() {
        let (one, two) = (measured(one_way()), measured(two_devices(one_way())));
        let bandwidth = |m: &Measured| m.summary.bandwidth.unwrap();
        assert!((bandwidth(&two) - 1.5 * bandwidth(&one)).abs() < 1.0);
        assert!((two.summary.msg_rate - 1.5 * one.summary.msg_rate).abs() < 1e-3);
        assert_eq!(two.local_stats.sent.msgs, 2 * one.local_stats.sent.msgs);
        assert_eq!(two.local_stats.nanos, 2 * one.local_stats.nanos);
        assert_eq!(two.depth, 2 * one.depth);
        assert_eq!(
            (two.local.device.as_str(), two.local.port),
            ("rxe0,rxe1", 0)
        );
        assert_eq!(two.local.link, "RoCE v2");
    }

    #[test]
    fn processor_time_counts_once() {
        let (one, two) = (measured(one_way()), measured(two_devices(one_way())));
        assert_eq!(two.local_stats.cpu.process, one.local_stats.cpu.process);
        // The same time for twice the data.
        let cost = |m: &Measured| m.summary.send_cost.unwrap();
        assert!((cost(&two) - cost(&one) / 2.0).abs() < 1e-9);
        for DeviceResult { measured: m, .. } in &two.devices {
            assert_eq!(
                (m.local_stats.cpu.process, m.summary.send_cost),
                (None, None)
            );
        }
    }

    #[test]
    fn latencies_are_those_of_the_slowest_device() {
        let (one, two) = (measured(latency()), measured(two_devices(latency())));
        assert_eq!(two.summary.latency, one.summary.latency.map(|l| 2.0 * l));
        assert_eq!(slowest(&two.devices).device, "rxe1");
    }

    #[test]
    fn a_warning_of_one_device_names_it() {
        let mut devices = measured(two_devices(one_way())).devices;
        let debug_build = Warning::new(WarningKind::DebugBuild, "debug_build");
        devices[0].measured.warnings = vec![debug_build.clone()];
        devices[1].measured.warnings = vec![Warning::new(WarningKind::Lost, "lost"), debug_build];
        let texts: Vec<String> = warnings(&devices).into_iter().map(|w| w.text).collect();
        assert_eq!(texts, ["debug_build", "rxe1: lost"]);
    }
}
