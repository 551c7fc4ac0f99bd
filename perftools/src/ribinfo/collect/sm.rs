//! The subnet manager of each InfiniBand port, queried with SMInfo.

use std::time::Duration;

use ibumad::{Port, PortAttr, RetryPolicy, Target};
use serde::{Deserialize, Serialize};

use super::link_caps::infiniband_ports;

/// Time limit for each reply of a subnet manager.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Number of tries.
const TRIES: u32 = 3;

/// The result of the query for the subnet manager of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSm {
    /// The name of the device.
    pub device: String,
    /// The port number, from 1.
    pub port: u8,
    /// The subnet manager, or an error message.
    pub sm: Result<Sm, String>,
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
///
/// # Errors
/// Returns an error if the adapters cannot be listed.
pub fn query() -> Result<Vec<PortSm>, String> {
    let ports = infiniband_ports().map_err(|error| error.to_string())?;
    Ok(ports
        .into_iter()
        .map(|port| PortSm {
            sm: query_port(&port),
            device: port.ca_name,
            port: port.port_num,
        })
        .collect())
}

fn query_port(port: &PortAttr) -> Result<Sm, String> {
    let lid = port.sm_lid;
    if !lid.is_unicast() {
        return Err(
            "no subnet manager has configured the port; systemctl enable --now opensm (on one host of the fabric)"
                .to_owned(),
        );
    }
    let info = || {
        let smi = Port::open(&port.ca_name, port.port_num)?.subnet_management()?;
        smi.with_retry(RetryPolicy::new().timeout(TIMEOUT).tries(TRIES))
            .sm_info(&Target::Lid(lid))
    };
    let info = info().map_err(|error: ibumad::Error| error.to_string())?;
    Ok(Sm {
        lid: lid.0,
        guid: info.guid().0,
        activity_count: info.act_count(),
        priority: info.priority(),
        state: info.state().0,
    })
}
