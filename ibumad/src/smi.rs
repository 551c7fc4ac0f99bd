//! Questions to subnet management agents, those of the tools of infiniband-diags.

use std::fmt;

use crate::address::Address;
use crate::agent::{Agent, AgentOptions, Patience};
use crate::error::{Error, Result};
use crate::identity::Lid;
use crate::kind::ErrorKind;
use crate::mad::{
    AttrId, DirectedRoute, MgmtClass, NodeDescription, NodeInfo, PortInfo, SmInfo, Smp,
};
use crate::port::Port;

/// Whom to ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The node that has this LID.
    Lid(Lid),
    /// The node at the end of this route; the empty one is the own node.
    Directed(DirectedRoute),
}

impl Target {
    /// The own node: works without a subnet manager, too.
    pub fn local() -> Self {
        Self::Directed(DirectedRoute::default())
    }
}

/// Subnet management through a port: what nodes and ports say of themselves.
#[derive(Debug)]
pub struct Smi {
    by_lid: Agent,
    directed: Agent,
    patience: Patience,
}

impl Port {
    /// Opens this port once more for subnet management.
    ///
    /// # Errors
    /// As [`Port::open`] and [`Port::register`].
    ///
    /// # Example
    /// ```no_run
    /// use ibumad::{Port, Target};
    /// let smi = Port::open("mlx4_0", 1)?.subnet_management()?;
    /// println!("{}", smi.node_description(&Target::local())?.text());
    /// # Ok::<(), ibumad::Error>(())
    /// ```
    pub fn subnet_management(&self) -> Result<Smi> {
        // An opening of its own for each: what comes for one is not taken and dropped by the other.
        let agent = |class| {
            Self::open(self.ca_name(), self.port_num())?.register(AgentOptions::client(class, 1))
        };
        Ok(Smi {
            by_lid: agent(MgmtClass::SUBN_LID)?,
            directed: agent(MgmtClass::SUBN_DIRECTED)?,
            patience: Patience::default(),
        })
    }
}

impl Smi {
    /// The same with other times.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// What a node is.
    ///
    /// # Errors
    /// As [`Agent::call`].
    pub fn node_info(&self, target: &Target) -> Result<NodeInfo> {
        self.get(target, NodeInfo::ATTR, 0, NodeInfo::from_bytes)
    }

    /// How a node is called.
    ///
    /// # Errors
    /// As [`Agent::call`].
    pub fn node_description(&self, target: &Target) -> Result<NodeDescription> {
        self.get(
            target,
            NodeDescription::ATTR,
            0,
            NodeDescription::from_bytes,
        )
    }

    /// State and properties of a port of a node; 0 is the port that the question arrives at.
    ///
    /// # Errors
    /// As [`Agent::call`].
    pub fn port_info(&self, target: &Target, port_num: u8) -> Result<PortInfo> {
        self.get(
            target,
            PortInfo::ATTR,
            port_num.into(),
            PortInfo::from_bytes,
        )
    }

    /// State of the subnet manager that runs at a node.
    ///
    /// # Errors
    /// As [`Agent::call`]: [`ErrorKind::TimedOut`] or [`ErrorKind::Refused`] when none runs there.
    pub fn sm_info(&self, target: &Target) -> Result<SmInfo> {
        self.get(target, SmInfo::ATTR, 0, SmInfo::from_bytes)
    }

    fn get<T>(
        &self,
        target: &Target,
        attr: AttrId,
        modifier: u32,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T> {
        let answer = match target {
            Target::Lid(lid) if !lid.is_unicast() => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "management request",
                    format!("{attr} of LID {lid}"),
                )
                .with_hint("LIDs are 1 to 49151; 0 is a port that no subnet manager has set up"));
            }
            Target::Lid(lid) => {
                self.by_lid
                    .call(Smp::get(attr, modifier), &Address::smi(*lid), self.patience)?
            }
            Target::Directed(route) => {
                let mad = Smp::get_directed(attr, modifier, route);
                self.directed
                    .call(mad, &Address::smi(Lid::PERMISSIVE), self.patience)?
            }
        };
        Smp::of(&answer)
            .filter(|_| answer.attr() == attr)
            .and_then(|smp| read(smp.data()))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Malformed,
                    "management request",
                    format!("{attr} of {target}: answered by {answer:?}"),
                )
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
    fn a_target_prints_as_the_tools_print_it() {
        assert_eq!(Target::local().to_string(), "DR path 0");
        assert_eq!(
            Target::Directed(DirectedRoute::new(&[1, 3]).expect("short")).to_string(),
            "DR path 0,1,3"
        );
        assert_eq!(Target::Lid(Lid(7)).to_string(), "LID 7");
    }
}
