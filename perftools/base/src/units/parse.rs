//! Parsing of sizes and times, and exact formatting that parses back.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Spellings of size units and their factors. Each spelling is matched as a whole, so their order
/// does not matter.
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

/// Spellings of time units and their lengths in nanoseconds. `M` is a minute, like in qperf.
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

/// Parses `text` as a decimal number followed by one of `units`. The arithmetic is exact; the
/// result is rounded down to an integer.
fn parse_scaled(text: &str, units: &[(&str, u64)], quantity: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let invalid = || format!("`{text}` is not a {quantity}");
    let factor = units
        .iter()
        .find(|(name, _)| *name == unit.trim_start())
        .map(|u| u.1);
    let Some(factor) = factor else {
        let mut known: Vec<&str> = units
            .iter()
            .map(|u| u.0)
            .filter(|n| !n.is_empty())
            .collect();
        known.dedup();
        return Err(format!(
            "{}; available units: {}",
            invalid(),
            known.join(", ")
        ));
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return Err(invalid());
    }
    let too_large = || format!("`{text}` is too large");
    let fraction = &fraction[..fraction.len().min(15)];
    let digits = format!("{whole}{fraction}");
    let mantissa: u128 = digits.parse().map_err(|_| too_large())?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let value = mantissa
        .checked_mul(u128::from(factor))
        .ok_or_else(too_large)?
        / scale;
    u64::try_from(value).map_err(|_| too_large())
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_scaled(text, SIZE_UNITS, "size").map(Size)
    }
}

impl fmt::Display for Size {
    /// Formats the exact size: in a binary unit if it is a multiple of 1024, otherwise in bytes.
    /// Parsing the text returns the same size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match binary(self.0) {
            Some((value, unit)) => write!(f, "{value} {unit}"),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// Parses a time, in seconds unless a unit follows.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    parse_scaled(text, TIME_UNITS, "time").map(Duration::from_nanos)
}

/// A rate in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = String;

    /// Parses a rate in bits (`10Gb/s`, `10Gbit`, `10Gbps`) or bytes (`500MB/s`, `1GiB/s`). A
    /// number without such a unit is an error, because programs disagree whether it counts bits or
    /// bytes.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let Some(bits_per_unit) = rate_unit(unit.trim_start()) else {
            let hint = match unit.trim() {
                prefix @ ("" | "k" | "K" | "M" | "G" | "T") if !number.is_empty() => {
                    let prefix = if prefix.is_empty() { "M" } else { prefix };
                    format!(
                        "; did you mean {number}{prefix}b/s (bits) or {number}{prefix}B/s (bytes)?"
                    )
                }
                _ => String::new(),
            };
            return Err(format!(
                "`{text}` is not a rate with a unit; expected a rate such as 10Gb/s, 10Gbit or 500MB/s{hint}"
            ));
        };
        let units = [(unit.trim_start(), bits_per_unit)];
        parse_scaled(text, &units, "rate").map(|bits| Rate(bits / 8))
    }
}

/// Returns the bits per second of a unit such as `Gb/s`, `Gbit`, `Gbps` or `MiB/s`.
fn rate_unit(unit: &str) -> Option<u64> {
    let per_second = ["/sec", "/s", "ps"]
        .iter()
        .find_map(|suffix| unit.strip_suffix(suffix));
    let name = per_second.unwrap_or(unit);
    let (prefix, bits) = [("bits", 1), ("bit", 1), ("bytes", 8), ("b", 1), ("B", 8)]
        .into_iter()
        .find_map(|(name_of_unit, bits)| Some((name.strip_suffix(name_of_unit)?, bits)))?;
    // `Gbit` cannot be anything but a rate, but `GB` is a size.
    if per_second.is_none() && !name.ends_with("bit") {
        return None;
    }
    let factor = match prefix {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    Some(factor * bits)
}

/// Formats a time with its unit, exact to the nanosecond. [`parse_time`] parses the result.
pub fn show_time(time: Duration) -> String {
    let nanos = time.as_nanos();
    for (unit, length) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if nanos >= length {
            let text = format!(
                "{}.{:09}",
                nanos / length,
                nanos % length * (1_000_000_000 / length)
            );
            return format!(
                "{} {unit}",
                text.trim_end_matches('0').trim_end_matches('.')
            );
        }
    }
    format!("{nanos} ns")
}

/// Returns `value` in the largest binary unit that divides it; `None` if it is not a multiple of
/// 1024.
pub(super) fn binary(value: u64) -> Option<(u64, &'static str)> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parses_sizes_like_qperf() {
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
        for text in [
            "",
            "K",
            "1x",
            "-1",
            "1..2",
            ".",
            "1 2",
            "99999999999999999999",
            "20000000T",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn parses_times_like_qperf() {
        for (text, ms) in [
            ("2", 2000),
            ("1.5", 1500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("500ms", 500),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert!(parse_time("soon").is_err());
    }

    #[test]
    fn rates_need_a_unit_of_bits_or_bytes() {
        for (text, bytes) in [
            ("10Gb/s", 1_250_000_000),
            ("10Gbit", 1_250_000_000),
            ("10 Gbit/s", 1_250_000_000),
            ("10Gbps", 1_250_000_000),
            ("2.5Gb/sec", 312_500_000),
            ("500MB/s", 500_000_000),
            ("1GiB/s", 1 << 30),
            ("100bytes/sec", 100),
            ("8kbit", 1000),
        ] {
            assert_eq!(text.parse::<Rate>(), Ok(Rate(bytes)), "{text}");
        }
        for (text, hint) in [
            ("10", "10Mb/s (bits) or 10MB/s (bytes)"),
            ("10G", "10Gb/s (bits) or 10GB/s (bytes)"),
            ("10GB", "such as 10Gb/s"),
            ("fast", "such as 10Gb/s"),
            ("", "such as 10Gb/s"),
            ("99999999999Tb/s", "too large"),
        ] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn formatted_sizes_parse_back(bytes: u64) {
            prop_assert_eq!(Size(bytes).to_string().parse::<Size>(), Ok(Size(bytes)));
        }

        #[test]
        fn formatted_binary_sizes_parse_back(n in 1_u64..1024, shift in 0_u32..5) {
            let bytes = n << (10 * shift);
            prop_assert_eq!(Size(bytes).to_string().parse::<Size>(), Ok(Size(bytes)));
        }

        #[test]
        fn formatted_times_parse_back(nanos in 0..u64::MAX / 2) {
            let time = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_time(&show_time(time)), Ok(time));
        }

        #[test]
        fn any_text_parses_without_a_panic(text in ".{0,24}") {
            let _ = text.parse::<Size>();
            let _ = parse_time(&text);
            let _ = text.parse::<Rate>();
        }
    }
}
