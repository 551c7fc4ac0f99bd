//! A test cut into intervals, and what stands out among them: dips and stalls.
//!
//! Times are in nanoseconds from when the test's clock started.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::common::units::{Style, show_time};

/// What one interval brought, as the client saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Interval {
    /// When it began.
    pub from: u64,
    /// When it ended.
    pub to: u64,
    /// Messages that completed, of both directions where both are data.
    pub msgs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes a second, in a test of bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<f64>,
    /// Mean latency, in a test of latency in which any message completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_mean: Option<f64>,
    /// The longest latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_max: Option<u64>,
}

impl Interval {
    /// How long it was.
    pub fn nanos(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    /// Messages a second.
    #[allow(clippy::cast_precision_loss)] // Counts below 2^53.
    pub fn msg_rate(&self) -> f64 {
        self.msgs as f64 * 1e9 / self.nanos().max(1) as f64
    }
}

/// What a dip is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DipKind {
    /// Nothing completed.
    Stall,
    /// Intervals with much less bandwidth, or much more latency, than most have.
    Dip,
}

/// A part of a test that stands out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Dip {
    /// What it is.
    pub kind: DipKind,
    /// When it began.
    pub from: u64,
    /// When it ended.
    pub to: u64,
    /// Bandwidth (or latency) as a share of what most intervals had; 0 for a stall.
    pub share: f64,
}

impl fmt::Display for Dip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (seconds(self.from), seconds(self.to));
        match self.kind {
            DipKind::Stall => {
                let length =
                    std::time::Duration::from_millis(self.to.saturating_sub(self.from) / 1_000_000);
                write!(
                    f,
                    "stall from {from} to {to} s: nothing completed for {}",
                    show_time(length)
                )
            }
            DipKind::Dip if self.share < 1.0 => {
                write!(
                    f,
                    "dip from {from} to {to} s: {:.0} % of the median bandwidth",
                    self.share * 100.0
                )
            }
            DipKind::Dip => write!(
                f,
                "dip from {from} to {to} s: {:.1} times the median latency",
                self.share
            ),
        }
    }
}

/// Seconds with as many decimals as a reader needs.
#[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
pub fn seconds(nanos: u64) -> String {
    format!("{:.2}", nanos as f64 / 1e9)
}

/// Silence that is no stall, however fast messages went before.
const SHORT: u64 = 100_000_000;
/// So many times as long as completions are apart is a stall.
const MANY: u64 = 5;

/// Whether nothing completed for too long, where completions are `usual` apart.
pub fn is_stall(silence: u64, usual: u64) -> bool {
    silence > SHORT.max(usual.saturating_mul(MANY))
}

/// Bandwidth below this share of the median, or latency above its inverse, is a dip.
const LITTLE: f64 = 0.75;
/// Fewer intervals have no median worth the name.
const FEWEST: usize = 4;

