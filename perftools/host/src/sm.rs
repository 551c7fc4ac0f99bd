//! The subnet manager of each InfiniBand port, queried with SMInfo.

use std::time::Duration;

use ibumad::mad::{SmInfo, SmState};
use ibumad::{ErrorKind, Lid, Port, PortAttr, PortState, RetryPolicy, Target};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::link_caps::infiniband_ports;

/// Time limit for each reply of a subnet manager.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The remedy for a missing subnet manager.
pub const START: &str =
    "start a subnet manager: systemctl enable --now opensm (on one host of the fabric)";
/// Number of tries.
const TRIES: u32 = 3;

/// The result of the query for the subnet manager of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSm {
    /// The name of the device.
    pub device: String,
    /// The port number, from 1.
    pub port: u8,
    /// The subnet manager, or the reason why it is not known.
    pub sm: Result<Sm, SmError>,
    /// The other subnet managers of the subnet, or an error message. They take over if the master
    /// fails.
    #[serde(default)]
    pub standby: Option<Result<Vec<Sm>, String>>,
}

/// The reason why a subnet manager is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "CapturedError")]
pub struct SmError {
    /// The error of the kernel, if there is one.
    pub errno: Option<i32>,
    /// The message.
    pub text: String,
}

impl SmError {
    /// Returns `true` if this user may not send management datagrams.
    pub fn is_denied(&self) -> bool {
        [Errno::EACCES, Errno::EPERM]
            .map(|errno| Some(errno as i32))
            .contains(&self.errno)
    }
}

/// An error in a capture. Those of version 0.1 have the message only.
#[derive(Deserialize)]
#[serde(untagged)]
enum CapturedError {
    Error { errno: Option<i32>, text: String },
    Text(String),
}

impl From<CapturedError> for SmError {
    fn from(error: CapturedError) -> Self {
        const ERRORS: [(&str, Errno); 3] = [
            ("Protocol not supported", Errno::EPROTONOSUPPORT),
            ("(EACCES)", Errno::EACCES),
            ("(EPERM)", Errno::EPERM),
        ];
        match error {
            CapturedError::Error { errno, text } => Self { errno, text },
            CapturedError::Text(text) => {
                let mut errors = ERRORS.iter();
                let found = errors.find(|(words, _)| text.contains(words));
                let errno = found.map(|(_, errno)| *errno as i32);
                Self { errno, text }
            }
        }
    }
}

/// The attributes of a subnet manager (SMInfo).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sm {
    /// The LID.
    pub lid: u16,
    /// The GUID of its port.
    pub guid: u64,
    /// A counter that increases while the subnet manager runs.
    pub activity_count: u32,
    /// The priority, 0 to 15. The subnet manager with the highest priority becomes the master.
    pub priority: u8,
    /// The state code. 3 is the master.
    pub state: u8,
}

impl PortSm {
    /// Returns `true` if the kernel offers no subnet management on the port. Virtual functions and
    /// plane devices have no queue pair 0, and `ib_register_mad_agent` fails with EPROTONOSUPPORT.
    pub fn lacks_smi(&self) -> bool {
        let error = self.sm.as_ref().err();
        error.is_some_and(|error| error.errno == Some(Errno::EPROTONOSUPPORT as i32))
    }

    /// Returns the subnet managers that wait to take over.
    pub fn standby(&self) -> &[Sm] {
        match &self.standby {
            Some(Ok(standby)) => standby,
            _ => &[],
        }
    }
}

impl Sm {
    /// Returns the name of the state that sminfo prints.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            0 => "SMINFO_NOTACT",
            1 => "SMINFO_DISCOVER",
            2 => "SMINFO_STANDBY",
            3 => "SMINFO_MASTER",
            _ => "???",
        }
    }
}

/// Queries the subnet manager of every InfiniBand port of this host.
pub(crate) fn query() -> Result<Vec<PortSm>, String> {
    let ports = infiniband_ports().map_err(|error| error.to_string())?;
    Ok(ports
        .into_iter()
        .map(|port| {
            let sm = query_port(&port, port.sm_lid);
            PortSm {
                standby: sm.is_ok().then(|| query_standby(&port)),
                sm,
                device: port.ca_name,
                port: port.port_num,
            }
        })
        .collect())
}

/// Queries the subnet manager with this LID, from the first active InfiniBand port, if this host
/// has one.
pub fn query_lid(lid: u16) -> Result<Option<PortSm>, String> {
    let ports = infiniband_ports().map_err(|error| error.to_string())?;
    let is_active = |port: &&PortAttr| port.state == PortState::ACTIVE;
    let port = ports.iter().find(is_active).or(ports.first());
    Ok(port.map(|port| PortSm {
        device: port.ca_name.clone(),
        port: port.port_num,
        sm: query_port(port, Lid(lid)),
        standby: None,
    }))
}

fn query_port(port: &PortAttr, lid: Lid) -> Result<Sm, SmError> {
    if !lid.is_unicast() {
        return Err(SmError {
            errno: None,
            text: format!("no subnet manager has configured the port (SM LID {lid}); {START}"),
        });
    }
    let info = || {
        let smi = Port::open(&port.ca_name, port.port_num)?.subnet_management()?;
        smi.with_retry(RetryPolicy::new().timeout(TIMEOUT).tries(TRIES))
            .sm_info(&Target::Lid(lid))
    };
    let info = info().map_err(|error: ibumad::Error| SmError {
        errno: error.errno().map(|errno| errno.0),
        text: match error.kind() {
            ErrorKind::TimedOut | ErrorKind::Refused => {
                format!("the subnet manager at LID {lid} does not answer ({error}); {START}")
            }
            _ => format!("query the subnet manager: {error}"),
        },
    })?;
    Ok(Sm::new(lid.0, &info))
}

/// Queries subnet administration for subnet managers that wait to take over.
fn query_standby(port: &PortAttr) -> Result<Vec<Sm>, String> {
    let query = || {
        Port::open(&port.ca_name, port.port_num)?
            .subnet_administration(None)?
            .with_retry(RetryPolicy::new().timeout(TIMEOUT).tries(TRIES))
            .sm_in_state(SmState::STANDBY)
    };
    let found = query().map_err(|error: ibumad::Error| error.to_string())?;
    Ok(found
        .map(|(lid, info)| Sm::new(lid.0, &info))
        .into_iter()
        .collect())
}

impl Sm {
    fn new(lid: u16, info: &SmInfo) -> Self {
        Self {
            lid,
            guid: info.guid().0,
            activity_count: info.act_count(),
            priority: info.priority(),
            state: info.state().0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_capture_keep_their_number() {
        let error = SmError {
            errno: Some(Errno::EPROTONOSUPPORT as i32),
            text: "umad_register2: Protocol not supported (errno 93)".into(),
        };
        let old = serde_json::to_string(&error.text).expect("JSON");
        let new = serde_json::to_string(&error).expect("JSON");
        for text in [old, new] {
            assert_eq!(
                serde_json::from_str::<SmError>(&text).expect("an error"),
                error
            );
        }
        let denied: SmError = serde_json::from_str("\"umad_open_port: x (EACCES)\"").expect("JSON");
        assert!(denied.is_denied() && !error.is_denied());
    }
}
