//! Comparison of two documents with a test of statistical significance.

use std::fmt::Write;

use super::json::Document;
use super::record::{Measured, Outcome, Record};
use crate::rperf::spec::Spec;

/// Two-sided 95 % quantiles of Student's t distribution for 1 to 30 degrees of freedom.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Conclusion of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Significantly worse, by more than the threshold.
    Worse,
    /// Significantly better, by more than the threshold.
    Better,
    /// The difference is within the threshold.
    Same,
    /// The difference is above the threshold but not significant; more runs are needed.
    Unclear,
}

/// Comparison of one metric of one test.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name and parameters of the test.
    pub test: String,
    /// Name of the metric: `bandwidth`, `msg_rate` or `latency_p50`.
    pub metric: &'static str,
    /// Means of the old and the new runs.
    pub means: (f64, f64),
    /// Numbers of old and new runs.
    pub runs: (usize, usize),
    /// Change relative to the old mean; positive for an increase.
    pub change: f64,
    /// Half the width of the 95 % confidence interval of the change; `None` if either document has
    /// only one run.
    pub interval: Option<f64>,
    /// Conclusion from the change, the interval and the threshold.
    pub verdict: Verdict,
}

/// Compares the results that are in both documents and omits all others. Changes up to `threshold`,
/// a fraction of the old mean, count as equal.
pub fn compare(old: &Document, new: &Document, threshold: f64) -> Vec<Row> {
    let (old, new) = (samples(old), samples(new));
    let rows = old.iter().filter_map(|before| {
        let after = new
            .iter()
            .find(|s| s.test == before.test && s.metric == before.metric)?;
        let (old, new) = (&before.values, &after.values);
        Some(row(&before.test, before.metric, old, new, threshold))
    });
    rows.collect()
}

/// Formats the comparison as a table.
pub fn render(rows: &[Row]) -> String {
    let mut text = String::new();
    let width = rows.iter().map(|r| r.test.len()).max().unwrap_or(0);
    for r in rows {
        let interval = r
            .interval
            .map_or_else(|| "one run".to_owned(), |i| format!("± {:.1} %", i * 100.0));
        let verdict = match r.verdict {
            Verdict::Worse => "WORSE",
            Verdict::Better => "better",
            Verdict::Same => "same",
            Verdict::Unclear => "unclear: increase --repeat",
        };
        // Writing to a string never fails.
        let _ = writeln!(
            text,
            "{:<width$}  {:<12}  {:>14.0} → {:>14.0}  {:>+7.1} % {interval:<10}  {verdict}",
            r.test,
            r.metric,
            r.means.0,
            r.means.1,
            r.change * 100.0
        );
    }
    text
}

/// Values of one metric in all runs of one test.
struct Samples {
    test: String,
    metric: &'static str,
    values: Vec<f64>,
}

/// Collects the values of each test. Runs with the same parameters are combined. The order of the
/// document is kept.
fn samples(document: &Document) -> Vec<Samples> {
    let mut all: Vec<Samples> = Vec::new();
    for Record { test, outcome, .. } in &document.tests {
        let Outcome::Measured(m) = outcome else {
            continue;
        };
        let name = format!(
            "{} {} B, {}, depth {}, {}{}",
            test.name(),
            m.spec.msg_size,
            queue_pairs(&m.spec),
            m.depth,
            m.local.link,
            if m.local.cm { " with rdma_cm" } else { "" }
        );
        let Some((metric, value)) = main_result(m) else {
            continue;
        };
        match all
            .iter_mut()
            .find(|s| s.test == name && s.metric == metric)
        {
            Some(samples) => samples.values.push(value),
            None => all.push(Samples {
                test: name,
                metric,
                values: vec![value],
            }),
        }
    }
    all
}

/// Describes the queue pairs of a test: threads, queue pairs per thread, direction and multicast
/// receivers.
fn queue_pairs(spec: &Spec) -> String {
    let threads = if spec.threads > 1 {
        format!("{} threads of ", spec.threads)
    } else {
        String::new()
    };
    let flip = if spec.flip { ", flipped" } else { "" };
    let receivers = spec.multicast.map_or_else(String::new, |group| {
        format!(", {} receivers", group.receivers)
    });
    format!("{threads}{} QP{flip}{receivers}", spec.qps)
}

