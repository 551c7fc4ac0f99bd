//! The packet for which a ruleset is evaluated, and the conditions on its fields.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

/// The address family of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The transport protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMPv6, for neighbor discovery.
    Icmpv6(NeighborMessage),
}

/// A message of the neighbor discovery of IPv6, which finds the hardware address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborMessage {
    /// The request, to the solicited-node multicast address of the peer.
    Solicitation,
    /// The reply.
    Advertisement,
}

impl Protocol {
    /// Returns the name that the commands of packet filters use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmpv6(_) => "ipv6-icmp",
        }
    }
}

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To this host.
    Input,
    /// From this host.
    Output,
}

/// A packet that arrives at this host or leaves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The direction.
    pub direction: Direction,
    /// The address family.
    pub family: Family,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The network interface at which the packet arrives or leaves.
    pub netdev: String,
    /// The address of this host. `None` if it is not known.
    pub local: Option<IpAddr>,
    /// The network that contains the address of the peer. `None` if it is not known.
    pub peer: Option<IpNet>,
    /// The source port. `None` means a port that the client chooses.
    pub source_port: Option<u16>,
    /// The destination port. `None` means a port that the client chooses.
    pub destination_port: Option<u16>,
    /// The packet is a reply on an established connection. Otherwise it is the first packet of a
    /// connection.
    pub is_reply: bool,
}

/// The result of evaluating a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Condition {
    /// The packet meets it.
    Yes,
    /// The packet does not meet it.
    No,
    /// It depends on something that is not known here.
    Unknown,
}

impl Condition {
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::Unknown,
        }
    }

    pub(super) fn or(self, other: Self) -> Self {
        self.not().and(other.not()).not()
    }

    pub(super) fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
        }
    }

    pub(super) fn from_bool(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

/// The properties of a packet that rules change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PacketState {
    /// The packet mark. `None` if it is not known.
    pub(super) mark: Option<u32>,
    /// Connection tracking has been disabled for the packet.
    pub(super) untracked: Condition,
    /// The hook runs before connection tracking.
    pub(super) is_before_tracking: bool,
}

impl PacketState {
    pub(super) const NEW: Self = Self {
        mark: Some(0),
        untracked: Condition::No,
        is_before_tracking: false,
    };

    /// Returns the state after a rule that may or may not have been executed.
    pub(super) fn join(self, other: Self) -> Self {
        Self {
            mark: self.mark.filter(|mark| Some(*mark) == other.mark),
            untracked: if self.untracked == other.untracked {
                self.untracked
            } else {
                Condition::Unknown
            },
            ..self
        }
    }
}

/// The field of a packet that a condition tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Family,
    /// The transport protocol, if the packet has this family.
    Protocol(Option<Family>),
    InputInterface,
    OutputInterface,
    /// The source address, if the packet has this family.
    Source(Option<Family>),
    /// The destination address, if the packet has this family.
    Destination(Option<Family>),
    /// The source port, if the packet has this protocol.
    SourcePort(Option<Protocol>),
    /// The destination port, if the packet has this protocol.
    DestinationPort(Option<Protocol>),
    /// The TCP flags in the mask.
    TcpFlags(u32),
    /// The state of the connection.
    ConnectionState,
    /// The address translation of the connection.
    Translation,
    /// The direction of the packet in its connection.
    ConnectionDirection,
    /// The packet mark, after `and` with the mask.
    Mark(u32),
    /// Unicast, multicast or broadcast.
    PacketType,
    /// The kind of the source address in the routing table.
    SourceType,
    /// The kind of the destination address in the routing table.
    DestinationType,
    /// The result of a route lookup: the route to the source leads through the input interface.
    ReversePath,
    /// Another field of the header of this family.
    NetworkHeader(Family),
    /// Another field of the header of this protocol.
    TransportHeader(Protocol),
    /// The hop limit, if the packet is IPv6.
    HopLimit,
    /// The type of an ICMPv6 message.
    Icmpv6Type,
    /// Another field of an ICMPv6 message.
    Icmpv6Header,
    /// A header that the packet does not have.
    Absent,
    /// A field that is not evaluated.
    Unknown,
}

