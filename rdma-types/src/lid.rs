//! Local identifiers.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A local identifier: the address of a port within an InfiniBand subnet; 0 on RoCE and iWARP.
///
/// # Example
/// ```
/// use rdma_types::Lid;
/// assert_eq!("0x1a".parse(), Ok(Lid(26)));
/// assert!(Lid(26).is_unicast() && !Lid::PERMISSIVE.is_unicast());
/// ```
///
/// # References
/// IBA 4.1.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lid(pub u16);

impl Lid {
    /// The permissive LID: the port at the other end of the link, whatever its LID is.
    pub const PERMISSIVE: Self = Self(0xffff);

    /// Returns `true` if this LID can address a single port: 1 to 0xbfff.
    pub const fn is_unicast(self) -> bool {
        matches!(self.0, 1..=0xbfff)
    }
}

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Lid {
    type Err = ParseIntError;

    /// Parses a decimal number, or a hexadecimal one after `0x`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hex) => u16::from_str_radix(hex, 16),
            None => text.parse(),
        }
        .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lid_is_decimal_or_hexadecimal() {
        assert_eq!("4".parse(), Ok(Lid(4)));
        assert_eq!("0x1A".parse(), Ok(Lid(26)));
        assert!("65536".parse::<Lid>().is_err());
    }

    #[test]
    fn unicast_range_ends_below_multicast() {
        assert!(Lid(1).is_unicast() && Lid(0xbfff).is_unicast());
        assert!(!Lid(0).is_unicast() && !Lid(0xc000).is_unicast());
    }
}
