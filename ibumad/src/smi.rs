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
    use super::*;

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