/// The dips among intervals; neighbours are one. Intervals shorter than half of most (the last may
/// be) say too little.
#[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
pub fn dips(intervals: &[Interval]) -> Vec<Dip> {
    let length = median(intervals.iter().map(|i| i.nanos() as f64));
    let whole: Vec<_> = intervals
        .iter()
        .filter(|i| i.nanos() as f64 >= length / 2.0)
        .collect();
    if whole.len() < FEWEST {
        return Vec::new();
    }
    let figure = |i: &Interval| i.bandwidth.or(i.latency_mean);
    let usual = median(whole.iter().filter_map(|i| figure(i)));
    let mut all: Vec<Dip> = Vec::new();
    for interval in whole {
        let Some(share) = figure(interval)
            .map(|f| f / usual)
            .filter(|share| share.is_finite())
        else {
            continue;
        };
        let stands_out = if interval.bandwidth.is_some() {
            share < LITTLE
        } else {
            share > 1.0 / LITTLE
        };
        // Nothing at all is a stall, which is told apart.
        if !stands_out || interval.msgs == 0 {
            continue;
        }
        match all.last_mut().filter(|last| last.to == interval.from) {
            Some(last) => {
                last.to = interval.to;
                last.share = if share < 1.0 {
                    last.share.min(share)
                } else {
                    last.share.max(share)
                };
            }
            None => all.push(Dip {
                kind: DipKind::Dip,
                from: interval.from,
                to: interval.to,
                share,
            }),
        }
    }
    all
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The line of an interval, for people.
pub fn line(interval: &Interval, style: Style) -> String {
    let figures = match (
        interval.bandwidth,
        interval.latency_mean,
        interval.latency_max,
    ) {
        (Some(bandwidth), ..) => {
            vec![
                style.bandwidth(bandwidth).to_string(),
                style.rate(interval.msg_rate()).to_string(),
            ]
        }
        #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
        (None, Some(mean), Some(max)) => vec![
            format!("mean {}", style.time(mean)),
            format!("max {}", style.time(max as f64)),
            style.rate(interval.msg_rate()).to_string(),
        ],
        _ => vec!["nothing completed".to_owned()],
    };
    let span = format!("{}-{} s", seconds(interval.from), seconds(interval.to));
    let figures: Vec<String> = figures
        .iter()
        .map(|figure| format!("{figure:>18}"))
        .collect();
    format!("    {span:<16}{}\n", figures.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn bandwidths(values: &[u64]) -> Vec<Interval> {
        let each = |(n, bytes): (u64, &u64)| Interval {
            from: n * SECOND,
            to: (n + 1) * SECOND,
            msgs: *bytes,
            bytes: *bytes,
            #[allow(clippy::cast_precision_loss)]
            bandwidth: Some(*bytes as f64),
            ..Interval::default()
        };
        (0..).zip(values).map(each).collect()
    }

    #[test]
    fn neighbouring_intervals_with_little_are_one_dip() {
        let found = dips(&bandwidths(&[100, 98, 50, 40, 101, 99, 100]));
        assert_eq!(
            (found.len(), found[0].kind, found[0].from, found[0].to),
            (1, DipKind::Dip, 2 * SECOND, 4 * SECOND)
        );
        assert_eq!(
            found[0].to_string(),
            "dip from 2.00 to 4.00 s: 40 % of the median bandwidth"
        );
        assert_eq!(dips(&bandwidths(&[100, 98, 95, 105])), []);
    }

    #[test]
    fn few_intervals_and_a_short_last_one_say_nothing() {
        assert_eq!(dips(&bandwidths(&[100, 10, 100])), []);
        let mut all = bandwidths(&[100, 100, 100, 100, 10]);
        all[4].to = all[4].from + SECOND / 10;
        assert_eq!(dips(&all), []);
        assert_eq!(dips(&[]), []);
        assert_eq!(dips(&bandwidths(&[0, 0, 0, 0, 0])), []);
    }

    #[test]
    fn more_latency_is_a_dip_too() {
        let each = |(n, mean): (u64, f64)| Interval {
            from: n * SECOND,
            to: (n + 1) * SECOND,
            msgs: 5,
            latency_mean: Some(mean),
            latency_max: Some(9),
            ..Interval::default()
        };
        let all: Vec<_> = (0..).zip([10.0, 11.0, 30.0, 10.0, 9.0]).map(each).collect();
        let text = dips(&all)[0].to_string();
        assert_eq!(
            text,
            "dip from 2.00 to 3.00 s: 3.0 times the median latency"
        );
    }

    #[test]
    fn a_stall_says_how_long() {
        let stall = Dip {
            kind: DipKind::Stall,
            from: SECOND,
            to: SECOND + 350_000_000,
            share: 0.0,
        };
        assert_eq!(
            stall.to_string(),
            "stall from 1.00 to 1.35 s: nothing completed for 350 ms"
        );
    }
}
