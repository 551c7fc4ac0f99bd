//! Warnings about conditions that can distort the results of a test.

pub mod cause;
mod cause_table;
mod host;
mod traffic;

use std::time::Duration;

pub use host::host;

use base::units::{Size, Style, show_time};
pub use measure::result::{Warning, WarningKind};
use measure::spec::connection::ConnectionInfo;
use measure::spec::modes::Wait;
use measure::spec::{Limit, Spec};
use measure::stats::SideStats;

/// Returns `true` if the counters of the ports show this condition.
pub fn is_cause(warning: &Warning) -> bool {
    cause::kinds().any(|kind| kind == warning.kind)
}

/// Returns `true` if this is a cause of lost messages.
pub(crate) fn explains_loss(warning: &Warning) -> bool {
    cause::explains_loss(warning.kind)
}

/// Returns `true` if the test had a stall.
pub(crate) fn is_stall(warning: &Warning) -> bool {
    warning.kind == WarningKind::Stalled
}

/// Marks the warning as one that applies to the server.
fn about_server(warning: Warning) -> Warning {
    warning.context("the server")
}

/// Properties of a completed test that `collect` checks.
#[derive(Clone, Copy, Debug)]
pub struct WarningInput<'a> {
    /// Requested parameters.
    pub spec: &'a Spec,
    /// Device and path of the client.
    pub connection: &'a ConnectionInfo,
    /// Counters of the client and of the server, in this order.
    pub stats: [&'a SideStats; 2],
    /// `true` if both ends are on one host.
    pub one_host: bool,
    /// `true` if both ends use the same port.
    pub one_port: bool,
    /// Warnings about the client's host.
    pub host_warnings: &'a [Warning],
    /// Warnings from the server about its host.
    pub server_warnings: &'a [Warning],
}

/// Returns the warnings about a test and both hosts.
pub(crate) fn collect(input: &WarningInput<'_>) -> Vec<Warning> {
    let WarningInput {
        spec,
        connection,
        stats: [local, remote],
        one_host,
        one_port,
        host_warnings,
        server_warnings,
    } = *input;
    let mut all = cause::find(input.stats, one_port, one_host);
    all.extend_from_slice(host_warnings);
    if !one_host {
        all.extend(server_warnings.iter().cloned().map(about_server));
    }
    if one_host {
        // Both ends share the processors, so their conditions are one.
        let both = [local, remote].into_iter();
        let busiest = both.max_by(|a, b| waited(a).total_cmp(&waited(b)));
        all.extend(oversubscribed(spec, local).or_else(|| cpu_wait(busiest?)));
    } else {
        all.extend(oversubscribed(spec, local).or_else(|| cpu_wait(local)));
        all.extend(cpu_wait(remote).map(about_server));
    }
    all.extend(mtu(connection));
    all.extend(traffic::other_traffic(
        spec,
        connection.mtu,
        one_port,
        input.stats,
    ));
    all.extend(rate_limit(spec));
    all.extend(few_messages(spec, local, remote));
    all.extend(foreign(local, remote));
    let lost = lost(spec, local, remote);
    // A lost message can cause a stall too. Report only the loss in that case.
    if lost.is_none() {
        all.extend(stalled(local));
    }
    all.extend(lost);
    all
}

/// Returns a warning if there are more threads than processors, or if an end polls on a host with a
/// single processor.
fn oversubscribed(spec: &Spec, local: &SideStats) -> Option<Warning> {
    let polls = spec.client.wait == Wait::Poll || spec.server.wait == Wait::Poll;
    if spec.threads > local.cpu.cpus.max(1) {
        let cpus = match local.cpu.cpus {
            1 => "one processor".to_owned(),
            cpus => format!("{cpus} processors"),
        };
        let text = format!("{} threads share {cpus}", spec.threads);
        let warning = Warning::new(WarningKind::Oversubscribed, text);
        return Some(warning.with_help("set --threads lower"));
    }
    let text = "both ends may share one processor while one of them busy-polls";
    let warning = Warning::new(WarningKind::Oversubscribed, text);
    (polls && local.cpu.cpus == 1).then(|| warning.with_help("omit --wait poll (-cp1)"))
}

/// Returns the share of the time in which the threads of an end were runnable, but not running.
fn waited(side: &SideStats) -> f64 {
    side.cpu.waited.unwrap_or(0.0) / side.seconds().max(1e-6)
}

