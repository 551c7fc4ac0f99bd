//! Supported and enabled widths and speeds of the link of an InfiniBand port, from its PortInfo.

use std::time::Duration;

use base::device_id::is_iwarp;
use ibumad::LinkWidth;
use ibumad::mad::{LinkSpeed, LinkSpeedExt, PortInfo};
use ibumad::{Ca, Port, PortAttr, RetryPolicy, Target};
use serde::{Deserialize, Serialize};

use super::rate::LaneSpeed;

/// Timeout and tries of the query to a local port.
const RETRY: RetryPolicy = RetryPolicy::new()
    .timeout(Duration::from_millis(500))
    .tries(2);

/// The capabilities of a port, or the error of the query. Only root can send the query, because it
/// is a management datagram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCaps {
    /// The name of the device.
    pub device: String,
    /// The port number, from 1.
    pub port: u8,
    /// The capabilities, or an error message.
    pub caps: Result<LinkCaps, String>,
}

/// Widths and speeds that the port supports, and those that its settings enable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCaps {
    /// `…Supported`.
    pub supported: LinkSet,
    /// `…Enabled`.
    pub enabled: LinkSet,
}

/// Sets of widths and speeds, encoded as in PortInfo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSet {
    /// `LinkWidth…`.
    pub width: u8,
    /// `LinkSpeed…`.
    pub speed: u8,
    /// `LinkSpeedExt…`.
    pub speed_ext: u8,
}

impl LinkSet {
    /// Returns the largest number of lanes in the set.
    pub fn lanes(self) -> Option<u32> {
        let all = [
            LinkWidth::X12,
            LinkWidth::X8,
            LinkWidth::X4,
            LinkWidth::X2,
            LinkWidth::X1,
        ];
        all.into_iter()
            .find(|width| self.width & width.0 != 0)
            .and_then(LinkWidth::lanes)
    }

    /// Returns the highest lane speed in the set.
    pub fn lane_speed(self) -> Option<LaneSpeed> {
        let extended = [
            (LinkSpeedExt::NDR, "NDR"),
            (LinkSpeedExt::HDR, "HDR"),
            (LinkSpeedExt::EDR, "EDR"),
            (LinkSpeedExt::FDR, "FDR"),
        ];
        let classic = [
            (LinkSpeed::QDR, "QDR"),
            (LinkSpeed::DDR, "DDR"),
            (LinkSpeed::SDR, "SDR"),
        ];
        let name = extended
            .into_iter()
            .find(|(speed, _)| self.speed_ext & speed.0 != 0)
            .map(|(_, name)| name)
            .or_else(|| {
                classic
                    .into_iter()
                    .find(|(speed, _)| self.speed & speed.0 != 0)
                    .map(|(_, name)| name)
            });
        name.and_then(LaneSpeed::from_name)
    }
}

impl From<PortInfo> for LinkCaps {
    fn from(info: PortInfo) -> Self {
        Self {
            supported: LinkSet {
                width: info.link_width_supported().0,
                speed: info.link_speed_supported().0,
                speed_ext: info.link_speed_ext_supported().0,
            },
            enabled: LinkSet {
                width: info.link_width_enabled().0,
                speed: info.link_speed_enabled().0,
                speed_ext: info.link_speed_ext_enabled().0,
            },
        }
    }
}

/// Queries every InfiniBand port of this host.
pub(crate) fn query() -> Vec<PortCaps> {
    let ports = infiniband_ports().unwrap_or_default();
    ports
        .into_iter()
        .map(|port| PortCaps {
            caps: query_port(&port.ca_name, port.port_num).map_err(|error| error.to_string()),
            device: port.ca_name,
            port: port.port_num,
        })
        .collect()
}

fn query_port(device: &str, port: u8) -> ibumad::Result<LinkCaps> {
    let smi = Port::open(device, port)?
        .subnet_management()?
        .with_retry(RETRY);
    smi.port_info(&Target::local(), port).map(LinkCaps::from)
}

/// Returns the InfiniBand ports of this host, from which management datagrams can be sent. Adapters
/// that cannot be queried are omitted.
pub(super) fn infiniband_ports() -> ibumad::Result<Vec<PortAttr>> {
    let cas = Ca::names()?
        .into_iter()
        // libibumad prints a warning about a device without partition keys.
        .filter(|name| !is_iwarp(name))
        .filter_map(|name| Ca::by_name(&name).ok());
    Ok(cas
        .flat_map(|ca| ca.ports)
        .filter(|port| port.link_layer.is_infiniband())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_width_and_highest_speed_are_returned() {
        let set = LinkSet {
            width: 0b11,
            speed: 0b111,
            speed_ext: 0,
        };
        assert_eq!(
            (set.lanes(), set.lane_speed()),
            (Some(4), LaneSpeed::from_name("QDR"))
        );
        assert_eq!(
            LinkSet {
                speed_ext: 0b11,
                ..set
            }
            .lane_speed(),
            LaneSpeed::from_name("EDR")
        );
        assert_eq!(
            (LinkSet::default().lanes(), LinkSet::default().lane_speed()),
            (None, None)
        );
    }
}
