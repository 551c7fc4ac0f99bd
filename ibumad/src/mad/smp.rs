//! Subnet management datagrams (IBA 14.2.1).

use super::bits::get;
use super::datagram::{AttrId, Mad, Method, MgmtClass};
use crate::identity::Lid;

/// Hops that a directed route can have.
pub const MAX_HOPS: usize = 63;

/// A route by the port through which each node is left, from the own node on. The empty route is
/// the own node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DirectedRoute(Vec<u8>);

impl DirectedRoute {
    /// The route that leaves each node through these ports; `None` when there are more than
    /// [`MAX_HOPS`].
    pub fn new(ports: &[u8]) -> Option<Self> {
        (ports.len() <= MAX_HOPS).then(|| Self(ports.to_vec()))
    }

    /// The ports.
    pub fn ports(&self) -> &[u8] {
        &self.0
    }
}

/// A subnet management datagram, as a view.
#[derive(Clone, Copy, Debug)]
pub struct Smp<'a>(&'a Mad);

impl<'a> Smp<'a> {
    /// A request to read an attribute, routed by LID.
    pub fn get(attr: AttrId, modifier: u32) -> Mad {
        Self::request(MgmtClass::SUBN_LID, attr, modifier)
    }

    /// A request to read an attribute, routed hop by hop.
    pub fn get_directed(attr: AttrId, modifier: u32, route: &DirectedRoute) -> Mad {
        let mut mad = Self::request(MgmtClass::SUBN_DIRECTED, attr, modifier);
        let bytes = mad.as_bytes_mut();
        // Before and behind the route there is no part that is routed by LID.
        bytes[32..36].fill(0xff);
        let path = &mut bytes[129..192];
        for (place, port) in path.iter_mut().zip(route.ports()) {
            *place = *port;
        }
        bytes[7] = u8::try_from(route.ports().len().min(MAX_HOPS)).unwrap_or(0);
        mad
    }

    fn request(class: MgmtClass, attr: AttrId, modifier: u32) -> Mad {
        let mut mad = Mad::new(class, 1, Method::GET, attr);
        mad.set_attr_modifier(modifier);
        mad
    }

    /// The view of a datagram; `None` when it is none of subnet management.
    pub fn of(mad: &'a Mad) -> Option<Self> {
        matches!(mad.class(), MgmtClass::SUBN_LID | MgmtClass::SUBN_DIRECTED).then_some(Self(mad))
    }

    /// Whether it is routed hop by hop.
    pub fn is_directed(self) -> bool {
        self.0.class() == MgmtClass::SUBN_DIRECTED
    }

    /// Whether a directed one is on its way back.
    pub fn is_returning(self) -> bool {
        self.is_directed() && self.0.as_bytes()[4] & 0x80 != 0
    }

    /// The key that protects the port.
    pub fn m_key(self) -> u64 {
        u64::try_from(get(self.0.as_bytes(), 192, 64)).unwrap_or(0)
    }

    /// Where a directed one is on its route.
    pub fn hop_pointer(self) -> u8 {
        if self.is_directed() {
            self.0.as_bytes()[6]
        } else {
            0
        }
    }

    /// Hops of a directed one's route.
    pub fn hop_count(self) -> u8 {
        if self.is_directed() {
            self.0.as_bytes()[7]
        } else {
            0
        }
    }

    /// The LID at which the directed part of the route begins.
    pub fn directed_source(self) -> Lid {
        Lid(self.0.bits(256, 16))
    }

    /// The LID to which it goes on behind the directed part.
    pub fn directed_destination(self) -> Lid {
        Lid(self.0.bits(272, 16))
    }

    /// The attribute's content: 64 bytes.
    pub fn data(self) -> &'a [u8] {
        &self.0.as_bytes()[64..128]
    }

    /// The ports of a directed one's route, as far as the datagram has them.
    pub fn initial_path(self) -> &'a [u8] {
        let hops = usize::from(self.hop_count()).min(MAX_HOPS);
        &self.0.as_bytes()[129..129 + hops]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directed_route_lies_where_the_specification_says() {
        let route = DirectedRoute::new(&[1, 3, 2]).expect("short");
        let mad = Smp::get_directed(AttrId::NODE_INFO, 0, &route);
        let smp = Smp::of(&mad).expect("subnet management");
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
