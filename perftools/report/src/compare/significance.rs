//! The statistics of a comparison: confidence intervals, and the runs that they need.

use std::f64::consts::FRAC_PI_2;

/// Probability that any verdict of a comparison is wrong although nothing has changed.
pub(super) const FALSE_ALARM: f64 = 0.05;

/// Largest number of runs that `--repeat` allows.
pub(super) const MAX_RUNS: usize = 1000;

/// Returns the mean and the variance of the values; the variance of a single value is `None`.
#[allow(clippy::cast_precision_loss)] // A few runs.
pub(super) fn mean_and_variance(values: &[f64]) -> (f64, Option<f64>) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (values.len() > 1).then(|| squares / (n - 1.0)))
}

/// Returns the quantile of Student's t distribution that a value exceeds in either direction with
/// this probability.
#[allow(clippy::cast_precision_loss)] // At most 1000.
pub(super) fn t_quantile(degrees_of_freedom: usize, probability: f64) -> f64 {
    const STEPS: usize = 256;
    let n = degrees_of_freedom.min(MAX_RUNS) as f64;
    // With t = √n tan x, the density is proportional to cosⁿ⁻¹ x. Simpson's rule integrates it.
    let integral = |end: f64| {
        let step = end / STEPS as f64;
        let weight = |i| match i {
            0 | STEPS => 1.0,
            i if i % 2 == 1 => 4.0,
            _ => 2.0,
        };
        let density = |i| (i as f64 * step).cos().max(0.0).powf(n - 1.0);
        (0..=STEPS).map(|i| weight(i) * density(i)).sum::<f64>() * step
    };
    let inside = (1.0 - probability) * integral(FRAC_PI_2);
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if integral(middle) < inside {
            low = middle;
        } else {
            high = middle;
        }
    }
    n.sqrt() * f64::midpoint(low, high).tan()
}

/// Returns the smallest number of runs of each side with which a change of the mean by `change` is
/// significant. `variance` is that of single runs.
#[allow(clippy::cast_precision_loss)] // At most 1000.
pub(super) fn needed_runs(change: f64, variance: f64, probability: f64) -> Option<usize> {
    let decides = |runs: usize| {
        let deviation = (2.0 * variance / runs as f64).sqrt();
        t_quantile(runs - 1, probability) * deviation < change.abs()
    };
    let (mut low, mut high) = (1, MAX_RUNS);
    if !decides(high) {
        return None;
    }
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if decides(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_the_tables_of_the_t_distribution() {
        for (degrees, probability, expected) in [
            (1, 0.05, 12.706),
            (2, 0.05, 4.303),
            (4, 0.05, 2.776),
            (4, 0.01, 4.604),
            (30, 0.05, 2.042),
            (30, 0.001, 3.646),
            (1000, 0.05, 1.962),
        ] {
            let quantile = t_quantile(degrees, probability);
            assert!(
                (quantile - expected).abs() < 0.001 * expected,
                "{degrees}: {quantile}"
            );
        }
    }
}
