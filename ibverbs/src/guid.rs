//! Globally unique identifiers: of devices, ports and nodes.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::kind::ErrorKind;

/// A globally unique identifier (EUI-64) of a device, port or system, in host order.
///
/// # Example
/// ```
/// let guid: ibverbs::Guid = "0x0002c90300a1b2c3".parse()?;
/// assert_eq!(guid.to_string(), "0002:c903:00a1:b2c3");
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_get_device_guid(3)`](https://man7.org/linux/man-pages/man3/ibv_get_device_guid.3.html); IBA 4.1.1
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub u64);

impl FromStr for Guid {
    type Err = Error;

    /// Reads `0002:c903:00a1:b2c3`, `00:02:c9:03:00:a1:b2:c3` or `0x0002c90300a1b2c3`.
    fn from_str(text: &str) -> Result<Self> {
        let digits = text.strip_prefix("0x").unwrap_or(text).replace(':', "");
        let short = text.contains(':') && digits.len() != 16;
        match u64::from_str_radix(&digits, 16) {
            Ok(guid) if digits.len() <= 16 && !short && !digits.starts_with('+') => Ok(Self(guid)),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                "parse",
                format!("{text:?} is no GUID"),
            )
            .with_hint("sixteen hexadecimal digits: 0002:c903:00a1:b2c3")),
        }
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |shift: u32| self.0 >> shift & 0xffff;
        write!(
            f,
            "{:04x}:{:04x}:{:04x}:{:04x}",
            word(48),
            word(32),
            word(16),
            word(0)
        )
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_reads_as_it_prints_and_as_others_print_it() {
        let guid = Guid(0x0002_c903_00a1_b2c3);
        assert_eq!(guid.to_string(), "0002:c903:00a1:b2c3");
        for text in [
            "0002:c903:00a1:b2c3",
            "00:02:c9:03:00:a1:b2:c3",
            "0x0002c90300a1b2c3",
            "0002c90300a1b2c3",
        ] {
            assert_eq!(text.parse::<Guid>().expect(text), guid);
        }
        for text in [
            "",
            "0x",
            "2:c903:a1:b2c3",
            "mlx5_0",
            "0x10002c90300a1b2c3",
            "+002c90300a1b2c3",
        ] {
            assert_eq!(
                text.parse::<Guid>().expect_err(text).kind(),
                ErrorKind::InvalidInput,
                "{text}"
            );
        }
    }
}
