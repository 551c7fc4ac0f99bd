//! The hardware address of an IPoIB interface, 20 bytes.

use std::fmt;
use std::str::FromStr;

use ibverbs::Guid;
use serde::{Serialize, Serializer};

/// An IPoIB hardware address (RFC 4391): flags and queue pair number, subnet prefix, port GUID.
///
/// Only the port GUID is stable. The queue pair number changes at each start, and the subnet
/// manager sets the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HwAddr(pub [u8; 20]);

/// The subnet prefix that is used unless the subnet manager sets another one.
pub const DEFAULT_PREFIX: u64 = 0xfe80 << 48;

impl HwAddr {
    /// Returns the flags. Bit 7 means that the interface supports connected mode (RFC 4755).
    pub fn flags(&self) -> u8 {
        self.0[0]
    }

    /// Returns the number of the datagram queue pair.
    pub fn qpn(&self) -> u32 {
        u32::from_be_bytes([0, self.0[1], self.0[2], self.0[3]])
    }

    /// Returns the subnet prefix.
    pub fn prefix(&self) -> u64 {
        self.word(4)
    }

    /// Returns the GUID of the port.
    pub fn guid(&self) -> Guid {
        Guid(self.word(12))
    }

    fn word(&self, at: usize) -> u64 {
        self.0
            .iter()
            .skip(at)
            .take(8)
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    }

    /// Returns the eight bytes of the GUID in the notation of the address, for a udev rule.
    pub fn stable_part(&self) -> String {
        self.to_string()
            .split(':')
            .skip(12)
            .collect::<Vec<_>>()
            .join(":")
    }

    /// Returns the udev rule that gives the interface a persistent name.
    pub fn udev_rule(&self, name: &str) -> String {
        format!(
            "ACTION==\"add\", SUBSYSTEM==\"net\", DRIVERS==\"?*\", ATTR{{type}}==\"32\", ATTR{{address}}==\"?*{}\", NAME=\"{name}\"",
            self.stable_part()
        )
    }
}

impl FromStr for HwAddr {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut bytes = [0; 20];
        let mut parts = text.trim().split(':');
        for byte in &mut bytes {
            let part = parts
                .next()
                .filter(|p| (1..=2).contains(&p.len()) && !p.starts_with('+'))
                .ok_or(())?;
            *byte = u8::from_str_radix(part, 16).map_err(drop)?;
        }
        if parts.next().is_some() {
            Err(())
        } else {
            Ok(Self(bytes))
        }
    }
}

impl fmt::Display for HwAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if at == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl Serialize for HwAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "80:00:02:00:fe:80:00:00:00:00:00:00:00:02:c9:03:00:31:78:f2";

    #[test]
    fn address_is_split_into_fields() {
        let address: HwAddr = ADDRESS.parse().unwrap();
        assert_eq!((address.flags(), address.qpn()), (0x80, 0x200));
        assert_eq!(address.prefix(), DEFAULT_PREFIX);
        assert_eq!(address.guid(), Guid(0x0002_c903_0031_78f2));
        assert_eq!(address.to_string(), ADDRESS);
        assert_eq!(
            address.udev_rule("mlx4_ib0"),
            r#"ACTION=="add", SUBSYSTEM=="net", DRIVERS=="?*", ATTR{type}=="32", ATTR{address}=="?*00:02:c9:03:00:31:78:f2", NAME="mlx4_ib0""#
        );
    }

    #[test]
    fn address_without_20_bytes_is_an_error() {
        for invalid in [
            "",
            "80",
            "02:00:00:00:00:01",
            "g0:00",
            &format!("{ADDRESS}:00"),
            &ADDRESS.replace(":02:", ":+2:"),
        ] {
            assert!(invalid.parse::<HwAddr>().is_err(), "{invalid}");
        }
    }
}
