//! Where a value stands on an axis, and which values an axis names.

/// An axis from its low to its high end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    /// Ends, in powers of the base where there is one.
    low: f64,
    high: f64,
    /// The base of a logarithmic axis.
    base: Option<f64>,
    /// The values that are named.
    ticks: Vec<f64>,
}

/// About so many values are named.
const TICKS: f64 = 7.0;
/// No figure is less or more; what is, stands at the end of its axis.
const LEAST: f64 = 1e-99;
const MOST: f64 = 1e99;

impl Scale {
    /// From nothing to `most`.
    pub(super) fn linear(most: f64) -> Self {
        let most = if most > 0.0 {
            most.clamp(LEAST, MOST)
        } else {
            1.0
        };
        let rough = most / (TICKS - 2.0);
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|n| n * power)
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let count = (most / step).ceil().clamp(1.0, 20.0);
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

    /// In powers of two, all of `values` within.
    pub(super) fn powers_of_two(values: &[f64]) -> Self {
        let (least, most) = ends(values);
        Self::log(2.0, least.log2().floor(), most.log2().ceil())
    }

    /// From zero or, where the values differ by more than ten times, logarithmic.
    pub(super) fn fitting(values: &[f64]) -> Self {
        let (least, most) = ends(values);
        if most / least <= 10.0 {
            return Self::linear(most);
        }
        let scale = Self::log(10.0, least.log10().floor(), most.log10().ceil());
        // Few powers: their doubles and fivefolds are named too, and the ends stand at such.
        if scale.high - scale.low > 3.0 {
            return scale;
        }
        let fine: Vec<f64> = scale
            .ticks
            .iter()
            .flat_map(|tick| [1.0, 2.0, 5.0].map(|n| n * tick))
            .filter(|t| t.is_finite())
            .collect();
        let first = fine.iter().rposition(|tick| *tick <= least).unwrap_or(0);
        let last = fine
            .iter()
            .position(|tick| *tick >= most)
            .unwrap_or(fine.len() - 1);
        let ticks = fine[first..=last].to_vec();
        Self {
            low: fine[first].log10(),
            high: fine[last].log10(),
            ticks,
            ..scale
        }
    }

    /// How rare a latency is: shares of one in 1, 2, 10, 100 … messages.
    pub(super) fn rareness(most: f64) -> Self {
        let most = if most.is_finite() {
            most.clamp(2.0, 1e9)
        } else {
            1e9
        };
        let high = most.log10().max(1.0);
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

    /// Where on the axis `value` is, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = match self.base {
            Some(base) if value > 0.0 => value.log(base),
            Some(_) => self.low,
            None => value,
        };
        let place = (value - self.low) / (self.high - self.low);
        if place.is_finite() {
            place.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// The values that are named.
    pub(super) fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// Whether it is logarithmic.
    pub(super) fn is_log(&self) -> bool {
        self.base.is_some()
    }
}

/// The least and the most of the values above 0.
fn ends(values: &[f64]) -> (f64, f64) {
    let values = values
        .iter()
        .copied()
        .filter(|v| *v > 0.0)
        .map(|v| v.clamp(LEAST, MOST));
    let (least, most) = values.fold((f64::MAX, 0.0_f64), |(least, most), v| {
        (least.min(v), most.max(v))
    });
    if least <= most {
        (least, most)
    } else {
        (1.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_linear_axis_begins_at_zero_and_names_round_values() {
        let scale = Scale::linear(339e6);
        assert_eq!(scale.ticks(), [0.0, 1e8, 2e8, 3e8, 4e8]);
        assert!((scale.place(2e8) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn sizes_are_named_in_powers_of_two() {
        let sizes: Vec<f64> = (1..=23).map(|n| f64::from(1 << n)).collect();
        let scale = Scale::powers_of_two(&sizes);
        assert!(
            scale.ticks().len() <= 9 && scale.ticks().iter().all(|t| t.log2().fract() == 0.0),
            "{scale:?}"
        );
        assert!(scale.place(2.0) < 1e-9 && (scale.place(8_388_608.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn an_axis_is_logarithmic_where_values_differ_much() {
        assert!(!Scale::fitting(&[10.0, 90.0]).is_log());
        assert!(Scale::fitting(&[10.0, 900.0]).is_log());
        assert_eq!(
            Scale::fitting(&[30.0, 900.0]).ticks(),
            [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]
        );
    }

    proptest! {
        #[test]
        fn any_value_has_a_place_and_ticks_are_few(values in proptest::collection::vec(proptest::num::f64::ANY, 0..9), value in proptest::num::f64::ANY) {
            let most = values.iter().copied().fold(0.0, f64::max);
            for scale in [Scale::linear(most), Scale::powers_of_two(&values), Scale::fitting(&values), Scale::rareness(most)] {
                prop_assert!((0.0..=1.0).contains(&scale.place(value)), "{scale:?}");
                prop_assert!((1..=24).contains(&scale.ticks().len()), "{scale:?}");
                prop_assert!(scale.ticks().iter().all(|t| t.is_finite()), "{scale:?}");
            }
        }
    }
}
