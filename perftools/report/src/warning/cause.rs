//! Names the cause of a slow or failed test from the counters of both ends.
//! `cause_table` has the causes.

use base::error::{Error, Kind};
use measure::stats::SideStats;
use measure::stats::port_counters::CounterChanges;

use super::Warning;
use super::cause_table::{CAUSES, Cause, CauseCounter};

/// Maximum number of counters of one end in the text of a cause.
const MAX_COUNTERS: usize = 3;

/// Returns the kinds of all causes.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    CAUSES.iter().map(|cause| cause.kind)
}

/// Returns a warning for each cause that the counters of the client and of the server show, the
/// most important one first. If both ends use one port, the counters of the client are those of
/// both.
pub(super) fn find(stats: [&SideStats; 2], one_port: bool) -> Vec<Warning> {
    let names: &[&str] = if one_port {
        &[""]
    } else {
        &["client", "server"]
    };
    let ends: Vec<End> = names
        .iter()
        .zip(stats)
        .filter_map(|(name, side)| {
            Some(End {
                name,
                changes: side.port_counters.as_ref()?,
                seconds: side.seconds(),
            })
        })
        .collect();
    CAUSES
        .iter()
        .filter_map(|cause| cause.warning(&ends))
        .collect()
}

/// Adds the cause to the error of a test that failed after `seconds`, if the counters of this end
/// show one. The error of a peer already names what its own counters show.
pub fn explain(error: Error, changes: &CounterChanges, seconds: f64) -> Error {
    if !matches!(error.kind(), Kind::Device | Kind::Test) {
        return error;
    }
    let end = End {
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
    // The error of a device has its remedy in its text.
    let has_help = error.to_string().contains("; help: ");
    let error = error.context(format!("{} ({evidence})", cause.text));
    if has_help {
        return error;
    }
    error.with_help(cause.help)
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
    let mut all = CAUSES.iter().flat_map(|cause| cause.counters);
    all.any(|counter| counter.matches(name))
}

/// Returns the name of a counter without its group.
pub(crate) fn short_name(name: &str) -> &str {
    name.split_once('/').map_or(name, |(_, name)| name)
}

/// One end of a test.
struct End<'a> {
    /// `client` or `server`; empty if there is only one.
    name: &'a str,
    changes: &'a CounterChanges,
    seconds: f64,
}

impl End<'_> {
    /// Returns the counters that show the cause, as text.
    fn evidence(&self, cause: &Cause) -> Option<String> {
        let increases = cause.counters.iter().flat_map(|counter| {
            let increased = self.changes.increased.iter();
            increased.filter(|(name, by)| {
                counter.matches(name) && counter.is_unusual(**by, self.seconds)
            })
        });
        let mut increases: Vec<_> = increases.collect();
        increases.sort_by_key(|(_, by)| std::cmp::Reverse(**by));
        let texts = increases
            .iter()
            .take(MAX_COUNTERS)
            .map(|(name, by)| format!("{} {by}", short_name(name)));
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}

impl Cause {
    /// Returns the warning, if the counters of any end show the cause.
    fn warning(&self, ends: &[End<'_>]) -> Option<Warning> {
        let evidence = ends.iter().filter_map(|end| {
            let evidence = end.evidence(self)?;
            Some(match end.name {
                "" => evidence,
                name => format!("{name}: {evidence}"),
            })
        });
        let evidence: Vec<String> = evidence.collect();
        (!evidence.is_empty()).then(|| {
            let text = format!(
                "{} ({}); help: {}",
                self.text,
                evidence.join("; "),
                self.help
            );
            Warning::new(self.kind, text)
        })
    }
}

impl CauseCounter {
    /// Returns `true` if `name` is the name of this counter.
    fn matches(&self, name: &str) -> bool {
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
