//! Formatting of measured values.

use std::fmt;

use super::parse::binary;

/// A formatted value with its unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The number, with commas between thousands.
    pub digits: String,
    /// The unit; empty for a plain number.
    pub unit: &'static str,
    /// The exact number of bytes if the unit is binary.
    pub bytes: Option<String>,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digits, unit, .. } = self;
        if unit.is_empty() {
            f.pad(digits)
        } else {
            f.pad(&format!("{digits} {unit}"))
        }
    }
}

/// Formatting options, set by `-e`, `-uu` and `-ub`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Number of significant digits.
    pub precision: u8,
    /// Use base units without commas, for scripts.
    pub unify: bool,
    /// Print bandwidth in bits instead of bytes.
    pub bits: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            precision: 3,
            unify: false,
            bits: false,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // Figures of a few significant digits.
impl Style {
    /// Formats a bandwidth in bytes per second.
    pub fn bandwidth(self, bytes_per_sec: f64) -> Figure {
        if self.bits {
            self.scaled(
                bytes_per_sec * 8.0,
                &["bits/sec", "Kb/sec", "Mb/sec", "Gb/sec", "Tb/sec"],
            )
        } else {
            self.scaled(
                bytes_per_sec,
                &["bytes/sec", "KB/sec", "MB/sec", "GB/sec", "TB/sec"],
            )
        }
    }

    /// Formats a rate per second.
    pub fn rate(self, per_sec: f64) -> Figure {
        self.scaled(per_sec, &["/sec", "K/sec", "M/sec", "G/sec", "T/sec"])
    }

    /// Formats a time in nanoseconds.
    pub fn time(self, nanos: f64) -> Figure {
        self.scaled(nanos, &["ns", "us", "ms", "sec"])
    }

    /// Formats a CPU cost in seconds per gigabyte.
    pub fn cost(self, secs_per_gb: f64) -> Figure {
        self.scaled(secs_per_gb * 1e9, &["ns/GB", "us/GB", "ms/GB", "sec/GB"])
    }

    /// Formats CPU use as a percentage; 1.0 is one whole CPU.
    pub fn cpus(self, cpus: f64) -> Figure {
        self.scaled(cpus * 100.0, &["% cpus"])
    }

    /// Formats a count; from one million on with a word such as `million`.
    pub fn count(self, value: u64) -> Figure {
        let units: &[&str] = if value < 1_000_000 {
            &[""]
        } else {
            &["", "thousand", "million", "billion", "trillion"]
        };
        self.scaled(value as f64, units)
    }

    /// Formats a size in bytes.
    pub fn size(self, bytes: u64) -> Figure {
        match binary(bytes) {
            Some((value, unit)) if !self.unify => Figure {
                digits: self.commas(&value.to_string()),
                unit,
                bytes: Some(self.commas(&bytes.to_string())),
            },
            _ => self.bytes(bytes),
        }
    }

    /// Formats a total of bytes, always in decimal units like a bandwidth.
    pub fn bytes(self, bytes: u64) -> Figure {
        self.scaled(bytes as f64, &["bytes", "KB", "MB", "GB", "TB"])
    }

    fn scaled(self, mut value: f64, units: &[&'static str]) -> Figure {
        let mut unit = 0;
        while !self.unify && value >= 1000.0 && unit + 1 < units.len() {
            value /= 1000.0;
            unit += 1;
        }
        Figure {
            digits: self.commas(&self.digits(value)),
            unit: units[unit],
            bytes: None,
        }
    }

    /// Formats `value` with all digits of its whole part and with decimals up to the precision,
    /// without trailing zeros.
    ///
    /// qperf counts the digits of the rounded value, so it prints 9.55 as 9.6. This prints 9.55.
    fn digits(self, value: f64) -> String {
        let used = format!("{:.0}", value.abs().trunc()).len();
        match usize::from(self.precision).saturating_sub(used) {
            0 => format!("{value:.0}"),
            decimals => format!("{value:.decimals$}")
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned(),
        }
    }

    /// Inserts commas between thousands in the whole part.
    fn commas(self, digits: &str) -> String {
        let (whole, fraction) = digits
            .find('.')
            .map_or((digits, ""), |dot| digits.split_at(dot));
        if self.unify {
            return digits.to_owned();
        }
        let mut out = String::with_capacity(digits.len() + digits.len() / 3);
        for (i, c) in whole.chars().enumerate() {
            if i > 0 && (whole.len() - i) % 3 == 0 && out != "-" {
                out.push(',');
            }
            out.push(c);
        }
        out + fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn formatted(figure: &Figure) -> String {
        format!("{} {}", figure.digits, figure.unit)
    }

    #[test]
    fn formats_values_like_qperf() {
        let s = Style::default();
        assert_eq!(formatted(&s.bandwidth(339e6)), "339 MB/sec");
        assert_eq!(
            formatted(&Style { bits: true, ..s }.bandwidth(387.5e6)),
            "3.1 Gb/sec"
        );
        assert_eq!(formatted(&s.rate(5370.0)), "5.37 K/sec");
        assert_eq!(formatted(&s.time(168_000.0)), "168 us");
        assert_eq!(formatted(&s.time(2e9)), "2 sec");
        assert_eq!(formatted(&s.cost(2.69)), "2.69 sec/GB");
        assert_eq!(formatted(&s.cpus(1.0)), "100 % cpus");
        assert_eq!(formatted(&s.count(11_344)), "11,344 ");
        assert_eq!(formatted(&s.count(2_500_000)), "2.5 million");
        assert_eq!(
            s.size(65536),
            Figure {
                digits: "64".into(),
                unit: "KiB",
                bytes: Some("65,536".into())
            }
        );
        assert_eq!(formatted(&s.size(703_500_000)), "704 MB");
        assert_eq!(formatted(&s.bytes(19_922_944)), "19.9 MB");
        assert_eq!(s.size(743_440_384).bytes.as_deref(), Some("743,440,384"));
        let u = Style {
            unify: true,
            precision: 5,
            ..s
        };
        assert_eq!(
            formatted(&u.bandwidth(350_978_048.0)),
            "350978048 bytes/sec"
        );
        assert_eq!(formatted(&u.rate(5355.5)), "5355.5 /sec");
        assert_eq!(formatted(&u.cost(2.726_731_426)), "2726731426 ns/GB");
    }

    proptest! {
        #[test]
        fn three_digits_are_within_half_a_percent(value in 1.0_f64..1e13) {
            let figure = Style::default().bandwidth(value);
            let number: f64 = figure.digits.replace(',', "").parse().unwrap();
            let factor = match figure.unit { "bytes/sec" => 1.0, "KB/sec" => 1e3, "MB/sec" => 1e6, "GB/sec" => 1e9, _ => 1e12 };
            prop_assert!((number * factor / value - 1.0).abs() <= 0.005_01, "{value} {figure:?}");
        }
    }
}
