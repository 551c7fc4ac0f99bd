//! Comparison of two runs with a test of statistical significance.

use std::collections::BTreeSet;
use std::fmt::Write;

mod samples;
mod significance;

use base::units::Size;
use measure::spec::test::Test;

use crate::environment;
use crate::json::Records;
pub use crate::metric::Metric;
use crate::parameters::differences;
use crate::warning::Warning;
use samples::{Samples, samples};
use significance::{FALSE_ALARM, MAX_RUNS, mean_and_variance, needed_runs, t_quantile};

/// Largest relative change of a figure that counts as no change, unless the user sets another.
pub const DEFAULT_THRESHOLD: f64 = 0.05;

/// Conclusion of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeVerdict {
    /// Significantly worse, by more than the threshold.
    Worse,
    /// Significantly better, by more than the threshold.
    Better,
    /// The difference is within the threshold.
    Same,
    /// The difference is above the threshold, but not significant, or there is one run of each side
    /// and no threshold of the user; more runs are needed.
    Unclear,
}

/// Comparison of one metric of one test.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedFigure {
    /// Name and parameters of the test.
    pub test: String,
    /// Metric that is compared.
    pub metric: Metric,
    /// Means of the old and the new runs.
    pub means: (f64, f64),
    /// Numbers of old and new runs.
    pub runs: (usize, usize),
    /// Change relative to the old mean; positive for an increase.
    pub change: f64,
    /// Half the width of the confidence interval of the change; `None` if both sides have only one
    /// run. All intervals of a comparison hold together with a probability of 95 %.
    pub interval: Option<f64>,
    /// Runs of each side after which this change would be significant, if they vary like these.
    pub needed_runs: Option<usize>,
    /// Conclusion from the change, the interval and the threshold.
    pub verdict: ChangeVerdict,
    /// Parameters that differ between the runs without making them incomparable.
    pub differences: Vec<String>,
    /// Causes that the counters of the ports showed in new runs only.
    pub causes: Vec<String>,
}

/// Comparison of two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Results that are in both runs.
    pub rows: Vec<ComparedFigure>,
    /// Tests that are in both runs only with different parameters, as sentences.
    pub incomparable: Vec<String>,
    /// Differences between the environments, as sentences.
    pub environment: Vec<String>,
}

impl ComparedFigure {
    /// Returns the verdict, and what decides an unclear one.
    pub fn verdict_text(&self) -> String {
        match (self.verdict, self.interval, self.needed_runs) {
            (ChangeVerdict::Worse, ..) => "worse".to_owned(),
            (ChangeVerdict::Better, ..) => "better".to_owned(),
            (ChangeVerdict::Same, ..) => "same".to_owned(),
            (_, None, _) => "unclear (one run: repeat with --repeat 5)".to_owned(),
            (_, _, Some(runs)) => format!("unclear (repeat with --repeat {runs})"),
            _ => format!("unclear (--repeat {MAX_RUNS} would not decide)"),
        }
    }
}

impl Comparison {
    /// Returns a sentence about the probability of the intervals, if there are several.
    pub fn correction(&self) -> Option<String> {
        let count = self
            .rows
            .iter()
            .filter(|row| row.interval.is_some())
            .count();
        (count > 1).then(|| {
            format!("the {count} intervals hold together with 95 % (Bonferroni correction)")
        })
    }
}