/// Returns a warning if the threads of one end were runnable, but not running for more than 5 % of
/// the time.
fn cpu_wait(side: &SideStats) -> Option<Warning> {
    let share = waited(side);
    let text = format!(
        "CPU contention: runnable but not running {:.0} % of the time ({} CPUs)",
        (share * 100.0).min(100.0),
        side.cpu.cpus
    );
    let help = "pin the test's thread to an idle processor with --cpu-affinity (-ca)";
    (share > 0.05).then(|| Warning::new(WarningKind::Oversubscribed, text).with_help(help))
}

/// Returns a warning if the rate limit, rather than the device or the network, determines the
/// number of messages: it lets fewer than [`FEW_MESSAGES`] begin.
fn rate_limit(spec: &Spec) -> Option<Warning> {
    let (rate, Limit::Time(time)) = (spec.tuning.rate_limit?, spec.limit) else {
        return None;
    };
    #[allow(clippy::cast_precision_loss)] // Three digits are shown.
    let (rate, size) = (rate as f64, spec.msg_size as f64);
    let allowed = rate * time.as_secs_f64() / size;
    let gap = Style::default().time(size / rate * 1e9);
    let text = format!(
        "--rate-limit determines the results: one message of {} each {gap}",
        Size(spec.msg_size)
    );
    let help = "set --rate-limit or --time higher, or --msg-size lower";
    (allowed < FEW_MESSAGES).then(|| Warning::new(WarningKind::RateLimit, text).with_help(help))
}

/// Number of messages below which the filling and draining of the queues, and single events of the
/// system, determine the results of a bandwidth test.
const FEW_MESSAGES: f64 = 100.0;
/// Number of latencies below which the 99.9th percentile is the maximum.
const FEW_LATENCIES: u64 = 1000;

/// Returns a warning if a test had too few messages for stable figures.
fn few_messages(spec: &Spec, local: &SideStats, remote: &SideStats) -> Option<Warning> {
    let msgs = [local, remote].map(|side| side.sent.msgs.max(side.received.msgs));
    let msgs = msgs[0].max(msgs[1]);
    #[allow(clippy::cast_precision_loss)] // Compared with a small number.
    let is_few = if spec.test.is_latency() {
        msgs < FEW_LATENCIES
    } else {
        (msgs as f64) < FEW_MESSAGES
    };
    let consequence = if spec.test.is_latency() {
        "the high percentiles are no more than the maximum"
    } else {
        "starting and ending the test affects the figures"
    };
    let text = format!(
        "only {msgs} message{} measured, so {consequence}",
        if msgs == 1 { " was" } else { "s were" }
    );
    // A test in which nothing arrived has an error or another warning.
    let help = "set --messages (-n) or --time (-t) higher";
    (is_few && msgs > 0).then(|| Warning::new(WarningKind::FewMessages, text).with_help(help))
}

/// Returns a warning if the path MTU is less than the port's MTU, or less than 4096 bytes.
fn mtu(connection: &ConnectionInfo) -> Option<Warning> {
    let mtu = connection.mtu?;
    if let Some(port) = connection.port_mtu.filter(|port| mtu < *port) {
        let text = format!("the path MTU is {mtu} bytes but the port's MTU is {port} bytes");
        let warning = Warning::new(WarningKind::MtuBelowPort, text);
        return Some(warning.with_help("check --mtu (-mt) and the MTU of the other end's port"));
    }
    let text = format!("the path MTU is {mtu} bytes, and packets of 4096 bytes have less overhead");
    let help = "run `ribinfo check mtu` to find the limit";
    (mtu < 4096).then(|| Warning::new(WarningKind::SmallMtu, text).with_help(help))
}

fn foreign(local: &SideStats, remote: &SideStats) -> Option<Warning> {
    let foreign = local.foreign.saturating_add(remote.foreign);
    let text = format!("{foreign} messages of another sender arrived, and are not counted");
    let help = "repeat the test while no other program sends to this device";
    (foreign > 0).then(|| Warning::new(WarningKind::Foreign, text).with_help(help))
}

fn lost(spec: &Spec, local: &SideStats, remote: &SideStats) -> Option<Warning> {
    let lost = local.lost + remote.lost;
    let sent = local.sent.msgs + remote.sent.msgs;
    let remedy = if spec.test.plan().is_some() {
        if spec.tuning.rate_limit.is_some() {
            "set --rate-limit lower"
        } else {
            "limit the sender with --rate-limit, such as --rate-limit 1Gb/s"
        }
    } else {
        "use larger socket buffers with --sock-buf-size"
    };
    let text = format!("{lost} of {sent} messages were lost");
    (lost > 0).then(|| Warning::new(WarningKind::Lost, text).with_help(remedy))
}