/// The value of a field.
#[derive(Clone, Debug)]
enum Value<'a> {
    Number(u64),
    EphemeralPort,
    /// All names of one value.
    Names(&'static [&'static str]),
    Interface(&'a str),
    Network(IpNet),
    Absent,
    Unknown,
}

/// The ports that clients choose: those of Linux (from 32768) and those of IANA.
const EPHEMERAL: (u64, u64) = (32768, 65535);
const SYN: u64 = 2;
const ACK: u64 = 16;
/// The hop limit of neighbor discovery. A router lowers it, so packets from other networks differ.
const NEIGHBOR_HOP_LIMIT: u64 = 255;

/// Returns the solicited-node multicast address of `address`, or the network of all of them.
fn solicited_node(address: Option<IpAddr>) -> IpNet {
    let prefix = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0);
    match address {
        Some(IpAddr::V6(address)) => {
            let low = address.to_bits() & 0xff_ffff;
            IpAddr::from(Ipv6Addr::from_bits(prefix.to_bits() | low)).into()
        }
        _ => IpNet::V6(Ipv6Net::new_assert(prefix, 104)),
    }
}

impl Packet {
    fn neighbor_message(&self) -> Option<NeighborMessage> {
        match self.protocol {
            Protocol::Icmpv6(message) => Some(message),
            Protocol::Tcp | Protocol::Udp => None,
        }
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each field")]
    fn value(&self, field: Field, state: PacketState) -> Value<'_> {
        let (source, mut destination) = match self.direction {
            Direction::Input => (self.peer, self.local.map(IpNet::from)),
            Direction::Output => (self.local.map(IpNet::from), self.peer),
        };
        let neighbor = self.neighbor_message();
        let is_multicast = neighbor == Some(NeighborMessage::Solicitation);
        if is_multicast {
            let address = self.local.filter(|_| self.direction == Direction::Input);
            destination = Some(solicited_node(address));
        }
        let network = |family: Option<Family>, network: Option<IpNet>| match network {
            _ if family.is_some_and(|family| family != self.family) => Value::Absent,
            Some(network) => Value::Network(network),
            None => Value::Unknown,
        };
        let port = |protocol: Option<Protocol>, port: Option<u16>| match port {
            _ if protocol.is_some_and(|protocol| protocol != self.protocol) => Value::Absent,
            _ if neighbor.is_some() => Value::Unknown,
            Some(port) => Value::Number(port.into()),
            None => Value::EphemeralPort,
        };
        let interface = |direction| {
            if direction == self.direction {
                Value::Interface(&self.netdev)
            } else {
                Value::Interface("")
            }
        };
        let (unicast, local): (&[&str], &[&str]) = (&["unicast", "UNICAST"], &["local", "LOCAL"]);
        let route_type = |is_local| match self.peer {
            _ if is_local => Value::Names(local),
            Some(_) => Value::Names(unicast),
            None => Value::Unknown,
        };
        match field {
            Field::Family => Value::Names(match self.family {
                Family::V4 => &["ipv4", "ip", "2"],
                Family::V6 => &["ipv6", "ip6", "10"],
            }),
            Field::Protocol(Some(family)) if family != self.family => Value::Absent,
            Field::Protocol(_) => Value::Names(match self.protocol {
                Protocol::Tcp => &["tcp", "6"],
                Protocol::Udp => &["udp", "17"],
                Protocol::Icmpv6(_) => &["ipv6-icmp", "icmpv6", "58"],
            }),
            Field::HopLimit | Field::Icmpv6Type | Field::Icmpv6Header
                if self.family == Family::V4 =>
            {
                Value::Absent
            }
            Field::HopLimit => match neighbor {
                Some(_) => Value::Number(NEIGHBOR_HOP_LIMIT),
                None => Value::Unknown,
            },
            Field::Icmpv6Type => match neighbor {
                Some(NeighborMessage::Solicitation) => {
                    Value::Names(&["nd-neighbor-solicit", "neighbour-solicitation", "135"])
                }
                Some(NeighborMessage::Advertisement) => {
                    Value::Names(&["nd-neighbor-advert", "neighbour-advertisement", "136"])
                }
                None => Value::Absent,
            },
            Field::Icmpv6Header if neighbor.is_none() => Value::Absent,
            Field::NetworkHeader(family) if family != self.family => Value::Absent,
            Field::TransportHeader(protocol) if protocol != self.protocol => Value::Absent,
            Field::Icmpv6Header
            | Field::NetworkHeader(_)
            | Field::TransportHeader(_)
            | Field::Unknown => Value::Unknown,
            Field::InputInterface => interface(Direction::Input),
            Field::OutputInterface => interface(Direction::Output),
            Field::Source(family) => network(family, source),
            Field::Destination(family) => network(family, destination),
            Field::SourcePort(protocol) => port(protocol, self.source_port),
            Field::DestinationPort(protocol) => port(protocol, self.destination_port),
            Field::TcpFlags(_) if self.protocol != Protocol::Tcp => Value::Absent,
            Field::TcpFlags(mask) if self.is_reply => Value::Number((SYN | ACK) & u64::from(mask)),
            Field::TcpFlags(mask) => Value::Number(SYN & u64::from(mask)),
            // nft reports a packet without a connection as invalid.
            Field::ConnectionState if state.is_before_tracking => {
                Value::Names(&["invalid", "INVALID"])
            }
            // Connection tracking ignores neighbor discovery.
            Field::ConnectionState if neighbor.is_some() => {
                Value::Names(&["untracked", "UNTRACKED"])
            }
            Field::ConnectionState => match state.untracked {
                Condition::Yes => Value::Names(&["untracked", "UNTRACKED"]),
                Condition::Unknown => Value::Unknown,
                Condition::No if self.is_reply => Value::Names(&["established", "ESTABLISHED"]),
                Condition::No => Value::Names(&["new", "NEW"]),
            },
            Field::Translation | Field::ConnectionDirection
                if state.is_before_tracking || neighbor.is_some() =>
            {
                Value::Absent
            }
            Field::ConnectionDirection if self.is_reply => Value::Names(&["reply", "REPLY"]),
            Field::ConnectionDirection => Value::Names(&["original", "ORIGINAL"]),
            // The evaluation ends at a rule that translates the destination.
            Field::Translation => Value::Names(&["none"]),
            Field::Mark(mask) => state
                .mark
                .map_or(Value::Unknown, |mark| Value::Number((mark & mask).into())),
            Field::PacketType if is_multicast && self.direction == Direction::Output => {
                Value::Unknown
            }
            Field::PacketType if is_multicast => Value::Names(&["multicast"]),
            Field::PacketType => Value::Names(&["host", "unicast"]),
            Field::SourceType => route_type(self.direction == Direction::Output),
            Field::DestinationType if is_multicast => Value::Names(&["multicast", "MULTICAST"]),
            Field::DestinationType => route_type(self.direction == Direction::Input),
            Field::ReversePath => match self.peer {
                Some(_) => Value::Names(&["exists"]),
                None => Value::Unknown,
            },
            Field::Absent => Value::Absent,
        }
    }
}

