//! Scales of axes: the positions of values, and the values with a label.

/// The scale of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    /// First value of the axis, or its logarithm for a logarithmic axis.
    low: f64,
    /// Last value of the axis, or its logarithm for a logarithmic axis.
    high: f64,
    /// Base of a logarithmic axis; `None` for a linear axis.
    base: Option<f64>,
    /// Values with a label.
    ticks: Vec<f64>,
}

/// Approximate number of values with a label.
const TICKS: f64 = 7.0;
/// Smallest and largest value of an axis. Other values are drawn at its ends.
const MIN: f64 = 1e-99;
const MAX: f64 = 1e99;

impl Scale {
    /// Creates a linear scale from 0 to at least `max`.
    pub(super) fn linear(max: f64) -> Self {
        let max = if max > 0.0 { max.clamp(MIN, MAX) } else { 1.0 };
        let rough = max / (TICKS - 2.0);
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|n| n * power)
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let count = (max / step).ceil().clamp(1.0, 20.0);
        let ticks = (0..=20)
            .map(f64::from)
            .take_while(|n| *n <= count)
            .map(|n| n * step)
            .collect();
        Self {
            low: 0.0,
            high: count * step,
            base: None,
            ticks,
        }
    }

    /// Creates a scale in powers of two that contains all `values`.
    pub(super) fn powers_of_two(values: &[f64]) -> Self {
        let (min, max) = positive_range(values);
        Self::log(2.0, min.log2().floor(), max.log2().ceil())
    }

    /// Creates a linear scale from 0, or a logarithmic scale if the values differ by more than a
    /// factor of 10.
    pub(super) fn fitting(values: &[f64]) -> Self {
        let (min, max) = positive_range(values);
        if max / min <= 10.0 {
            return Self::linear(max);
        }
        let scale = Self::log(10.0, min.log10().floor(), max.log10().ceil());
        // With few powers of 10, also label 2 and 5 times each power, and use them as the ends of
        // the axis.
        if scale.high - scale.low > 3.0 {
            return scale;
        }
        let fine: Vec<f64> = scale
            .ticks
            .iter()
            .flat_map(|tick| [1.0, 2.0, 5.0].map(|n| n * tick))
            .filter(|t| t.is_finite())
            .collect();
        let first = fine.iter().rposition(|tick| *tick <= min).unwrap_or(0);
        let last = fine
            .iter()
            .position(|tick| *tick >= max)
            .unwrap_or(fine.len() - 1);
        let ticks = fine[first..=last].to_vec();
        Self {
            low: fine[first].log10(),
            high: fine[last].log10(),
            ticks,
            ..scale
        }
    }

    /// Creates a logarithmic scale for percentiles. The value `n` is the percentile that one in `n`
    /// messages exceeds, so 2 is the median and 100 is the 99th percentile. The scale ends at
    /// `max`.
    pub(super) fn percentiles(max: f64) -> Self {
        let max = if max.is_finite() {
            max.clamp(2.0, 1e9)
        } else {
            1e9
        };
        let high = max.log10().max(1.0);
        let powers = (1..=9)
            .map(f64::from)
            .take_while(|n| *n <= high + 0.01)
            .map(|n| 10_f64.powf(n));
        Self {
            low: 0.0,
            high,
            base: Some(10.0),
            ticks: [1.0, 2.0].into_iter().chain(powers).collect(),
        }
    }

    /// Creates a logarithmic scale. `low` and `high` are the logarithms of the ends of the axis.
    fn log(base: f64, low: f64, high: f64) -> Self {
        let (low, high) = if low < high {
            (low, high)
        } else {
            (low - 1.0, low + 1.0)
        };
        let step = ((high - low) / (TICKS + 1.0)).ceil().max(1.0);
        let powers = (0..=20)
            .map(|n| low + f64::from(n) * step)
            .take_while(|power| *power <= high);
        let ticks = powers
            .map(|power| base.powf(power))
            .filter(|t| t.is_finite())
            .collect();
        Self {
            low,
            high,
            base: Some(base),
            ticks,
        }
    }

    /// Returns the position of `value` on the axis, from 0 to 1.
    pub(super) fn position(&self, value: f64) -> f64 {
        let value = match self.base {
            Some(base) if value > 0.0 => value.log(base),
            Some(_) => self.low,
            None => value,
        };
        let position = (value - self.low) / (self.high - self.low);
        if position.is_finite() {
            position.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Returns the first and the last value of the axis.
    pub(super) fn range(&self) -> std::ops::Range<f64> {
        let value = |end: f64| self.base.map_or(end, |base| base.powf(end));
        value(self.low)..value(self.high)
    }

    /// Returns the values with a label.
    pub(super) fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// Returns `true` if the scale is logarithmic.
    pub(super) fn is_log(&self) -> bool {
        self.base.is_some()
    }
}

/// Returns the minimum and maximum of the positive values, or (1, 1) if there are none.
fn positive_range(values: &[f64]) -> (f64, f64) {
    let values = values
        .iter()
        .copied()
        .filter(|v| *v > 0.0)
        .map(|v| v.clamp(MIN, MAX));
    let (min, max) = values.fold((f64::MAX, 0.0_f64), |(min, max), v| {
        (min.min(v), max.max(v))
    });
    if min <= max { (min, max) } else { (1.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn linear_axes_start_at_zero_with_round_labels() {
        let scale = Scale::linear(339e6);
        assert_eq!(scale.ticks(), [0.0, 1e8, 2e8, 3e8, 4e8]);
        assert!((scale.position(2e8) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn message_sizes_have_labels_at_powers_of_two() {
        let sizes: Vec<f64> = (1..=23).map(|n| f64::from(1 << n)).collect();
        let scale = Scale::powers_of_two(&sizes);
        assert!(
            scale.ticks().len() <= 9 && scale.ticks().iter().all(|t| t.log2().fract() == 0.0),
            "{scale:?}"
        );
        assert!(scale.position(2.0) < 1e-9 && (scale.position(8_388_608.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn axes_of_widely_spread_values_are_logarithmic() {
        assert!(!Scale::fitting(&[10.0, 90.0]).is_log());
        assert!(Scale::fitting(&[10.0, 900.0]).is_log());
        assert_eq!(
            Scale::fitting(&[30.0, 900.0]).ticks(),
            [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]
        );
    }

    proptest! {
        #[test]
        fn any_value_has_a_position_and_ticks_are_few(values in proptest::collection::vec(proptest::num::f64::ANY, 0..9), value in proptest::num::f64::ANY) {
            let max = values.iter().copied().fold(0.0, f64::max);
            for scale in [Scale::linear(max), Scale::powers_of_two(&values), Scale::fitting(&values), Scale::percentiles(max)] {
                prop_assert!((0.0..=1.0).contains(&scale.position(value)), "{scale:?}");
                prop_assert!((1..=24).contains(&scale.ticks().len()), "{scale:?}");
                prop_assert!(scale.ticks().iter().all(|t| t.is_finite()), "{scale:?}");
            }
        }
    }
}
