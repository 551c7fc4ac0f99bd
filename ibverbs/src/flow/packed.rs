//! Flow rules in the format of the verb.

#![allow(unsafe_code)]

use rdma_sys::{
    IBV_FLOW_ATTR_FLAGS_DONT_TRAP, IBV_FLOW_SPEC_ETH, IBV_FLOW_SPEC_IPV4, IBV_FLOW_SPEC_IPV6,
    IBV_FLOW_SPEC_TCP, IBV_FLOW_SPEC_UDP, ibv_flow_attr, ibv_flow_eth_filter, ibv_flow_ipv4_filter,
    ibv_flow_ipv6_filter, ibv_flow_spec_eth, ibv_flow_spec_ipv4, ibv_flow_spec_ipv6,
    ibv_flow_spec_tcp_udp, ibv_flow_tcp_udp_filter,
};

use super::rule::{EthFilter, FlowRule, FlowSpec, Ipv4Filter, Ipv6Filter, PortFilter};

impl From<EthFilter> for ibv_flow_eth_filter {
    fn from(
        EthFilter {
            dst,
            src,
            ether_type,
            vlan_tag,
        }: EthFilter,
    ) -> Self {
        Self {
            dst_mac: dst,
            src_mac: src,
            ether_type: ether_type.to_be(),
            vlan_tag: vlan_tag.to_be(),
        }
    }
}

impl From<Ipv4Filter> for ibv_flow_ipv4_filter {
    fn from(Ipv4Filter { src, dst }: Ipv4Filter) -> Self {
        Self {
            src_ip: u32::from(src).to_be(),
            dst_ip: u32::from(dst).to_be(),
        }
    }
}

impl From<Ipv6Filter> for ibv_flow_ipv6_filter {
    fn from(Ipv6Filter { src, dst }: Ipv6Filter) -> Self {
        Self {
            src_ip: src.octets(),
            dst_ip: dst.octets(),
            ..Self::default()
        }
    }
}

impl From<PortFilter> for ibv_flow_tcp_udp_filter {
    fn from(PortFilter { src, dst }: PortFilter) -> Self {
        Self {
            src_port: src.to_be(),
            dst_port: dst.to_be(),
        }
    }
}

/// A rule in the format of the verb: the attributes, followed by the specifications without gaps.
pub(crate) struct Packed(Vec<u32>);

