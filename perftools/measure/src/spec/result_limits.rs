//! Limits of the user for the results of a test: `--min-bw`, `--max-lat`, `--max-p99` and
//! `--max-lost`.

use std::str::FromStr;
use std::time::Duration;

use base::units::Rate;

/// Lower limit of a bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MinBandwidth {
    /// Bandwidth in bytes per second.
    Rate(Rate),
    /// Share of the rate of the link, such as 0.9.
    LinkShare(f64),
}

impl FromStr for MinBandwidth {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let Some(percent) = text.trim().strip_suffix('%') else {
            let rate = text.parse().map(Self::Rate);
            return rate.map_err(|e: String| format!("{e}; or a share of the link, such as 90%"));
        };
        match percent.trim().parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => {
                Ok(Self::LinkShare(percent / 100.0))
            }
            _ => Err(format!(
                "`{text}` is not a share of the link; expected more than 0 % and at most 100 %"
            )),
        }
    }
}

/// Limits for the results of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResultLimits {
    /// Lower limit of the bandwidth, for bandwidth tests.
    pub min_bandwidth: Option<MinBandwidth>,
    /// Upper limit of the mean latency, for latency tests.
    pub max_latency: Option<Duration>,
    /// Upper limit of the 99th percentile of the latency, for latency tests.
    pub max_p99: Option<Duration>,
    /// Upper limit of the number of lost messages.
    pub max_lost: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_rates_are_parsed() {
        assert_eq!("90%".parse(), Ok(MinBandwidth::LinkShare(0.9)));
        assert_eq!("8Gb/s".parse(), Ok(MinBandwidth::Rate(Rate(1_000_000_000))));
        for (text, expected) in [
            ("0%", "at most 100 %"),
            ("101%", "at most 100 %"),
            ("380", "90%"),
        ] {
            let error = text.parse::<MinBandwidth>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
