//! `ribinfo top`: the rates of ports, and the RDMA objects of processes.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::counters::{PortCounters, rate, read};
use super::screen::Screen;
use crate::common::error::Result;
use crate::common::units::Style;
use crate::ribinfo::collect::counters::Counters;
use crate::ribinfo::collect::resources::{self, Kind, Owner, Usage};
use crate::ribinfo::collect::root::Root;

/// Bytes of the unit of `port_xmit_data` and `port_rcv_data`.
const DATA_UNIT: u64 = 4;

/// Shows rates and objects until interrupted.
///
/// # Errors
/// Returns an error if the output is closed.
pub fn top(root: &Root, interval: Duration) -> Result<()> {
    let screen = Screen::new()?;
    let (mut before, mut at) = (read(root, None)?, Instant::now());
    while screen.wait(interval) {
        let (now, seconds) = (read(root, None)?, at.elapsed().as_secs_f64());
        at = Instant::now();
        let mut text = format!(
            "{:<14}{:>15}{:>15}{:>14}{:>14}{:>10}\n",
            "port", "received", "sent", "rx packets", "tx packets", "errors"
        );
        for port in &now {
            let earlier = before
                .iter()
                .find(|p| (&p.device, p.port) == (&port.device, port.port));
            if let Some(earlier) = earlier {
                text += &port_line(port, &earlier.counters, seconds);
            }
        }
        let usages = resources::query().map(|all| resources::usage(&all));
        match usages {
            Ok(usages) => text += &owners(usages),
            Err(error) => {
                let _ = writeln!(text, "{error}");
            }
        }
        if !screen.is_terminal() {
            text.push('\n');
        }
        screen.show(&text)?;
        before = now;
    }
    Ok(())
}

fn port_line(port: &PortCounters, before: &Counters, seconds: f64) -> String {
    let style = Style::default();
    // The first counter that the driver has.
    let increase = |names: &[&str]| {
        names.iter().find_map(|name| {
            let now = port.counters.get(name)?;
            now.checked_sub(before.get(name)?)
        })
    };
    let bytes = |name: &str| {
        increase(&[name]).map_or_else(
            || "-".to_owned(),
            |words| {
                style
                    .bandwidth(rate(words * DATA_UNIT, seconds))
                    .to_string()
            },
        )
    };
    let packets = |names: &[&str]| {
        increase(names).map_or_else(
            || "-".to_owned(),
            |n| style.rate(rate(n, seconds)).to_string(),
        )
    };
    let differences = port.counters.since(before);
    let errors = differences.increased.iter().filter(|(name, _)| {
        [
            "err",
            "discard",
            "drop",
            "retry",
            "out_of_seq",
            "timeout",
            "downed",
        ]
        .iter()
        .any(|word| name.contains(word))
    });
    let errors: u64 = errors.map(|(_, by)| by).sum();
    format!(
        "{:<14}{:>15}{:>15}{:>14}{:>14}{:>10}\n",
        format!("{}/{}", port.device, port.port),
        bytes("counters/port_rcv_data"),
        bytes("counters/port_xmit_data"),
        packets(&["counters/port_rcv_packets", "hw_counters/rcvd_pkts"]),
        packets(&["counters/port_xmit_packets", "hw_counters/sent_pkts"]),
        errors
    )
}

/// Returns the objects of each process and kernel module, those with the most memory first.
fn owners(mut usages: Vec<Usage>) -> String {
    usages.sort_by_key(|usage| std::cmp::Reverse(usage.registered_bytes));
    let mut text = format!(
        "\n{:>8} {:<16} {:<10}{:>6}{:>6}{:>6}{:>6}{:>6}{:>14}\n",
        "pid", "owner", "device", "qp", "cq", "mr", "pd", "srq", "registered"
    );
    for usage in usages {
        let (pid, name) = match &usage.owner {
            Owner::Process { pid, name } => (pid.to_string(), name.as_str()),
            Owner::Kernel(name) => ("kernel".to_owned(), name.as_str()),
            Owner::Ended => ("-".to_owned(), "(ended)"),
        };
        let count = |kind| usage.counts.get(&kind).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "{pid:>8} {name:<16} {:<10}{:>6}{:>6}{:>6}{:>6}{:>6}{:>14}",
            usage.device,
            count(Kind::Qp),
            count(Kind::Cq),
            count(Kind::Mr),
            count(Kind::Pd),
            count(Kind::Srq),
            Style::default().size(usage.registered_bytes).to_string()
        );
    }
    text
}
