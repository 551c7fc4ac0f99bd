//! Comparison of results with the limits of the user.

use std::time::Duration;

use base::error::{Error, Kind, Result};
use base::units::{Style, show_time};
use measure::spec::{MinBandwidth, ResultLimits};

use super::record::{DeviceResult, Measured};

/// Checks a result. Returns a sentence for each limit that it exceeds. Of several devices, each one
/// must keep the limits of latencies and of the share of its link, and their sum the others.
pub fn exceeded(limits: &ResultLimits, m: &Measured) -> Result<Vec<String>> {
    let mut exceeded = Vec::new();
    match limits.min_bandwidth.filter(|_| m.is_bandwidth_test()) {
        Some(MinBandwidth::Rate(rate)) => {
            let limit = as_f64(rate.0);
            let option = format!("--min-bw {}", bits().bandwidth(limit));
            exceeded.extend(below(m, limit, &option));
        }
        Some(MinBandwidth::LinkShare(share)) => {
            exceeded.extend(each_device(m, |m| below_share(m, share))?);
        }
        None => {}
    }
    exceeded.extend(each_device(m, |m| above_latencies(limits, m))?);
    let lost = m.local_stats.lost.saturating_add(m.remote_stats.lost);
    if let Some(limit) = limits.max_lost.filter(|limit| lost > *limit) {
        exceeded.push(format!("{lost} lost messages are above --max-lost {limit}"));
    }
    Ok(exceeded)
}

/// Calls `check` with the result of each device, and begins its sentences with the name of the
/// device if there are several.
fn each_device(
    m: &Measured,
    check: impl Fn(&Measured) -> Result<Vec<String>>,
) -> Result<Vec<String>> {
    if m.devices.is_empty() {
        return check(m);
    }
    let mut all = Vec::new();
    for DeviceResult {
        device, measured, ..
    } in &m.devices
    {
        let sentences = check(measured).map_err(|error| error.context(device))?;
        all.extend(
            sentences
                .iter()
                .map(|sentence| format!("{device}: {sentence}")),
        );
    }
    Ok(all)
}

/// Describes the latencies that are above their limits.
fn above_latencies(limits: &ResultLimits, m: &Measured) -> Result<Vec<String>> {
    let mut exceeded = Vec::new();
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
    Ok(exceeded)
}

/// Returns the style of bandwidths: in bits, as the rates of links.
fn bits() -> Style {
    Style {
        bits: true,
        ..Style::default()
    }
}

/// Describes a bandwidth that is below a share of the link.
fn below_share(m: &Measured, share: f64) -> Result<Vec<String>> {
    let link = link_rate(m)? / 8.0;
    let option = format!(
        "--min-bw {} % of the link ({})",
        share * 100.0,
        bits().bandwidth(link)
    );
    Ok(below(m, share * link, &option).into_iter().collect())
}

/// Describes a bandwidth that is below the limit of an option.
fn below(m: &Measured, limit: f64, option: &str) -> Option<String> {
    let bandwidth = m.summary.bandwidth.unwrap_or(0.0);
    (bandwidth < limit).then(|| {
        format!(
            "bandwidth of {} is {} below {option}",
            bits().bandwidth(bandwidth),
            percent((limit - bandwidth) / limit),
        )
    })
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
    use test_support::text::assert_contains;

    use super::*;
    use crate::devices::tests::two_devices;
    use crate::record::{Outcome, Record};
    use crate::samples::{latency, one_way};

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
        assert_contains(&error, &["rate of rxe0 is unknown"]);
        m.local.hardware.link_rate = Some(10_000_000_000);
        m.remote.hardware.link_rate = Some(4_000_000_000);
        assert_eq!(exceeded(&min_bandwidth("70%"), &m).unwrap(), [""; 0]);
        assert_eq!(
            exceeded(&min_bandwidth("90%"), &m).unwrap(),
            ["bandwidth of 2.81 Gb/sec is 21.8 % below --min-bw 90 % of the link (4 Gb/sec)"]
        );
    }

    #[test]
    fn each_device_keeps_its_limits_and_the_sum_the_others() {
        // 2.81 and 1.41 Gb/s.
        let mut m = measured(two_devices(one_way()));
        assert_eq!(exceeded(&min_bandwidth("4.2Gb/s"), &m).unwrap(), [""; 0]);
        let texts = exceeded(&min_bandwidth("5Gb/s"), &m).unwrap();
        assert!(
            texts[0].starts_with("bandwidth of 4.22 Gb/sec is"),
            "{texts:?}"
        );
        for device in &mut m.devices {
            device.measured.local.hardware.link_rate = Some(3_000_000_000);
            device.measured.remote_stats.lost = 2;
        }
        let texts = exceeded(&min_bandwidth("90%"), &m).unwrap();
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(
            texts[0].starts_with("rxe1: bandwidth of 1.41 Gb/sec is"),
            "{texts:?}"
        );
        m.remote_stats.lost = 4;
        let limits = |lost| ResultLimits {
            max_latency: Some(Duration::from_micros(200)),
            max_lost: Some(lost),
            ..ResultLimits::default()
        };
        assert_eq!(exceeded(&limits(4), &m).unwrap(), [""; 0]);
        let texts = exceeded(&limits(3), &m).unwrap();
        assert_eq!(texts, ["4 lost messages are above --max-lost 3"]);
        let m = measured(two_devices(latency()));
        let texts = exceeded(&limits(0), &m).unwrap();
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(
            texts[0].starts_with("rxe1: mean latency of 333 us is"),
            "{texts:?}"
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
