//! How fast a link is: width times speed, printed as the kernel and ibstat do.

use std::fmt;

use crate::newtype::c_value;

c_value! {
    /// How many lanes a link has: a code, not their number.
    ///
    /// # Example
    /// ```
    /// use ibverbs::port::LinkWidth;
    /// assert_eq!(LinkWidth::X4.lanes(), Some(4)); // its code is 2
    /// ```
    ///
    /// # References
    /// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html); IBA 14.2.5.6
    pub struct LinkWidth(u8) {
        /// One lane.
        X1 = 1 => "1X",
        /// Four lanes.
        X4 = 2 => "4X",
        /// Eight lanes.
        X8 = 4 => "8X",
        /// Twelve lanes.
        X12 = 8 => "12X",
        /// Two lanes.
        X2 = 16 => "2X",
    }
}

impl LinkWidth {
    /// The number of lanes, for the codes that are defined.
    pub const fn lanes(self) -> Option<u32> {
        match self {
            Self::X1 => Some(1),
            Self::X2 => Some(2),
            Self::X4 => Some(4),
            Self::X8 => Some(8),
            Self::X12 => Some(12),
            _ => None,
        }
    }
}

c_value! {
    /// How fast one lane of a link is: a code, not a number of bits.
    ///
    /// # Example
    /// ```
    /// use ibverbs::port::LinkSpeed;
    /// assert_eq!(LinkSpeed::EDR.nominal_mbps(), Some(25_000)); // of one lane; its code is 32
    /// ```
    ///
    /// # References
    /// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html); IBA 14.2.5.6
    pub struct LinkSpeed(u32) {
        /// Single data rate: 2.5 Gb/s.
        SDR = 1 => "SDR",
        /// Double data rate: 5 Gb/s.
        DDR = 2 => "DDR",
        /// Quad data rate: 10 Gb/s.
        QDR = 4 => "QDR",
        /// 10 Gb/s, with the leaner coding of FDR.
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
    /// What one lane is said to carry, in Mbit/s, as its name says.
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

    /// The symbols on one lane, in Mbit/s, coding and error correction included.
    pub const fn signalling_mbps(self) -> Option<u32> {
        Some(match self {
            Self::SDR => 2_500,
            Self::DDR => 5_000,
            Self::QDR => 10_000,
            Self::FDR10 => 10_312,
            Self::FDR => 14_062,
            Self::EDR => 25_781,
            Self::HDR => 53_125,
            Self::NDR => 106_250,
            Self::XDR => 212_500,
            _ => return None,
        })
    }
}

/// The rate of a link. It prints as in ibstat and in the kernel's `rate` file.
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
///
/// # References
/// [`ibv_query_port(3)`](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkRate {
    /// The lanes.
    pub width: LinkWidth,
    /// The speed of each.
    pub speed: LinkSpeed,
}

impl LinkRate {
    /// The nominal rate in Mbit/s; `None` where a code is not known to this version.
    pub fn mbps(self) -> Option<u64> {
        Some(u64::from(self.width.lanes()?) * u64::from(self.speed.nominal_mbps()?))
    }

    /// The signalling rate in Mbit/s; `None` where a code is not known to this version.
    pub fn signalling_mbps(self) -> Option<u64> {
        Some(u64::from(self.width.lanes()?) * u64::from(self.speed.signalling_mbps()?))
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
    fn rates_print_as_the_kernel_prints_them() {
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
    fn signalling_is_never_slower_than_the_name() {
        for bit in 0..9 {
            let speed = LinkSpeed(1 << bit);
            assert!(speed.name().is_some());
            assert!(speed.signalling_mbps() >= speed.nominal_mbps(), "{speed}");
        }
    }
}
