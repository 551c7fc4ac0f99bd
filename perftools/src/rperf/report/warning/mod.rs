//! Warnings about conditions that distort the results of a test.

mod host;
mod traffic;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use host::host;

use crate::common::units::show_time;
use crate::rperf::spec::Spec;
use crate::rperf::spec::connection::ConnectionInfo;
use crate::rperf::spec::modes::Wait;
use crate::rperf::stats::SideStats;
use crate::rperf::stats::port_counters::PortTraffic;

/// A condition that distorts the results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Warning {
    /// Machine-readable kind: `debug_build`, `cpu_scaling`, `oversubscribed`, `mtu_below_port`,
    /// `small_mtu`, `swap`, `other_traffic`, `lost`, `stalled`.
    pub kind: String,
    /// Description and remedy.
    pub text: String,
}

impl Warning {
    fn new(kind: &str, text: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            text: text.into(),
        }
    }

    /// Marks the warning as one about the server's host.
    fn of_server(self) -> Self {
        Self {
            text: format!("the server: {}", self.text),
            ..self
        }
    }
}

/// Results and properties of a completed test.
#[derive(Clone, Copy, Debug)]
pub struct WarningInput<'a> {
    /// Requested parameters.
    pub spec: &'a Spec,
    /// Device and path of the client.
    pub via: &'a ConnectionInfo,
    /// Counters of the client and the server, in this order.
    pub ends: [&'a SideStats; 2],
    /// `true` if both ends are on one host.
    pub one_host: bool,
    /// `true` if both ends use the same port.
    pub one_port: bool,
    /// Traffic that the client's port counted during the test.
    pub port: PortTraffic,
    /// `true` if stalls are already reported with their intervals.
    pub stalls: bool,
    /// Warnings that the server sent about its host.
    pub server: &'a [Warning],
}

/// Collects the warnings about a test.
pub fn gather(input: &WarningInput<'_>) -> Vec<Warning> {
    let WarningInput {
        spec,
        via,
        ends: [local, remote],
        one_host,
        one_port,
        port,
        stalls,
        server,
    } = *input;
    let mut all = host();
    if !one_host {
        all.extend(server.iter().cloned().map(Warning::of_server));
    }
    all.extend(oversubscribed(spec, local));
    all.extend(cpu_wait(local));
    all.extend(cpu_wait(remote).map(Warning::of_server));
    all.extend(mtu(via));
    all.extend(traffic::traffic(spec, via.mtu, one_port, input.ends, port));
    let lost = lost(local.lost + remote.lost, local.sent.msgs + remote.sent.msgs);
    // Waiting for a lost message is a stall too, so report only the loss.
    if lost.is_none() && !stalls {
        all.extend(stalled(local));
    }
    all.extend(lost);
    all
}

/// Checks for more threads than processors, and for busy polling with a single processor.
fn oversubscribed(spec: &Spec, local: &SideStats) -> Option<Warning> {
    let polls = spec.client.wait == Wait::Poll || spec.server.wait == Wait::Poll;
    if spec.threads > local.cpu.cpus.max(1) {
        let cpus = match local.cpu.cpus {
            1 => "one processor".to_owned(),
            cpus => format!("{cpus} processors"),
        };
        let text = format!(
            "{} threads share {cpus}; help: set --threads lower",
            spec.threads
        );
        return Some(Warning::new("oversubscribed", text));
    }
    let text = "both ends may share one processor while one of them polls without pause; help: omit --wait poll (-cp1)";
    (polls && local.cpu.cpus == 1).then(|| Warning::new("oversubscribed", text))
}

/// Checks if the threads of an end were runnable without a processor for more than 5 % of the time.
fn cpu_wait(side: &SideStats) -> Option<Warning> {
    let share = side.cpu.waited / side.seconds().max(1e-6);
    let text = format!(
        "the test's thread waited for a processor {:.0} % of the time, because more threads are runnable than there are processors ({}); help: pin the thread to a free processor with --cpu-affinity (-ca)",
        (share * 100.0).min(100.0),
        side.cpu.cpus
    );
    (share > 0.05).then(|| Warning::new("oversubscribed", text))
}

fn mtu(via: &ConnectionInfo) -> Option<Warning> {
    let mtu = via.mtu?;
    if let Some(port) = via.port_mtu.filter(|port| mtu < *port) {
        let text = format!(
            "the path MTU is {mtu} bytes but the port's MTU is {port} bytes; help: check --mtu (-mt) and the MTU of the other end's port"
        );
        return Some(Warning::new("mtu_below_port", text));
    }
    let text = format!(
        "the path MTU is {mtu} bytes, and packets of 4096 bytes cost less; help: find the limit with `ribinfo check mtu`"
    );
    (mtu < 4096).then(|| Warning::new("small_mtu", text))
}

fn lost(lost: u64, sent: u64) -> Option<Warning> {
    (lost > 0).then(|| Warning::new("lost", format!("{lost} of {sent} messages were lost")))
}

fn stalled(local: &SideStats) -> Option<Warning> {
    let length = show_time(Duration::from_nanos(local.stalled / 1_000_000 * 1_000_000));
    let on = if local.threads.is_empty() {
        ""
    } else {
        " on one of the threads"
    };
    let text = format!(
        "nothing completed{on} for {length}, which the results include; help: find the time with --interval, and repeat the test"
    );
    (local.stalled > 0).then(|| Warning::new("stalled", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::report::record::{Measured, Outcome};
    use crate::rperf::report::text::tests::one_way;

    fn measured() -> Measured {
        match one_way().outcome {
            Outcome::Measured(m) => *m,
            other => panic!("{other:?}"),
        }
    }

    fn kinds(m: &Measured, server: &[Warning], one_host: bool) -> Vec<String> {
        let ends = [&m.local_stats, &m.remote_stats];
        let port = PortTraffic {
            bytes: None,
            packets: Some(0),
        };
        let input = WarningInput {
            spec: &m.spec,
            via: &m.local,
            ends,
            one_host,
            one_port: false,
            port,
            stalls: false,
            server,
        };
        let hosts = ["debug_build", "cpu_scaling", "swap"];
        gather(&input)
            .into_iter()
            .map(|w| w.kind)
            .filter(|kind| !hosts.contains(&kind.as_str()))
            .collect()
    }

    #[test]
    fn each_condition_has_its_warning() {
        let good = measured();
        assert_eq!(kinds(&good, &[], false), [""; 0]);
        let mut bad = measured();
        bad.local.mtu = Some(1024);
        bad.remote_stats.cpu.waited = 0.5;
        bad.local_stats.lost = 2;
        bad.local_stats.stalled = 480_123_456;
        bad.spec.client.wait = Wait::Poll;
        let all = ["oversubscribed", "oversubscribed", "mtu_below_port", "lost"];
        assert_eq!(kinds(&bad, &[], false), all);
        bad.local.port_mtu = Some(1024);
        assert_eq!(kinds(&bad, &[], false)[2], "small_mtu");
        bad.local_stats.lost = 0;
        assert_eq!(kinds(&bad, &[], false)[3], "stalled");
        let text = stalled(&bad.local_stats).unwrap().text;
        assert!(
            text.starts_with("nothing completed for 480 ms, which"),
            "{text}"
        );
    }

    #[test]
    fn server_warnings_are_marked_and_not_repeated() {
        let server = [Warning::new("other", "x")];
        assert_eq!(kinds(&measured(), &server, false), ["other"]);
        assert_eq!(kinds(&measured(), &server, true), [""; 0]);
        assert_eq!(server[0].clone().of_server().text, "the server: x");
    }
}
