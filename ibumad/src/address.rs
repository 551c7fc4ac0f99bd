//! Addresses of management datagrams.

use std::fmt;

use rdma_sys::ib_mad_addr;
use rdma_types::{Gid, Lid, setters};

/// The well-known queue key of QP1 (IBA 10.2.4).
const WELL_KNOWN_QKEY: u32 = 0x8001_0000;

/// The global route header (GRH): required on RoCE and between subnets.
///
/// # Example
/// ```
/// use ibumad::{Address, Gid, GlobalRoute, Lid};
/// let gid = Gid([0xfe; 16]);
/// let to = Address::lid(Lid(7)).route(GlobalRoute::new(gid, 0).hop_limit(64));
/// assert_eq!(to.route.map(|route| route.gid), Some(gid));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GlobalRoute {
    /// The peer's GID: the destination of a datagram to send, the source of a received one.
    pub gid: Gid,
    /// Index of the local GID in the port's GID table.
    pub gid_index: u8,
    /// Maximum number of routers that may forward the packet. Default: `64`.
    pub hop_limit: u8,
    /// Traffic class. Default: `0`.
    pub traffic_class: u8,
    /// Flow label (20 bits). Default: `0`.
    pub flow_label: u32,
}

/// The destination of a datagram to send, or the source of a received one.
///
/// # Example
/// ```
/// use ibumad::{Address, Lid};
/// let sa = Address::lid(Lid(1));
/// assert_eq!(sa.qpn, 1);
/// let roce = Address::gid("fd99::2".parse()?, 1);
/// assert!(roce.route.is_some());
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Address {
    /// LID of the port; 0 on RoCE.
    pub lid: Lid,
    /// Queue pair number: 0 for subnet management, 1 for all other classes.
    pub qpn: u32,
    /// Queue key of that queue pair.
    pub qkey: u32,
    /// Service level, 0 to 15. Default: `0`.
    pub sl: u8,
    /// Low bits of the local LID, if the port has several LIDs. Default: `0`.
    pub path_bits: u8,
    /// Index into the port's table of partition keys. Default: `0`.
    pub pkey_index: u16,
    /// Global route, if the packet has one. Default: `None`.
    pub route: Option<GlobalRoute>,
}

setters! {
    GlobalRoute {
        gid: Gid,
        gid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        flow_label: u32,
    }
}

impl GlobalRoute {
    /// Creates the route to a GID, from the local GID at `gid_index`, with defaults for everything
    /// else.
    pub const fn new(gid: Gid, gid_index: u8) -> Self {
        Self {
            gid,
            gid_index,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        }
    }
}

setters! {
    Address {
        qpn: u32,
        qkey: u32,
        sl: u8,
        path_bits: u8,
        pkey_index: u16,
        route: Option<GlobalRoute>,
    }
}

impl Address {
    /// Returns the address of the general services interface (QP1) of the port with this LID.
    pub const fn lid(lid: Lid) -> Self {
        Self {
            lid,
            qpn: 1,
            qkey: WELL_KNOWN_QKEY,
            sl: 0,
            path_bits: 0,
            pkey_index: 0,
            route: None,
        }
    }

    /// Returns the address of the subnet management interface (QP0) of the port with this LID.
    pub const fn smi(lid: Lid) -> Self {
        Self::lid(lid).qpn(0).qkey(0)
    }

    /// Returns the address of the general services interface (QP1) of the port with this GID, as
    /// needed on RoCE. `gid_index` is the index of the local GID.
    pub const fn gid(gid: Gid, gid_index: u8) -> Self {
        Self::lid(Lid(0)).route(GlobalRoute::new(gid, gid_index))
    }

    /// Returns the address for the response to a datagram received from this address, with the same
    /// global route.
    #[must_use]
    pub const fn reply(mut self) -> Self {
        if self.qpn != 0 {
            self.qkey = WELL_KNOWN_QKEY;
        }
        self
    }

    pub(crate) fn to_raw(self) -> ib_mad_addr {
        let mut raw = ib_mad_addr {
            qpn: self.qpn.to_be(),
            qkey: self.qkey.to_be(),
            lid: self.lid.0.to_be(),
            sl: self.sl,
            path_bits: self.path_bits,
            pkey_index: self.pkey_index,
            ..ib_mad_addr::default()
        };
        if let Some(route) = self.route {
            raw.grh_present = 1;
            raw.gid_index = route.gid_index;
            raw.hop_limit = route.hop_limit;
            raw.traffic_class = route.traffic_class;
            raw.flow_label = route.flow_label.to_be();
            raw.__bindgen_anon_1.gid = route.gid.0;
        }
        raw
    }

    pub(crate) fn from_raw(raw: &ib_mad_addr) -> Self {
        let route = (raw.grh_present != 0).then(|| GlobalRoute {
            gid: gid_from_raw(raw),
            gid_index: raw.gid_index,
            hop_limit: raw.hop_limit,
            traffic_class: raw.traffic_class,
            flow_label: u32::from_be(raw.flow_label),
        });
        Self {
            lid: Lid(u16::from_be(raw.lid)),
            qpn: u32::from_be(raw.qpn),
            qkey: u32::from_be(raw.qkey),
            sl: raw.sl,
            path_bits: raw.path_bits,
            pkey_index: raw.pkey_index,
            route,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.route {
            Some(route) if self.lid == Lid(0) => write!(f, "GID {}", route.gid),
            _ => write!(f, "LID {}", self.lid),
        }
    }
}

#[allow(unsafe_code)]
fn gid_from_raw(raw: &ib_mad_addr) -> Gid {
    // SAFETY: every field of the union covers the same 16 initialized bytes, and any bytes are a
    // valid GID.
    Gid(unsafe { raw.__bindgen_anon_1.gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_survives_conversion_to_c() {
        let plain = Address::lid(Lid(0x1234)).sl(3).path_bits(1).pkey_index(7);
        let mut routed = Address::gid("fd99::1".parse().expect("a GID"), 2);
        routed.route.as_mut().expect("a route").flow_label = 0xabcde;
        for address in [plain, routed, Address::smi(Lid::PERMISSIVE)] {
            assert_eq!(Address::from_raw(&address.to_raw()), address);
        }
    }

    #[test]
    fn address_in_c_is_in_network_order() {
        let raw = Address::smi(Lid(0x1234)).to_raw();
        assert_eq!((raw.lid, raw.qpn, raw.qkey), (0x1234_u16.to_be(), 0, 0));
        let raw = Address::gid(Gid([7; 16]), 2).to_raw();
        assert_eq!(
            (raw.qpn, raw.qkey),
            (1_u32.to_be(), WELL_KNOWN_QKEY.to_be())
        );
        assert_eq!((raw.grh_present, raw.gid_index, raw.hop_limit), (1, 2, 64));
    }

    #[test]
    fn reply_to_qp1_uses_the_well_known_key() {
        let received = Address::lid(Lid(9)).qkey(0);
        assert_eq!(received.reply(), Address::lid(Lid(9)));
        assert_eq!(Address::smi(Lid(9)).reply().qkey, 0);
    }
}
