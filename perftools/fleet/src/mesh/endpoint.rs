//! The endpoints that a mesh measures with each other.

use base::device_id::DeviceId;
use serde::{Deserialize, Serialize};

/// A host, or one of its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Endpoint {
    /// Unique name, which the cells use.
    pub name: String,
    /// Host name or address.
    pub host: String,
    /// TCP port of the host's server.
    pub port: u16,
    /// RDMA device and port; none: selected by address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceId>,
    /// Technology of the port: `InfiniBand`, `RoCE` or `iWARP`, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl Endpoint {
    /// Returns `true` if both endpoints are served by the same server.
    pub(crate) fn shares_host(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }

    /// Returns `true` if the endpoints are measured with each other: they are on different hosts,
    /// and their ports have the same technology, as far as it is known.
    pub(crate) fn can_reach(&self, other: &Self) -> bool {
        let differ = matches!((&self.link, &other.link), (Some(a), Some(b)) if a != b);
        !self.shares_host(other) && !differ
    }
}
