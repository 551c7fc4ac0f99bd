//! The rate of a link, as sysfs writes it: `100 Gb/sec (4X EDR)`.

use std::fmt;

use serde::{Serialize, Serializer};

/// The speed of one lane.
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
    /// The speed of this name: `EDR`.
    pub fn named(name: &str) -> Option<Self> {
        SPEEDS
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, mbps)| Self(*mbps))
    }

    /// Its name.
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
    /// Mbit/s, as the text says (100 Gb/sec for 4X EDR).
    pub mbps: u32,
    /// How many lanes, where the text says so.
    pub lanes: Option<u32>,
    /// The speed of a lane, where the text names one that is known.
    pub speed: Option<LaneSpeed>,
}

impl Rate {
    /// Reads sysfs' text; `None` where it is not of this form.
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
            speed: lanes.and_then(|_| LaneSpeed::named(speed.trim())),
        })
    }

    /// The speed of a lane: where it has no name, what the rate makes of it up to QDR (older
    /// kernels name none of these).
    pub fn lane_speed(&self) -> Option<LaneSpeed> {
        let of_rate = || {
            let each = self.mbps.checked_div(self.lanes?)?;
            SPEEDS
                .iter()
                .find(|(_, mbps)| *mbps == each)
                .map(|(_, mbps)| LaneSpeed(*mbps))
        };
        self.speed.or_else(of_rate)
    }

    /// What ibstat prints after `Rate:`: whole Gbit/s, but 2.5.
    pub fn ibstat(&self) -> String {
        let fdr10 = if self.speed == LaneSpeed::named("FDR10") {
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

/// `2.5` Gbit/s in Mbit/s.
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
    fn rates_read_back() {
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
    fn odd_rates_are_none() {
        for odd in [
            "",
            "10",
            "x Gb/sec",
            "10 Mb/sec",
            "5000000 Gb/sec",
            "1.2345 Gb/sec",
            "-1 Gb/sec",
        ] {
            assert_eq!(Rate::parse(odd), None, "{odd}");
        }
        let odd = Rate::parse("10 Gb/sec (0X ZDR)").unwrap();
        assert_eq!((odd.lanes, odd.speed), (None, None));
    }

    #[test]
    fn a_lane_without_a_name_has_the_speed_of_its_rate() {
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
    fn speeds_have_an_order() {
        assert!(LaneSpeed::named("edr") > LaneSpeed::named("FDR"));
    }
}
