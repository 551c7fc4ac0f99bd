//! What holds for one end, or for one kind of test.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::path::PathSettings;
use crate::common::cpus::CpuList;
use crate::common::device_id::DeviceId;
use crate::rperf::spec::modes::Wait;

/// When a test ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// After this time.
    Time(Duration),
    /// After this many messages in each direction.
    Messages(u64),
}

/// What holds for one end only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Side {
    /// The device asked for.
    pub id: Option<DeviceId>,
    /// How to wait for completions.
    pub wait: Wait,
    /// When to give a silent peer up.
    pub timeout: Duration,
    /// The processors to run on; none: any.
    #[serde(default)]
    pub cpus: Option<CpuList>,
    /// The place of the GID to use; none: by the address.
    #[serde(default)]
    pub gid_index: Option<u8>,
    /// What its packets carry and how many requests it has, where that is not as at the other end.
    #[serde(default, skip_serializing_if = "PathSettings::is_default")]
    pub path: PathSettings,
}

impl Side {
    /// An end that waits so, and gives a silent peer up after this time.
    pub fn new(wait: Wait, timeout: Duration) -> Self {
        Self {
            id: None,
            wait,
            timeout,
            cpus: None,
            gid_index: None,
            path: PathSettings::default(),
        }
    }
}

/// Datagrams to several receivers at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Multicast {
    /// The server's queue pairs, each of which gets every message.
    pub receivers: u32,
    /// The group; none: one by chance.
    pub group: Option<IpAddr>,
}

/// What holds for tests over sockets only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sockets {
    /// The port of the server's end; 0: any.
    pub port: u16,
    /// Bytes of the client's buffers; 0: as the system has them.
    pub client_buffers: u32,
    /// Bytes of the server's buffers.
    pub server_buffers: u32,
}

impl Sockets {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
