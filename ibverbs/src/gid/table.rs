//! The table in which a port keeps its global identifiers.

#![allow(unsafe_code)]

use std::fmt;

use rdma_sys::{_ibv_query_gid_table, ibv_gid_entry, ibv_query_gid, ibv_query_gid_ex};

use super::address::Gid;
use super::interface;
use crate::convert::{not_negative, zero_or_errno};
use crate::device::Context;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::newtype::c_value;
use crate::raw::AsRaw;

c_value! {
    /// What a GID stands for (`enum ibv_gid_type`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::gid::GidType;
    /// for entry in context.gids(1)?.into_iter().filter(|entry| entry.kind == GidType::ROCE_V2) {
    ///     println!("{} reaches other subnets", entry.gid);
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_gid_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_gid_ex.3.html)
    pub struct GidType(u32) {
        /// InfiniBand: `IBV_GID_TYPE_IB`.
        IB = rdma_sys::IBV_GID_TYPE_IB => "IB",
        /// RoCE version 1, within one Ethernet segment: `IBV_GID_TYPE_ROCE_V1`.
        ROCE_V1 = rdma_sys::IBV_GID_TYPE_ROCE_V1 => "RoCE v1",
        /// RoCE version 2, over UDP port 4791: `IBV_GID_TYPE_ROCE_V2`.
        ROCE_V2 = rdma_sys::IBV_GID_TYPE_ROCE_V2 => "RoCE v2",
    }
}

/// A place in a port's GID table, as paths and address handles name it: the verbs give it eight
/// bits.
///
/// # Example
/// ```
/// use ibverbs::{GidIndex, Mtu, RcPath};
/// let path = RcPath::new(1, GidIndex(3), Mtu::B4096);
/// assert_eq!(path.sgid_index, Some(GidIndex(3)));
/// ```
///
/// # References
/// [`ibv_query_gid_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_gid_ex.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GidIndex(pub u8);

impl From<u8> for GidIndex {
    fn from(index: u8) -> Self {
        Self(index)
    }
}

impl From<GidIndex> for u32 {
    fn from(index: GidIndex) -> Self {
        index.0.into()
    }
}

impl fmt::Display for GidIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// One place of a port's GID table.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// for entry in context.gids(1)? {
///     println!(
///         "{} of {}",
///         entry,
///         entry.netdev().as_deref().unwrap_or("no interface")
///     );
/// }
/// let same = context.gid(1, 0)?; // one place of the table
///
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_query_gid_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_gid_ex.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// Its index in the table, as a queue pair's path names it.
    pub index: GidIndex,
    /// The port, from 1.
    pub port_num: u8,
    /// What it stands for.
    pub kind: GidType,
    /// The network interface behind it; 0 where there is none.
    pub ifindex: u32,
}

impl GidEntry {
    /// `None` beyond the places that a path can name.
    fn from_raw(raw: &ibv_gid_entry) -> Option<Self> {
        Some(Self {
            gid: Gid::from_raw(&raw.gid),
            index: GidIndex(u8::try_from(raw.gid_index).ok()?),
            port_num: u8::try_from(raw.port_num).unwrap_or(0),
            kind: GidType(raw.gid_type),
            ifindex: raw.ndev_ifindex,
        })
    }

    /// The name of the network interface behind it; `None` where there is none.
    pub fn netdev(&self) -> Option<String> {
        interface::name(self.ifindex)
    }

    /// The bits of the network's prefix, where the GID is an address of this host's interfaces: 24
    /// of `10.0.0.1/24`.
    pub fn prefix_len(&self) -> Option<u8> {
        let ip = self.gid.to_ip()?;
        interface::prefixes()
            .into_iter()
            .find(|(address, _)| *address == ip)
            .map(|(_, bits)| bits)
    }
}

impl fmt::Display for GidEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gid[{}] {} ({}", self.index, self.gid, self.kind)?;
        match self.netdev() {
            Some(netdev) => write!(f, ", {netdev})"),
            None => f.write_str(")"),
        }
    }
}

impl Context {
    /// The GID table of a port, empty places left out, and those from 256 on, which no path can
    /// name.
    ///
    /// # Errors
    /// Fails for a port that the device does not have.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// for entry in context.gids(1)? {
    ///     println!("{entry}");
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_query_gid_table(3)`](https://man7.org/linux/man-pages/man3/ibv_query_gid_ex.3.html)
    pub fn gids(&self, port_num: u8) -> Result<Vec<GidEntry>> {
        let places = self.query_port(port_num)?.gid_tbl_len;
        match self.gid_table() {
            Ok(entries) => Ok(entries
                .into_iter()
                .filter(|entry| entry.port_num == port_num)
                .collect()),
            Err(error) if error.is_unsupported() => {
                let last = u8::try_from(places.saturating_sub(1)).unwrap_or(u8::MAX);
                Ok((0..=last)
                    .filter_map(|index| self.gid_at(port_num, GidIndex(index)))
                    .collect())
            }
            Err(error) => Err(error),
        }
    }

    /// The whole table in one call.
    fn gid_table(&self) -> Result<Vec<GidEntry>> {
        let mut places = 0;
        for port_num in 1..=self.query_device()?.phys_port_cnt {
            places += self.query_port(port_num)?.gid_tbl_len as usize;
        }
        let mut entries = vec![ibv_gid_entry::default(); places];
        // SAFETY: the array has as many entries of the given size as the call is told.
        let count = unsafe {
            _ibv_query_gid_table(
                self.as_raw(),
                entries.as_mut_ptr(),
                places,
                0,
                size_of::<ibv_gid_entry>(),
            )
        };
        if count < 0 {
            let errno = Errno(i32::try_from(-count).unwrap_or(libc::EIO));
            return Err(Error::of_verb(
                "ibv_query_gid_table",
                errno,
                self.device_name().to_owned(),
            ));
        }
        entries.truncate(usize::try_from(count).unwrap_or(0));
        Ok(entries.iter().filter_map(GidEntry::from_raw).collect())
    }

    /// One place of the table by the classic verb, which does not say what the GID stands for.
    fn gid_at(&self, port_num: u8, index: GidIndex) -> Option<GidEntry> {
        let mut raw = Gid::default().to_raw();
        // SAFETY: the context is open and the union is valid for writing.
        let returned =
            unsafe { ibv_query_gid(self.as_raw(), port_num, index.0.into(), &raw mut raw) };
        not_negative("ibv_query_gid", String::new, returned).ok()?;
        let gid = Gid::from_raw(&raw);
        (!gid.is_zero()).then_some(GidEntry {
            gid,
            index,
            port_num,
            kind: GidType::IB,
            ifindex: 0,
        })
    }

    /// One place of a port's GID table.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) for an empty place,
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) beyond the table and for a
    /// port that the device does not have.
    ///
    /// # References
    /// [`ibv_query_gid_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_query_gid_ex.3.html)
    pub fn gid(&self, port_num: u8, index: impl Into<GidIndex>) -> Result<GidEntry> {
        let index = index.into();
        let mut raw = ibv_gid_entry::default();
        // SAFETY: the context is open and the entry is valid for writing.
        let returned = unsafe {
            ibv_query_gid_ex(
                self.as_raw(),
                port_num.into(),
                index.into(),
                &raw mut raw,
                0,
            )
        };
        let what = || format!("gid[{index}] of port {port_num} of {}", self.device_name());
        zero_or_errno("ibv_query_gid_ex", what, returned)?;
        GidEntry::from_raw(&raw)
            .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "ibv_query_gid_ex", what()))
    }
}
