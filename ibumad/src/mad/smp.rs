//! Datagrams of subnet management (IBA 14.2.1).

use rdma_types::Lid;

use super::bits::get;
use super::datagram::{AttrId, Mad, Method, MgmtClass};

/// The maximum number of hops of a directed route.
pub const MAX_HOPS: usize = 63;

/// A directed route: for each node on the way, starting with the local node, the port through which
/// the packet leaves it. The empty route leads to the local node.
///
/// # Example
/// ```
/// use ibumad::mad::DirectedRoute;
/// let route = DirectedRoute::new(&[1, 17]).expect("two hops");
/// assert_eq!(route.ports(), [1, 17]);
/// assert_eq!(DirectedRoute::new(&[1; 64]), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DirectedRoute(Vec<u8>);

impl DirectedRoute {
    /// Creates a route through these ports. Returns `None` if there are more than [`MAX_HOPS`].
    pub fn new(ports: &[u8]) -> Option<Self> {
        (ports.len() <= MAX_HOPS).then(|| Self(ports.to_vec()))
    }

    /// Returns the ports.
    pub fn ports(&self) -> &[u8] {
        &self.0
    }
}

/// A view of a datagram of subnet management.
///
/// # Example
/// ```
/// use ibumad::mad::{AttrId, DirectedRoute, Smp};
/// let route = DirectedRoute::new(&[1]).expect("one hop");
/// let request = Smp::get_directed(AttrId::NODE_INFO, 0, &route);
/// let view = Smp::from_mad(&request).expect("of subnet management");
/// assert!(view.is_directed() && view.hop_count() == 1);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Smp<'a>(&'a Mad);

impl<'a> Smp<'a> {
    /// Creates a LID-routed request to read an attribute.
    pub fn get(attr: AttrId, modifier: u32) -> Mad {
        Self::request(MgmtClass::SUBN_LID, attr, modifier)
    }

    /// Creates a directed-route request to read an attribute.
    pub fn get_directed(attr: AttrId, modifier: u32, route: &DirectedRoute) -> Mad {
        let mut mad = Self::request(MgmtClass::SUBN_DIRECTED, attr, modifier);
        let bytes = mad.as_bytes_mut();
        // The permissive LID in DrSLID and DrDLID: no LID-routed part precedes or follows the
        // directed one.
        bytes[32..36].fill(0xff);
        for (entry, port) in bytes[129..192].iter_mut().zip(route.ports()) {
            *entry = *port;
        }
        bytes[7] = u8::try_from(route.ports().len().min(MAX_HOPS)).unwrap_or(0);
        mad
    }

    fn request(class: MgmtClass, attr: AttrId, modifier: u32) -> Mad {
        let mut mad = Mad::new(class, 1, Method::GET, attr);
        mad.set_attr_modifier(modifier);
        mad
    }

    /// Creates a view of a datagram. Returns `None` if it belongs to another class.
    pub fn from_mad(mad: &'a Mad) -> Option<Self> {
        matches!(mad.class(), MgmtClass::SUBN_LID | MgmtClass::SUBN_DIRECTED).then_some(Self(mad))
    }

    /// Returns `true` for a directed-route datagram.
    pub fn is_directed(self) -> bool {
        self.0.class() == MgmtClass::SUBN_DIRECTED
    }

    /// Returns `true` for a directed-route datagram on its way back to the sender.
    pub fn is_returning(self) -> bool {
        self.is_directed() && self.0.as_bytes()[4] & 0x80 != 0
    }

    /// Returns the M_Key.
    pub fn m_key(self) -> u64 {
        u64::try_from(get(self.0.as_bytes(), 192, 64)).unwrap_or(0)
    }

    /// Returns the current position on the directed route; 0 if the datagram is LID-routed.
    pub fn hop_pointer(self) -> u8 {
        if self.is_directed() {
            self.0.as_bytes()[6]
        } else {
            0
        }
    }

    /// Returns the number of hops of the directed route; 0 if the datagram is LID-routed.
    pub fn hop_count(self) -> u8 {
        if self.is_directed() {
            self.0.as_bytes()[7]
        } else {
            0
        }
    }