/// Compares the results that are in both runs. Changes up to `threshold`, a fraction of the old
/// mean, count as equal. A difference between single runs is better or worse only with a threshold;
/// by default it is unclear.
pub fn compare(old: &Records, new: &Records, threshold: Option<f64>) -> Comparison {
    let environments = environment::of_records(old)
        .into_iter()
        .zip(environment::of_records(new));
    let environment = environments
        .filter(|(old, new)| old.1 != new.1)
        .map(|(old, new)| format!("{}: {} → {}", old.0, old.1, new.1))
        .collect();
    let (old, new) = (samples(old), samples(new));
    let (mut pairs, mut incomparable) = (Vec::new(), Incomparable::default());
    for before in &old {
        let same_test = |after: &&Samples| {
            (after.test, after.size, after.metric) == (before.test, before.size, before.metric)
        };
        let matching = new
            .iter()
            .filter(same_test)
            .filter(|after| after.key == before.key)
            // Of several, the one with the fewest differences.
            .min_by_key(|after| differences(&before.others, &after.others).len());
        if let Some(after) = matching {
            pairs.push((before, after));
            continue;
        }
        let nearest = new
            .iter()
            .filter(same_test)
            .map(|after| differences(&before.key, &after.key))
            .min_by_key(Vec::len);
        if let Some(differences) = nearest {
            incomparable.insert(before.test, before.size, differences.join(", "));
        }
    }
    let has_interval = |pair: &&(&Samples, &Samples)| pair.0.values.len() + pair.1.values.len() > 2;
    let intervals = pairs.iter().filter(has_interval).count();
    let rows = pairs.iter().map(|(before, after)| ComparedFigure {
        differences: differences(&before.others, &after.others),
        causes: new_causes(&before.causes, &after.causes),
        ..row(
            &before.name,
            before.metric,
            [&before.values, &after.values],
            threshold,
            intervals,
        )
    });
    Comparison {
        rows: rows.collect(),
        incomparable: incomparable.sentences(),
        environment,
    }
}

/// Tests that are in both runs with different parameters. The sizes of a test that have the
/// same differences are one entry.
#[derive(Default)]
struct Incomparable(Vec<(Test, String, BTreeSet<u64>)>);

impl Incomparable {
    fn insert(&mut self, test: Test, size: u64, differences: String) {
        let same = |(other, text, _): &&mut (Test, String, _)| {
            (*other, text.as_str()) == (test, differences.as_str())
        };
        match self.0.iter_mut().find(same) {
            Some((.., sizes)) => _ = sizes.insert(size),
            None => self.0.push((test, differences, [size].into())),
        }
    }

    fn sentences(&self) -> Vec<String> {
        let sentence = |(test, differences, sizes): &(Test, String, BTreeSet<u64>)| {
            let test = test.name();
            match (sizes.first(), sizes.last(), sizes.len()) {
                (Some(first), Some(last), 2..) => {
                    let (first, last, count) = (Size(*first), Size(*last), sizes.len());
                    format!("{test} with {count} sizes from {first} to {last}: {differences}")
                }
                (Some(size), ..) => format!("{test} {}: {differences}", Size(*size)),
                (None, ..) => format!("{test}: {differences}"),
            }
        };
        self.0.iter().map(sentence).collect()
    }
}

/// Formats the comparison as a table.
pub fn render(comparison: &Comparison) -> String {
    let mut text = String::new();
    let rows = &comparison.rows;
    let width = rows
        .iter()
        .map(|r| r.test.chars().count())
        .max()
        .unwrap_or(0);
    // Writing to a string never fails.
    for r in rows {
        let interval = r.interval.map_or_else(
            || "(one run)".to_owned(),
            |i| format!("± {:.1} %", i * 100.0),
        );
        let verdict = match r.verdict {
            ChangeVerdict::Worse => "WORSE".to_owned(),
            _ => r.verdict_text(),
        };
        let runs = match r.runs {
            (1, 1) => String::new(),
            (old, new) => format!("  {old} → {new} runs"),
        };
        let _ = writeln!(
            text,
            "{:<width$}  {:<12}{:>12} → {:<12}{:>+7.1} % {interval:<10}  {verdict}{runs}",
            r.test,
            r.metric.name(),
            r.metric.format(r.means.0),
            r.metric.format(r.means.1),
            r.change * 100.0
        );
        if !r.differences.is_empty() {
            let _ = writeln!(text, "    differs: {}", r.differences.join(", "));
        }
        for cause in &r.causes {
            let _ = writeln!(text, "    cause: {cause}");
        }
    }
    if let Some(correction) = comparison.correction() {
        let _ = writeln!(text, "{correction}");
    }
    for test in &comparison.incomparable {
        let _ = writeln!(text, "not compared: {test}");
    }
    for difference in &comparison.environment {
        let _ = writeln!(text, "environment: {difference}");
    }
    text
}

