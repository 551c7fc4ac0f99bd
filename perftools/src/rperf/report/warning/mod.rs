//! What makes figures worth less than they seem, as values.

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

/// Something that spoils figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Warning {
    /// Which, for programs: `debug_build`, `cpu_scaling`, `oversubscribed`, `mtu_below_port`,
    /// `small_mtu`, `swap`, `other_traffic`, `lost`, `stalled`.
    pub kind: String,
    /// What, and what to do, for people.
    pub text: String,
}

impl Warning {
    fn new(kind: &str, text: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            text: text.into(),
        }
    }

    /// The same, said of the server's host.
    fn of_server(self) -> Self {
        Self {
            text: format!("the server: {}", self.text),
            ..self
        }
    }
}

/// What is known of a test when it has ended.
#[derive(Clone, Copy, Debug)]
pub struct WarningInput<'a> {
    /// What was asked for.
    pub spec: &'a Spec,
    /// This end's path.
    pub via: &'a ConnectionInfo,
    /// What both ends counted: this one, then the server.
    pub ends: [&'a SideStats; 2],
    /// Both ends are on one host.
    pub one_host: bool,
    /// Both ends are on one port.
    pub one_port: bool,
    /// What this end's port counted meanwhile.
    pub port: PortTraffic,
    /// Stalls among the intervals, which are named with their times.
    pub stalls: bool,
    /// What the server says of its host.
    pub server: &'a [Warning],
}

/// What spoils the figures of a test.
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
    all.extend(crowded(spec, local));
    all.extend(waited(local));
    all.extend(waited(remote).map(Warning::of_server));
    all.extend(mtu(via));
    all.extend(traffic::traffic(spec, via.mtu, one_port, input.ends, port));
    let lost = lost(local.lost + remote.lost, local.sent.msgs + remote.sent.msgs);
    // Who waits for a message that is lost is silent too.
    if lost.is_none() && !stalls {
        all.extend(stalled(local));
    }
    all.extend(lost);
    all
}

/// More threads than processors; an end that polls without pause, where another has to run on the
/// same processor.
fn crowded(spec: &Spec, local: &SideStats) -> Option<Warning> {
    let polls = spec.client.wait == Wait::Poll || spec.server.wait == Wait::Poll;
    if spec.threads > local.cpu.cpus.max(1) {
        let cpus = match local.cpu.cpus {
            1 => "one processor".to_owned(),
            cpus => format!("{cpus} processors"),
        };
        let text = format!("{} threads share {cpus}: give --threads less", spec.threads);
        return Some(Warning::new("oversubscribed", text));
    }
    let text = "both ends may share one processor, and one polls without pause: leave --wait poll (-cp1) away";
    (polls && local.cpu.cpus == 1).then(|| Warning::new("oversubscribed", text))
}

/// An end whose thread could run, but had no processor, for more than a twentieth of the time.
fn waited(side: &SideStats) -> Option<Warning> {
    let share = side.cpu.waited / side.seconds().max(1e-6);
    let text = format!(
        "the test's thread waited for a processor {:.0} % of the time: more wants to run than there are processors ({}); --cpu-affinity (-ca) gives it one of its own",
        (share * 100.0).min(100.0),
        side.cpu.cpus
    );
    (share > 0.05).then(|| Warning::new("oversubscribed", text))
}

fn mtu(via: &ConnectionInfo) -> Option<Warning> {
    let mtu = via.mtu?;
    if let Some(port) = via.port_mtu.filter(|port| mtu < *port) {
        let text = format!(
            "the path MTU is {mtu}, the port's {port}: --mtu (-mt), or the other end's port, bounds it"
        );
        return Some(Warning::new("mtu_below_port", text));
    }
    let text = format!(
        "the path MTU is {mtu}: packets of 4096 bytes cost less (`ribinfo check mtu` says what bounds it)"
    );
    (mtu < 4096).then(|| Warning::new("small_mtu", text))
}

fn lost(lost: u64, sent: u64) -> Option<Warning> {
    (lost > 0).then(|| Warning::new("lost", format!("{lost} of {sent} messages never arrived")))
}

fn stalled(local: &SideStats) -> Option<Warning> {
    let length = show_time(Duration::from_nanos(local.stalled / 1_000_000 * 1_000_000));
    let on = if local.threads.is_empty() {
        ""
    } else {
        " on one of the threads"
    };
    let text = format!(
        "nothing completed{on} for {length}, which the figures include: --interval says when, another run whether it comes again"
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
    fn each_says_what_is_wrong() {
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
    fn what_the_server_says_of_its_host_is_told_apart_and_once() {
        let server = [Warning::new("other", "x")];
        assert_eq!(kinds(&measured(), &server, false), ["other"]);
        assert_eq!(kinds(&measured(), &server, true), [""; 0]);
        assert_eq!(server[0].clone().of_server().text, "the server: x");
    }
}
