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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
