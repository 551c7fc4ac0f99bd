//! Description of the connection at one end of a test.

use host::hardware::Hardware;
use serde::{Deserialize, Serialize};

use crate::spec::modes::Wait;

/// The connection at one end of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "Via"))]
pub struct ConnectionInfo {
    /// Name of the RDMA device; the protocol in tests over sockets.
    pub device: String,
    /// Port number of the device, from 1; 0 in tests over sockets.
    pub port: u8,
    /// Link type: `RoCE v2`, `InfiniBand` or `iWARP`.
    pub link: String,
    /// Index of the GID in use; none if the connection uses no GID.
    pub gid_index: Option<u32>,
    /// Address in use: an IP address or a LID.
    pub address: String,
    /// `true` if rdma_cm established the connection.
    pub cm: bool,
    /// Path MTU in bytes, if this end set it.
    pub mtu: Option<u32>,
    /// Active MTU of the port in bytes, which may be larger than the path MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_mtu: Option<u32>,
    /// Memory of the messages, such as `GPU cuda:0 (NVIDIA H100 80GB HBM3)`; none: host memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Device or network interface, as far as the system describes it.
    #[serde(default, skip_serializing_if = "Hardware::is_unknown")]
    pub hardware: Hardware,
    /// Way in which this end waited for completions.
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
        )?;
        match &self.memory {
            Some(memory) => write!(f, ", memory of {memory}"),
            None => Ok(()),
        }
    }
}
