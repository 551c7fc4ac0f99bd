//! Sizes, times and rates: read as qperf reads them, printed as qperf prints them.
//!
//! Reading: `k`, `kb`, `m`, `mb`, `g`, `gb` are decimal, `K`, `kib`, `M`, `mib`, `G`, `gib` binary. A time is in seconds
//! unless it ends in `us`, `ms`, `s`, `m`, `h` or `d`. Printing: three significant digits by default, no trailing zeros,
//! commas between thousands, decimal units; a size in binary units when it is an exact multiple of 1024.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Spellings of size units and their factors. Order matters nowhere: each spelling is matched whole.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("B", 1),
    ("bytes", 1),
    ("k", 1_000),
    ("kb", 1_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("K", 1 << 10),
    ("kib", 1 << 10),
    ("KiB", 1 << 10),
    ("m", 1_000_000),
    ("mb", 1_000_000),
    ("MB", 1_000_000),
    ("M", 1 << 20),
    ("mib", 1 << 20),
    ("MiB", 1 << 20),
    ("g", 1_000_000_000),
    ("gb", 1_000_000_000),
    ("GB", 1_000_000_000),
    ("G", 1 << 30),
    ("gib", 1 << 30),
    ("GiB", 1 << 30),
    ("t", 1_000_000_000_000),
    ("tb", 1_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("T", 1 << 40),
    ("tib", 1 << 40),
    ("TiB", 1 << 40),
];

/// Spellings of time units and their length in nanoseconds. `M` is a minute, as in qperf.
const TIME_UNITS: &[(&str, u64)] = &[
    ("", 1_000_000_000),
    ("s", 1_000_000_000),
    ("S", 1_000_000_000),
    ("sec", 1_000_000_000),
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("m", 60_000_000_000),
    ("M", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("H", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("D", 86_400_000_000_000),
];

/// Reads `text` as a decimal number and one of `units`, exactly; a fraction below one unit of the result is cut off.
fn parse_scaled(text: &str, units: &[(&str, u64)], what: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let bad = || format!("`{text}` is not a {what}");
    let factor = units.iter().find(|(name, _)| *name == unit.trim_start()).map(|u| u.1);
    let Some(factor) = factor else {
        let mut known: Vec<&str> = units.iter().map(|u| u.0).filter(|n| !n.is_empty()).collect();
        known.dedup();
        return Err(format!("{}; units are {}", bad(), known.join(", ")));
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return Err(bad());
    }
    let too_large = || format!("`{text}` is too large");
    let fraction = &fraction[..fraction.len().min(15)];
    let digits = format!("{whole}{fraction}");
    let mantissa: u128 = digits.parse().map_err(|_| too_large())?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let value = mantissa.checked_mul(u128::from(factor)).ok_or_else(too_large)? / scale;
    u64::try_from(value).map_err(|_| too_large())
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_scaled(text, SIZE_UNITS, "size").map(Size)
    }
}

impl fmt::Display for Size {
    /// Exact: binary units where they divide, else bytes. Reading it back gives the same size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match binary(self.0) {
            Some((value, unit)) => write!(f, "{value} {unit}"),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// Reads a time: seconds unless a unit follows.
///
/// # Errors
/// A sentence that says what is wrong with the text.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    parse_scaled(text, TIME_UNITS, "time").map(Duration::from_nanos)
}

/// A time in words, exact to the nanosecond; [`parse_time`] reads it back.
pub fn show_time(time: Duration) -> String {
    let nanos = time.as_nanos();
    for (unit, length) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if nanos >= length {
            let text = format!("{}.{:09}", nanos / length, nanos % length * (1_000_000_000 / length));
            return format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    format!("{nanos} ns")
}

/// `value` in the largest binary unit that divides it, if 1024 does.
fn binary(value: u64) -> Option<(u64, &'static str)> {
    if value < 1024 || value % 1024 != 0 {
        return None;
    }
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = value / 1024;
    let mut unit = 0;
    while value >= 1024 && unit + 1 < units.len() {
        if value % 1024 != 0 {
            return None;
        }
        value /= 1024;
        unit += 1;
    }
    Some((value, units[unit]))
}

/// A printed figure: digits, unit, and for a size in binary units the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The number, with commas.
    pub digits: String,
    /// The unit; may be empty.
    pub unit: &'static str,
    /// The same value in bytes, where the unit is binary.
    pub bytes: Option<String>,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digits, unit, .. } = self;
        if unit.is_empty() { f.pad(digits) } else { f.pad(&format!("{digits} {unit}")) }
    }
}

/// How figures are printed: what the options `-e`, `-uu` and `-ub` choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Significant digits.
    pub precision: u8,
    /// Base units, no commas: for scripts.
    pub unify: bool,
    /// Bits instead of bytes for bandwidth.
    pub bits: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { precision: 3, unify: false, bits: false }
    }
}

#[allow(clippy::cast_precision_loss)] // Figures of a few significant digits.
impl Style {
    /// Bytes per second.
    pub fn bandwidth(self, bytes_per_sec: f64) -> Figure {
        if self.bits {
            self.scaled(bytes_per_sec * 8.0, &["bits/sec", "Kb/sec", "Mb/sec", "Gb/sec", "Tb/sec"])
        } else {
            self.scaled(bytes_per_sec, &["bytes/sec", "KB/sec", "MB/sec", "GB/sec", "TB/sec"])
        }
    }

    /// Messages per second.
    pub fn rate(self, per_sec: f64) -> Figure {
        self.scaled(per_sec, &["/sec", "K/sec", "M/sec", "G/sec", "T/sec"])
    }

    /// A time, from nanoseconds.
    pub fn time(self, nanos: f64) -> Figure {
        self.scaled(nanos, &["ns", "us", "ms", "sec"])
    }