impl Packed {
    /// Returns `None` if the rule is too large for the format.
    pub(crate) fn new(rule: &FlowRule) -> Option<Self> {
        let mut packed = Self(Vec::new());
        let mut attr = ibv_flow_attr {
            type_: rule.flow_type.0,
            priority: rule.priority,
            num_of_specs: u8::try_from(rule.specs.len()).ok()?,
            port: rule.port_num,
            flags: if rule.dont_trap {
                IBV_FLOW_ATTR_FLAGS_DONT_TRAP
            } else {
                0
            },
            ..Default::default()
        };
        packed.push(attr);
        for spec in &rule.specs {
            packed.push_spec(*spec);
        }
        attr.size = u16::try_from(packed.0.len() * size_of::<u32>()).ok()?;
        // SAFETY: `push` wrote the attributes to the first words.
        unsafe { packed.0.as_mut_ptr().cast::<ibv_flow_attr>().write(attr) };
        Some(packed)
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut ibv_flow_attr {
        self.0.as_mut_ptr().cast()
    }

    fn push_spec(&mut self, spec: FlowSpec) {
        match spec {
            FlowSpec::Eth { value, mask } => self.push(ibv_flow_spec_eth {
                type_: IBV_FLOW_SPEC_ETH,
                size: size::<ibv_flow_spec_eth>(),
                val: value.into(),
                mask: mask.into(),
            }),
            FlowSpec::Ipv4 { value, mask } => self.push(ibv_flow_spec_ipv4 {
                type_: IBV_FLOW_SPEC_IPV4,
                size: size::<ibv_flow_spec_ipv4>(),
                val: value.into(),
                mask: mask.into(),
            }),
            FlowSpec::Ipv6 { value, mask } => self.push(ibv_flow_spec_ipv6 {
                type_: IBV_FLOW_SPEC_IPV6,
                size: size::<ibv_flow_spec_ipv6>(),
                val: value.into(),
                mask: mask.into(),
            }),
            FlowSpec::Tcp { value, mask } => self.push_ports(IBV_FLOW_SPEC_TCP, value, mask),
            FlowSpec::Udp { value, mask } => self.push_ports(IBV_FLOW_SPEC_UDP, value, mask),
        }
    }

    fn push_ports(&mut self, type_: u32, value: PortFilter, mask: PortFilter) {
        let size = size::<ibv_flow_spec_tcp_udp>();
        self.push(ibv_flow_spec_tcp_udp {
            type_,
            size,
            val: value.into(),
            mask: mask.into(),
        });
    }

    /// Appends a structure whose size is a multiple of the word size.
    fn push<C: Copy>(&mut self, structure: C) {
        const { assert!(size_of::<C>() % size_of::<u32>() == 0 && align_of::<C>() <= align_of::<u32>()) };
        let start = self.0.len();
        self.0.resize(start + size_of::<C>() / size_of::<u32>(), 0);
        // SAFETY: `resize` made space for the structure, and its alignment is at most that of a
        // word. Padding bytes are never read as words, because the words are only passed to the
        // verb.
        unsafe { self.0.as_mut_ptr().add(start).cast::<C>().write(structure) };
    }
}

/// Returns the size of a specification.
#[allow(clippy::cast_possible_truncation, reason = "specifications are small")]
const fn size<C>() -> u16 {
    size_of::<C>() as u16
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use rdma_sys::ibv_flow_spec__bindgen_ty_1__bindgen_ty_1 as Header;

    use super::*;

    #[test]
    fn specs_follow_the_attributes_without_gaps() {
        let ports = PortFilter {
            src: 0x1234,
            dst: 0x4321,
        };
        let ip = |last| Ipv4Filter {
            src: Ipv4Addr::new(10, 0, 0, last),
            dst: Ipv4Addr::BROADCAST,
        };
        let v6 = Ipv6Filter {
            src: Ipv6Addr::LOCALHOST,
            dst: Ipv6Addr::UNSPECIFIED,
        };
        let specs = [
            FlowSpec::dst_mac([1, 2, 3, 4, 5, 6]),
            FlowSpec::Ipv4 {
                value: ip(1),
                mask: ip(255),
            },
            FlowSpec::Ipv6 {
                value: v6,
                mask: v6,
            },
            FlowSpec::Tcp {
                value: ports,
                mask: ports,
            },
            FlowSpec::dst_udp_port(4791),
        ];
        let mut packed =
            Packed::new(&FlowRule::new(2, specs).priority(3).dont_trap(true)).expect("fits");
        let start = packed.as_mut_ptr();
        // SAFETY: `Packed` wrote the attributes there.
        let attr = unsafe { *start };
        assert_eq!(
            (attr.num_of_specs, attr.port, attr.priority, attr.flags),
            (5, 2, 3, IBV_FLOW_ATTR_FLAGS_DONT_TRAP)
        );
        let mut offset = size_of::<ibv_flow_attr>();
        let mut kinds = Vec::new();
        for _ in 0..attr.num_of_specs {
            // SAFETY: the offset is within the memory that `Packed` wrote.
            let header: Header = unsafe { start.byte_add(offset).cast::<Header>().read() };
            kinds.push(header.type_);
            offset += usize::from(header.size);
        }
        assert_eq!(offset, usize::from(attr.size));
        let expected = [
            IBV_FLOW_SPEC_ETH,
            IBV_FLOW_SPEC_IPV4,
            IBV_FLOW_SPEC_IPV6,
            IBV_FLOW_SPEC_TCP,
            IBV_FLOW_SPEC_UDP,
        ];
        assert_eq!(kinds, expected);
        // SAFETY: the first specification is that of the Ethernet header.
        let eth = unsafe { start.add(1).cast::<ibv_flow_spec_eth>().read() };
        assert_eq!(
            (eth.val.dst_mac, eth.mask.dst_mac),
            ([1, 2, 3, 4, 5, 6], [0xff; 6])
        );
        assert_eq!(
            ibv_flow_tcp_udp_filter::from(ports).dst_port.to_ne_bytes(),
            [0x43, 0x21]
        );
        assert!(Packed::new(&FlowRule::new(1, vec![FlowSpec::dst_udp_port(1); 256])).is_none());
    }
}
