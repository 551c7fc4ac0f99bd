//! The subnet manager that each InfiniBand port has, by SMInfo.

use std::time::Duration;

use ibumad::{Port, PortAttr, RetryPolicy, Target};
use serde::{Deserialize, Serialize};

use super::link_caps::infiniband_ports;

/// How long a subnet manager may take to say what it is.
const WAIT: Duration = Duration::from_millis(500);
/// How often it is asked.
const TRIES: u32 = 3;

/// What came of asking for the subnet manager of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSm {
    /// The device.
    pub device: String,
    /// From 1.
    pub port: u8,
    /// What the subnet manager says; or why it says nothing.
    pub sm: Result<Sm, String>,
}

/// A subnet manager (SMInfo).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sm {
    /// Where it is.
    pub lid: u16,
    /// The GUID of the port that it runs on.
    pub guid: u64,
    /// Rises while it lives.
    pub activity_count: u32,
    /// 0 to 15; the highest becomes the master.
    pub priority: u8,
    /// 3 is the master.
    pub state: u8,
}

impl Sm {
    /// The name that sminfo prints.
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

/// Asks at every InfiniBand port of this host.
///
/// # Errors
/// There is no list of adapters.
pub fn ask() -> Result<Vec<PortSm>, String> {
    let ports = infiniband_ports().map_err(|error| error.to_string())?;
    Ok(ports
        .into_iter()
        .map(|port| PortSm {
            sm: ask_at(&port),
            device: port.ca_name,
            port: port.port_num,
        })
        .collect())
}

fn ask_at(port: &PortAttr) -> Result<Sm, String> {
    let lid = port.sm_lid;
    if !lid.is_unicast() {
        return Err(
            "no subnet manager has configured the port; systemctl enable --now opensm (on one host of the fabric)"
                .to_owned(),
        );
    }
    let info = || {
        let smi = Port::open(&port.ca_name, port.port_num)?.subnet_management()?;
        smi.with_retry(RetryPolicy {
            timeout: WAIT,
            tries: TRIES,
        })
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
