//! The rate of a link: width times speed, displayed as by the kernel and ibstat.

use std::fmt;

use rdma_types::{LinkWidth, c_value};

c_value! {
    /// The speed of one lane, as a code: the value is not a number of bits per second.
    ///
    /// # Example
    /// ```
    /// use ibverbs::port::LinkSpeed;
    /// assert_eq!(LinkSpeed::EDR.nominal_mbps(), Some(25_000)); // of one lane; its code is 32
    /// ```
    ///
    /// # References
    /// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html); IBA 14.2.5.6
    #[doc(alias = "ibv_query_port")]
    pub struct LinkSpeed(u32) {
        /// Single data rate: 2.5 Gb/s.
        SDR = 1 => "SDR",
        /// Double data rate: 5 Gb/s.
        DDR = 2 => "DDR",
        /// Quad data rate: 10 Gb/s.
        QDR = 4 => "QDR",
        /// 10 Gb/s with the 64b/66b encoding of FDR.
        FDR10 = 8 => "FDR10",
        /// Fourteen data rate: 14 Gb/s.
        FDR = 16 => "FDR",
        /// Enhanced data rate: 25 Gb/s.
        EDR = 32 => "EDR",
        /// High data rate: 50 Gb/s.
        HDR = 64 => "HDR",
        /// Next data rate: 100 Gb/s.
        NDR = 128 => "NDR",
        /// Extreme data rate: 200 Gb/s.
        XDR = 256 => "XDR",
    }
}

impl LinkSpeed {
    /// Returns the nominal speed of one lane in Mbit/s, or `None` for an unknown code.
    pub const fn nominal_mbps(self) -> Option<u32> {
        Some(match self {
            Self::SDR => 2_500,
            Self::DDR => 5_000,
            Self::QDR | Self::FDR10 => 10_000,
            Self::FDR => 14_000,
            Self::EDR => 25_000,
            Self::HDR => 50_000,
            Self::NDR => 100_000,
            Self::XDR => 200_000,
            _ => return None,
        })
    }

    /// Returns the signalling rate of one lane in Mbit/s, including coding and error correction.
    pub const fn signalling_mbps(self) -> Option<u32> {
        match self.signalling_kbps() {
            Some(kbps) => Some(kbps / 1000),
            None => None,
        }
    }

    /// Returns the signalling rate of one lane in kbit/s, rounded down.
    const fn signalling_kbps(self) -> Option<u32> {
        Some(match self {
            Self::SDR => 2_500_000,
            Self::DDR => 5_000_000,
            Self::QDR => 10_000_000,
            Self::FDR10 => 10_312_500,
            Self::FDR => 14_062_500,
            Self::EDR => 25_781_250,
            Self::HDR => 53_125_000,
            Self::NDR => 106_250_000,
            Self::XDR => 212_500_000,
            _ => return None,
        })
    }
}

/// The rate of a link, displayed as by ibstat and by the kernel's `rate` file.
///
/// # Example
/// ```
/// use ibverbs::port::{LinkRate, LinkSpeed, LinkWidth};
/// let rate = LinkRate {
///     width: LinkWidth::X4,
///     speed: LinkSpeed::EDR,
/// };
/// assert_eq!(rate.to_string(), "100 Gb/sec (4X EDR)");
/// assert_eq!(rate.mbps(), Some(100_000));
/// ```
#[doc(alias = "ibv_query_port")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkRate {
    /// Number of lanes.
    pub width: LinkWidth,
    /// Speed of one lane.
    pub speed: LinkSpeed,
}

impl LinkRate {
    /// Returns the nominal rate in Mbit/s, or `None` for an unknown code.
    pub fn mbps(self) -> Option<u64> {
        Some(u64::from(self.width.lanes()?) * u64::from(self.speed.nominal_mbps()?))
    }

    /// Returns the signalling rate in Mbit/s, or `None` for an unknown code.
    pub fn signalling_mbps(self) -> Option<u64> {
        let lanes = u64::from(self.width.lanes()?);
        Some(lanes * u64::from(self.speed.signalling_kbps()?) / 1000)
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mbps() {
            Some(mbps) => {
                let half = if mbps % 1000 == 0 { "" } else { ".5" };
                write!(
                    f,
                    "{}{half} Gb/sec ({} {})",
                    mbps / 1000,
                    self.width,
                    self.speed
                )
            }
            None => write!(
                f,
                "unknown rate (width {}, speed {})",
                self.width.0, self.speed.0
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_displayed_like_the_kernel() {
        let lines = [
            (1, 1, "2.5 Gb/sec (1X SDR)"),
            (2, 1, "10 Gb/sec (4X SDR)"),
            (8, 2, "60 Gb/sec (12X DDR)"),
            (2, 4, "40 Gb/sec (4X QDR)"),
            (1, 8, "10 Gb/sec (1X FDR10)"),
            (2, 16, "56 Gb/sec (4X FDR)"),
            (2, 32, "100 Gb/sec (4X EDR)"),
            (16, 64, "100 Gb/sec (2X HDR)"),
            (2, 64, "200 Gb/sec (4X HDR)"),
            (2, 128, "400 Gb/sec (4X NDR)"),
            (4, 128, "800 Gb/sec (8X NDR)"),
            (2, 256, "800 Gb/sec (4X XDR)"),
            (4, 256, "1600 Gb/sec (8X XDR)"),
            (2, 512, "unknown rate (width 2, speed 512)"),
            (3, 32, "unknown rate (width 3, speed 32)"),
        ];
        for (width, speed, text) in lines {
            assert_eq!(
                LinkRate {
                    width: LinkWidth(width),
                    speed: LinkSpeed(speed)
                }
                .to_string(),
                text
            );
        }
    }

    #[test]
    fn signalling_rate_is_at_least_nominal() {
        for bit in 0..9 {
            let speed = LinkSpeed(1 << bit);
            assert!(speed.name().is_some());
            assert!(speed.signalling_mbps() >= speed.nominal_mbps(), "{speed}");
        }
    }

    #[test]
    fn lanes_are_added_before_rounding() {
        let rate = LinkRate {
            width: LinkWidth::X4,
            speed: LinkSpeed::EDR,
        };
        assert_eq!(rate.signalling_mbps(), Some(103_125));
    }
}
