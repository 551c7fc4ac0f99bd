//! Parsers for option values that only `rperf` has.

use std::time::Duration;

use crate::common::units::{Size, parse_time};
use crate::rperf::spec::tuning::Pages;

/// Parses `on` or `off`; qperf uses a number, and 0 means off.
pub(super) fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" | "yes" => Ok(true),
        "off" | "no" => Ok(false),
        n => n
            .parse::<u32>()
            .map(|n| n != 0)
            .map_err(|_| format!("`{text}`: say on or off")),
    }
}

/// The shortest interval: a thread that wakes more often disturbs what it watches.
const SHORTEST: Duration = Duration::from_millis(10);

pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time < SHORTEST {
        Err(format!("`{text}`: an interval is at least 10 ms long"))
    } else {
        Ok(time)
    }
}

/// Bytes that go inline; none: a good choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline(pub Option<u32>);

pub(super) fn inline(text: &str) -> Result<Inline, String> {
    if text == "auto" {
        return Ok(Inline(None));
    }
    let size: Size = text.parse()?;
    u32::try_from(size.0)
        .map(|n| Inline(Some(n)))
        .map_err(|_| format!("`{text}`: no device sends so much inline"))
}

pub(super) fn pages(text: &str) -> Result<Pages, String> {
    match text.parse::<Size>()?.0 {
        0x20_0000 => Ok(Pages::Huge2M),
        0x4000_0000 => Ok(Pages::Huge1G),
        _ => Err(format!("`{text}`: huge pages are of 2M or 1G")),
    }
}
