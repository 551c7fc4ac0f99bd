//! What limits, from measurements, in words.

use super::search::{SearchResult, Trial};
use crate::common::units::Style;
use crate::rperf::report::advice::{Bottleneck, Goal};
use crate::rperf::spec::modes::Wait::{Events, Poll};
use crate::rperf::stats::SideStats;

/// A thread, or a host, that is busy for this share of the time has no more to give.
const BUSY: f64 = 0.85;
/// A link that carries this share of its rate is full: headers take the rest.
const FULL: f64 = 0.88;
/// The deepest queue that brings so many times as much as the next one would bring more still.
const DEEPER: f64 = 1.1;

/// What is known beside the measurements.
#[derive(Clone, Copy, Debug)]
pub struct PathLimits {
    /// What the link carries in bits a second; none for software, whose rate is a name only.
    pub link: Option<f64>,
    /// Both ends are on one host.
    pub one_host: bool,
}

/// The bound of what was found, and the same in words; `asleep` is the best again, both ends asleep
/// when they can be.
pub(super) fn bound(
    found: &SearchResult,
    asleep: Option<&Trial>,
    path_limits: PathLimits,
) -> (Bottleneck, String) {
    let bits = found.best.measured.summary.bandwidth.unwrap_or(0.0) * 8.0;
    if let Some(link) = path_limits
        .link
        .filter(|link| bits >= link * FULL && found.goal == Goal::Bandwidth)
    {
        let style = Style {
            bits: true,
            ..Style::default()
        };
        let shown = |bits: f64| style.bandwidth(bits / 8.0);
        let (now, all) = (shown(bits), shown(link));
        return (
            Bottleneck::Link,
            format!("the link: {now} of {all} are payload"),
        );
    }
    if let Some(verdict) = asleep.and_then(|tried| processors(tried, path_limits)) {
        return verdict;
    }
    if let Some((deep, gain)) = deeper(found) {
        let text = format!(
            "latency: with {deep} messages under way it is {gain:.1} times what a quarter of them bring, and more would bring more"
        );
        return (Bottleneck::Latency, text);
    }
    let text = "neither the processors, nor the link, nor how much is under way: the device, or the path (`ribinfo check --peer HOST` looks at both)";
    (Bottleneck::Unknown, text.to_owned())
}

fn processors(tried: &Trial, path_limits: PathLimits) -> Option<(Bottleneck, String)> {
    let m = &tried.measured;
    let (local, remote) = (thread(&m.local_stats), thread(&m.remote_stats));
    let (here, there) = if path_limits.one_host {
        ("the client's end", "the server's end")
    } else {
        ("this end", "the server")
    };
    let busy = |share: f64| {
        format!(
            "{:.0} % of the time, though it sleeps when it can",
            share.min(1.0) * 100.0
        )
    };
    if local.max(remote) >= BUSY {
        let (bound, who, share) = if local >= remote {
            (Bottleneck::LocalThread, here, local)
        } else {
            (Bottleneck::RemoteThread, there, remote)
        };
        return Some((
            bound,
            format!("the processor of {who}: its thread is busy {}", busy(share)),
        ));
    }
    let (local, remote) = (host(&m.local_stats), host(&m.remote_stats));
    if local.max(remote) < BUSY {
        return None;
    }
    let (bound, who, side) = match (path_limits.one_host, local >= remote) {
        (true, _) => (
            Bottleneck::LocalHost,
            "this machine, which is both ends",
            &m.local_stats,
        ),
        (false, true) => (Bottleneck::LocalHost, "this host", &m.local_stats),
        (false, false) => (Bottleneck::RemoteHost, "the server's host", &m.remote_stats),
    };
    let cpu = &side.cpu.host;
    let kernel = (cpu.kernel + cpu.intr) / cpu.busy().max(1e-9) * 100.0;
    let text = format!(
        "the processors of {who}: together they are busy {:.0} % of the time, {kernel:.0} % of that in the kernel (where a software device works)",
        host(side).min(1.0) * 100.0
    );
    Some((bound, text))
}

/// The share of the time that the test's thread ran.
fn thread(side: &SideStats) -> f64 {
    side.cpu.thread / seconds(side)
}

/// The share of the time that the host's processors did, all together.
fn host(side: &SideStats) -> f64 {
    side.cpu.host.busy() / seconds(side) / f64::from(side.cpu.cpus.max(1))
}

fn seconds(side: &SideStats) -> f64 {
    side.seconds().max(1e-6)
}

/// Whether the deepest queue that was tried, with else the best settings, brings much more than the
/// next.
fn deeper(found: &SearchResult) -> Option<(u32, f64)> {
    let alike = |tried: &&Trial| {
        let (a, b) = (tried.settings, found.best.settings);
        (a.wait, a.post_list, a.inline, a.qps) == (b.wait, b.post_list, b.inline, b.qps)
    };
    let deepest = found.all.iter().map(|tried| tried.settings.depth).max()?;
    if found.best.settings.depth != deepest {
        return None;
    }
    let before = found
        .all
        .iter()
        .filter(alike)
        .filter(|t| t.settings.depth < deepest)
        .max_by_key(|t| t.settings.depth)?;
    let gain = found.best.score / before.score.max(f64::MIN_POSITIVE);
    (gain >= DEEPER).then_some((found.best.measured.depth, gain))
}

/// What there is to say of the time of one message.
pub(super) fn of_latency(found: &SearchResult) -> String {
    let of = |wait| {
        found
            .all
            .iter()
            .filter(|t| t.settings.wait == wait)
            .map(|t| t.score)
            .fold(0.0, f64::max)
    };
    let (poll, events) = (of(Poll), of(Events));
    if poll <= 0.0 || events <= 0.0 {
        return "one message at a time: each end waits for the other".to_owned();
    }
    let (better, worse, times) = if poll >= events {
        ("polling", "sleeping", poll / events)
    } else {
        ("sleeping", "polling", events / poll)
    };
    format!(
        "one message at a time: each end waits for the other, and {better} is {times:.1} times as fast as {worse}"
    )
}
