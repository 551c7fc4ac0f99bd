//! What is pinged.

use std::net::Ipv6Addr;

use ibumad::{Guid, Lid};

use crate::common::error::{Error, Result};

/// What is pinged, as the command line says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The port with this LID.
    Lid(Lid),
    /// The port with this GUID.
    Guid(Guid),
    /// The port with this GID.
    Gid(Ipv6Addr),
    /// The host of this name or address.
    Host(String),
}

impl Target {
    /// Reads a target; `is_lid` and `is_guid` are the options -L and -G.
    ///
    /// # Errors
    /// It is not what the options say.
    pub fn parse(text: &str, is_lid: bool, is_guid: bool) -> Result<Self> {
        let lid = || text.parse::<Lid>().ok().filter(|lid| lid.is_unicast());
        if is_guid {
            let guid = text.parse().map_err(|_| {
                Error::usage(format!("`{text}` is not a GUID: 16 hexadecimal digits"))
            })?;
            return Ok(Self::Guid(guid));
        }
        if is_lid {
            return lid()
                .map(Self::Lid)
                .ok_or_else(|| Error::usage(format!("`{text}` is not a LID: 1 to 49151")));
        }
        if let Ok(gid) = text.parse() {
            return Ok(Self::Gid(gid));
        }
        let is_number = text.strip_prefix("0x").map_or_else(
            || !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()),
            |hex| u64::from_str_radix(hex, 16).is_ok(),
        );
        match lid() {
            Some(lid) => Ok(Self::Lid(lid)),
            None if is_number && text.len() == 18 => {
                Ok(Self::Guid(text.parse().unwrap_or_default()))
            }
            None if is_number => Err(Error::usage(format!(
                "`{text}` is no LID (1 to 49151); for a GUID give -G"
            ))),
            None => Ok(Self::Host(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_told_apart() {
        let guess = |text| Target::parse(text, false, false);
        assert_eq!(guess("4"), Ok(Target::Lid(Lid(4))));
        assert_eq!(guess("0x4"), Ok(Target::Lid(Lid(4))));
        assert_eq!(
            guess("0x0002c90300a01b2d"),
            Ok(Target::Guid(Guid(0x0002_c903_00a0_1b2d)))
        );
        assert_eq!(
            guess("fe80::1"),
            Ok(Target::Gid("fe80::1".parse().expect("a GID")))
        );
        assert_eq!(guess("10.99.0.1"), Ok(Target::Host("10.99.0.1".into())));
        assert_eq!(guess("node1"), Ok(Target::Host("node1".into())));
        assert_eq!(
            Target::parse("100003", false, true),
            Ok(Target::Guid(Guid(0x10_0003)))
        );
    }

    #[test]
    fn what_it_cannot_be_is_said() {
        for (text, is_lid, is_guid) in [
            ("0", false, false),
            ("70000", false, false),
            ("x", true, false),
            ("0", true, false),
            ("x", false, true),
        ] {
            assert!(Target::parse(text, is_lid, is_guid).is_err(), "{text}");
        }
    }
}
