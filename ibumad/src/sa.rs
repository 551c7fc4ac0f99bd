//! Queries to subnet administration.

use rdma_types::{Error, ErrorKind, Gid, Guid, Lid, Result};

use crate::address::Address;
use crate::agent::{Agent, AgentOptions, RetryPolicy};
use crate::mad::{MgmtClass, PathRecord, PortState, SaMad, SmInfo, SmState};
use crate::port::Port;

const CALL: &str = "subnet administration";

/// A client of subnet administration.
///
/// # Example
/// ```no_run
/// let port = ibumad::Port::open("mlx4_0", 1)?;
/// let sa = port.subnet_administration(None)?;
/// let path = sa.path(port.attr()?.gid())?;
/// println!("LID {}, service level {}", path.dlid(), path.sl());
/// # Ok::<(), ibumad::Error>(())
/// ```
#[derive(Debug)]
pub struct Sa {
    agent: Agent,
    server: Address,
    local_gid: Gid,
    prefix: u64,
    retry: RetryPolicy,
}

impl Port {
    /// Opens this port again, for queries to subnet administration: at `sm_lid`, or at the subnet
    /// manager that configured the port.
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`]: no subnet manager configured the port;
    /// - those of [`Port::open`] and [`Port::register`].
    pub fn subnet_administration(&self, sm_lid: Option<Lid>) -> Result<Sa> {
        let attr = self.attr()?;
        let lid = sm_lid.unwrap_or(attr.sm_lid);
        if !lid.is_unicast() {
            let (ca_name, port_num, state) = (self.ca_name(), self.port_num(), attr.state);
            let detail = format!("{ca_name} port {port_num} ({state}): no subnet manager");
            let help = match attr.state {
                _ if attr.link_layer.is_ethernet() => {
                    "RoCE has no subnet administration: use the GID"
                }
                PortState::INIT => "start a subnet manager: `opensm`",
                _ => "check that the link is up and that a subnet manager is running",
            };
            return Err(Error::new(ErrorKind::NotFound, CALL, detail).with_help(help));
        }
        let port = Self::open(self.ca_name(), self.port_num())?;
        Ok(Sa {
            agent: port.register(AgentOptions::client(MgmtClass::SUBN_ADM, 2))?,
            server: Address::lid(lid).sl(attr.sm_sl),
            local_gid: attr.gid(),
            prefix: attr.gid_prefix,
            retry: RetryPolicy::default(),
        })
    }
}

impl Sa {
    /// Sets the time limit and the number of attempts of each query.
    #[must_use]
    pub fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Queries a path from the local port to this GID.
    ///
    /// # Errors
    /// - [`ErrorKind::Refused`]: there is no such path;
    /// - [`ErrorKind::Malformed`]: the response is not a path record;
    /// - those of [`Agent::call`].
    ///
    /// # Example
    /// ```no_run
    /// let sa = ibumad::Port::open("mlx4_0", 1)?.subnet_administration(None)?;
    /// let path = sa.path_to_guid("0x0002c90300a01b2d".parse()?)?;
    /// println!("LID {}", path.dlid());
    /// # Ok::<(), ibumad::Error>(())
    /// ```
    pub fn path(&self, to: Gid) -> Result<PathRecord> {
        let query = PathRecord::between(self.local_gid, to);
        let mad = SaMad::get(
            PathRecord::ATTR,
            PathRecord::BETWEEN_COMPONENTS,
            query.as_bytes(),
        );
        let response = self
            .agent
            .call(mad, &self.server, self.retry)
            .map_err(|error| match error.kind() {
                ErrorKind::TimedOut => error.with_help(
                    "the subnet manager does not answer: `systemctl enable --now opensm` on one host \
                     of the fabric starts one",
                ),
                _ => error,
            })?;
        SaMad::from_mad(&response)
            .filter(|_| response.attr() == PathRecord::ATTR)
            .and_then(|sa| PathRecord::from_bytes(sa.data()))
            .ok_or_else(|| {
                let detail = format!("path to {to}: unexpected response {response:?}");
                Error::new(ErrorKind::Malformed, CALL, detail)
            })
    }

    /// Queries the LID and the attributes of the subnet manager in a state, such as the one that is
    /// ready to replace the master. Returns `None` if there is none.
    ///
    /// # Errors
    /// - [`ErrorKind::Refused`]: there are several, or the query is not allowed;
    /// - [`ErrorKind::Malformed`]: the response is not a record of a subnet manager;
    /// - those of [`Agent::call`].
    pub fn sm_in_state(&self, state: SmState) -> Result<Option<(Lid, SmInfo)>> {
        let record = SmInfo::record_in_state(state);
        let mad = SaMad::get(SmInfo::RECORD_ATTR, SmInfo::STATE_COMPONENT, &record);
        let response = match self.agent.call(mad, &self.server, self.retry) {
            Err(error) if error.to_string().contains("no such record") => return Ok(None),
            response => response?,
        };
        SaMad::from_mad(&response)
            .filter(|_| response.attr() == SmInfo::RECORD_ATTR)
            .and_then(|sa| SmInfo::from_record(sa.data()))
            .map(Some)
            .ok_or_else(|| {
                let detail = format!("subnet manager in state {state}: unexpected response");
                Error::new(ErrorKind::Malformed, CALL, detail)
            })
    }

    /// Queries a path from the local port to the port with this GUID, in the same subnet.
    ///
    /// # Errors
    /// The same as those of [`path`](Self::path).
    pub fn path_to_guid(&self, guid: Guid) -> Result<PathRecord> {
        self.path(Gid::from_parts(self.prefix, guid))
    }
}
