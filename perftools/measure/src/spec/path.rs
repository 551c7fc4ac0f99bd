//! Settings of the packets and requests of one end. Static rates have the names that qperf uses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Names of static rates, each with its code (`enum ibv_rate`).
const RATES: &[(&str, u8)] = &[
    ("2.5", 2),
    ("5", 5),
    ("10", 3),
    ("14", 11),
    ("20", 6),
    ("25", 15),
    ("28", 19),
    ("30", 4),
    ("40", 7),
    ("50", 20),
    ("56", 12),
    ("60", 8),
    ("80", 9),
    ("100", 16),
    ("112", 13),
    ("120", 10),
    ("168", 14),
    ("200", 17),
    ("300", 18),
    ("400", 21),
    ("600", 22),
    ("1xSDR", 2),
    ("1xDDR", 5),
    ("1xQDR", 3),
    ("4xSDR", 3),
    ("4xDDR", 6),
    ("4xQDR", 7),
    ("8xSDR", 6),
    ("8xDDR", 7),
    ("8xQDR", 9),
];

/// A static rate (`enum ibv_rate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct StaticRate(u8);

impl StaticRate {
    /// Returns the code of the rate in `enum ibv_rate`.
    pub(crate) fn code(self) -> u8 {
        self.0
    }
}

impl FromStr for StaticRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = RATES.iter().find(|rate| rate.0.eq_ignore_ascii_case(text));
        known.map(|rate| Self(rate.1)).ok_or_else(|| {
            let names: Vec<&str> = RATES.iter().map(|rate| rate.0).collect();
            format!(
                "unknown static rate `{text}`; available: {}",
                names.join(", ")
            )
        })
    }
}

impl fmt::Display for StaticRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match RATES.iter().find(|rate| rate.1 == self.0) {
            Some((name, _)) => write!(f, "{name} Gbit/s"),
            None => write!(f, "rate code {}", self.0),
        }
    }
}

/// Settings of the packets and requests of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "Path"))]
#[serde(default)]
pub struct PathSettings {
    /// InfiniBand service level; none: the one of the tuning of both ends.
    pub service_level: Option<u8>,
    /// Maximum number of RDMA reads and atomics in flight; none: the one of the tuning of both
    /// ends.
    pub rd_atomic: Option<u8>,
    /// Static rate limit of the packets.
    pub static_rate: Option<StaticRate>,
}

impl PathSettings {
    /// Returns `true` if no setting differs from the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if packets carry attributes that rdma_cm does not let the program set.
    pub(crate) fn sets_packet_attributes(self) -> bool {
        self.service_level.is_some_and(|level| level != 0) || self.static_rate.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_qperf_give_the_codes_of_verbs() {
        for (name, code) in [
            ("2.5", 2),
            ("10", 3),
            ("4xqdr", 7),
            ("8xQDR", 9),
            ("120", 10),
        ] {
            assert_eq!(name.parse::<StaticRate>().unwrap().code(), code, "{name}");
        }
        assert_eq!(
            "1xQDR".parse::<StaticRate>().unwrap().to_string(),
            "10 Gbit/s"
        );
        assert!(
            "7".parse::<StaticRate>()
                .unwrap_err()
                .contains("2.5, 5, 10")
        );
    }
}
