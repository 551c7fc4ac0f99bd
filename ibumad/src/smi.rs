//! Queries to subnet management agents, as the tools of infiniband-diags make them.

use std::fmt;

use rdma_types::{Error, ErrorKind, Lid, Result};

use crate::address::Address;
use crate::agent::{Agent, AgentOptions, RetryPolicy};
use crate::mad::{
    AttrId, DirectedRoute, MgmtClass, NodeDescription, NodeInfo, PortInfo, SmInfo, Smp,
};
use crate::port::Port;

const CALL: &str = "management request";

/// The node that a query is sent to.
///
/// # Example
/// ```
/// use ibumad::{Target, mad::DirectedRoute};
/// // The node behind port 1 of the local one.
/// let next = Target::Directed(DirectedRoute::new(&[1]).expect("one hop"));
/// assert_ne!(next, Target::local());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The node with this LID.
    Lid(Lid),
    /// The node at the end of this route. The empty route leads to the local node.
    Directed(DirectedRoute),
}

impl Target {
    /// Returns the local node. It can be queried without a subnet manager, too.
    pub fn local() -> Self {
        Self::Directed(DirectedRoute::default())
    }
}

/// A client of subnet management: queries attributes of nodes and ports.
///
/// # Example
/// ```no_run
/// use ibumad::{Port, Target};
/// let smi = Port::open("mlx4_0", 1)?.subnet_management()?;
/// println!("{}", smi.node_description(&Target::local())?.text());
/// # Ok::<(), ibumad::Error>(())
/// ```
#[derive(Debug)]
pub struct Smi {
    lid_routed: Agent,
    directed: Agent,
    retry: RetryPolicy,
}

impl Port {
    /// Opens this port again, for subnet management.
    ///
    /// # Errors
    /// Those of [`Port::open`] and [`Port::register`].
    ///
    /// # Example
    /// ```no_run
    /// use ibumad::{Port, Target};
    /// let smi = Port::open("mlx4_0", 1)?.subnet_management()?;
    /// println!("{}", smi.node_description(&Target::local())?.text());
    /// # Ok::<(), ibumad::Error>(())
    /// ```
    pub fn subnet_management(&self) -> Result<Smi> {
        // Each agent has its own open port, so that neither receives and drops datagrams of the
        // other.
        let agent = |class| {
            Self::open(self.ca_name(), self.port_num())?.register(AgentOptions::client(class, 1))
        };
        Ok(Smi {
            lid_routed: agent(MgmtClass::SUBN_LID)?,
            directed: agent(MgmtClass::SUBN_DIRECTED)?,
            retry: RetryPolicy::default(),
        })
    }
}

