//! How an end of a test is connected.

use serde::{Deserialize, Serialize};

use crate::rperf::spec::modes::Wait;

/// How one end is connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Via"))]
pub struct ConnectionInfo {
    /// The device; for tests over sockets the protocol.
    pub device: String,
    /// Its port, from 1; 0 for tests over sockets.
    pub port: u8,
    /// `RoCE v2`, `InfiniBand` or `iWARP`.
    pub link: String,
    /// The index of the GID in use, where there is one.
    pub gid_index: Option<u32>,
    /// The address in use: an IP address, or a LID.
    pub address: String,
    /// True where rdma_cm set the connection up.
    pub cm: bool,
    /// The path MTU, where this end set it.
    pub mtu: Option<u32>,
    /// The port's own, which the path's may be below of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_mtu: Option<u32>,
    /// How it waited for completions.
    pub wait: Wait,
}

impl std::fmt::Display for ConnectionInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.port == 0 {
            return write!(f, "{} {}", self.link, self.address);
        }
        write!(f, "{}:{} {}", self.device, self.port, self.link)?;
        if let Some(index) = self.gid_index {
            write!(f, " gid[{index}]")?;
        }
        write!(
            f,
            " {}{}",
            self.address,
            if self.cm { " (rdma_cm)" } else { "" }
        )
    }
}
