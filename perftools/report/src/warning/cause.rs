//! Names the cause of a slow or failed test from the counters of both ends.
//! `cause_table` has the causes.

use base::error::{Error, Kind};
use measure::stats::SideStats;
use measure::stats::port_counters::CounterChanges;

use super::cause_table::{CAUSES, Cause, CauseCounter};
use super::{Warning, WarningKind};

/// Maximum number of counters of one end in the text of a cause.
const MAX_COUNTERS: usize = 3;

/// Returns the kinds of all causes.
pub(crate) fn kinds() -> impl Iterator<Item = WarningKind> {
    let all = CAUSES.iter().chain([LATE_ACKNOWLEDGEMENTS]);
    all.map(|cause| cause.kind)
}

/// Returns a warning for each cause that the counters of the client and of the server show, the
/// most important one first. If both ends use one port, the counters of the client are those of
/// both. Between two ends on one host there is no switch.
pub(super) fn find(stats: [&SideStats; 2], one_port: bool, one_host: bool) -> Vec<Warning> {
    let names: &[&str] = if one_port {
        &[""]
    } else {
        &["client", "server"]
    };
    let ends: Vec<CauseEnd> = names
        .iter()
        .zip(stats)
        .filter_map(|(name, side)| {
            Some(CauseEnd {
                name,
                changes: side.port_counters.as_ref()?,
                seconds: side.seconds(),
            })
        })
        .collect();
    let lost = stats.iter().map(|side| side.lost).sum();
    let are_late = acknowledgements_are_late(&ends);
    let mut late = Some(LATE_ACKNOWLEDGEMENTS);
    let causes = CAUSES.iter().filter_map(|cause| match cause {
        cause if explains_loss(cause.kind) && !cause.is_large_enough(&ends, lost) => None,
        // Late acknowledgements explain both counters.
        cause if cause.is_loss() && are_late => {
            let late = late.take()?;
            let mut names = ends.iter().flat_map(|end| end.changes.increased.keys());
            let is_tcp = names.any(|name| name.starts_with("Tcp"));
            late.warning(&ends, if is_tcp { LATE_OVER_TCP } else { late.help })
        }
        cause if cause.is_loss() && one_host => cause.warning(&ends, LOSS_ON_ONE_HOST),
        cause => cause.warning(&ends, cause.help),
    });
    causes.collect()
}

/// Returns `true` if the kind is that of a cause of lost messages.
pub(super) fn explains_loss(kind: WarningKind) -> bool {
    [WarningKind::Discards, WarningKind::PacketLoss].contains(&kind)
}

/// Remedy for losses between two ends on one host.
const LOSS_ON_ONE_HOST: &str = "this host is short of processors, or its interface drops packets: see `ip -s link` and `tc -s qdisc`";

/// Remedy for acknowledgements over TCP that arrive after the timeout, which the kernel sets.
const LATE_OVER_TCP: &str = "look for a host that is short of processors";

/// Acknowledgements that arrive after the timeout: the sender repeats requests that have arrived.
/// Programs that wait for a processor cause this, mostly with software devices.
const LATE_ACKNOWLEDGEMENTS: &Cause = &Cause {
    kind: WarningKind::LateAcknowledgements,
    text: "acknowledgements came late, and requests were sent again",
    help: "look for a host that is short of processors, or set --qp-timeout higher",
    counters: "",
};

/// Returns `true` if requests were repeated and arrived twice, and no end saw a gap.
fn acknowledgements_are_late(ends: &[CauseEnd<'_>]) -> bool {
    let has = |kind: WarningKind, is_counted: fn(&str) -> bool| {
        let cause = CAUSES.iter().find(|cause| cause.kind == kind);
        let counters = cause.into_iter().flat_map(Cause::own_counters);
        let mut counters = counters.filter(|counter| is_counted(counter.name));
        counters.any(|counter| {
            ends.iter()
                .any(|end| end.increase(counter).next().is_some())
        })
    };
    has(WarningKind::Duplicates, |_| true)
        && has(WarningKind::PacketLoss, is_retry)
        && !has(WarningKind::PacketLoss, |name| !is_retry(name))
}

/// Returns `true` if a counter counts repeated requests, whatever the reason.
fn is_retry(name: &str) -> bool {
    RETRIES.iter().any(|retry| name.ends_with(retry))
}

/// Ends of the names of counters of repeated requests.
const RETRIES: [&str; 7] = [
    "completer_retry_err",
    "local_ack_timeout_err",
    "sq_num_to",
    "sq_num_tree",
    "to_retransmits",
    "RetransSegs",
    "TCPTimeouts",
];

/// Adds the cause to the error of a test that failed after `seconds`, if the counters of this end
/// show one. The error of a peer already names what its own counters show.
pub fn explain(error: Error, changes: &CounterChanges, seconds: f64) -> Error {
    if !matches!(error.kind(), Kind::Device | Kind::Test) {
        return error;
    }
    let end = CauseEnd {
        name: "",
        changes,
        seconds,
    };
    let mut found = CAUSES.iter().filter_map(|cause| {
        let evidence = end.evidence(cause)?;
        Some((cause, evidence))
    });
    let Some((cause, evidence)) = found.next() else {
        return error;
    };
    let has_help = error.help().is_some();
    let error = error.context(format!("{} ({evidence})", cause.text));
    if has_help {
        error
    } else {
        error.with_help(cause.help)
    }
}

/// Returns the counters that show a cause, without their groups, and their increases.
pub fn relevant_counters(changes: &CounterChanges) -> Vec<(&str, u64)> {
    changes
        .increased
        .iter()
        .filter(|(name, _)| shows_cause(name))
        .map(|(name, increase)| (short_name(name), *increase))
        .collect()
}

/// Returns `true` if the counter shows a cause.
pub(crate) fn shows_cause(name: &str) -> bool {
    let mut all = CAUSES.iter().flat_map(Cause::own_counters);
    all.any(|counter| counter.matches(name))
}

/// Returns the name of a counter without its group.
pub(crate) fn short_name(name: &str) -> &str {
    name.split_once('/').map_or(name, |(_, name)| name)
}

/// One end of a test.
struct CauseEnd<'a> {
    /// `client` or `server`; empty if there is only one.
    name: &'a str,
    changes: &'a CounterChanges,
    seconds: f64,
}

