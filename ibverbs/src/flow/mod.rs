//! Flow rules, which select the packets of a port that a raw packet queue pair receives.
//!
//! [`QueuePair::create_flow`](crate::QueuePair::create_flow) attaches a rule to a queue pair.

mod attached;
mod packed;
mod rule;

pub use self::attached::FlowId;
pub(crate) use self::attached::Flows;
pub(crate) use self::packed::Packed;
pub use self::rule::{EthFilter, FlowRule, FlowSpec, FlowType, Ipv4Filter, Ipv6Filter, PortFilter};