/// Compares the values of one metric before and after a change. `intervals` is the number of
/// confidence intervals of the comparison, which divide the probability of a false alarm.
#[allow(clippy::cast_precision_loss)] // A few runs.
fn row(
    test: &str,
    metric: Metric,
    [before, after]: [&[f64]; 2],
    threshold: Option<f64>,
    intervals: usize,
) -> ComparedFigure {
    let ((old, old_variance), (new, new_variance)) =
        (mean_and_variance(before), mean_and_variance(after));
    let change = if old > 0.0 { (new - old) / old } else { 0.0 };
    // Welch's t-test. It uses the degrees of freedom of the smaller sample, which makes the
    // interval too wide rather than too narrow. A single run is assumed to have the variance of the
    // other runs.
    let sizes = [before.len(), after.len()].into_iter().filter(|n| *n > 1);
    let degrees_of_freedom = sizes.min().unwrap_or(2) - 1;
    let probability = FALSE_ALARM / intervals.max(1) as f64;
    let variances = old_variance
        .or(new_variance)
        .zip(new_variance.or(old_variance));
    let interval = variances
        .filter(|_| old > 0.0)
        .map(|(old_variance, new_variance)| {
            let of_means = old_variance / before.len() as f64 + new_variance / after.len() as f64;
            t_quantile(degrees_of_freedom, probability) * of_means.sqrt() / old
        });
    let gain = if metric == Metric::LatencyP50 {
        -change
    } else {
        change
    };
    let is_significant = match interval {
        Some(half) => change.abs() > half,
        None => threshold.is_some(),
    };
    let is_large = gain.abs() > threshold.unwrap_or(DEFAULT_THRESHOLD);
    let needed_runs = variances
        .filter(|_| is_large && !is_significant)
        .and_then(|(a, b)| needed_runs(new - old, f64::midpoint(a, b), probability));
    let verdict = match (is_large, is_significant) {
        (false, _) => ChangeVerdict::Same,
        (true, false) => ChangeVerdict::Unclear,
        (true, true) if gain < 0.0 => ChangeVerdict::Worse,
        (true, true) => ChangeVerdict::Better,
    };
    ComparedFigure {
        test: test.to_owned(),
        metric,
        means: (old, new),
        runs: (before.len(), after.len()),
        change,
        interval,
        needed_runs,
        verdict,
        differences: Vec::new(),
        causes: Vec::new(),
    }
}

