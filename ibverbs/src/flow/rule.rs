//! Which packets a flow rule means.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::newtype::c_value;

c_value! {
    /// Which packets a rule looks at (`enum ibv_flow_attr_type`).
    ///
    /// # Example
    /// A copy of all that passes a port:
    /// ```no_run
    /// use ibverbs::{QueuePair, RawPacket, flow::{FlowRule, FlowType}};
    /// # fn f(qp: &mut QueuePair<RawPacket>) -> ibverbs::Result<()> {
    /// qp.create_flow(&FlowRule { flow_type: FlowType::SNIFFER, ..FlowRule::new(1, []) })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_create_flow(3)`](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
    pub struct FlowType(u32) {
        /// Those that its specifications name.
        NORMAL = rdma_sys::IBV_FLOW_ATTR_NORMAL => "NORMAL",
        /// All that no other rule takes.
        ALL_DEFAULT = rdma_sys::IBV_FLOW_ATTR_ALL_DEFAULT => "ALL_DEFAULT",
        /// All multicast packets that no other rule takes.
        MC_DEFAULT = rdma_sys::IBV_FLOW_ATTR_MC_DEFAULT => "MC_DEFAULT",
        /// All, beside those they are for.
        SNIFFER = rdma_sys::IBV_FLOW_ATTR_SNIFFER => "SNIFFER",
    }
}

/// A rule: which packets of a port a queue pair receives. See
/// [`QueuePair::create_flow`](crate::QueuePair::create_flow).
///
/// # Example
/// ```
/// use ibverbs::flow::{FlowRule, FlowSpec};
/// let rule = FlowRule {
///     priority: 1,
///     ..FlowRule::new(1, [FlowSpec::to_mac([2, 0, 0, 0, 0, 1])])
/// };
/// assert_eq!(rule.specs.len(), 1);
/// ```
///
/// # References
/// [`ibv_create_flow(3)`](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// Which packets it looks at.
    pub flow_type: FlowType,
    /// The port, from 1.
    pub port_num: u8,
    /// Which rule comes first where several match: the lowest, 0.
    pub priority: u16,
    /// Whether rules after it see the packets too.
    pub dont_trap: bool,
    /// What packets must be like: all of these, from the outermost header inwards.
    pub specs: Vec<FlowSpec>,
}

impl FlowRule {
    /// Packets of a port that are like all of these.
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

/// What one header of a packet must be like: the bits that are set in `mask` must be those of
/// `value`.
///
/// # Example
/// UDP packets of one sender:
/// ```
/// use ibverbs::flow::{FlowRule, FlowSpec, Ipv4Filter};
/// use std::net::Ipv4Addr;
/// let any = Ipv4Addr::UNSPECIFIED;
/// let from = FlowSpec::Ipv4 {
///     value: Ipv4Filter {
///         src: Ipv4Addr::new(10, 0, 0, 7),
///         dst: any,
///     },
///     mask: Ipv4Filter {
///         src: Ipv4Addr::BROADCAST,
///         dst: any,
///     },
/// };
/// let rule = FlowRule::new(1, [from, FlowSpec::to_udp_port(9000)]);
/// ```
///
/// # References
/// [`ibv_create_flow(3)`](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "said above")]
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
    /// Frames to this hardware address.
    pub fn to_mac(dst: [u8; 6]) -> Self {
        let of = |dst| EthFilter {
            dst,
            ..EthFilter::default()
        };
        Self::Eth {
            value: of(dst),
            mask: of([0xff; 6]),
        }
    }

    /// UDP packets to this port.
    pub fn to_udp_port(dst: u16) -> Self {
        Self::Udp {
            value: PortFilter { src: 0, dst },
            mask: PortFilter {
                src: 0,
                dst: u16::MAX,
            },
        }
    }
}

/// Fields of an Ethernet header, numbers in host order.
///
/// # Example
/// IPv6 frames, whomever they are for:
/// ```
/// use ibverbs::flow::{EthFilter, FlowSpec};
/// let value = EthFilter {
///     ether_type: 0x86dd,
///     ..EthFilter::default()
/// };
/// let mask = EthFilter {
///     ether_type: 0xffff,
///     ..EthFilter::default()
/// };
/// let ipv6 = FlowSpec::Eth { value, mask };
/// ```
///
/// # References
/// [`ibv_create_flow(3)`](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header's fields")]
pub struct EthFilter {
    pub dst: [u8; 6],
    pub src: [u8; 6],
    pub ether_type: u16,
    pub vlan_tag: u16,
}

/// Fields of an IPv4 header.
///
/// # Example
/// Packets to any address of `10.1.0.0/16`:
/// ```
/// use ibverbs::flow::{FlowSpec, Ipv4Filter};
/// use std::net::Ipv4Addr;
/// let filter = |dst| Ipv4Filter {
///     src: Ipv4Addr::UNSPECIFIED,
///     dst,
/// };
/// let network = FlowSpec::Ipv4 {
///     value: filter(Ipv4Addr::new(10, 1, 0, 0)),
///     mask: filter(Ipv4Addr::new(255, 255, 0, 0)),
/// };
/// ```
///
/// # References
/// [`ibv_create_flow(3)`](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header's fields")]
pub struct Ipv4Filter {
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
}

/// Fields of an IPv6 header.
///
/// # Example
/// Packets to one address:
/// ```
/// use ibverbs::flow::{FlowSpec, Ipv6Filter};
/// use std::net::Ipv6Addr;
/// let filter = |dst| Ipv6Filter {
///     src: Ipv6Addr::UNSPECIFIED,
///     dst,
/// };
/// let to_one = FlowSpec::Ipv6 {
///     value: filter(Ipv6Addr::LOCALHOST),
///     mask: filter(Ipv6Addr::from([0xff; 16])),
/// };
/// ```
///
/// # References
/// [`ibv_create_flow(3)`](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header's fields")]
pub struct Ipv6Filter {
    pub src: Ipv6Addr,
    pub dst: Ipv6Addr,
}

/// Ports of a TCP or UDP header, in host order.
///
/// # Example
/// Answers of web servers:
/// ```
/// use ibverbs::flow::{FlowSpec, PortFilter};
/// let answers = FlowSpec::Tcp {
///     value: PortFilter { src: 443, dst: 0 },
///     mask: PortFilter {
///         src: 0xffff,
///         dst: 0,
///     },
/// };
/// ```
///
/// # References
/// [`ibv_create_flow(3)`](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header's fields")]
pub struct PortFilter {
    pub src: u16,
    pub dst: u16,
}