/// An element of a set, or the value that a field is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// Every value.
    Any,
    /// The numbers from the first to the last.
    Numbers(u64, u64),
    /// A network or one address.
    Network(IpNet),
    /// The addresses from the first to the last.
    Addresses(IpAddr, IpAddr),
    /// A port range of one protocol, in an ipset.
    Ports(Protocol, u16, u16),
    /// A name. A `*` at the end matches any text.
    Name(String),
    /// The elements of a concatenation.
    Tuple(Vec<Element>),
    /// An element that is not evaluated.
    Unknown,
}

/// A condition on one field or on a concatenation of fields.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) fields: Vec<Field>,
    /// The condition holds if no element matches.
    pub(super) is_negated: bool,
    pub(super) elements: Vec<Element>,
}

impl Test {
    /// Creates a test of one field.
    pub(super) fn new(field: Field, is_negated: bool, elements: Vec<Element>) -> Self {
        Self {
            fields: vec![field],
            is_negated,
            elements,
        }
    }

    pub(super) fn evaluate(&self, packet: &Packet, state: PacketState) -> Condition {
        let values = self.values(packet, state);
        if values.iter().any(|value| matches!(value, Value::Absent)) {
            return Condition::No;
        }
        let mut holds = Condition::No;
        for element in &self.elements {
            holds = holds.or(element.matches(&values, packet));
            if holds == Condition::Yes {
                break;
            }
        }
        if self.is_negated { holds.not() } else { holds }
    }

