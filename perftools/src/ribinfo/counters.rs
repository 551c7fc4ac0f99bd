//! `ribinfo counters`: the counters of ports, once or those that increase.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::interrupt::Interrupt;
use base::peer_text::printable_lines;
use host::counters::Counters;
use host::root::Root;
use serde::Serialize;

use super::display;
use super::run::print;

/// Longest time until a signal ends `--watch`.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A counter of a port.
#[derive(Clone, Debug, Serialize)]
struct CounterRow {
    device: String,
    port: u32,
    counter: String,
    value: u64,
}

/// The counters of a port.
struct PortReading {
    device: String,
    port: u32,
    counters: Counters,
}

/// Reads the counters of the ports. `only` is a device, or a port such as `mlx5_0/1`.
fn read(root: &Root, only: Option<&str>) -> Result<Vec<PortReading>> {
    let mut available = Vec::new();
    let mut ports = Vec::new();
    for device in display::devices(root)? {
        for port in &device.ports {
            let name = format!("{}/{}", device.name, port.port);
            let is_wanted = only.is_none_or(|only| only == device.name || only == name);
            available.push(name);
            let number = u8::try_from(port.port);
            if let (true, Ok(number)) = (is_wanted, number) {
                ports.push(PortReading {
                    counters: Counters::of_port(root, &device.name, number),
                    device: device.name.clone(),
                    port: port.port,
                });
            }
        }
    }
    match only {
        Some(only) if ports.is_empty() => Err(Error::device(format!(
            "no RDMA port named `{only}`; available: {}",
            available.join(", ")
        ))),
        _ => Ok(ports),
    }
}

/// Returns the counters once. Those that are 0 are omitted, unless `all` is set.
pub(crate) fn once(root: &Root, only: Option<&str>, all: bool, json: bool) -> Result<String> {
    let mut rows = Vec::new();
    for port in read(root, only)? {
        let counters = port.counters.iter().filter(|(_, value)| all || *value > 0);
        rows.extend(counters.map(|(name, value)| CounterRow {
            device: port.device.clone(),
            port: port.port,
            counter: name.to_owned(),
            value,
        }));
    }
    if json {
        return display::json(&rows);
    }
    let name = |row: &CounterRow| format!("{}/{}", row.device, row.port);
    let width = rows.iter().map(|row| name(row).len()).max().unwrap_or(0);
    Ok(display::lines(rows.iter().map(|row| {
        format!("{:<width$}  {:<44} {}", name(row), row.counter, row.value)
    })))
}

/// Prints the counters that increased, and by how much per second, until interrupted.
///
/// # Errors
/// Returns an error if there is no such port, or the output is closed.
pub(crate) fn watch(root: &Root, only: Option<&str>, interval: Duration) -> Result<()> {
    let interrupt = Interrupt::on_signals()?;
    let (mut before, mut at) = (read(root, only)?, Instant::now());
    loop {
        while at.elapsed() < interval {
            if interrupt.is_set() {
                return Ok(());
            }
            std::thread::sleep(CHECK_INTERVAL.min(interval));
        }
        let (now, seconds) = (read(root, only)?, at.elapsed().as_secs_f64());
        at = Instant::now();
        let mut text = String::new();
        for port in &now {
            let earlier = before
                .iter()
                .find(|p| (&p.device, p.port) == (&port.device, port.port));
            let Some(earlier) = earlier else { continue };
            for (name, by) in &port.counters.since(&earlier.counters).increased {
                let total = port.counters.get(name).unwrap_or_default();
                let port = format!("{}/{}", port.device, port.port);
                let _ = writeln!(
                    text,
                    "{port:<12} {name:<44} {total:>20} {:>14.1}/s",
                    rate(*by, seconds)
                );
            }
        }
        print(&printable_lines(&text))?;
        before = now;
    }
}

#[allow(clippy::cast_precision_loss, reason = "a figure of a few digits")]
fn rate(by: u64, seconds: f64) -> f64 {
    by as f64 / seconds.max(f64::MIN_POSITIVE)
}
