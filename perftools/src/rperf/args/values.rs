//! Parsers for option values that only `rperf` uses.

use std::time::Duration;

use crate::common::units::{Size, parse_time};
use crate::rperf::spec::UNLIMITED;
use crate::rperf::spec::tuning::Pages;

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

/// Maximum size in bytes of messages that are sent inline; `None` selects it automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline(pub Option<u32>);

pub(super) fn inline(text: &str) -> Result<Inline, String> {
    if text == "auto" {
        return Ok(Inline(None));
    }
    let size: Size = text.parse()?;
    u32::try_from(size.0)
        .map(|n| Inline(Some(n)))
        .map_err(|_| format!("inline size of {text} is too large: it must be below 4 GiB"))
}

pub(super) fn pages(text: &str) -> Result<Pages, String> {
    match text.parse::<Size>()?.0 {
        0x20_0000 => Ok(Pages::Huge2M),
        0x4000_0000 => Ok(Pages::Huge1G),
        _ => Err(format!("invalid huge page size `{text}`; expected: 2M, 1G")),
    }
}
