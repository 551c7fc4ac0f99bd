//! Parsers for option values that only `rperf` uses.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::Read;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use base::units::{Size, parse_time};
use measure::spec::UNLIMITED;
use measure::spec::payload_file::{MAX_PAYLOAD_FILE, PayloadFile};
use measure::spec::tuning::Pages;

/// Parses `on` or `off`. Like qperf, it also accepts a number, where 0 means off.
pub(super) fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" | "yes" => Ok(true),
        "off" | "no" => Ok(false),
        n => n
            .parse::<u32>()
            .map(|n| n != 0)
            .map_err(|_| format!("invalid value `{text}`; expected: on, off")),
    }
}

/// Returns a parser of numbers in a range.
pub(super) fn in_range<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let (first, last) = (range.start(), range.end());
        let number = text.parse::<T>().ok();
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| format!("expected a number from {first} to {last}"))
    }
}

/// Shortest interval. A monitor thread that wakes up more often would disturb the measurement.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time < MIN_INTERVAL {
        Err(format!(
            "interval of {text} is too short: the minimum is 10 ms"
        ))
    } else {
        Ok(time)
    }
}

/// Parses a time, or `unlimited`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match text {
        "unlimited" => Ok(UNLIMITED),
        text => parse_time(text),
    }
}

/// A detail that `--verbose` selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Detail {
    /// The configuration, statistics, times and parameters that were set.
    Some,
    /// Devices, ports and addresses.
    Conf,
    /// Statistics.
    Stat,
    /// Times and CPU use.
    Time,
    /// Parameters that were set.
    Used,
    /// All details.
    More,
    /// All details of the configuration.
    MoreConf,
    /// All statistics.
    MoreStat,
    /// All times.
    MoreTime,
    /// All parameters, including those not set.
    MoreUsed,
}

/// Maximum size in bytes of messages that are sent inline; `None` selects it automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineSize(pub Option<u32>);

pub(super) fn inline(text: &str) -> Result<InlineSize, String> {
    if text == "auto" {
        return Ok(InlineSize(None));
    }
    let size: Size = text.parse()?;
    u32::try_from(size.0)
        .map(|n| InlineSize(Some(n)))
        .map_err(|_| format!("inline size of {text} is too large: it must be below 4 GiB"))
}

/// Reads the file whose bytes fill the messages.
pub(super) fn payload_file(path: &str) -> Result<PayloadFile, String> {
    let cannot_read = |e: std::io::Error| format!("cannot read the file: {e}");
    // Opening a FIFO would wait for a program that writes to it.
    if !fs::metadata(path).map_err(cannot_read)?.is_file() {
        return Err("not a regular file".to_owned());
    }
    let file = File::open(path).map_err(cannot_read)?;
    let mut bytes = Vec::new();
    file.take(MAX_PAYLOAD_FILE as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot_read)?;
    match bytes.len() {
        0 => Err("the file is empty".to_owned()),
        1..=MAX_PAYLOAD_FILE => Ok(PayloadFile::new(path, &bytes)),
        _ => Err(format!(
            "the file is longer than {MAX_PAYLOAD_FILE} bytes; its bytes are repeated, so the pattern once is enough"
        )),
    }
}

pub(super) fn pages(text: &str) -> Result<Pages, String> {
    match text.parse::<Size>()?.0 {
        0x20_0000 => Ok(Pages::Huge2M),
        0x4000_0000 => Ok(Pages::Huge1G),
        _ => Err(format!("invalid huge page size `{text}`; expected: 2M, 1G")),
    }
}
