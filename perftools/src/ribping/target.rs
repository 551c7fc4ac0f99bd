//! The target of the pings.

use std::net::Ipv6Addr;

use base::error::{Error, Result};
use ibumad::{Guid, Lid};

/// The target of the pings as written on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The port with this LID.
    Lid(Lid),
    /// The port with this GUID.
    Guid(Guid),
    /// The port with this GID.
    Gid(Ipv6Addr),
    /// The host with this name or address.
    Host(String),
}

impl Target {
    /// Parses a target. `is_lid` and `is_guid` are the options -L and -G.
    ///
    /// # Errors
    /// Returns [`Kind::Usage`](base::error::Kind::Usage) if the text is not what the
    /// options require, or is a number that is not a LID.
    pub fn parse(text: &str, is_lid: bool, is_guid: bool) -> Result<Self> {
        let lid = || text.parse::<Lid>().ok().filter(|lid| lid.is_unicast());
        if is_guid {
            let guid = text.parse().map_err(|_| {
                Error::usage(format!(
                    "`{text}` is not a GUID; expected up to 16 hexadecimal digits"
                ))
            })?;
            return Ok(Self::Guid(guid));
        }
        if is_lid {
            return lid().map(Self::Lid).ok_or_else(|| {
                Error::usage(format!("`{text}` is not a LID; expected 1 to 49151"))
            });
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
                "`{text}` is not a LID; expected 1 to 49151"
            ))
            .with_help("for a GUID, add -G")),
            None => Ok(Self::Host(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_targets_are_distinguished() {
        let parse = |text| Target::parse(text, false, false);
        assert_eq!(parse("4"), Ok(Target::Lid(Lid(4))));
        assert_eq!(parse("0x4"), Ok(Target::Lid(Lid(4))));
        assert_eq!(
            parse("0x0002c90300a01b2d"),
            Ok(Target::Guid(Guid(0x0002_c903_00a0_1b2d)))
        );
        assert_eq!(
            parse("fe80::1"),
            Ok(Target::Gid("fe80::1".parse().expect("a GID")))
        );
        assert_eq!(parse("10.99.0.1"), Ok(Target::Host("10.99.0.1".into())));
        assert_eq!(parse("node1"), Ok(Target::Host("node1".into())));
        assert_eq!(
            Target::parse("100003", false, true),
            Ok(Target::Guid(Guid(0x10_0003)))
        );
    }

    #[test]
    fn invalid_targets_are_rejected() {
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
