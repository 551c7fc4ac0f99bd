//! Flow rules and their specifications.

use std::net::{Ipv4Addr, Ipv6Addr};

use rdma_types::{c_value, setters};

c_value! {
    /// The set of packets that a rule applies to (`enum ibv_flow_attr_type`).
    ///
    /// # Example
    /// This example receives a copy of all packets of a port:
    /// ```no_run
    /// use ibverbs::{QueuePair, RawPacket, flow::{FlowRule, FlowType}};
    /// # fn f(qp: &mut QueuePair<RawPacket>) -> ibverbs::Result<()> {
    /// qp.create_flow(&FlowRule::new(1, []).flow_type(FlowType::SNIFFER))?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_create_flow")]
    pub struct FlowType(u32) {
        /// Packets that match the specifications of the rule: `IBV_FLOW_ATTR_NORMAL`.
        NORMAL = rdma_sys::IBV_FLOW_ATTR_NORMAL => "NORMAL",
        /// All packets that match no other rule: `IBV_FLOW_ATTR_ALL_DEFAULT`.
        ALL_DEFAULT = rdma_sys::IBV_FLOW_ATTR_ALL_DEFAULT => "ALL_DEFAULT",
        /// All multicast packets that match no other rule: `IBV_FLOW_ATTR_MC_DEFAULT`.
        MC_DEFAULT = rdma_sys::IBV_FLOW_ATTR_MC_DEFAULT => "MC_DEFAULT",
        /// Copies of all packets: `IBV_FLOW_ATTR_SNIFFER`.
        SNIFFER = rdma_sys::IBV_FLOW_ATTR_SNIFFER => "SNIFFER",
    }
}

/// A flow rule, which selects packets of a port for a queue pair.
///
/// [`QueuePair::create_flow`](crate::QueuePair::create_flow) attaches a rule.
///
/// # Example
/// ```
/// use ibverbs::flow::{FlowRule, FlowSpec};
/// let rule = FlowRule::new(1, [FlowSpec::dst_mac([2, 0, 0, 0, 0, 1])]).priority(1);
/// assert_eq!(rule.specs.len(), 1);
/// ```
#[doc(alias = "ibv_create_flow")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowRule {
    /// The set of packets that the rule applies to. Default: [`FlowType::NORMAL`].
    pub flow_type: FlowType,
    /// The port, numbered from 1.
    pub port_num: u8,
    /// Priority among several matching rules; 0 is the highest. Default: `0`.
    pub priority: u16,
    /// `true` if later rules can match the packets as well. Default: `false`.
    pub dont_trap: bool,
    /// Specifications of headers, from the outermost header inwards. A packet must match all of
    /// them.
    pub specs: Vec<FlowSpec>,
}

setters! {
    FlowRule {
        flow_type: FlowType,
        port_num: u8,
        priority: u16,
        dont_trap: bool,
    }
}

impl FlowRule {
    /// Creates a rule for packets of a port that match all specifications, with defaults for
    /// everything else.
    pub fn new(port_num: u8, specs: impl Into<Vec<FlowSpec>>) -> Self {
        Self {
            flow_type: FlowType::NORMAL,
            port_num,
            priority: 0,
            dont_trap: false,
            specs: specs.into(),
        }
    }
}

/// Specification of one header of a packet. The header must equal `value` in all bits that are set
/// in `mask`.
///
/// # Example
/// This example selects UDP packets of one sender:
/// ```
/// use ibverbs::flow::{FlowRule, FlowSpec, Ipv4Filter};
/// use std::net::Ipv4Addr;
/// let from = FlowSpec::Ipv4 {
///     value: Ipv4Filter::new().src(Ipv4Addr::new(10, 0, 0, 7)),
///     mask: Ipv4Filter::new().src(Ipv4Addr::BROADCAST), // all bits of the source address
/// };
/// let rule = FlowRule::new(1, [from, FlowSpec::dst_udp_port(9000)]);
/// ```
#[doc(alias = "ibv_create_flow")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "described in the documentation of the enum")]
pub enum FlowSpec {
    /// The Ethernet header.
    Eth { value: EthFilter, mask: EthFilter },
    /// The IPv4 header.
    Ipv4 { value: Ipv4Filter, mask: Ipv4Filter },
    /// The IPv6 header.
    Ipv6 { value: Ipv6Filter, mask: Ipv6Filter },
    /// The TCP header.
    Tcp { value: PortFilter, mask: PortFilter },
    /// The UDP header.
    Udp { value: PortFilter, mask: PortFilter },
}

impl FlowSpec {
    /// Matches frames to this MAC address.
    pub fn dst_mac(dst: [u8; 6]) -> Self {
        Self::Eth {
            value: EthFilter::new().dst(dst),
            mask: EthFilter::new().dst([0xff; 6]),
        }
    }

