//! Address handles: destinations of datagrams.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    ibv_ah, ibv_ah_attr, ibv_create_ah, ibv_create_ah_from_wc, ibv_destroy_ah, ibv_global_route,
    ibv_grh, ibv_wc,
};
use rdma_types::setters;

use crate::convert::non_null;
use crate::cq::UdSource;
use crate::error::{Error, ErrorKind, Result};
use crate::gid::{self, Gid, GidIndex};
use crate::pd::ProtectionDomain;
use crate::port::Lid;
use crate::raw::{AsRaw, as_raw};

/// The path to a port, for an address handle or for a connection (`struct ibv_ah_attr`).
///
/// # Example
/// ```
/// use ibverbs::{AhAttr, Gid};
/// let peer: Gid = "::ffff:10.99.0.1".parse().expect("an address");
/// let attr = AhAttr::for_gid(1, 1, peer).sl(3); // from the GID at index 1 of port 1
/// assert_eq!(attr.grh.expect("a global route").hop_limit, 64);
/// ```
#[doc(alias = "ibv_create_ah")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AhAttr {
    /// Local port, numbered from 1.
    pub port_num: u8,
    /// LID of the destination; 0 on RoCE.
    pub dlid: Lid,
    /// Service level, 0 to 15. Default: `0`.
    pub sl: u8,
    /// Low bits of the local LID, if the port has several LIDs. Default: `0`.
    pub src_path_bits: u8,
    /// Rate limit, encoded (`enum ibv_rate`); 0 for no limit. Default: `0`.
    pub static_rate: u8,
    /// Global route; required on RoCE. Default: `None`.
    pub grh: Option<GlobalRoute>,
}

/// The global part of a path (`struct ibv_global_route`).
///
/// # Example
/// This example sets a DSCP of 26, which switches can map to a priority:
/// ```
/// use ibverbs::{AhAttr, Gid, GlobalRoute, Lid};
/// let route = GlobalRoute::new(Gid::default(), 1).traffic_class(26 << 2);
/// let attr = AhAttr::for_lid(1, Lid(0)).grh(route);
/// ```
///
/// # References
/// [`ibv_create_ah(3)`](https://man7.org/linux/man-pages/man3/ibv_create_ah.3.html); IBA 8.3
#[doc(alias = "ibv_create_ah")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GlobalRoute {
    /// Destination GID.
    pub dgid: Gid,
    /// Index of the local GID.
    pub sgid_index: GidIndex,
    /// Maximum number of hops. Default: `64`.
    pub hop_limit: u8,
    /// Traffic class (DSCP and ECN bits of RoCE v2 packets). Default: `0`.
    pub traffic_class: u8,
    /// Flow label, 20 bits. Default: `0`.
    pub flow_label: u32,
}

setters! {
    AhAttr {
        port_num: u8,
        dlid: Lid,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        grh: Option<GlobalRoute>,
    }
}

setters! {
    GlobalRoute {
        dgid: Gid,
        sgid_index: GidIndex,
        hop_limit: u8,
        traffic_class: u8,
        flow_label: u32,
    }
}

impl AhAttr {
    /// Creates the path to a GID, from the local GID at `sgid_index`. RoCE needs this form.
    ///
    /// The global route is [`GlobalRoute::new`] with these values.
    pub fn for_gid(port_num: u8, sgid_index: impl Into<GidIndex>, dgid: Gid) -> Self {
        Self::for_lid(port_num, Lid(0)).grh(GlobalRoute::new(dgid, sgid_index))
    }

    /// Creates the path to a LID in the same InfiniBand subnet.
    pub const fn for_lid(port_num: u8, dlid: Lid) -> Self {
        Self {
            port_num,
            dlid,
            sl: 0,
            src_path_bits: 0,
            static_rate: 0,
            grh: None,
        }
    }

    pub(crate) fn from_raw(raw: &ibv_ah_attr) -> Self {
        Self {
            port_num: raw.port_num,
            dlid: Lid(raw.dlid),
            sl: raw.sl,
            src_path_bits: raw.src_path_bits,
            static_rate: raw.static_rate,
            grh: (raw.is_global != 0).then(|| GlobalRoute::from_raw(&raw.grh)),
        }
    }

    pub(crate) fn to_raw(self) -> ibv_ah_attr {
        ibv_ah_attr {
            grh: self.grh.map(GlobalRoute::to_raw).unwrap_or_default(),
            is_global: u8::from(self.grh.is_some()),
            dlid: self.dlid.0,
            sl: self.sl,
            src_path_bits: self.src_path_bits,
            static_rate: self.static_rate,
            port_num: self.port_num,
        }
    }
}

impl GlobalRoute {
    /// Creates the route to a GID, from the local GID at `sgid_index`, with defaults for everything
    /// else.
    pub fn new(dgid: Gid, sgid_index: impl Into<GidIndex>) -> Self {
        Self {
            dgid,
            sgid_index: sgid_index.into(),
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        }
    }

