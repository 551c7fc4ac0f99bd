//! The addresses of the fabric.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A local identifier: the address of a port within its subnet.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lid(pub u16);

impl Lid {
    /// The permissive LID: the port at the other end of the link, whatever its address.
    pub const PERMISSIVE: Self = Self(0xffff);

    /// Whether it can be the address of one port: 1 to 0xbfff.
    pub const fn is_unicast(self) -> bool {
        matches!(self.0, 1..=0xbfff)
    }
}

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lid({})", self.0)
    }
}

impl FromStr for Lid {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hex) => u16::from_str_radix(hex, 16),
            None => text.parse(),
        }
        .map(Self)
    }
}

/// A global unique identifier of 64 bits (EUI-64): of a device, a port or a system.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub u64);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

impl FromStr for Guid {
    type Err = ParseIntError;

    /// Hexadecimal, with or without `0x`, or in groups as the `ibv_` tools print it
    /// (`0002:c903:00a0:1b2d`).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text
            .strip_prefix("0x")
            .or_else(|| text.strip_prefix("0X"))
            .unwrap_or(text);
        u64::from_str_radix(&digits.replace(':', ""), 16).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_the_tools_are_read() {
        assert_eq!("4".parse(), Ok(Lid(4)));
        assert_eq!("0x1A".parse(), Ok(Lid(26)));
        assert!("65536".parse::<Lid>().is_err());
        let guid = Guid(0x0002_c903_00a0_1b2d);
        for text in ["0x0002c90300a01b2d", "0002:c903:00a0:1b2d", "2c90300a01b2d"] {
            assert_eq!(text.parse(), Ok(guid));
        }
        assert_eq!(guid.to_string(), "0x0002c90300a01b2d");
        assert!(Lid(0xbfff).is_unicast() && !Lid(0).is_unicast() && !Lid(0xc000).is_unicast());
    }
}
