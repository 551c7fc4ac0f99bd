//! Intervals of a test, and outliers among them: dips and stalls.
//!
//! Times are in nanoseconds since the start of the measurement.

use std::fmt;

use base::units::{Style, show_time};
use serde::{Deserialize, Serialize};

/// Figures of one interval, measured by the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Interval {
    /// Start in nanoseconds.
    pub from: u64,
    /// End in nanoseconds.
    pub to: u64,
    /// Number of completed messages. A bidirectional test counts both directions.
    pub msgs: u64,
    /// Number of bytes in these messages.
    pub bytes: u64,
    /// Bandwidth in bytes per second (bandwidth tests only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<f64>,
    /// Bandwidth towards the server, if the client counts the messages of both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_server: Option<f64>,
    /// Bandwidth towards the client, in the same tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_client: Option<f64>,
    /// Mean latency in nanoseconds (latency tests only; absent if no message completed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_mean: Option<f64>,
    /// Longest latency in nanoseconds (latency tests only; absent if no message completed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_max: Option<u64>,
}

impl Interval {
    /// Returns the length in nanoseconds.
    pub(crate) fn nanos(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    /// Returns the number of messages per second.
    #[allow(clippy::cast_precision_loss)] // Counts below 2^53.
    pub(crate) fn msg_rate(&self) -> f64 {
        self.msgs as f64 * 1e9 / self.nanos().max(1) as f64
    }
}

/// Kind of an outlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DipKind {
    /// Time without completions.
    Stall,
    /// Intervals with a bandwidth much lower, or a latency much higher, than the median.
    Dip,
}

/// Outlier among the intervals of a test: a dip or a stall.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Dip {
    /// Kind of the outlier.
    pub kind: DipKind,
    /// Start in nanoseconds.
    pub from: u64,
    /// End in nanoseconds.
    pub to: u64,
    /// Bandwidth (or latency) as a multiple of the median over all intervals; 0 for a stall.
    pub share: f64,
}

impl fmt::Display for Dip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (format_seconds(self.from), format_seconds(self.to));
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

/// Formats nanoseconds as seconds with two decimals.
#[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
fn format_seconds(nanos: u64) -> String {
    format!("{:.2}", nanos as f64 / 1e9)
}

/// Shortest stall in nanoseconds, at any message rate.
const MIN_STALL: u64 = 100_000_000;
/// Shortest stall as a multiple of the mean gap between completions.
const MIN_STALL_GAPS: u64 = 5;

/// Returns `true` if a gap between completions is long enough to be a stall, given the mean gap.
/// Both are in nanoseconds.
pub(crate) fn is_stall(gap: u64, mean_gap: u64) -> bool {
    gap > MIN_STALL.max(mean_gap.saturating_mul(MIN_STALL_GAPS))
}

/// A dip has less than this share of the median bandwidth, or its latency exceeds the median
/// divided by this share.
const DIP_SHARE: f64 = 0.75;
/// Number of intervals below which the median is not meaningful.
const MIN_INTERVALS: usize = 4;

/// Returns the dips among intervals. Neighbouring intervals are merged into one dip. Intervals
/// shorter than half the median length are ignored; the last interval may be so short.
#[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
pub(crate) fn find_dips(intervals: &[Interval]) -> Vec<Dip> {
    let median_nanos = median(intervals.iter().map(|i| i.nanos() as f64));
    let full: Vec<_> = intervals
        .iter()
        .filter(|i| i.nanos() as f64 >= median_nanos / 2.0)
        .collect();
    if full.len() < MIN_INTERVALS {
        return Vec::new();
    }
    let figure = |i: &Interval| i.bandwidth.or(i.latency_mean);
    let median_figure = median(full.iter().filter_map(|i| figure(i)));
    let mut dips: Vec<Dip> = Vec::new();
    for interval in full {
        let Some(share) = figure(interval)
            .map(|f| f / median_figure)
            .filter(|share| share.is_finite())
        else {
            continue;
        };
        let is_outlier = if interval.bandwidth.is_some() {
            share < DIP_SHARE
        } else {
            share > 1.0 / DIP_SHARE
        };
        // An interval without messages is part of a stall, which is reported separately.
        if !is_outlier || interval.msgs == 0 {
            continue;
        }
        match dips.last_mut().filter(|last| last.to == interval.from) {
            Some(last) => {
                last.to = interval.to;
                last.share = if share < 1.0 {
                    last.share.min(share)
                } else {
                    last.share.max(share)
                };
            }
            None => dips.push(Dip {
                kind: DipKind::Dip,
                from: interval.from,
                to: interval.to,
                share,
            }),
        }
    }
    dips
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Formats an interval as one line of text.
pub fn format_interval(interval: &Interval, style: Style) -> String {
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
    let span = format!(
        "{}-{} s",
        format_seconds(interval.from),
        format_seconds(interval.to)
    );
    let directions = [
        ("to server", interval.to_server),
        ("to client", interval.to_client),
    ];
    let directions = directions.into_iter().filter_map(|(name, bandwidth)| {
        bandwidth.map(|bandwidth| format!("  {name} {}", style.bandwidth(bandwidth)))
    });
    let figures = figures.iter().map(|figure| format!("{figure:>18}"));
    let figures: String = figures.chain(directions).collect();
    format!("    {span:<16}{figures}\n")
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
    fn neighbouring_low_intervals_are_one_dip() {
        let found = find_dips(&bandwidths(&[100, 98, 50, 40, 101, 99, 100]));
        assert_eq!(
            (found.len(), found[0].kind, found[0].from, found[0].to),
            (1, DipKind::Dip, 2 * SECOND, 4 * SECOND)
        );
        assert_eq!(
            found[0].to_string(),
            "dip from 2.00 to 4.00 s: 40 % of the median bandwidth"
        );
        assert_eq!(find_dips(&bandwidths(&[100, 98, 95, 105])), []);
    }

    #[test]
    fn few_or_short_intervals_have_no_dips() {
        assert_eq!(find_dips(&bandwidths(&[100, 10, 100])), []);
        let mut all = bandwidths(&[100, 100, 100, 100, 10]);
        all[4].to = all[4].from + SECOND / 10;
        assert_eq!(find_dips(&all), []);
        assert_eq!(find_dips(&[]), []);
        assert_eq!(find_dips(&bandwidths(&[0, 0, 0, 0, 0])), []);
    }

    #[test]
    fn higher_latency_is_a_dip() {
        let each = |(n, mean): (u64, f64)| Interval {
            from: n * SECOND,
            to: (n + 1) * SECOND,
            msgs: 5,
            latency_mean: Some(mean),
            latency_max: Some(9),
            ..Interval::default()
        };
        let all: Vec<_> = (0..).zip([10.0, 11.0, 30.0, 10.0, 9.0]).map(each).collect();
        let text = find_dips(&all)[0].to_string();
        assert_eq!(
            text,
            "dip from 2.00 to 3.00 s: 3.0 times the median latency"
        );
    }

    #[test]
    fn a_stall_shows_its_length() {
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