    /// Returns whether the fields match one element, for maps.
    pub(super) fn matches(
        &self,
        element: &Element,
        packet: &Packet,
        state: PacketState,
    ) -> Condition {
        element.matches(&self.values(packet, state), packet)
    }

    fn values<'p>(&self, packet: &'p Packet, state: PacketState) -> Vec<Value<'p>> {
        self.fields
            .iter()
            .map(|field| packet.value(*field, state))
            .collect()
    }
}

impl Element {
    fn matches(&self, values: &[Value<'_>], packet: &Packet) -> Condition {
        match (self, values) {
            (_, values) if values.iter().any(|value| matches!(value, Value::Absent)) => {
                Condition::No
            }
            (Self::Any, _) => Condition::Yes,
            (Self::Tuple(elements), values) if elements.len() == values.len() => elements
                .iter()
                .zip(values)
                .map(|(element, value)| element.matches_value(value, packet))
                .fold(Condition::Yes, Condition::and),
            (element, [value]) => element.matches_value(value, packet),
            _ => Condition::Unknown,
        }
    }

    fn matches_value(&self, value: &Value<'_>, packet: &Packet) -> Condition {
        match (self, value) {
            (Self::Any, _) => Condition::Yes,
            (Self::Numbers(first, last), Value::Number(number)) => {
                Condition::from_bool((first..=last).contains(&number))
            }
            (Self::Numbers(first, last), Value::EphemeralPort) => in_ephemeral(*first, *last),
            (Self::Ports(protocol, first, last), Value::EphemeralPort) => {
                Condition::from_bool(*protocol == packet.protocol)
                    .and(in_ephemeral((*first).into(), (*last).into()))
            }
            (Self::Numbers(first, last), Value::Names(names)) if first == last => {
                let text = first.to_string();
                Condition::from_bool(names.contains(&text.as_str()))
            }
            (Self::Ports(protocol, first, last), Value::Number(number)) => Condition::from_bool(
                *protocol == packet.protocol
                    && (u64::from(*first)..=u64::from(*last)).contains(number),
            ),
            (Self::Name(name), Value::Names(names)) => {
                Condition::from_bool(names.contains(&name.as_str()))
            }
            (Self::Name(name), Value::Interface(interface)) => {
                Condition::from_bool(match name.strip_suffix('*') {
                    Some(prefix) => interface.starts_with(prefix) && !interface.is_empty(),
                    None => interface == name,
                })
            }
            (Self::Network(element), Value::Network(network)) => {
                if element.contains(network) {
                    Condition::Yes
                } else if network.contains(element) {
                    Condition::Unknown
                } else {
                    Condition::No
                }
            }
            (Self::Addresses(first, last), Value::Network(network)) => {
                let (low, high) = (network.network(), network.broadcast());
                let is_same_family = first.is_ipv4() == low.is_ipv4();
                if !is_same_family || high < *first || *last < low {
                    Condition::No
                } else if *first <= low && high <= *last {
                    Condition::Yes
                } else {
                    Condition::Unknown
                }
            }
            _ => Condition::Unknown,
        }
    }
}

/// Returns whether a port that a client chooses is in a range.
fn in_ephemeral(first: u64, last: u64) -> Condition {
    if first <= EPHEMERAL.0 && EPHEMERAL.1 <= last {
        Condition::Yes
    } else if last < EPHEMERAL.0 || EPHEMERAL.1 < first {
        Condition::No
    } else {
        Condition::Unknown
    }
}
