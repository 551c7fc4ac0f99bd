//! Comparison of results with the limits of the user.

use std::time::Duration;

use super::record::Measured;
use crate::common::error::{Error, Kind, Result};
use crate::common::units::{Style, show_time};
use crate::rperf::spec::{MinBandwidth, ResultLimits};

/// Checks a result. Returns a sentence for each limit that it exceeds.
///
/// # Errors
/// Returns an error if a limit cannot be compared with the result, because the rate of the link
/// is unknown or no latency was measured.
pub fn exceeded(limits: &ResultLimits, m: &Measured) -> Result<Vec<String>> {
    let mut exceeded = Vec::new();
    if let Some(limit) = limits.min_bandwidth.filter(|_| m.is_bandwidth_test()) {
        exceeded.extend(below(m, limit)?);
    }
    if m.spec.test.is_latency() {
        let p99 = m.latency.as_ref().map(|p| as_f64(p.p99));
        let rows = [
            (
                limits.max_latency,
                m.summary.latency,
                "mean latency",
                "--max-lat",
            ),
            (
                limits.max_p99,
                p99,
                "99th percentile of the latency",
                "--max-p99",
            ),
        ];
        for (limit, value, name, option) in rows {
            let Some(limit) = limit else { continue };
            let value = value.ok_or_else(|| {
                Error::test(format!("cannot check {option}: no latency was measured"))
            })?;
            exceeded.extend(above(value, limit, name, option));
        }
    }
    let lost = m.local_stats.lost.saturating_add(m.remote_stats.lost);
    if let Some(limit) = limits.max_lost.filter(|limit| lost > *limit) {
        exceeded.push(format!("{lost} lost messages are above --max-lost {limit}"));
    }
    Ok(exceeded)
}

/// Describes a bandwidth that is below the limit.
fn below(m: &Measured, limit: MinBandwidth) -> Result<Option<String>> {
    let style = Style {
        bits: true,
        ..Style::default()
    };
    let (limit, option) = match limit {
        MinBandwidth::Rate(rate) => {
            let limit = as_f64(rate.0);
            (limit, format!("--min-bw {}", style.bandwidth(limit)))
        }
        MinBandwidth::LinkShare(share) => {
            let bits = link_rate(m)?;
            let option = format!(
                "--min-bw {} % of the link ({})",
                share * 100.0,
                style.bandwidth(bits / 8.0)
            );
            (share * bits / 8.0, option)
        }
    };
    let bandwidth = m.summary.bandwidth.unwrap_or(0.0);
    Ok((bandwidth < limit).then(|| {
        format!(
            "bandwidth of {} is {} below {option}",
            style.bandwidth(bandwidth),
            percent((limit - bandwidth) / limit),
        )
    }))
}

/// Returns the rate of the slower of the two links in bits per second. A bidirectional test uses
/// both directions of it.
fn link_rate(m: &Measured) -> Result<f64> {
    let rates = [&m.local, &m.remote].map(|end| end.hardware.link_rate);
    let rate = rates.into_iter().flatten().min().ok_or_else(|| {
        Error::new(
            Kind::Device,
            format!(
                "cannot check --min-bw as a share of the link: the rate of {} is unknown",
                m.local.hardware.netdev.as_ref().unwrap_or(&m.local.device)
            ),
        )
        .with_help("specify a rate, such as --min-bw 90Gb/s")
    })?;
    let directions = if m.is_bidirectional() { 2.0 } else { 1.0 };
    Ok(as_f64(rate) * directions)
}

/// Describes a latency in nanoseconds that is above the limit.
fn above(nanos: f64, limit: Duration, name: &str, option: &str) -> Option<String> {
    let limit_nanos = limit.as_secs_f64() * 1e9;
    (nanos > limit_nanos).then(|| {
        format!(
            "{name} of {} is {} above {option} {}",
            Style::default().time(nanos),
            percent((nanos - limit_nanos) / limit_nanos.max(1.0)),
            show_time(limit)
        )
    })
}

/// Formats a share as a percentage that is never 0.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 0.05 {
        "less than 0.1 %".to_owned()
    } else {
        format!("{percent:.1} %")
    }
}

#[allow(clippy::cast_precision_loss)] // Values of a few significant digits.
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::report::record::{Outcome, Record};
    use crate::rperf::report::text::tests::{latency, one_way};

    fn measured(record: Record) -> Measured {
        match record.outcome {
            Outcome::Measured(m) => *m,
            other => panic!("{other:?}"),
        }
    }

    fn min_bandwidth(text: &str) -> ResultLimits {
        ResultLimits {
            min_bandwidth: Some(text.parse().unwrap()),
            ..ResultLimits::default()
        }
    }

    #[test]
    fn a_bandwidth_below_its_limit_is_described() {
        // 351,764,480 bytes per second are 2.81 Gb/s.
        let mut m = measured(one_way());
        assert_eq!(exceeded(&min_bandwidth("2.8Gb/s"), &m).unwrap(), [""; 0]);
        assert_eq!(
            exceeded(&min_bandwidth("5Gb/s"), &m).unwrap(),
            ["bandwidth of 2.81 Gb/sec is 43.7 % below --min-bw 5 Gb/sec"]
        );
        let error = exceeded(&min_bandwidth("90%"), &m).unwrap_err();
        assert!(
            error.to_string().contains("rate of rxe0 is unknown"),
            "{error}"
        );
        m.local.hardware.link_rate = Some(10_000_000_000);
        m.remote.hardware.link_rate = Some(4_000_000_000);
        assert_eq!(exceeded(&min_bandwidth("70%"), &m).unwrap(), [""; 0]);
        assert_eq!(
            exceeded(&min_bandwidth("90%"), &m).unwrap(),
            ["bandwidth of 2.81 Gb/sec is 21.8 % below --min-bw 90 % of the link (4 Gb/sec)"]
        );
    }

    #[test]
    fn latencies_and_losses_above_their_limits_are_described() {
        let limits = |max_latency, max_p99| ResultLimits {
            max_latency: Some(Duration::from_micros(max_latency)),
            max_p99: Some(Duration::from_micros(max_p99)),
            max_lost: Some(0),
            ..ResultLimits::default()
        };
        let mut m = measured(latency());
        assert_eq!(exceeded(&limits(200, 200), &m).unwrap(), [""; 0]);
        m.remote_stats.lost = 3;
        assert_eq!(
            exceeded(&limits(160, 190), &m).unwrap(),
            [
                "mean latency of 167 us is 4.2 % above --max-lat 160 us",
                "99th percentile of the latency of 199 us is 4.8 % above --max-p99 190 us",
                "3 lost messages are above --max-lost 0"
            ]
        );
        m.latency = None;
        let error = exceeded(&limits(160, 190), &m).unwrap_err().to_string();
        assert!(error.contains("no latency was measured"), "{error}");
    }
}
