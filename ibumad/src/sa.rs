//! Questions to subnet administration.

use std::net::Ipv6Addr;

use crate::address::Address;
use crate::agent::{Agent, AgentOptions, Patience};
use crate::ca::gid;
use crate::error::{Error, Result};
use crate::identity::{Guid, Lid};
use crate::kind::ErrorKind;
use crate::mad::{MgmtClass, PathRecord, PortState, SaMad};
use crate::port::Port;

/// Subnet administration as seen from a port.
#[derive(Debug)]
pub struct Sa {
    agent: Agent,
    server: Address,
    own: Ipv6Addr,
    prefix: u64,
    patience: Patience,
}

impl Port {
    /// Opens this port once more for questions to subnet administration, at the subnet manager that
    /// the port knows, or at `sm_lid`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when the port knows none; as [`Port::open`] and [`Port::register`].
    pub fn subnet_administration(&self, sm_lid: Option<Lid>) -> Result<Sa> {
        let attr = self.attr()?;
        let lid = sm_lid.unwrap_or(attr.sm_lid);
        if !lid.is_unicast() {
            let what = format!(
                "{} port {} ({}): no subnet manager",
                self.ca_name(),
                self.port_num(),
                attr.state
            );
            let hint = match attr.state {
                _ if attr.link_layer.is_ethernet() => "RoCE has none: use the GID",
                PortState::INIT => "start one: `opensm`",
                _ => "is the link up, and a subnet manager running?",
            };
            return Err(
                Error::new(ErrorKind::NotFound, "subnet administration", what).with_hint(hint),
            );
        }
        let port = Self::open(self.ca_name(), self.port_num())?;
        Ok(Sa {
            agent: port.register(AgentOptions::client(MgmtClass::SUBN_ADM, 2))?,
            server: Address {
                sl: attr.sm_sl,
                ..Address::lid(lid)
            },
            own: attr.gid(),
            prefix: attr.gid_prefix,
            patience: Patience::default(),
        })
    }
}

impl Sa {
    /// The same with other times.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// The path from the own port to this GID.
    ///
    /// # Errors
    /// - [`ErrorKind::Refused`]: there is none;
    /// - as [`Agent::call`].
    ///
    /// # Example
    /// ```no_run
    /// let sa = ibumad::Port::open("mlx4_0", 1)?.subnet_administration(None)?;
    /// println!(
    ///     "LID {}",
    ///     sa.path_to_guid("0x0002c90300a01b2d".parse()?)?.dlid()
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn path(&self, to: Ipv6Addr) -> Result<PathRecord> {
        let question = PathRecord::between(self.own, to);
        let mad = SaMad::get(PathRecord::ATTR, PathRecord::BETWEEN, question.as_bytes());
        let answer = self.agent.call(mad, &self.server, self.patience)?;
        SaMad::of(&answer)
            .filter(|_| answer.attr() == PathRecord::ATTR)
            .and_then(|sa| PathRecord::from_bytes(sa.data()))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Malformed,
                    "subnet administration",
                    format!("path to {to}: answered by {answer:?}"),
                )
            })
    }

    /// The path from the own port to the port of this GUID, in the same subnet.
    ///
    /// # Errors
    /// As [`path`](Self::path).
    pub fn path_to_guid(&self, guid: Guid) -> Result<PathRecord> {
        self.path(gid(self.prefix, guid))
    }
}
