//! The GID table of a port.

#![allow(unsafe_code)]

use std::fmt;

use rdma_sys::{_ibv_query_gid_table, ibv_gid_entry, ibv_query_gid, ibv_query_gid_ex};

use super::interface;
use super::{from_raw, to_raw};
use crate::convert::{not_negative, zero_or_errno};
use crate::device::Context;
use crate::error::{Errno, Error, ErrorKind, Result, call_failed};
use crate::raw::AsRaw;
use rdma_types::Gid;
use rdma_types::c_value;

c_value! {
    /// The kind of a GID (`enum ibv_gid_type`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::gid::GidType;
    /// for entry in context.gids(1)?.into_iter().filter(|entry| entry.kind == GidType::ROCE_V2) {
    ///     println!("{} is routable", entry.gid);
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_gid_ex")]
    pub struct GidType(u32) {
        /// InfiniBand: `IBV_GID_TYPE_IB`.
        IB = rdma_sys::IBV_GID_TYPE_IB => "IB",
        /// RoCE version 1, limited to one Ethernet segment: `IBV_GID_TYPE_ROCE_V1`.
        ROCE_V1 = rdma_sys::IBV_GID_TYPE_ROCE_V1 => "RoCE v1",
        /// RoCE version 2, over UDP port 4791: `IBV_GID_TYPE_ROCE_V2`.
        ROCE_V2 = rdma_sys::IBV_GID_TYPE_ROCE_V2 => "RoCE v2",
    }
}

/// An index in a port's GID table, as used in paths and address handles. The verbs limit it to
/// eight bits.
///
/// # Example
/// ```
/// use ibverbs::{GidIndex, Mtu, RcPath};
/// let path = RcPath::new(1, GidIndex(3), Mtu::B4096);
/// assert_eq!(path.sgid_index, Some(GidIndex(3)));
/// ```
#[doc(alias = "ibv_query_gid_ex")]
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

/// One entry of a port's GID table.
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
/// let first = context.gid(1, 0)?; // a single entry
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_query_gid_ex")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// The index in the table, as used in a queue pair's path.
    pub index: GidIndex,
    /// The port number, from 1.
    pub port_num: u8,
    /// The kind of GID.
    pub kind: GidType,
    /// The index of the network interface; 0 if there is none.
    pub ifindex: u32,
}

impl GidEntry {
    /// Converts an entry; `None` if its index does not fit in a [`GidIndex`].
    fn from_raw(raw: &ibv_gid_entry) -> Option<Self> {
        Some(Self {
            gid: from_raw(&raw.gid),
            index: GidIndex(u8::try_from(raw.gid_index).ok()?),
            port_num: u8::try_from(raw.port_num).unwrap_or(0),
            kind: GidType(raw.gid_type),
            ifindex: raw.ndev_ifindex,
        })
    }

    /// Returns the name of the network interface; `None` if there is none.
    pub fn netdev(&self) -> Option<String> {
        interface::name(self.ifindex)
    }

    /// Returns the length of the network prefix if the GID is an address of this host, such as 24
    /// for `10.0.0.1/24`.
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
    /// Returns the GID table of a port, without empty entries and without indices above 255, which
    /// paths cannot use.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the device does not have this
    /// port.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// for entry in context.gids(1)? {
    ///     println!("{entry}");
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gids(&self, port_num: u8) -> Result<Vec<GidEntry>> {
        let len = self.query_port(port_num)?.gid_tbl_len;
        match self.gid_table() {
            Ok(entries) => Ok(entries
                .into_iter()
                .filter(|entry| entry.port_num == port_num)
                .collect()),
            Err(error) if error.is_unsupported() => {
                let last = u8::try_from(len.saturating_sub(1)).unwrap_or(u8::MAX);
                Ok((0..=last)
                    .filter_map(|index| self.gid_at(port_num, GidIndex(index)))
                    .collect())
            }
            Err(error) => Err(error),
        }
    }

    /// Queries the GID tables of all ports in one call.
    fn gid_table(&self) -> Result<Vec<GidEntry>> {
        let mut len = 0;
        for port_num in 1..=self.query_device()?.phys_port_cnt {
            len += self.query_port(port_num)?.gid_tbl_len as usize;
        }
        let mut entries = vec![ibv_gid_entry::default(); len];
        // SAFETY: the array has `len` entries of the given size.
        let count = unsafe {
            _ibv_query_gid_table(
                self.as_raw(),
                entries.as_mut_ptr(),
                len,
                0,
                size_of::<ibv_gid_entry>(),
            )
        };
        if count < 0 {
            let errno = Errno(i32::try_from(-count).unwrap_or(libc::EIO));
            return Err(call_failed(
                "ibv_query_gid_table",
                errno,
                self.device_name().to_owned(),
            ));
        }
        entries.truncate(usize::try_from(count).unwrap_or(0));
        Ok(entries.iter().filter_map(GidEntry::from_raw).collect())
    }

    /// Queries one entry with the classic verb, which does not report the kind of GID.
    fn gid_at(&self, port_num: u8, index: GidIndex) -> Option<GidEntry> {
        let mut raw = to_raw(Gid::default());
        // SAFETY: the context is open and the union is writable.
        let returned =
            unsafe { ibv_query_gid(self.as_raw(), port_num, index.0.into(), &raw mut raw) };
        not_negative("ibv_query_gid", String::new, returned).ok()?;
        let gid = from_raw(&raw);
        (!gid.is_zero()).then_some(GidEntry {
            gid,
            index,
            port_num,
            kind: GidType::IB,
            ifindex: 0,
        })
    }

    /// Returns one entry of a port's GID table.
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`](crate::ErrorKind::NotFound): the entry is empty.
    /// - [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput): the device does not have this
    ///   port, or the table does not have this index.
    #[doc(alias = "ibv_query_gid_ex")]
    pub fn gid(&self, port_num: u8, index: impl Into<GidIndex>) -> Result<GidEntry> {
        let index = index.into();
        let mut raw = ibv_gid_entry::default();
        // SAFETY: the context is open and the entry is writable.
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
