//! Queries to subnet administration.

use rdma_types::{Error, ErrorKind, Gid, Guid, Lid, PortState, Result};

use crate::address::Address;
use crate::agent::{Agent, AgentOptions, RetryPolicy};
use crate::ca::PortAttr;
use crate::mad::{MgmtClass, PathRecord, SaMad, SmInfo, SmState};
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
        let lid = server_lid(&attr, sm_lid)?;
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

fn server_lid(attr: &PortAttr, sm_lid: Option<Lid>) -> Result<Lid> {
    let lid = sm_lid.unwrap_or(attr.sm_lid);
    if lid.is_unicast() {
        return Ok(lid);
    }
    let (ca_name, port_num, state) = (&attr.ca_name, attr.port_num, attr.state);
    let detail = format!("{ca_name} port {port_num} ({state}): no subnet manager");
    let help = match state {
        _ if attr.link_layer.is_ethernet() => "RoCE has no subnet administration: use the GID",
        PortState::INIT => "start a subnet manager: `opensm`",
        _ => "check that the link is up and that a subnet manager is running",
    };
    Err(Error::new(ErrorKind::NotFound, CALL, detail).with_help(help))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ca::tests::port_attr;
    use crate::fake::Kernel;
    use crate::mad::{AttrId, Mad};

    const LOCAL: Gid = Gid([1; 16]);

    /// Returns a client, whose first request has the transaction identifier 100.
    fn sa() -> (Sa, Kernel) {
        let (agent, kernel) = Agent::fake(MgmtClass::SUBN_ADM);
        let sa = Sa {
            agent,
            server: Address::lid(Lid(4)),
            local_gid: LOCAL,
            prefix: 0x1234,
            retry: RetryPolicy::new(),
        };
        let retry = RetryPolicy::new().timeout(Duration::ZERO).tries(1);
        (sa.with_retry(retry), kernel)
    }

    /// Responds with a record.
    fn respond(kernel: &Kernel, id: u32, attr: AttrId, record: &[u8]) {
        kernel.respond(7, id, &SaMad::get(attr, 0, record), |_| ());
    }

    fn fail(kernel: &Kernel, id: u32, status: u8) {
        let request = SaMad::get(SmInfo::RECORD_ATTR, 0, &[]);
        kernel.respond(7, id, &request, |mad: &mut Mad| {
            mad.as_bytes_mut()[4] = status;
        });
    }

    #[test]
    fn a_port_without_subnet_manager_has_a_remedy() {
        for (state, link, remedy) in [
            (PortState::ACTIVE, "Ethernet", "use the GID"),
            (PortState::INIT, "Ethernet", "use the GID"),
            (PortState::INIT, "InfiniBand", "start a subnet manager"),
            (PortState::DOWN, "InfiniBand", "the link is up"),
        ] {
            let mut attr = port_attr(state, link);
            assert_eq!(server_lid(&attr, None).expect("its own"), attr.sm_lid);
            attr.sm_lid = Lid(0);
            assert_eq!(server_lid(&attr, Some(Lid(8))).expect("given"), Lid(8));
            let error = server_lid(&attr, None).expect_err("no subnet manager");
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.help().expect("a remedy").contains(remedy), "{error}");
        }
    }

    #[test]
    fn a_path_leads_from_the_port_to_the_gid() {
        let (sa, kernel) = sa();
        let record = PathRecord::between(Gid([5; 16]), Gid([6; 16]));
        respond(&kernel, 100, PathRecord::ATTR, record.as_bytes());
        assert_eq!(sa.path_to_guid(Guid(9)).expect("a path"), record);
        let sent = kernel.sent().expect("a request");
        assert_eq!((sent.to.lid, sent.to.qpn), (Lid(4), 1));
        let query = SaMad::from_mad(&sent.mad).expect("subnet administration");
        assert_eq!(query.component_mask(), PathRecord::BETWEEN_COMPONENTS);
        let query = PathRecord::from_bytes(query.data()).expect("long enough");
        assert_eq!(
            query,
            PathRecord::between(LOCAL, Gid::from_parts(0x1234, Guid(9)))
        );
    }

    #[test]
    fn another_attribute_is_a_malformed_response() {
        let (sa, kernel) = sa();
        respond(&kernel, 100, SmInfo::RECORD_ATTR, &[]);
        let error = sa.path(LOCAL).expect_err("another attribute");
        assert_eq!(error.kind(), ErrorKind::Malformed);
        respond(&kernel, 101, PathRecord::ATTR, &[]);
        let error = sa
            .sm_in_state(SmState::STANDBY)
            .expect_err("another attribute");
        assert_eq!(error.kind(), ErrorKind::Malformed);
    }

    #[test]
    fn a_missing_answer_has_a_remedy_but_no_error_status() {
        let (sa, kernel) = sa();
        let error = sa.path(LOCAL).expect_err("no response");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.help().expect("a remedy").contains("opensm"));
        fail(&kernel, 101, 3);
        let error = sa.path(LOCAL).expect_err("no such record");
        assert_eq!((error.kind(), error.help()), (ErrorKind::Refused, None));
    }

    #[test]
    fn a_subnet_manager_is_found_by_its_state() {
        let (sa, kernel) = sa();
        let mut record = SmInfo::record_in_state(SmState::STANDBY);
        record[1] = 8;
        respond(&kernel, 100, SmInfo::RECORD_ATTR, &record);
        let found = sa.sm_in_state(SmState::STANDBY).expect("a response");
        let (lid, info) = found.expect("a subnet manager");
        assert_eq!((lid, info.state()), (Lid(8), SmState::STANDBY));
        let sent = kernel.sent().expect("a request");
        let query = SaMad::from_mad(&sent.mad).expect("subnet administration");
        assert_eq!(query.component_mask(), SmInfo::STATE_COMPONENT);
        assert_eq!(
            query.data()[..25],
            SmInfo::record_in_state(SmState::STANDBY)
        );

        fail(&kernel, 101, 3);
        let found = sa.sm_in_state(SmState::STANDBY).expect("no such record");
        assert!(found.is_none());
        fail(&kernel, 102, 4);
        let error = sa.sm_in_state(SmState::STANDBY).expect_err("several");
        assert_eq!(error.kind(), ErrorKind::Refused);
    }
}
