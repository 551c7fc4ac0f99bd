//! The text forms of the values that peers exchange to connect and to access memory.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};
use crate::gid::Gid;
use crate::mr::RemoteMemory;
use crate::numbers::{Psn, Qpn};
use crate::port::Lid;
use crate::qp::Endpoint;

/// Writes `LID:QPN:PSN:GID` in 51 characters, the format in which the `ibv_*_pingpong` programs of
/// rdma-core exchange endpoints.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { qpn, psn, lid, gid } = self;
        let gid = u128::from_be_bytes(gid.0);
        write!(f, "{:04x}:{:06x}:{:06x}:{gid:032x}", lid.0, qpn.0, psn.0)
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    /// Parses `LID:QPN:PSN:GID`, each in hexadecimal digits.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]: the text has another form, or a number has too many bits.
    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let [lid, qpn, psn, gid] = hex_fields(text)?;
            let bits24 = |number| u32::try_from(number).ok().filter(|bits| *bits < 1 << 24);
            Some(Self {
                qpn: Qpn(bits24(qpn)?),
                psn: Psn(bits24(psn)?),
                lid: Lid(u16::try_from(lid).ok()?),
                gid: Gid(gid.to_be_bytes()),
            })
        };
        parse().ok_or_else(|| invalid(text, "an endpoint", "LID:QPN:PSN:GID"))
    }
}

/// Writes `ADDRESS:LENGTH:RKEY` in 42 characters.
impl fmt::Display for RemoteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, len, rkey } = self;
        write!(f, "{addr:016x}:{len:016x}:{rkey:08x}")
    }
}

impl FromStr for RemoteMemory {
    type Err = Error;

    /// Parses `ADDRESS:LENGTH:RKEY`, each in hexadecimal digits.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]: the text has another form, or a number has too many bits.
    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let [addr, len, rkey] = hex_fields(text)?;
            Some(Self {
                addr: u64::try_from(addr).ok()?,
                len: u64::try_from(len).ok()?,
                rkey: u32::try_from(rkey).ok()?,
            })
        };
        parse().ok_or_else(|| invalid(text, "remote memory", "ADDRESS:LENGTH:RKEY"))
    }
}

/// Parses exactly `N` hexadecimal numbers that are separated by colons.
fn hex_fields<const N: usize>(text: &str) -> Option<[u128; N]> {
    let mut digits = text.split(':');
    let mut numbers = [0; N];
    for number in &mut numbers {
        // `from_str_radix` accepts a sign.
        let digits = digits.next().filter(|digits| !digits.starts_with('+'))?;
        *number = u128::from_str_radix(digits, 16).ok()?;
    }
    digits.next().is_none().then_some(numbers)
}

fn invalid(text: &str, value: &str, form: &'static str) -> Error {
    let detail = format!("{text:?} is not {value}");
    Error::new(ErrorKind::InvalidInput, "parse", detail)
        .with_help(format!("expected {form} in hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_has_the_format_of_ibv_pingpong() {
        let endpoint = Endpoint {
            qpn: Qpn(0x12),
            psn: Psn(0x00ab_cdef),
            lid: Lid(0x1f),
            gid: "::ffff:10.99.0.1".parse().expect("a GID"),
        };
        let text = endpoint.to_string();
        assert_eq!(text, "001f:000012:abcdef:00000000000000000000ffff0a630001");
        assert_eq!(text.parse::<Endpoint>().expect("its own text"), endpoint);
    }

    #[test]
    fn remote_memory_round_trip() {
        for memory in [
            RemoteMemory {
                addr: 0x7f00_1234_5000,
                len: 4096,
                rkey: 0x1a2b,
            },
            RemoteMemory {
                addr: u64::MAX,
                len: u64::MAX,
                rkey: u32::MAX,
            },
        ] {
            let text = memory.to_string();
            assert_eq!(text.len(), 42, "{text}");
            assert_eq!(text.parse::<RemoteMemory>().expect("its own text"), memory);
        }
    }

    #[test]
    fn other_text_is_rejected() {
        for text in [
            "",
            "GET / HTTP/1.1",
            "0:1:2",
            "0:1:2:3:4",
            "10000:0:0:0",
            "0:1000000:0:0",
            "0:0:1000000:0",
            "0:+1:0:0",
            "0:0:0:100000000000000000000000000000000",
        ] {
            let error = text.parse::<Endpoint>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.message().contains(text), "{error}");
        }
        for text in [
            "",
            "0:0",
            "0:0:0:0",
            "10000000000000000:0:0",
            "0:0:100000000",
            "x:0:0",
        ] {
            let error = text.parse::<RemoteMemory>().expect_err(text);
            assert!(
                error.help().is_some_and(|help| help.contains("RKEY")),
                "{error}"
            );
        }
    }
}
