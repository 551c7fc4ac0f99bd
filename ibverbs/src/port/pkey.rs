//! Partition keys (P_Keys) and the P_Key table of a port.

#![allow(unsafe_code)]

use std::fmt;

use rdma_sys::ibv_query_pkey;

use crate::convert::not_negative;
use crate::device::{Context, TransportType};
use crate::error::{Error, ErrorKind, Result};
use crate::raw::AsRaw;

/// A partition key (P_Key) in host byte order: a 15-bit partition number, and the top bit for full
/// membership.
///
/// Two ports can communicate in a partition if at least one of them is a full member.
///
/// # Example
/// ```
/// use ibverbs::Pkey;
/// assert!(Pkey::DEFAULT.is_full_member());
/// assert!(Pkey(0x7fff).can_communicate_with(Pkey(0xffff)));
/// assert!(!Pkey(0x7fff).can_communicate_with(Pkey(0x7fff)));
/// ```
///
/// # References
/// [`ibv_query_pkey(3)`](https://man7.org/linux/man-pages/man3/ibv_query_pkey.3.html); IBA 10.9
#[doc(alias = "ibv_query_pkey")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pkey(pub u16);

impl Pkey {
    /// Full membership in the default partition. RoCE ports have only this key.
    pub const DEFAULT: Self = Self(0xffff);

    /// Returns the partition number, without the membership bit.
    pub const fn partition(self) -> u16 {
        self.0 & 0x7fff
    }

    /// Returns `true` for full membership. Limited members can communicate with full members only.
    pub const fn is_full_member(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// Returns `true` if the partition number is not 0, which marks an empty table entry.
    pub const fn is_valid(self) -> bool {
        self.partition() != 0
    }

    /// Returns `true` if a port with this key accepts packets from a port with `other` (IBA
    /// 10.9.3).
    pub const fn can_communicate_with(self, other: Self) -> bool {
        self.is_valid()
            && self.partition() == other.partition()
            && (self.is_full_member() || other.is_full_member())
    }
}

impl fmt::Display for Pkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}

impl fmt::Debug for Pkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let member = if self.is_full_member() {
            "full"
        } else {
            "limited"
        };
        write!(f, "Pkey({self}, {member} member)")
    }
}

/// One entry of a port's P_Key table.
///
/// # Example
/// This example finds the index of a partition's key, for a queue pair in that partition:
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::{Mtu, RcPath};
/// let entry = context
///     .pkeys(1)?
///     .into_iter()
///     .find(|entry| entry.pkey.partition() == 0x0001);
/// if let Some(entry) = entry {
///     let path = RcPath::new(1, None, Mtu::B2048).pkey_index(entry.index);
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_pkey")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PkeyEntry {
    /// The index in the table, as used in a queue pair's path.
    pub index: u16,
    /// The P_Key.
    pub pkey: Pkey,
}

impl Context {
    /// Returns the P_Key table of a port without empty entries.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`]: the device is iWARP, which has no partitions.
    /// - [`ErrorKind::InvalidInput`]: the device does not have this port.
    #[doc(alias = "ibv_query_pkey")]
    pub fn pkeys(&self, port_num: u8) -> Result<Vec<PkeyEntry>> {
        let len = self.query_port(port_num)?.pkey_tbl_len;
        let mut entries = Vec::new();
        for index in 0..len {
            let pkey = self.pkey(port_num, index)?;
            if pkey.is_valid() {
                entries.push(PkeyEntry { index, pkey });
            }
        }
        if entries.is_empty() && self.device().transport() == TransportType::IWARP {
            return Err(self.no_partitions());
        }
        Ok(entries)
    }

    /// Returns one entry of a port's P_Key table. An empty entry is [invalid](Pkey::is_valid).
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`]: the table does not have this index.
    /// - [`ErrorKind::Unsupported`]: the device is iWARP, which has no partitions.
    #[doc(alias = "ibv_query_pkey")]
    pub fn pkey(&self, port_num: u8, index: u16) -> Result<Pkey> {
        let mut pkey = 0;
        // SAFETY: the context is open and the integer is writable.
        let returned =
            unsafe { ibv_query_pkey(self.as_raw(), port_num, index.into(), &raw mut pkey) };
        let what = || format!("P_Key {index} of port {port_num} of {}", self.device_name());
        match not_negative("ibv_query_pkey", what, returned) {
            Ok(_) => Ok(Pkey(u16::from_be(pkey))),
            Err(_) if self.device().transport() == TransportType::IWARP => {
                Err(self.no_partitions())
            }
            Err(error) => Err(error),
        }
    }

    fn no_partitions(&self) -> Error {
        Error::new(
            ErrorKind::Unsupported,
            "ibv_query_pkey",
            format!("{} is iWARP, which has no partitions", self.device_name()),
        )
        .with_help("use P_Key index 0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_bit_is_membership() {
        let (full, limited) = (Pkey(0x8001), Pkey(0x0001));
        assert_eq!((full.partition(), limited.partition()), (1, 1));
        assert_eq!(
            (full.is_full_member(), limited.is_full_member()),
            (true, false)
        );
        assert_eq!(
            format!("{limited:?} {full}"),
            "Pkey(0x0001, limited member) 0x8001"
        );
    }

    #[test]
    fn limited_members_cannot_communicate() {
        let keys = [Pkey(0x8001), Pkey(0x0001), Pkey(0x8002), Pkey(0x8000)];
        let communicate = |a: usize, b: usize| keys[a].can_communicate_with(keys[b]);
        assert!(communicate(0, 0) && communicate(0, 1) && communicate(1, 0));
        assert!(!communicate(1, 1), "both limited");
        assert!(!communicate(0, 2), "another partition");
        assert!(!communicate(3, 3), "partition 0 is invalid");
    }
}