    /// Matches UDP packets to this port.
    pub fn dst_udp_port(dst: u16) -> Self {
        Self::Udp {
            value: PortFilter::new().dst(dst),
            mask: PortFilter::new().dst(u16::MAX),
        }
    }
}

/// Fields of an Ethernet header. Integers are in host byte order.
///
/// # Example
/// This example selects all IPv6 frames:
/// ```
/// use ibverbs::flow::{EthFilter, FlowSpec};
/// let value = EthFilter::new().ether_type(0x86dd);
/// let mask = EthFilter::new().ether_type(0xffff);
/// let ipv6 = FlowSpec::Eth { value, mask };
/// ```
#[doc(alias = "ibv_create_flow")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of the header")]
#[non_exhaustive]
pub struct EthFilter {
    pub dst: [u8; 6],
    pub src: [u8; 6],
    pub ether_type: u16,
    pub vlan_tag: u16,
}

impl EthFilter {
    /// Returns a filter whose fields are all 0. As a mask, it matches every header.
    pub const fn new() -> Self {
        Self {
            dst: [0; 6],
            src: [0; 6],
            ether_type: 0,
            vlan_tag: 0,
        }
    }
}

setters! {
    EthFilter {
        dst: [u8; 6],
        src: [u8; 6],
        ether_type: u16,
        vlan_tag: u16,
    }
}

/// Fields of an IPv4 header.
///
/// # Example
/// This example selects packets to any address in `10.1.0.0/16`:
/// ```
/// use ibverbs::flow::{FlowSpec, Ipv4Filter};
/// use std::net::Ipv4Addr;
/// let network = FlowSpec::Ipv4 {
///     value: Ipv4Filter::new().dst(Ipv4Addr::new(10, 1, 0, 0)),
///     mask: Ipv4Filter::new().dst(Ipv4Addr::new(255, 255, 0, 0)),
/// };
/// ```
#[doc(alias = "ibv_create_flow")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of the header")]
#[non_exhaustive]
pub struct Ipv4Filter {
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
}

impl Ipv4Filter {
    /// Returns a filter whose fields are all 0. As a mask, it matches every header.
    pub const fn new() -> Self {
        Self {
            src: Ipv4Addr::UNSPECIFIED,
            dst: Ipv4Addr::UNSPECIFIED,
        }
    }
}

impl Default for Ipv4Filter {
    fn default() -> Self {
        Self::new()
    }
}

setters! {
    Ipv4Filter {
        src: Ipv4Addr,
        dst: Ipv4Addr,
    }
}

/// Fields of an IPv6 header.
///
/// # Example
/// This example selects packets to one address:
/// ```
/// use ibverbs::flow::{FlowSpec, Ipv6Filter};
/// use std::net::Ipv6Addr;
/// let localhost = FlowSpec::Ipv6 {
///     value: Ipv6Filter::new().dst(Ipv6Addr::LOCALHOST),
///     mask: Ipv6Filter::new().dst(Ipv6Addr::from([0xff; 16])),
/// };
/// ```
#[doc(alias = "ibv_create_flow")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of the header")]
#[non_exhaustive]
pub struct Ipv6Filter {
    pub src: Ipv6Addr,
    pub dst: Ipv6Addr,
}

impl Ipv6Filter {
    /// Returns a filter whose fields are all 0. As a mask, it matches every header.
    pub const fn new() -> Self {
        Self {
            src: Ipv6Addr::UNSPECIFIED,
            dst: Ipv6Addr::UNSPECIFIED,
        }
    }
}

impl Default for Ipv6Filter {
    fn default() -> Self {
        Self::new()
    }
}

setters! {
    Ipv6Filter {
        src: Ipv6Addr,
        dst: Ipv6Addr,
    }
}

/// Ports of a TCP or UDP header, in host byte order.
///
/// # Example
/// This example selects responses of HTTPS servers:
/// ```
/// use ibverbs::flow::{FlowSpec, PortFilter};
/// let responses = FlowSpec::Tcp {
///     value: PortFilter::new().src(443),
///     mask: PortFilter::new().src(0xffff),
/// };
/// ```
#[doc(alias = "ibv_create_flow")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of the header")]
#[non_exhaustive]
pub struct PortFilter {
    pub src: u16,
    pub dst: u16,
}

impl PortFilter {
    /// Returns a filter whose fields are all 0. As a mask, it matches every header.
    pub const fn new() -> Self {
        Self { src: 0, dst: 0 }
    }
}

setters! {
    PortFilter {
        src: u16,
        dst: u16,
    }
}
