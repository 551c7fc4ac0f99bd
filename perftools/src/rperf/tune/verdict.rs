//! Derives the bottleneck from measurements and explains it.

use base::units::Style;
use measure::spec::modes::Wait::{Events, Poll};
use measure::stats::SideStats;
use report::advice::{Bottleneck, Goal};
use report::warning::is_cause;

use super::search::{SearchResult, Trial};

/// Share of the time above which a thread, or all processors of a host, are the bottleneck.
const BUSY: f64 = 0.85;
/// Share of the link rate above which the link is the bottleneck. Headers use the rest.
const LINK_FULL: f64 = 0.88;
/// Gain of the deepest queue over the next shorter one above which latency is the bottleneck.
const MIN_DEPTH_GAIN: f64 = 1.1;

/// Known limits of the path between the two ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathLimits {
    /// Link rate in bits per second. `None` for a software device, whose reported rate means
    /// nothing.
    pub link: Option<f64>,
    /// Both ends are on one host.
    pub one_host: bool,
}

/// Returns the bottleneck of the best settings and an explanation. `sleeping` is a measurement of
/// these settings with both ends sleeping while they wait.
pub(super) fn find_bottleneck(
    found: &SearchResult,
    sleeping: Option<&Trial>,
    path_limits: PathLimits,
) -> (Bottleneck, String) {
    let bits = found.best.measured.summary.bandwidth.unwrap_or(0.0) * 8.0;
    if let Some(link) = path_limits
        .link
        .filter(|link| bits >= link * LINK_FULL && found.goal == Goal::Bandwidth)
    {
        let style = Style {
            bits: true,
            ..Style::default()
        };
        let show = |bits: f64| style.bandwidth(bits / 8.0);
        let (used, rate) = (show(bits), show(link));
        return (
            Bottleneck::Link,
            format!("the link: payload takes {used} of {rate}"),
        );
    }
    if let Some(cause) = path_cause(found) {
        return (Bottleneck::Path, cause);
    }
    if let Some(verdict) = sleeping.and_then(|trial| busy_processors(trial, path_limits)) {
        return verdict;
    }
    if let Some(DepthGain {
        deepest,
        previous,
        gain,
    }) = depth_gain(found)
    {
        let text = format!(
            "latency: {deepest} messages in flight give {gain:.1} times as much as {previous}, so a deeper queue may give even more"
        );
        return (Bottleneck::Latency, text);
    }
    let text = "neither the processors, nor the link, nor the queue depth: probably the device or the path (`ribinfo check --peer HOST` checks both)";
    (Bottleneck::Unknown, text.to_owned())
}

/// Returns the cause that the counters of the ports showed while the best settings were measured.
fn path_cause(found: &SearchResult) -> Option<String> {
    let mut warnings = found.best.measured.warnings.iter();
    let cause = warnings.find(|warning| is_cause(warning))?;
    Some(format!("the path: {cause}"))
}

/// Returns the bottleneck if a thread, or all processors of a host, are busy.
fn busy_processors(trial: &Trial, path_limits: PathLimits) -> Option<(Bottleneck, String)> {
    let m = &trial.measured;
    let (local, remote) = (thread_load(&m.local_stats), thread_load(&m.remote_stats));
    if local.max(remote) >= BUSY {
        let (bound, name, load) = if local >= remote {
            (Bottleneck::LocalThread, "client", local)
        } else {
            (Bottleneck::RemoteThread, "server", remote)
        };
        let text = format!(
            "the thread of the {name}, which is busy {:.0} % of the time although it sleeps while it waits",
            load.min(1.0) * 100.0
        );
        return Some((bound, text));
    }
    let (local, remote) = (host_load(&m.local_stats), host_load(&m.remote_stats));
    if local.max(remote) < BUSY {
        return None;
    }
    let (bound, name, side) = match (path_limits.one_host, local >= remote) {
        (true, _) => (
            Bottleneck::LocalHost,
            "this host, which runs both ends",
            &m.local_stats,
        ),
        (false, true) => (Bottleneck::LocalHost, "this host", &m.local_stats),
        (false, false) => (Bottleneck::RemoteHost, "the server's host", &m.remote_stats),
    };
    let cpu = side.cpu.host.unwrap_or_default();
    let kernel_percent = (cpu.kernel + cpu.intr) / cpu.busy().max(1e-9) * 100.0;
    let text = format!(
        "the processors of {name}, which are busy {:.0} % of the time ({kernel_percent:.0} % of it in the kernel, which also runs software devices)",
        host_load(side).min(1.0) * 100.0
    );
    Some((bound, text))
}

/// Returns the share of the time for which the thread of the test ran.
fn thread_load(side: &SideStats) -> f64 {
    side.cpu.thread.unwrap_or_default() / seconds(side)
}

/// Returns the share of the time for which the processors of the host were busy, on average.
fn host_load(side: &SideStats) -> f64 {
    let busy = side.cpu.host.unwrap_or_default().busy();
    busy / seconds(side) / f64::from(side.cpu.cpus.max(1))
}

/// Returns the measured time, but never zero.
fn seconds(side: &SideStats) -> f64 {
    side.seconds().max(1e-6)
}

/// Gain of the deepest queue over the next shorter one.
struct DepthGain {
    deepest: u32,
    previous: u32,
    gain: f64,
}

/// Returns the gain of the deepest queue that was tried if it is still large. All other settings
/// are the best ones.
fn depth_gain(found: &SearchResult) -> Option<DepthGain> {
    let differs_in_depth_only = |trial: &&Trial| {
        let (a, b) = (trial.settings, found.best.settings);
        (a.wait, a.post_list, a.inline, a.qps) == (b.wait, b.post_list, b.inline, b.qps)
    };
    let deepest = found
        .trials
        .iter()
        .map(|trial| trial.settings.depth)
        .max()?;
    if found.best.settings.depth != deepest {
        return None;
    }
    let previous = found
        .trials
        .iter()
        .filter(differs_in_depth_only)
        .filter(|t| t.settings.depth < deepest)
        .max_by_key(|t| t.settings.depth)?;
    let gain = found.best.score / previous.score.max(f64::MIN_POSITIVE);
    (gain >= MIN_DEPTH_GAIN).then_some(DepthGain {
        deepest: found.best.measured.depth,
        previous: previous.measured.depth,
        gain,
    })
}

/// Explains the latency: names what the counters of the ports show, or compares polling and
/// sleeping.
pub(super) fn explain_latency(found: &SearchResult) -> String {
    if let Some(cause) = path_cause(found) {
        return cause;
    }
    let best_score = |wait| {
        found
            .trials
            .iter()
            .filter(|t| t.settings.wait == wait)
            .map(|t| t.score)
            .fold(0.0, f64::max)
    };
    let (poll, events) = (best_score(Poll), best_score(Events));
    if poll <= 0.0 || events <= 0.0 {
        return "one message at a time: each end waits for the other".to_owned();
    }
    let (better, worse, ratio) = if poll >= events {
        ("polling", "sleeping", poll / events)
    } else {
        ("sleeping", "polling", events / poll)
    };
    format!(
        "one message at a time: each end waits for the other, and {better} is {ratio:.1} times as fast as {worse}"
    )
}
