//! Globally unique identifiers.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::kind::ErrorKind;

/// A globally unique identifier (EUI-64) of a device, port or system, in host byte order.
///
/// It prints as `ibv_devinfo` prints it, `0002:c903:00a1:b2c3`; with `{:#018x}` as the tools of
/// infiniband-diags do, `0x0002c90300a1b2c3`. Both forms can be parsed.
///
/// # Example
/// ```
/// use rdma_types::Guid;
/// let guid: Guid = "0x0002c90300a1b2c3".parse()?;
/// assert_eq!(guid.to_string(), "0002:c903:00a1:b2c3");
/// assert_eq!(format!("{guid:#018x}"), "0x0002c90300a1b2c3");
/// # Ok::<(), rdma_types::Error>(())
/// ```
///
/// # References
/// [`ibv_get_device_guid(3)`](https://man7.org/linux/man-pages/man3/ibv_get_device_guid.3.html); IBA 4.1.1
#[doc(alias = "ibv_get_device_guid")]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub u64);

impl FromStr for Guid {
    type Err = Error;

    /// Parses `0002:c903:00a1:b2c3`, `00:02:c9:03:00:a1:b2:c3` or up to 16 hexadecimal digits with
    /// or without `0x`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]: the text has none of these forms.
    fn from_str(text: &str) -> Result<Self> {
        let digits = text
            .strip_prefix("0x")
            .or_else(|| text.strip_prefix("0X"))
            .unwrap_or(text)
            .replace(':', "");
        let incomplete = text.contains(':') && digits.len() != 16;
        match u64::from_str_radix(&digits, 16) {
            Ok(guid) if digits.len() <= 16 && !incomplete && !digits.starts_with('+') => {
                Ok(Self(guid))
            }
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                "parse",
                format!("{text:?} is not a GUID"),
            )
            .with_help("expected 16 hexadecimal digits: 0002:c903:00a1:b2c3")),
        }
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = |shift: u32| self.0 >> shift & 0xffff;
        write!(
            f,
            "{:04x}:{:04x}:{:04x}:{:04x}",
            group(48),
            group(32),
            group(16),
            group(0)
        )
    }
}

impl fmt::LowerHex for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
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
    fn guid_parses_the_forms_that_tools_print() {
        let guid = Guid(0x0002_c903_00a1_b2c3);
        for text in [
            "0002:c903:00a1:b2c3",
            "00:02:c9:03:00:a1:b2:c3",
            "0x0002c90300a1b2c3",
            "0X0002C90300A1B2C3",
            "0002c90300a1b2c3",
            "2c90300a1b2c3",
        ] {
            assert_eq!(text.parse::<Guid>().expect(text), guid);
        }
        assert_eq!(
            guid.to_string().parse::<Guid>().expect("its own text"),
            guid
        );
    }

    #[test]
    fn other_text_is_not_a_guid() {
        for text in [
            "",
            "0x",
            "2:c903:a1:b2c3",
            "mlx5_0",
            "0x10002c90300a1b2c3",
            "+002c90300a1b2c3",
        ] {
            let error = text.parse::<Guid>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
        }
    }
}
