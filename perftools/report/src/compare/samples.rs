//! The values of each metric in all runs of a test.

use base::units::Size;
use measure::spec::test::Test;

use crate::json::Records;
use crate::metric::{Metric, results};
use crate::parameters::{Parameters, parameters};
use crate::record::{Measured, Outcome, Record};
use crate::warning::{Warning, is_cause};

/// Values of one metric in all runs of one test.
pub(super) struct Samples {
    pub(super) test: Test,
    pub(super) size: u64,
    pub(super) metric: Metric,
    /// Description of the test.
    pub(super) name: String,
    /// Parameters without which results cannot be compared.
    pub(super) key: Parameters,
    /// Other parameters.
    pub(super) others: Parameters,
    pub(super) values: Vec<f64>,
    /// Causes that the counters of the ports showed in any of the runs.
    pub(super) causes: Vec<Warning>,
}

/// Parameters that do not change what a test measures.
const MAY_DIFFER: &[&str] = &[
    "time",
    "messages",
    "client timeout",
    "server timeout",
    "client cpus",
    "server cpus",
    "client gid index",
    "server gid index",
    "sockets port",
    "warm up",
];

/// Collects the values of each test. Runs with the same parameters are combined. The order of the
/// run is kept.
pub(super) fn samples(records: &Records) -> Vec<Samples> {
    let mut all: Vec<Samples> = Vec::new();
    for Record { test, outcome, .. } in &records.tests {
        let Outcome::Measured(m) = outcome else {
            continue;
        };
        // The figures of an interrupted test are not those of a whole one.
        if m.partial {
            continue;
        }
        let (others, mut key): (Parameters, Parameters) = parameters(m)
            .into_iter()
            .partition(|(name, _)| MAY_DIFFER.contains(&name.as_str()));
        key.insert("path".to_owned(), link(m));
        key.insert("total depth".to_owned(), m.depth.to_string());
        let causes: Vec<_> = m.warnings.iter().filter(|w| is_cause(w)).collect();
        for (metric, value) in results(m) {
            let new = Samples {
                test: *test,
                size: m.spec.msg_size,
                metric,
                name: describe(*test, m),
                key: key.clone(),
                others: others.clone(),
                values: vec![value],
                causes: causes.iter().copied().cloned().collect(),
            };
            let key = |s: &Samples| (s.test, s.size, s.metric);
            let same = |s: &&mut Samples| {
                key(s) == key(&new) && (&s.key, &s.others) == (&new.key, &new.others)
            };
            match all.iter_mut().find(same) {
                Some(samples) => {
                    samples.values.extend(new.values);
                    samples.causes.extend(new.causes);
                }
                None => all.push(new),
            }
        }
    }
    all
}

/// Describes the link and the way of connecting.
fn link(m: &Measured) -> String {
    let cm = if m.local.cm { " with rdma_cm" } else { "" };
    format!("{}{cm}", m.local.link)
}

/// Describes a test: name, size, queue pairs, direction, depth and link.
fn describe(test: Test, m: &Measured) -> String {
    let spec = &m.spec;
    let mut parts = vec![format!("{} {}", test.name(), Size(spec.msg_size))];
    if spec.threads > 1 {
        parts.push(format!("{} threads", spec.threads));
    }
    if spec.qps > 1 {
        parts.push(format!("{} QPs", spec.qps));
    }
    if spec.flip {
        parts.push("flipped".to_owned());
    }
    if let Some(group) = spec.multicast {
        parts.push(format!("{} receivers", group.receivers));
    }
    if !spec.has_default_depth() {
        parts.push(format!("depth {}", m.depth));
    }
    parts.push(link(m));
    parts.join(", ")
}
