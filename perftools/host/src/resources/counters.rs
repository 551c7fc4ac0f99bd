//! The hardware counters of ports.

use std::io;

use base::error::{Error, Result};
use base::peer_text::printable;
use serde::{Deserialize, Serialize};

use super::netlink::{Attributes, Netlink, u32_attribute};
use super::{DEV_INDEX, PORT_INDEX, is_absent, open};

/// `RDMA_NLDEV_CMD_STAT_GET`: queries the counters of a port.
const STAT_GET: u16 = 17;
const HWCOUNTERS: u16 = 80;
const HWCOUNTER_ENTRY: u16 = 81;
const HWCOUNTER_NAME: u16 = 82;
const HWCOUNTER_VALUE: u16 = 83;

/// A hardware counter of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounter {
    /// The name of the device.
    pub device: String,
    /// The port number, from 1.
    pub port: u32,
    /// The name that the driver gives the counter.
    pub name: String,
    /// The value.
    pub value: u64,
}

/// Queries the hardware counters of all ports.
///
/// They are those of `hw_counters` in sysfs, and the optional ones that `rdma statistic set` has
/// enabled, which sysfs does not have. Ports whose driver has none are omitted.
pub fn counters() -> Result<Vec<PortCounter>> {
    let failed = |error: io::Error| Error::system("query the counters of the kernel", &error);
    let Some((mut netlink, devices)) = open().map_err(failed)? else {
        return Ok(Vec::new());
    };
    let mut counters = Vec::new();
    for device in devices {
        for port in 1..=device.ports {
            match query(&mut netlink, device.index, port) {
                Ok(values) => {
                    counters.extend(values.into_iter().map(|(name, value)| PortCounter {
                        device: device.name.clone(),
                        port,
                        name,
                        value,
                    }));
                }
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
    Ok(counters)
}

/// Queries the hardware counters of one port. Returns `None` if the kernel reports none.
pub(crate) fn port_counters(device: &str, port: u8) -> Option<Vec<(String, u64)>> {
    let (mut netlink, devices) = open().ok()??;
    let device = devices.into_iter().find(|found| found.name == device)?;
    let values = query(&mut netlink, device.index, port.into()).ok()?;
    (!values.is_empty()).then_some(values)
}

fn query(netlink: &mut Netlink, device: u32, port: u32) -> io::Result<Vec<(String, u64)>> {
    let request = [
        u32_attribute(DEV_INDEX, device),
        u32_attribute(PORT_INDEX, port),
    ];
    let reply = netlink.get(STAT_GET, &request)?;
    Ok(reply.messages().flat_map(values).collect())
}

/// Returns the counters in a message.
pub(super) fn values(message: Attributes<'_>) -> impl Iterator<Item = (String, u64)> {
    message
        .nested(HWCOUNTERS)
        .flat_map(|table| table.nested(HWCOUNTER_ENTRY))
        .filter_map(|entry| {
            let name = entry.text(HWCOUNTER_NAME)?;
            Some((printable(&name), entry.u64(HWCOUNTER_VALUE)?))
        })
}