fn stalled(local: &SideStats) -> Option<Warning> {
    let stalled = local.stalled.unwrap_or(0);
    let length = show_time(Duration::from_nanos(stalled / 1_000_000 * 1_000_000));
    let on = if local.threads.is_empty() {
        ""
    } else {
        " on one thread"
    };
    let text = format!("nothing completed{on} for {length}, which the results include");
    let help = "repeat the test, with --interval to find the time of the stall";
    (stalled > 0).then(|| Warning::new(WarningKind::Stalled, text).with_help(help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Measured, Outcome};
    use crate::samples::one_way;

    fn measured() -> Measured {
        match one_way().outcome {
            Outcome::Measured(m) => *m,
            other => panic!("{other:?}"),
        }
    }

    fn kinds(m: &Measured, server: &[Warning], one_host: bool) -> Vec<WarningKind> {
        let input = WarningInput {
            spec: &m.spec,
            connection: &m.local,
            stats: [&m.local_stats, &m.remote_stats],
            one_host,
            one_port: false,
            host_warnings: &[],
            server_warnings: server,
        };
        collect(&input).into_iter().map(|w| w.kind).collect()
    }

    #[test]
    fn each_condition_has_its_warning() {
        let good = measured();
        assert_eq!(kinds(&good, &[], false), []);
        let mut bad = measured();
        bad.local.mtu = Some(1024);
        bad.remote_stats.cpu.waited = Some(0.5);
        bad.local_stats.lost = 2;
        bad.local_stats.stalled = Some(480_123_456);
        bad.spec.client.wait = Wait::Poll;
        let all = [
            WarningKind::Oversubscribed,
            WarningKind::Oversubscribed,
            WarningKind::MtuBelowPort,
            WarningKind::Lost,
        ];
        assert_eq!(kinds(&bad, &[], false), all);
        assert_eq!(kinds(&bad, &[], true), all[1..]);
        // A single processor is the reason for the waiting.
        bad.local_stats.cpu.waited = Some(0.5);
        assert_eq!(kinds(&bad, &[], false), all);
        bad.local.port_mtu = Some(1024);
        assert_eq!(kinds(&bad, &[], false)[2], WarningKind::SmallMtu);
        bad.local_stats.lost = 0;
        assert_eq!(kinds(&bad, &[], false)[3], WarningKind::Stalled);
        (bad.local_stats.foreign, bad.remote_stats.foreign) = (u64::MAX, 1);
        assert_eq!(kinds(&bad, &[], false)[3], WarningKind::Foreign);
        let text = stalled(&bad.local_stats).unwrap().text;
        assert!(
            text.starts_with("nothing completed for 480 ms, which"),
            "{text}"
        );
    }

    #[test]
    fn a_rate_limit_that_decides_the_result_is_named() {
        let mut m = measured();
        m.spec.tuning.rate_limit = Some(10);
        let text = rate_limit(&m.spec).unwrap().text;
        assert!(
            text.starts_with(
                "--rate-limit determines the results: one message of 64 KiB each 6,554 sec"
            ),
            "{text}"
        );
        m.spec.tuning.rate_limit = Some(1_000_000_000);
        assert_eq!(rate_limit(&m.spec), None);
    }

    #[test]
    fn few_messages_are_a_warning() {
        let mut m = measured();
        (m.local_stats.sent.msgs, m.remote_stats.received.msgs) = (32, 32);
        assert_eq!(kinds(&m, &[], false), [WarningKind::FewMessages]);
        (m.local_stats.sent.msgs, m.remote_stats.received.msgs) = (100, 100);
        assert_eq!(kinds(&m, &[], false), []);
        m.spec.test = measure::spec::test::Test::RcLat;
        assert_eq!(kinds(&m, &[], false), [WarningKind::FewMessages]);
    }

    #[test]
    fn server_warnings_are_marked_and_not_repeated() {
        let server = [Warning::new(WarningKind::Other, "x")];
        assert_eq!(kinds(&measured(), &server, false), [WarningKind::Other]);
        assert_eq!(kinds(&measured(), &server, true), []);
        assert_eq!(about_server(server[0].clone()).text, "the server: x");
    }
}