/// Returns the texts of the causes whose kinds are new, one of each kind.
fn new_causes(old: &[Warning], new: &[Warning]) -> Vec<String> {
    let mut causes: Vec<&Warning> = Vec::new();
    for cause in new {
        if old
            .iter()
            .chain(causes.iter().copied())
            .all(|other| other.kind != cause.kind)
        {
            causes.push(cause);
        }
    }
    causes.into_iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use test_support::text::assert_contains;

    use super::*;
    use crate::record::{Measured, Outcome, Record};
    use crate::samples::{bidirectional, latency, one_way};
    use crate::warning::WarningKind;

    fn verdict(metric: Metric, before: &[f64], after: &[f64]) -> ChangeVerdict {
        row("x", metric, [before, after], None, 1).verdict
    }

    #[test]
    fn less_bandwidth_and_more_latency_are_worse() {
        let (low, high) = (
            [90.0, 91.0, 89.5, 90.2, 90.1],
            [100.0, 101.0, 99.5, 100.2, 100.1],
        );
        assert_eq!(
            verdict(Metric::Bandwidth, &high, &low),
            ChangeVerdict::Worse
        );
        assert_eq!(
            verdict(Metric::Bandwidth, &low, &high),
            ChangeVerdict::Better
        );
        assert_eq!(
            verdict(Metric::LatencyP50, &low, &high),
            ChangeVerdict::Worse
        );
        assert_eq!(
            verdict(Metric::LatencyP50, &high, &low),
            ChangeVerdict::Better
        );
    }

    #[test]
    fn the_directions_of_a_test_are_compared() {
        let (old, mut new) = (bidirectional(), bidirectional());
        if let Outcome::Measured(m) = &mut new.outcome {
            // The sum is the same.
            (m.summary.to_server, m.summary.to_client) = (m.summary.to_client, m.summary.to_server);
        }
        let [old, new] = [old, new].map(|record| Records::new(vec![record]));
        let rows = compare(&old, &new, Some(0.05)).rows;
        let rows: Vec<_> = rows.iter().map(|row| (row.metric, row.verdict)).collect();
        let expected = [
            (Metric::Bandwidth, ChangeVerdict::Same),
            (Metric::ToServer, ChangeVerdict::Worse),
            (Metric::ToClient, ChangeVerdict::Better),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn insignificant_changes_are_unclear() {
        assert_eq!(
            verdict(
                Metric::Bandwidth,
                &[100.0, 60.0, 140.0],
                &[90.0, 50.0, 120.0]
            ),
            ChangeVerdict::Unclear
        );
        assert_eq!(
            verdict(Metric::Bandwidth, &[100.0, 101.0], &[99.0, 98.0]),
            ChangeVerdict::Same
        );
    }

    #[test]
    fn single_runs_have_no_interval() {
        let compare = |new, threshold| {
            let values = [&[100e6][..], &[new]];
            row("x", Metric::Bandwidth, values, threshold, 1)
        };
        assert_eq!(compare(99e6, None).verdict, ChangeVerdict::Same);
        // The user has asked for a threshold.
        for (threshold, verdict) in [(0.1, ChangeVerdict::Worse), (0.3, ChangeVerdict::Same)] {
            assert_eq!(compare(80e6, Some(threshold)).verdict, verdict);
        }
        let row = compare(80e6, None);
        assert_eq!((row.verdict, row.interval), (ChangeVerdict::Unclear, None));
        let comparison = Comparison {
            rows: vec![row],
            incomparable: Vec::new(),
            environment: Vec::new(),
        };
        let text = render(&comparison);
        assert!(text.contains("100 MB/sec → 80 MB/sec"), "{text}");
        let expected = "-20.0 % (one run)   unclear (one run: repeat with --repeat 5)";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn one_run_is_compared_with_the_spread_of_several() {
        let compare = |new: &[f64]| row("x", Metric::Bandwidth, [&[100.0], new], None, 1);
        // t = 4.303 for two degrees of freedom, s = 1, and 1 + 1/3 for the two means.
        let near = compare(&[93.0, 94.0, 95.0]);
        assert_eq!((near.verdict, near.runs), (ChangeVerdict::Worse, (1, 3)));
        assert!((near.interval.unwrap() - 0.0497).abs() < 0.0001, "{near:?}");
        assert_eq!(
            compare(&[80.0, 94.0, 108.0]).verdict,
            ChangeVerdict::Unclear
        );
    }

    #[test]
    #[allow(clippy::cast_precision_loss)] // A few runs.
    fn an_unclear_row_names_the_runs_that_decide_it() {
        let values = [&[100.0, 110.0, 90.0][..], &[90.0, 100.0, 80.0]];
        let unclear = row("x", Metric::Bandwidth, values, None, 1);
        assert_eq!(unclear.verdict, ChangeVerdict::Unclear);
        let runs = unclear.needed_runs.unwrap();
        assert_eq!(
            unclear.verdict_text(),
            format!("unclear (repeat with --repeat {runs})")
        );
        // The same spread with so many runs is significant, and with one fewer it is not.
        let spread = |mean: f64, runs: usize| {
            let step = 10.0 * ((runs as f64 - 1.0) / runs as f64).sqrt();
            let signs = [step, -step].into_iter().cycle();
            signs
                .map(|by| mean + by)
                .take(runs / 2 * 2)
                .collect::<Vec<_>>()
        };
        let significant = |runs| {
            let (old, new) = (spread(100.0, runs), spread(90.0, runs));
            verdict(Metric::Bandwidth, &old, &new) == ChangeVerdict::Worse
        };
        assert!(significant(runs + 2) && !significant(runs - 2), "{runs}");
        // Many figures need more runs.
        let of_many = row("x", Metric::Bandwidth, values, None, 40);
        assert!(of_many.needed_runs.unwrap() > runs, "{of_many:?}");
        assert!(of_many.interval > unclear.interval);
    }

    #[test]
    fn the_correction_for_many_rows_is_stated() {
        let records = |n: usize| {
            let tests = (0..n).flat_map(|_| [one_way(), latency()]);
            Records::new(tests.collect())
        };
        let text = render(&compare(&records(2), &records(2), None));
        assert_contains(&text, &["the 2 intervals hold together with 95 %"]);
        let text = render(&compare(&records(1), &records(1), None));
        assert!(!text.contains("intervals"), "{text}");
    }

    fn changed(mut record: Record, change: impl FnOnce(&mut Measured)) -> Record {
        if let Outcome::Measured(m) = &mut record.outcome {
            change(m);
        }
        record
    }

    #[test]
    fn differing_parameters_are_named() {
        let old = Records::new(vec![one_way(), latency()]);
        let deep = changed(one_way(), |m| m.spec.depth = 512);
        let longer = changed(latency(), |m| {
            m.spec.limit = measure::spec::Limit::Time(std::time::Duration::from_secs(9));
            m.local.hardware.firmware = Some("1.2.3".into());
        });
        let comparison = compare(&old, &Records::new(vec![longer, deep]), None);
        assert_eq!(
            comparison.incomparable,
            ["rc_bw 64 KiB: depth default → 512"]
        );
        assert_eq!(comparison.rows.len(), 1);
        assert_eq!(comparison.rows[0].differences, ["time 2 s → 9 s"]);
        assert!(
            comparison
                .environment
                .contains(&"client firmware: - → 1.2.3".to_owned()),
            "{comparison:?}"
        );
        let text = render(&comparison);
        assert!(text.contains("    differs: time 2 s → 9 s\n"), "{text}");
    }

    #[test]
    fn sizes_with_the_same_differences_are_one_line() {
        let sized = |size, depth| {
            changed(one_way(), |m| {
                (m.spec.msg_size, m.spec.depth) = (size, depth);
            })
        };
        let document = |deep, deeper| {
            let depths = [(2, deep), (64, deep), (4096, deep), (1 << 20, deeper)];
            Records::new(depths.map(|(size, depth)| sized(size, depth)).to_vec())
        };
        let comparison = compare(&document(8, 8), &document(16, 32), None);
        assert_eq!(
            comparison.incomparable,
            [
                "rc_bw with 3 sizes from 2 bytes to 4 KiB: depth 8 → 16",
                "rc_bw 1 MiB: depth 8 → 32"
            ]
        );
    }

    #[test]
    fn a_cause_that_is_new_is_shown() {
        let with_cause =
            |kind, text: &str| changed(one_way(), |m| m.warnings.push(Warning::new(kind, text)));
        let document = |records: Vec<Record>| Records::new(records);
        let lost = || {
            with_cause(
                WarningKind::PacketLoss,
                "packets were lost (rcvd_seq_err 7)",
            )
        };
        let new = document(vec![
            lost(),
            lost(),
            with_cause(WarningKind::FewMessages, "few"),
        ]);
        let comparison = compare(&document(vec![one_way()]), &new, None);
        assert_eq!(
            comparison.rows[0].causes,
            ["packets were lost (rcvd_seq_err 7)"]
        );
        let text = render(&comparison);
        assert!(text.contains("\n    cause: packets were lost"), "{text}");
        let same = compare(&document(vec![lost()]), &new, None);
        assert_eq!(same.rows[0].causes, [""; 0]);
    }

    #[test]
    fn partial_results_are_not_compared() {
        let partial = changed(one_way(), |m| m.partial = true);
        let comparison = compare(
            &Records::new(vec![one_way()]),
            &Records::new(vec![partial]),
            None,
        );
        assert_eq!(comparison.rows, []);
    }

    #[test]
    fn results_are_matched_by_test_and_parameters() {
        let old = Records::new(vec![one_way(), latency(), one_way()]);
        let new = Records::new(vec![latency(), one_way(), one_way()]);
        let rows = compare(&old, &new, None).rows;
        assert_eq!(
            rows.iter().map(|r| (r.metric, r.runs)).collect::<Vec<_>>(),
            [(Metric::Bandwidth, (2, 2)), (Metric::LatencyP50, (1, 1))]
        );
        assert!(
            rows.iter()
                .all(|r| r.verdict == ChangeVerdict::Same && r.change == 0.0)
        );
    }
}