impl Smi {
    /// Sets the time limit and the number of attempts of each query.
    #[must_use]
    pub fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Queries the properties of a node.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`]: the LID is not that of a single port;
    /// - [`ErrorKind::Malformed`]: the response has another attribute;
    /// - those of [`Agent::call`].
    pub fn node_info(&self, target: &Target) -> Result<NodeInfo> {
        self.get(target, NodeInfo::ATTR, 0, NodeInfo::from_bytes)
    }

    /// Queries the name of a node.
    ///
    /// # Errors
    /// The same as those of [`node_info`](Self::node_info).
    pub fn node_description(&self, target: &Target) -> Result<NodeDescription> {
        self.get(
            target,
            NodeDescription::ATTR,
            0,
            NodeDescription::from_bytes,
        )
    }

    /// Queries the state and the properties of a port of a node. The number 0 means the port that
    /// the request arrives at.
    ///
    /// # Errors
    /// The same as those of [`node_info`](Self::node_info).
    pub fn port_info(&self, target: &Target, port_num: u8) -> Result<PortInfo> {
        self.get(
            target,
            PortInfo::ATTR,
            port_num.into(),
            PortInfo::from_bytes,
        )
    }

    /// Queries the state of the subnet manager that runs on a node.
    ///
    /// # Errors
    /// The same as those of [`node_info`](Self::node_info): [`ErrorKind::TimedOut`] or
    /// [`ErrorKind::Refused`] if no subnet manager runs there.
    pub fn sm_info(&self, target: &Target) -> Result<SmInfo> {
        self.get(target, SmInfo::ATTR, 0, SmInfo::from_bytes)
    }

    fn get<T>(
        &self,
        target: &Target,
        attr: AttrId,
        modifier: u32,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T> {
        let response = match target {
            Target::Lid(lid) if !lid.is_unicast() => {
                let detail = format!("{attr} of LID {lid}: not the LID of a port");
                let help =
                    "expected 1 to 49151; a port has LID 0 until a subnet manager assigns one";
                return Err(Error::new(ErrorKind::InvalidInput, CALL, detail).with_help(help));
            }
            Target::Lid(lid) => {
                self.lid_routed
                    .call(Smp::get(attr, modifier), &Address::smi(*lid), self.retry)?
            }
            Target::Directed(route) => {
                let mad = Smp::get_directed(attr, modifier, route);
                self.directed
                    .call(mad, &Address::smi(Lid::PERMISSIVE), self.retry)?
            }
        };
        Smp::from_mad(&response)
            .filter(|_| response.attr() == attr)
            .and_then(|smp| parse(smp.data()))
            .ok_or_else(|| {
                let detail = format!("{attr} of {target}: unexpected response {response:?}");
                Error::new(ErrorKind::Malformed, CALL, detail)
            })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lid(lid) => write!(f, "LID {lid}"),
            Self::Directed(route) => {
                f.write_str("DR path 0")?;
                route
                    .ports()
                    .iter()
                    .try_for_each(|port| write!(f, ",{port}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fake::Kernel;
    use crate::mad::Mad;

    /// Returns a client, and the ends of its ports for LID-routed and directed requests. The first
    /// request of each has the transaction identifier 100.
    fn smi() -> (Smi, Kernel, Kernel) {
        let (lid_routed, by_lid) = Agent::fake(MgmtClass::SUBN_LID);
        let (directed, by_route) = Agent::fake(MgmtClass::SUBN_DIRECTED);
        let retry = RetryPolicy::new().timeout(Duration::ZERO).tries(1);
        let smi = Smi {
            lid_routed,
            directed,
            retry: RetryPolicy::new(),
        };
        (smi.with_retry(retry), by_lid, by_route)
    }

    /// Responds with the attribute of a request, whose first bytes are 1, 2 …
    fn respond(kernel: &Kernel, id: u32, attr: AttrId) {
        kernel.respond(7, id, &Smp::get(attr, 0), |mad: &mut Mad| {
            for (byte, value) in mad.as_bytes_mut()[64..128].iter_mut().zip(1..) {
                *byte = value;
            }
        });
    }

    #[test]
    fn each_query_reads_its_attribute() {
        let (smi, kernel, _directed) = smi();
        let target = Target::Lid(Lid(4));
        for (id, attr) in (100..).zip([
            AttrId::NODE_INFO,
            AttrId::NODE_DESCRIPTION,
            AttrId::PORT_INFO,
            AttrId::SM_INFO,
        ]) {
            respond(&kernel, id, attr);
        }
        let node = smi.node_info(&target).expect("a response");
        assert_eq!(node.as_bytes()[..4], [1, 2, 3, 4]);
        let name = smi.node_description(&target).expect("a response");
        assert_eq!(name.as_bytes()[..4], [1, 2, 3, 4]);
        let port = smi.port_info(&target, 6).expect("a response");
        assert_eq!(port.as_bytes()[..4], [1, 2, 3, 4]);
        let manager = smi.sm_info(&target).expect("a response");
        assert_eq!(manager.as_bytes()[..4], [1, 2, 3, 4]);
        let sent = std::iter::from_fn(|| kernel.sent());
        let sent: Vec<_> = sent
            .map(|sent| {
                (
                    sent.to.lid,
                    sent.to.qpn,
                    sent.mad.attr(),
                    sent.mad.attr_modifier(),
                )
            })
            .collect();
        let expected = [
            (AttrId::NODE_INFO, 0),
            (AttrId::NODE_DESCRIPTION, 0),
            (AttrId::PORT_INFO, 6),
            (AttrId::SM_INFO, 0),
        ];
        assert_eq!(
            sent,
            expected.map(|(attr, modifier)| (Lid(4), 0, attr, modifier))
        );
    }

    #[test]
    fn a_directed_query_has_a_route_and_the_permissive_lid() {
        let (smi, _by_lid, kernel) = smi();
        respond(&kernel, 100, AttrId::NODE_INFO);
        let route = DirectedRoute::new(&[1, 3]).expect("short");
        smi.node_info(&Target::Directed(route)).expect("a response");
        let sent = kernel.sent().expect("a request");
        assert_eq!((sent.to.lid, sent.to.qpn), (Lid::PERMISSIVE, 0));
        let smp = Smp::from_mad(&sent.mad).expect("subnet management");
        assert_eq!(smp.initial_path(), [1, 3]);
    }

    #[test]
    fn another_attribute_or_class_is_a_malformed_response() {
        let (smi, kernel, _directed) = smi();
        let target = Target::Lid(Lid(4));
        respond(&kernel, 100, AttrId::PORT_INFO);
        let error = smi.node_info(&target).expect_err("another attribute");
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert!(error.message().contains("NodeInfo of LID 4"), "{error}");
        kernel.respond(7, 101, &Smp::get(AttrId::NODE_INFO, 0), |mad| {
            mad.as_bytes_mut()[1] = MgmtClass::PERF.0;
        });
        let error = smi.node_info(&target).expect_err("another class");
        assert_eq!(error.kind(), ErrorKind::Malformed);
        let error = smi.node_info(&target).expect_err("no response");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn only_the_lid_of_a_port_can_be_queried() {
        let (smi, kernel, _directed) = smi();
        for lid in [0, 0xc000, 0xffff] {
            let error = smi.node_info(&Target::Lid(Lid(lid))).expect_err("no port");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        assert!(kernel.sent().is_none());
    }

    #[test]
    fn target_prints_like_infiniband_diags() {
        assert_eq!(Target::local().to_string(), "DR path 0");
        assert_eq!(
            Target::Directed(DirectedRoute::new(&[1, 3]).expect("short")).to_string(),
            "DR path 0,1,3"
        );
        assert_eq!(Target::Lid(Lid(7)).to_string(), "LID 7");
    }
}
