//! Device and port names on the command line.

use std::fmt;
use std::fs;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Returns `true` if the kernel reports the device as an iWARP adapter, which has no management
/// datagrams.
pub fn is_iwarp(device: &str) -> bool {
    fs::read_to_string(format!("/sys/class/infiniband/{device}/node_type"))
        .is_ok_and(|node_type| node_type.trim_start().starts_with('4'))
}

/// The name of a device, optionally with a port: `rxe0`, `mlx5_0:1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct DeviceId {
    /// Name of the device.
    pub name: String,
    /// Port number; `None` selects the first active port.
    pub port: Option<u8>,
}

impl FromStr for DeviceId {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, port) = text
            .split_once(':')
            .map_or((text, None), |(n, p)| (n, Some(p)));
        if name.is_empty() || name.len() > 63 || name.contains(|c: char| c.is_control() || c == '/')
        {
            return Err(format!(
                "`{text}` is not a device name; expected NAME or NAME:PORT, such as mlx5_0:1"
            ));
        }
        let port = port.map(|p| {
            p.parse()
                .ok()
                .filter(|p| *p > 0)
                .ok_or_else(|| format!("`{p}` is not a port number; expected 1 to 255"))
        });
        Ok(Self {
            name: name.to_owned(),
            port: port.transpose()?,
        })
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Maximum number of devices in a [`DeviceList`].
pub(crate) const MAX_DEVICES: usize = 16;

/// One or more different devices, separated by commas: `mlx5_0,mlx5_1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceList(Vec<DeviceId>);

impl DeviceList {
    /// Returns the first device.
    pub fn first(&self) -> &DeviceId {
        &self.0[0]
    }

    /// Returns all devices.
    pub fn as_slice(&self) -> &[DeviceId] {
        &self.0
    }
}

impl FromStr for DeviceList {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut all: Vec<DeviceId> = Vec::new();
        for word in text.split(',') {
            let id: DeviceId = word.parse()?;
            // A name without a port selects one of the ports.
            let same_port = |a: Option<u8>, b: Option<u8>| a.is_none() || b.is_none() || a == b;
            if all
                .iter()
                .any(|other| other.name == id.name && same_port(other.port, id.port))
            {
                return Err(format!("device {id} is in the list twice"));
            }
            all.push(id);
        }
        if all.len() > MAX_DEVICES {
            return Err(format!(
                "the list has {} devices: the maximum is {MAX_DEVICES}",
                all.len()
            ));
        }
        Ok(Self(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_different_devices() {
        let list: DeviceList = "mlx5_0:1,mlx5_0:2,rxe0".parse().unwrap();
        assert_eq!(list.as_slice().len(), 3);
        assert_eq!(list.first().to_string(), "mlx5_0:1");
        let many = |n: u32| {
            (0..n)
                .map(|i| format!("d{i}"))
                .collect::<Vec<_>>()
                .join(",")
        };
        assert!(many(16).parse::<DeviceList>().is_ok());
        for (text, expected) in [
            ("a,b,a", "device a is in the list twice"),
            ("a:1,a", "device a is in the list twice"),
            ("a,,b", "`` is not a device name"),
            ("a,", "`` is not a device name"),
            ("a:0,b", "`0` is not a port number"),
            (&many(17), "17 devices: the maximum is 16"),
        ] {
            let error = text.parse::<DeviceList>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