    /// Returns DrSLID: the LID at which the directed part of the route begins.
    pub fn directed_source(self) -> Lid {
        Lid(self.0.bits(256, 16))
    }

    /// Returns DrDLID: the LID to which the datagram is routed after the directed part.
    pub fn directed_destination(self) -> Lid {
        Lid(self.0.bits(272, 16))
    }

    /// Returns the content of the attribute: 64 bytes.
    pub fn data(self) -> &'a [u8] {
        &self.0.as_bytes()[64..128]
    }

    /// Returns the ports of the directed route, at most [`MAX_HOPS`].
    pub fn initial_path(self) -> &'a [u8] {
        let hops = usize::from(self.hop_count()).min(MAX_HOPS);
        &self.0.as_bytes()[129..129 + hops]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_at_their_specified_offsets() {
        let mut bytes = [0; 256];
        for (byte, value) in bytes.iter_mut().zip(0..=u8::MAX) {
            *byte = value;
        }
        bytes[1] = MgmtClass::SUBN_DIRECTED.0;
        let mut mad = Mad::from(bytes);
        let smp = Smp::from_mad(&mad).expect("subnet management");
        assert!(smp.is_directed() && !smp.is_returning());
        assert_eq!(smp.m_key(), 0x1819_1a1b_1c1d_1e1f);
        assert_eq!((smp.hop_pointer(), smp.hop_count()), (6, 7));
        assert_eq!(smp.directed_source(), Lid(0x2021));
        assert_eq!(smp.directed_destination(), Lid(0x2223));
        assert_eq!(smp.data(), &bytes[64..128]);
        assert_eq!(smp.initial_path(), &bytes[129..136]);

        mad.as_bytes_mut()[4] = 0x80;
        mad.as_bytes_mut()[7] = 255;
        let smp = Smp::from_mad(&mad).expect("subnet management");
        assert!(smp.is_returning());
        assert_eq!(smp.initial_path(), &bytes[129..192], "of hostile length");

        mad.as_bytes_mut()[1] = MgmtClass::SUBN_LID.0;
        let smp = Smp::from_mad(&mad).expect("subnet management");
        assert!(!smp.is_directed() && !smp.is_returning());
        assert_eq!((smp.hop_pointer(), smp.hop_count()), (0, 0));
        assert_eq!(smp.initial_path(), [0; 0]);
        mad.as_bytes_mut()[1] = MgmtClass::PERF.0;
        assert!(Smp::from_mad(&mad).is_none());
    }

    #[test]
    fn the_longest_route_has_63_hops() {
        let route = DirectedRoute::new(&[7; MAX_HOPS]).expect("fits");
        let mad = Smp::get_directed(AttrId::PORT_INFO, 0x0102_0304, &route);
        assert_eq!(
            (mad.attr(), mad.attr_modifier()),
            (AttrId::PORT_INFO, 0x0102_0304)
        );
        let smp = Smp::from_mad(&mad).expect("subnet management");
        assert_eq!(smp.initial_path(), [7; MAX_HOPS]);
        assert_eq!(mad.as_bytes()[192..], [0; 64]);
    }

    #[test]
    fn directed_route_is_at_its_specified_offset() {
        let route = DirectedRoute::new(&[1, 3, 2]).expect("short");
        let mad = Smp::get_directed(AttrId::NODE_INFO, 0, &route);
        let smp = Smp::from_mad(&mad).expect("subnet management");
        assert_eq!((smp.hop_pointer(), smp.hop_count()), (0, 3));
        assert_eq!(smp.initial_path(), [1, 3, 2]);
        assert_eq!(
            (smp.directed_source(), smp.directed_destination()),
            (Lid::PERMISSIVE, Lid::PERMISSIVE)
        );
        assert_eq!(mad.as_bytes()[128..133], [0, 1, 3, 2, 0]);
        assert!(DirectedRoute::new(&[1; 64]).is_none());
    }
}
