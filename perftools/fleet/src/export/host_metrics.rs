//! Devices, links and counters of a host as metrics.

use std::fmt;
use std::sync::Arc;

use host::counters::Counters;
use host::device::{self, Device, Port};
use host::resources::{self, Usage};
use host::root::Root;

use super::findings::CheckResults;
use super::port_counters::{self, ExportedCounters};
use super::processes;
use crate::exposition::{MetricSource, Metrics};

/// Bytes per second of one Mbit/s.
const BYTES_PER_MBIT: f64 = 125_000.0;

/// The metrics of a host at one moment.
#[derive(Debug)]
pub(super) struct HostMetrics {
    devices: Vec<Device>,
    counters: Vec<ExportedCounters>,
    /// RDMA objects of processes, or an error message; `None` below another root.
    usages: Option<Result<Vec<Usage>, String>>,
    checks: Option<Arc<CheckResults>>,
}

impl HostMetrics {
    /// Reads the state of the host. `checks` are the latest results of the checks.
    pub(super) fn read(root: &Root, checks: Option<Arc<CheckResults>>) -> Self {
        let devices = device::all_without_tables(root);
        let ports = ports(&devices).filter_map(|(device, port)| {
            let number = u8::try_from(port.port).ok()?;
            Some(ExportedCounters {
                device: device.name.clone(),
                port: port.port.to_string(),
                counters: Counters::of_port(root, &device.name, number),
            })
        });
        let usages = root.is_host().then(|| {
            let all = resources::query().map_err(|error| error.to_string())?;
            Ok(resources::usage(&all.objects))
        });
        Self {
            usages,
            counters: ports.collect(),
            devices,
            checks,
        }
    }

    fn gauges(
        &self,
        metrics: &mut Metrics<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&Device, &Port) -> Option<f64>,
    ) -> fmt::Result {
        let samples = ports(&self.devices).filter_map(|(device, port)| {
            let labels = [
                ("device", device.name.clone()),
                ("port", port.port.to_string()),
            ];
            Some((labels, value(device, port)?))
        });
        metrics.gauges(name, help, samples)
    }
}

/// Returns all ports, each with its device.
fn ports(devices: &[Device]) -> impl Iterator<Item = (&Device, &Port)> {
    devices
        .iter()
        .flat_map(|device| device.ports.iter().map(move |port| (device, port)))
}

impl MetricSource for HostMetrics {
    fn write(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        metrics.infos(
            "rdma_device",
            "Device, with its model, firmware and driver. The driver of a software device is empty.",
            self.devices.iter().map(|device| {
                [
                    ("device", device.name.clone()),
                    ("model", text(&device.hca_type)),
                    ("board", text(&device.board_id)),
                    ("firmware", text(&device.fw_ver)),
                    ("driver", text(&device.driver)),
                ]
            }),
        )?;
        metrics.infos(
            "rdma_port",
            "Port, with its link layer and network interface.",
            ports(&self.devices).map(|(device, port)| {
                [
                    ("device", device.name.clone()),
                    ("port", port.port.to_string()),
                    ("link_layer", port.link_layer.clone()),
                    ("netdev", text(&port.netdev)),
                ]
            }),
        )?;
        self.gauges(
            metrics,
            "rdma_port_up",
            "1 if the port is ACTIVE, otherwise 0.",
            |_, port| Some(f64::from(u8::from(port.is_active()))),
        )?;
        self.gauges(
            metrics,
            "rdma_port_state",
            "State of the port: 1 DOWN, 2 INIT, 3 ARMED, 4 ACTIVE.",
            |_, port| Some(f64::from(port.state.code)),
        )?;
        self.gauges(
            metrics,
            "rdma_port_physical_state",
            "Physical state of the port: 2 polling, 3 disabled, 5 link up.",
            |_, port| Some(f64::from(port.phys_state.code)),
        )?;
        self.gauges(
            metrics,
            "rdma_port_rate_bytes_per_second",
            "Rate of the link.",
            |_, port| Some(f64::from(port.rate?.mbps) * BYTES_PER_MBIT),
        )?;
        let checks = self.checks.as_deref();
        self.gauges(
            metrics,
            "rdma_port_expected_rate_bytes_per_second",
            "Rate that --expect requires, or that the port supports.",
            |device, port| {
                let mbps = checks?.expected_rate(&device.name, port.port)?;
                Some(f64::from(mbps) * BYTES_PER_MBIT)
            },
        )?;
        port_counters::write(&self.counters, metrics)?;
        if let Some(usages) = &self.usages {
            let is_up = f64::from(u8::from(usages.is_ok()));
            metrics.gauges(
                "ribinfo_source_up",
                "1 if the kernel could be queried.",
                [([("source", "netlink")], is_up)],
            )?;
            processes::write(usages.as_deref().unwrap_or_default(), metrics)?;
        }
        checks.map_or(Ok(()), |checks| checks.write(metrics))
    }
}