impl CauseEnd<'_> {
    /// Returns the counters that show the cause, as text.
    fn evidence(&self, cause: &Cause) -> Option<String> {
        let increases = cause
            .all_counters()
            .flat_map(|counter| self.increase(counter));
        let mut increases: Vec<_> = increases.collect();
        increases.sort_by_key(|(_, by)| std::cmp::Reverse(**by));
        let texts = increases
            .iter()
            .take(MAX_COUNTERS)
            .map(|(name, by)| format!("{} {by}", short_name(name)));
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// Returns the values of a counter that increased more than it does in normal operation.
    fn increase(&self, counter: CauseCounter) -> impl Iterator<Item = (&String, &u64)> {
        let increased = self.changes.increased.iter();
        increased.filter(move |(name, by)| {
            counter.matches(name) && counter.is_unusual(**by, self.seconds)
        })
    }
}

impl Cause {
    /// Returns `true` if the cause is a loss, or what late acknowledgements look like as well.
    fn is_loss(&self) -> bool {
        [WarningKind::PacketLoss, WarningKind::Duplicates].contains(&self.kind)
    }

    /// Returns `true` unless the counters are too small to be the cause of these losses.
    fn is_large_enough(&self, ends: &[CauseEnd<'_>], lost_messages: u64) -> bool {
        let increases = ends
            .iter()
            .flat_map(|end| self.own_counters().flat_map(|c| end.increase(c)));
        let sum = increases.fold(0, |sum: u64, (_, by)| sum.saturating_add(*by));
        sum >= lost_messages / 10
    }

    /// Returns the counters that show the cause. Those of late acknowledgements also show others.
    fn all_counters(&self) -> impl Iterator<Item = CauseCounter> {
        let is_late = self.kind == LATE_ACKNOWLEDGEMENTS.kind;
        let shared = CAUSES
            .iter()
            .filter(move |cause| is_late && cause.is_loss());
        self.own_counters()
            .chain(shared.flat_map(Cause::own_counters))
    }

    /// Returns the warning, if the counters of any end show the cause.
    fn warning(&self, ends: &[CauseEnd<'_>], help: &str) -> Option<Warning> {
        let evidence = ends.iter().filter_map(|end| {
            let evidence = end.evidence(self)?;
            Some(match end.name {
                "" => evidence,
                name => format!("{name}: {evidence}"),
            })
        });
        let evidence: Vec<String> = evidence.collect();
        (!evidence.is_empty()).then(|| {
            let text = format!("{} ({})", self.text, evidence.join("; "));
            Warning::new(self.kind, text).with_help(help)
        })
    }
}

impl CauseCounter {
    /// Returns `true` if `name` is the name of this counter.
    fn matches(&self, name: &str) -> bool {
        let Some((group, name)) = name.split_once('/') else {
            return false;
        };
        if group != self.group {
            return false;
        }
        match self.name.split_once('#') {
            None => name == self.name,
            Some((begin, end)) => name
                .strip_prefix(begin)
                .and_then(|rest| rest.strip_suffix(end))
                .is_some_and(|number| {
                    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
                }),
        }
    }

    #[allow(clippy::cast_precision_loss)] // Compared with a rate of at most one million.
    fn is_unusual(&self, by: u64, seconds: f64) -> bool {
        by as f64 > f64::from(self.normal) * seconds
    }
}

#[cfg(test)]
#[path = "cause_tests.rs"]
mod tests;
