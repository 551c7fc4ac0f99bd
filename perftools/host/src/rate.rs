//! The rate of a link in the notation of sysfs, for example `100 Gb/sec (4X EDR)`.

use std::fmt;

use serde::{Serialize, Serializer};

/// The speed of one lane of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneSpeed(u32);

/// Names and Mbit/s of the lane speeds, slowest first.
const SPEEDS: &[(&str, u32)] = &[
    ("SDR", 2_500),
    ("DDR", 5_000),
    ("QDR", 10_000),
    ("FDR10", 10_312),
    ("FDR", 14_062),
    ("EDR", 25_781),
    ("HDR", 53_125),
    ("NDR", 106_250),
    ("XDR", 212_500),
];

impl LaneSpeed {
    /// Returns the speed with this name, for example `EDR`.
    pub fn from_name(name: &str) -> Option<Self> {
        SPEEDS
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, mbps)| Self(*mbps))
    }

    /// Returns the speed in Mbit/s.
    pub fn mbps(self) -> u32 {
        self.0
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        SPEEDS
            .iter()
            .find(|(_, mbps)| *mbps == self.0)
            .map_or("?", |(name, _)| name)
    }
}

impl Serialize for LaneSpeed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The rate of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// The rate in Mbit/s, as in the text (100 Gb/sec for 4X EDR).
    pub mbps: u32,
    /// The number of lanes, if the text contains it.
    pub lanes: Option<u32>,
    /// The speed of a lane, if the text contains a known name.
    pub speed: Option<LaneSpeed>,
}

impl Rate {
    /// Parses the text from sysfs. Returns `None` if it has another form.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, rest) = text.trim().split_once(' ')?;
        let mbps = mbps(number)?;
        let rest = rest.trim_start().strip_prefix("Gb/sec")?.trim();
        let inner = rest
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(')'))
            .unwrap_or_default();
        let (lanes, speed) = inner.split_once(' ').unwrap_or((inner, ""));
        let lanes = lanes
            .strip_suffix(['X', 'x'])
            .and_then(|n| n.parse().ok())
            .filter(|n| (1..=64).contains(n));
        Some(Self {
            mbps,
            lanes,
            speed: lanes.and_then(|_| LaneSpeed::from_name(speed.trim())),
        })
    }

    /// Returns the speed of a lane. If the text has no name, which is the case for SDR to QDR in
    /// older kernels, the speed is computed from the rate.
    pub fn lane_speed(&self) -> Option<LaneSpeed> {
        let from_rate = || {
            let per_lane = self.mbps.checked_div(self.lanes?)?;
            SPEEDS
                .iter()
                .find(|(_, mbps)| *mbps == per_lane)
                .map(|(_, mbps)| LaneSpeed(*mbps))
        };
        self.speed.or_else(from_rate)
    }

    /// Returns the rate in Gbit/s as ibstat prints it: a whole number, except for 2.5.
    pub fn ibstat(&self) -> String {
        let fdr10 = if self.speed == LaneSpeed::from_name("FDR10") {
            " (FDR10)"
        } else {
            ""
        };
        match self.mbps / 1000 {
            2 => "2.5".to_owned(),
            gbps => format!("{gbps}{fdr10}"),
        }
    }
}

/// Converts a text such as `2.5` from Gbit/s to Mbit/s.
fn mbps(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole: u32 = whole.parse().ok()?;
    let fraction: u32 = format!("{fraction:0<3}").parse().ok()?;
    whole.checked_mul(1000)?.checked_add(fraction)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.mbps / 1000)?;
        if self.mbps % 1000 != 0 {
            let fraction = format!("{:03}", self.mbps % 1000);
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str(" Gb/sec")?;
        if let Some(lanes) = self.lanes {
            write!(
                f,
                " ({lanes}X{}{})",
                if self.speed.is_some() { " " } else { "" },
                self.speed.map_or("", LaneSpeed::name)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_round_trips_through_text() {
        for text in [
            "2.5 Gb/sec (1X SDR)",
            "10 Gb/sec (1X FDR10)",
            "56 Gb/sec (4X FDR)",
            "100 Gb/sec (4X EDR)",
            "40 Gb/sec",
        ] {
            assert_eq!(Rate::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            Rate::parse("2.5 Gb/sec (1X SDR)\n").unwrap().ibstat(),
            "2.5"
        );
        assert_eq!(
            Rate::parse("10 Gb/sec (1X FDR10)").unwrap().ibstat(),
            "10 (FDR10)"
        );
        assert_eq!(Rate::parse("40 Gb/sec (4X FDR10)").unwrap().lanes, Some(4));
    }

    #[test]
    fn invalid_rate_is_none() {
        for invalid in [
            "",
            "10",
            "x Gb/sec",
            "10 Mb/sec",
            "5000000 Gb/sec",
            "1.2345 Gb/sec",
            "-1 Gb/sec",
        ] {
            assert_eq!(Rate::parse(invalid), None, "{invalid}");
        }
        let unknown = Rate::parse("10 Gb/sec (0X ZDR)").unwrap();
        assert_eq!((unknown.lanes, unknown.speed), (None, None));
    }

    #[test]
    fn lane_speed_without_name_is_computed_from_rate() {
        let speed = |text: &str| Rate::parse(text).unwrap().lane_speed().map(LaneSpeed::name);
        assert_eq!(
            (speed("10 Gb/sec (4X)"), speed("40 Gb/sec (4X)")),
            (Some("SDR"), Some("QDR"))
        );
        assert_eq!(
            (
                speed("100 Gb/sec (4X EDR)"),
                speed("100 Gb/sec (4X)"),
                speed("7 Gb/sec")
            ),
            (Some("EDR"), None, None)
        );
    }

    #[test]
    fn lane_speeds_are_ordered() {
        assert!(LaneSpeed::from_name("edr") > LaneSpeed::from_name("FDR"));
    }
}