    fn from_raw(raw: &ibv_global_route) -> Self {
        Self {
            dgid: gid::from_raw(&raw.dgid),
            sgid_index: GidIndex(raw.sgid_index),
            hop_limit: raw.hop_limit,
            traffic_class: raw.traffic_class,
            flow_label: raw.flow_label,
        }
    }

    fn to_raw(self) -> ibv_global_route {
        ibv_global_route {
            dgid: gid::to_raw(self.dgid),
            flow_label: self.flow_label,
            sgid_index: self.sgid_index.0,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
        }
    }
}

/// An address handle: a destination for datagrams from queue pairs of its protection domain. Clones
/// refer to the same handle.
///
/// To send to it, let a UD queue pair [hold](crate::QueuePair::hold_address) it. If only one queue
/// pair sends to it, [`destination`](crate::QueuePair::destination) is shorter.
///
/// # Example
/// ```no_run
/// use ibverbs::{AhAttr, Qkey, Qpn, QueuePair, Ud, wr, wr::Destination};
/// # fn f(qp: &mut QueuePair<Ud>, attr: AhAttr, qpn: Qpn) -> ibverbs::Result<()> {
/// let address = qp.pd().create_ah(&attr)?; // shared by several queue pairs
/// let destination = Destination {
///     address: qp.hold_address(&address)?,
///     qpn,
///     qkey: Qkey(0x1111_1111),
/// };
/// qp.post_send(wr::send(wr::Inline(b"hello")).to(destination))?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_create_ah")]
#[derive(Clone)]
pub struct AddressHandle(Arc<CreatedHandle>);

struct CreatedHandle {
    raw: NonNull<ibv_ah>,
    pd: ProtectionDomain,
}

// SAFETY: libibverbs' functions on an address handle are thread-safe.
unsafe impl Send for CreatedHandle {}
// SAFETY: as for Send.
unsafe impl Sync for CreatedHandle {}

impl Drop for CreatedHandle {
    fn drop(&mut self) {
        // SAFETY: this is the last reference: every queue pair that sends to it holds an Arc of it.
        let returned = unsafe { ibv_destroy_ah(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with_parent(&self.pd);
        }
    }
}

/// Length of the global route header (GRH) in bytes: 40.
///
/// A UD receive buffer starts with this many bytes that the device fills with the header, or leaves
/// unchanged.
pub const GRH_LEN: usize = size_of::<ibv_grh>();

impl ProtectionDomain {
    /// Creates an address handle.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`]: the device is iWARP, which has no datagrams.
    /// - Other kinds: the GID index is not valid, or the peer's address cannot be resolved.
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// use ibverbs::AhAttr;
    /// let peer = pd.create_ah(&AhAttr::for_gid(
    ///     1,
    ///     1,
    ///     "::ffff:10.99.0.1".parse().expect("a GID"),
    /// ))?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, attr: &AhAttr) -> Result<AddressHandle> {
        let mut raw = attr.to_raw();
        let what = || format!("port {} of {}", attr.port_num, self.context().device_name());
        let raw = non_null("ibv_create_ah", what, || {
            // SAFETY: the domain is alive and the attributes are valid during the call.
            unsafe { ibv_create_ah(self.as_raw(), &raw mut raw) }
        })?;
        Ok(AddressHandle(Arc::new(CreatedHandle {
            raw,
            pd: self.clone(),
        })))
    }

    /// Creates an address handle for the sender of a received datagram.
    ///
    /// `source` comes from the completion. `received` is the receive buffer, whose first
    /// [`GRH_LEN`] bytes can hold the sender's GID.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the buffer is shorter than the header that the source needs.
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub fn create_ah_from_wc(
        &self,
        port_num: u8,
        source: &UdSource,
        received: &[u8],
    ) -> Result<AddressHandle> {
        const VERB: &str = "ibv_create_ah_from_wc";
        let what = || format!("port {port_num} of {}", self.context().device_name());
        let mut grh = ibv_grh::default();
        if source.has_grh {
            let header = received.get(..GRH_LEN).ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    VERB,
                    format!("{}: the buffer is too short", what()),
                )
                .with_help("pass the whole buffer: its first 40 bytes hold the global route header")
            })?;
            // SAFETY: source and destination have GRH_LEN bytes, and any bytes are a valid header.
            unsafe {
                std::ptr::copy_nonoverlapping(header.as_ptr(), (&raw mut grh).cast(), GRH_LEN);
            };
        }
        let mut wc: ibv_wc = source.to_raw();
        let raw = non_null(VERB, what, || {
            // SAFETY: the domain is alive; completion and header are valid during the call.
            unsafe { ibv_create_ah_from_wc(self.as_raw(), &raw mut wc, &raw mut grh, port_num) }
        })?;
        Ok(AddressHandle(Arc::new(CreatedHandle {
            raw,
            pd: self.clone(),
        })))
    }
}

impl AddressHandle {
    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.0.pd
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl AddressHandle {
    pub(crate) fn raw(&self) -> NonNull<ibv_ah> {
        self.0.raw
    }
}

as_raw!(AddressHandle: ibv_ah, 0.raw);

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressHandle")
            .field("device", &self.0.pd.context().device_name())
            .finish()
    }
}
