//! `ribinfo top`: the rates of ports, and the RDMA objects of processes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use base::error::Result;
use base::units::Style;
use host::counters::Counters;
use host::resources::{self, Kind, Owner, Usage};
use host::root::Root;

use super::counters::{PortCounters, rate, read};
use super::screen::Screen;

/// Bytes of the unit of `port_xmit_data` and `port_rcv_data`.
const DATA_UNIT: u64 = 4;

/// Shows rates and objects until interrupted.
///
/// # Errors
/// Returns an error if there is no device, or the output is closed.
pub(crate) fn top(root: &Root, interval: Duration) -> Result<()> {
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
        match resources::query() {
            Ok(all) => text += &owners(resources::usage(&all.objects), &all.unlisted),
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

/// Returns the objects of each process and kernel module, those with the most memory first. The
/// number of objects of an unlisted kind is unknown.
fn owners(mut usages: Vec<Usage>, unlisted: &BTreeSet<Kind>) -> String {
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
        let known = |kind, value: String| {
            if unlisted.contains(&kind) {
                "-".to_owned()
            } else {
                value
            }
        };
        let count = |kind| {
            let count = usage.counts.get(&kind).copied().unwrap_or_default();
            known(kind, count.to_string())
        };
        let registered = Style::default().size(usage.registered_bytes).to_string();
        let _ = writeln!(
            text,
            "{pid:>8} {name:<16} {:<10}{:>6}{:>6}{:>6}{:>6}{:>6}{:>14}",
            usage.device,
            count(Kind::Qp),
            count(Kind::Cq),
            count(Kind::Mr),
            count(Kind::Pd),
            count(Kind::Srq),
            known(Kind::Mr, registered)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn last_line(unlisted: &[Kind]) -> Vec<String> {
        let usage = Usage {
            device: "rxe0".into(),
            owner: Owner::Kernel("ib_core".into()),
            counts: BTreeMap::from([(Kind::Qp, 1), (Kind::Mr, 2)]),
            registered_bytes: 4096,
        };
        let text = owners(vec![usage], &unlisted.iter().copied().collect());
        let line = text.lines().next_back().expect("a line");
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn unlisted_kinds_are_unknown() {
        let known = last_line(&[]);
        assert_eq!(
            known[..8],
            ["kernel", "ib_core", "rxe0", "1", "0", "2", "0", "0"]
        );
        assert_eq!(known[8..].concat(), "4KiB");
        let unknown = last_line(&[Kind::Srq, Kind::Mr, Kind::Ctx]);
        assert_eq!(unknown[3..], ["1", "0", "-", "0", "-", "-"]);
    }
}