/// Returns the name and the value of a test's main result.
#[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
fn main_result(m: &Measured) -> Option<(&'static str, f64)> {
    match (&m.latency, m.plan, m.summary.bandwidth) {
        (Some(p), ..) => Some(("latency_p50", p.p50 as f64)),
        (None, Some(plan), _) if plan.verb.is_atomic() => Some(("msg_rate", m.summary.msg_rate)),
        (None, _, bandwidth) => bandwidth.map(|b| ("bandwidth", b)),
    }
}

/// Returns the mean and its variance (the squared standard error).
#[allow(clippy::cast_precision_loss)] // A few runs.
fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (
        mean,
        if values.len() > 1 {
            squares / (n - 1.0) / n
        } else {
            0.0
        },
    )
}

/// Compares the values of one metric before and after a change.
fn row(test: &str, metric: &'static str, before: &[f64], after: &[f64], threshold: f64) -> Row {
    let ((old, old_variance), (new, new_variance)) =
        (mean_and_variance(before), mean_and_variance(after));
    let change = if old > 0.0 { (new - old) / old } else { 0.0 };
    // Welch's t-test. It uses the degrees of freedom of the smaller sample, which makes the
    // interval too wide rather than too narrow.
    let degrees_of_freedom = before.len().min(after.len()).saturating_sub(1);
    let t = T95
        .get(degrees_of_freedom.saturating_sub(1))
        .copied()
        .unwrap_or(1.96);
    let interval = (degrees_of_freedom > 0 && old > 0.0)
        .then(|| t * (old_variance + new_variance).sqrt() / old);
    let gain = if metric == "latency_p50" {
        -change
    } else {
        change
    };
    let is_significant = interval.is_none_or(|half| change.abs() > half);
    let verdict = match (gain.abs() > threshold, is_significant) {
        (false, _) => Verdict::Same,
        (true, false) => Verdict::Unclear,
        (true, true) if gain < 0.0 => Verdict::Worse,
        (true, true) => Verdict::Better,
    };
    Row {
        test: test.to_owned(),
        metric,
        means: (old, new),
        runs: (before.len(), after.len()),
        change,
        interval,
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::report::text::tests::{latency, one_way};

    fn verdict(metric: &'static str, before: &[f64], after: &[f64]) -> Verdict {
        row("x", metric, before, after, 0.05).verdict
    }

    #[test]
    fn less_bandwidth_and_more_latency_are_worse() {
        let (low, high) = (
            [90.0, 91.0, 89.5, 90.2, 90.1],
            [100.0, 101.0, 99.5, 100.2, 100.1],
        );
        assert_eq!(verdict("bandwidth", &high, &low), Verdict::Worse);
        assert_eq!(verdict("bandwidth", &low, &high), Verdict::Better);
        assert_eq!(verdict("latency_p50", &low, &high), Verdict::Worse);
        assert_eq!(verdict("latency_p50", &high, &low), Verdict::Better);
    }

    #[test]
    fn insignificant_changes_are_unclear() {
        assert_eq!(
            verdict("bandwidth", &[100.0, 60.0, 140.0], &[90.0, 50.0, 120.0]),
            Verdict::Unclear
        );
        assert_eq!(
            verdict("bandwidth", &[100.0, 101.0], &[99.0, 98.0]),
            Verdict::Same
        );
    }

    #[test]
    fn single_runs_have_no_interval() {
        let row = row("x", "bandwidth", &[100.0], &[80.0], 0.05);
        assert_eq!((row.verdict, row.interval), (Verdict::Worse, None));
        assert!(render(&[row]).contains("one run"));
    }

    #[test]
    fn results_are_matched_by_test_and_parameters() {
        let old = Document::new(vec![one_way(), latency(), one_way()]);
        let rows = compare(
            &old,
            &Document::new(vec![latency(), one_way(), one_way()]),
            0.05,
        );
        assert_eq!(
            rows.iter().map(|r| (r.metric, r.runs)).collect::<Vec<_>>(),
            [("bandwidth", (2, 2)), ("latency_p50", (1, 1))]
        );
        assert!(
            rows.iter()
                .all(|r| r.verdict == Verdict::Same && r.change == 0.0)
        );
    }
}