    /// CPU seconds per gigabyte, from seconds.
    pub fn cost(self, secs_per_gb: f64) -> Figure {
        self.scaled(secs_per_gb * 1e9, &["ns/GB", "us/GB", "ms/GB", "sec/GB"])
    }

    /// A share of one CPU: 1.0 is 100 %.
    pub fn cpus(self, cpus: f64) -> Figure {
        self.scaled(cpus * 100.0, &["% cpus"])
    }

    /// A plain number; words from a million on.
    pub fn count(self, value: u64) -> Figure {
        let units: &[&str] =
            if value < 1_000_000 { &[""] } else { &["", "thousand", "million", "billion", "trillion"] };
        self.scaled(value as f64, units)
    }

    /// A number of bytes.
    pub fn size(self, bytes: u64) -> Figure {
        match binary(bytes) {
            Some((value, unit)) if !self.unify => {
                Figure { digits: self.commas(&value.to_string()), unit, bytes: Some(self.commas(&bytes.to_string())) }
            }
            _ => self.scaled(bytes as f64, &["bytes", "KB", "MB", "GB", "TB"]),
        }
    }

    fn scaled(self, mut value: f64, units: &[&'static str]) -> Figure {
        let mut unit = 0;
        while !self.unify && value >= 1000.0 && unit + 1 < units.len() {
            value /= 1000.0;
            unit += 1;
        }
        Figure { digits: self.commas(&self.digits(value)), unit: units[unit], bytes: None }
    }

    /// At least the whole part; decimals up to the precision, without trailing zeros.
    /// (qperf counts the digits of the rounded value and so prints 9.55 as 9.6; this prints 9.55.)
    fn digits(self, value: f64) -> String {
        let used = format!("{:.0}", value.abs().trunc()).len();
        match usize::from(self.precision).saturating_sub(used) {
            0 => format!("{value:.0}"),
            decimals => format!("{value:.decimals$}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        }
    }

    /// Puts a comma between groups of three digits of the whole part.
    fn commas(self, digits: &str) -> String {
        let (whole, fraction) = digits.find('.').map_or((digits, ""), |dot| digits.split_at(dot));
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

    fn shown(figure: &Figure) -> String {
        format!("{} {}", figure.digits, figure.unit)
    }

    #[test]
    fn reads_sizes_as_qperf_does() {
        for (text, bytes) in [
            ("1", 1),
            ("64K", 65536),
            ("64k", 64000),
            ("1.5M", 1_572_864),
            ("2gib", 2 << 30),
            ("8G", 8 << 30),
            ("1kb", 1000),
        ] {
            assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "K", "1x", "-1", "1..2", ".", "1 2", "99999999999999999999", "20000000T"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn reads_times_as_qperf_does() {
        for (text, ms) in
            [("2", 2000), ("1.5", 1500), ("2m", 120_000), ("1h", 3_600_000), ("500ms", 500), ("1d", 86_400_000)]
        {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert!(parse_time("soon").is_err());
    }

    #[test]
    fn prints_figures_as_qperf_does() {
        let s = Style::default();
        assert_eq!(shown(&s.bandwidth(339e6)), "339 MB/sec");
        assert_eq!(shown(&Style { bits: true, ..s }.bandwidth(387.5e6)), "3.1 Gb/sec");
        assert_eq!(shown(&s.rate(5370.0)), "5.37 K/sec");
        assert_eq!(shown(&s.time(168_000.0)), "168 us");
        assert_eq!(shown(&s.time(2e9)), "2 sec");
        assert_eq!(shown(&s.cost(2.69)), "2.69 sec/GB");
        assert_eq!(shown(&s.cpus(1.0)), "100 % cpus");
        assert_eq!(shown(&s.count(11_344)), "11,344 ");
        assert_eq!(shown(&s.count(2_500_000)), "2.5 million");
        assert_eq!(s.size(65536), Figure { digits: "64".into(), unit: "KiB", bytes: Some("65,536".into()) });
        assert_eq!(shown(&s.size(703_500_000)), "704 MB");
        assert_eq!(s.size(743_440_384).bytes.as_deref(), Some("743,440,384"));
        let u = Style { unify: true, precision: 5, ..s };
        assert_eq!(shown(&u.bandwidth(350_978_048.0)), "350978048 bytes/sec");
        assert_eq!(shown(&u.rate(5355.5)), "5355.5 /sec");
        assert_eq!(shown(&u.cost(2.726_731_426)), "2726731426 ns/GB");
    }

    proptest! {
        #[test]
        fn a_printed_size_reads_back(bytes: u64) {
            prop_assert_eq!(Size(bytes).to_string().parse::<Size>(), Ok(Size(bytes)));
        }

        #[test]
        fn a_binary_size_reads_back(n in 1_u64..1024, shift in 0_u32..5) {
            let bytes = n << (10 * shift);
            prop_assert_eq!(Size(bytes).to_string().parse::<Size>(), Ok(Size(bytes)));
        }

        #[test]
        fn a_printed_time_reads_back(nanos in 0..u64::MAX / 2) {
            let time = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_time(&show_time(time)), Ok(time));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,24}") {
            let _ = text.parse::<Size>();
            let _ = parse_time(&text);
        }

        #[test]
        fn three_digits_are_within_half_a_percent(value in 1.0_f64..1e13) {
            let figure = Style::default().bandwidth(value);
            let number: f64 = figure.digits.replace(',', "").parse().unwrap();
            let factor = match figure.unit { "bytes/sec" => 1.0, "KB/sec" => 1e3, "MB/sec" => 1e6, "GB/sec" => 1e9, _ => 1e12 };
            prop_assert!((number * factor / value - 1.0).abs() <= 0.005_01, "{value} {figure:?}");
        }
    }
}
