//! Limits for the results of tests.

use std::time::Duration;

use super::option::{Scope, entry, options};
use super::test_class::{BYTES, DATA, LATENCY};
use base::units::parse_time;
use clap::Args;
use measure::spec::{MinBandwidth, ResultLimits};

const LIMITS: &str = "Limits (exit status 3 if a result exceeds one)";

options! {
/// Limits for the results of tests.
#[derive(Clone, Debug, Default, Args)]
pub struct LimitOptions {
    /// Minimum bandwidth of bandwidth tests, such as 380Gb/s, or 90% of the rate of the link
    #[arg(long, value_name = "RATE|PERCENT", help_heading = LIMITS)]
    min_bw: Option<MinBandwidth> =
        entry(Scope::Results(BYTES)),
    /// Maximum mean latency of latency tests, such as 5us
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = LIMITS)]
    max_lat: Option<Duration> =
        entry(Scope::Results(LATENCY)),
    /// Maximum 99th percentile of the latency, such as 20us
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = LIMITS)]
    max_p99: Option<Duration> =
        entry(Scope::Results(LATENCY)),
    /// Maximum number of lost messages, such as 0
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    max_lost: Option<u64> =
        entry(Scope::Results(DATA)),
}
}

impl LimitOptions {
    /// Returns the limits.
    pub fn to_limits(&self) -> ResultLimits {
        ResultLimits {
            min_bandwidth: self.min_bw,
            max_latency: self.max_lat,
            max_p99: self.max_p99,
            max_lost: self.max_lost,
        }
    }
}
