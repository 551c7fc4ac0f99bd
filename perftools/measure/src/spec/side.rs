//! Settings of one end, or of one kind of test.

use std::net::IpAddr;
use std::time::Duration;

use base::cpus::CpuList;
use base::device_id::DeviceId;
use serde::{Deserialize, Serialize};

use super::gpu::GpuId;
use super::path::PathSettings;
use crate::spec::modes::Wait;

/// End of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// After this time.
    Time(Duration),
    /// After this many messages in each direction.
    Messages(u64),
}

/// Settings of one end of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Side {
    /// Requested RDMA device and port; none: selected by address.
    pub id: Option<DeviceId>,
    /// Way to wait for completions.
    pub wait: Wait,
    /// Time after which the test fails if the peer does not respond.
    pub timeout: Duration,
    /// CPUs to run on; none: any.
    #[serde(default)]
    pub cpus: Option<CpuList>,
    /// Number of these CPUs that the sessions of other devices use, in a test over several devices.
    /// Each thread then has a CPU of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_offset: Option<u32>,
    /// Index of the GID in the GID table of the port; none: the GID of the IP address in use.
    #[serde(default)]
    pub gid_index: Option<u8>,
    /// GPU whose memory holds the messages; none: host memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuId>,
    /// Settings of packets and requests that differ from those of the other end.
    #[serde(default, skip_serializing_if = "PathSettings::is_default")]
    pub path: PathSettings,
}

impl Side {
    /// Creates the settings of an end with defaults for everything else.
    pub fn new(wait: Wait, timeout: Duration) -> Self {
        Self {
            id: None,
            wait,
            timeout,
            cpus: None,
            cpu_offset: None,
            gid_index: None,
            gpu: None,
            path: PathSettings::default(),
        }
    }
}

/// A multicast group and its receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Multicast {
    /// Number of queue pairs of the server. Each one receives every message.
    pub receivers: u32,
    /// IP address of the group; none: a random one.
    pub group: Option<IpAddr>,
}

/// Settings of tests over sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Sockets {
    /// Port of the server's end, the first one of several streams; 0: for TCP and UDP that of the
    /// control connection, for SCTP and RDS any free port.
    pub port: u16,
    /// Number of parallel streams in each direction.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub parallel: u32,
    /// Data flows in both directions at the same time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bidirectional: bool,
    /// Size of the client's socket buffers in bytes; 0: chosen by the kernel.
    pub client_buffers: u32,
    /// Size of the server's socket buffers in bytes; 0: chosen by the kernel.
    pub server_buffers: u32,
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde requires.
fn is_one(n: &u32) -> bool {
    *n == 1
}

impl Default for Sockets {
    fn default() -> Self {
        Self {
            port: 0,
            parallel: 1,
            bidirectional: false,
            client_buffers: 0,
            server_buffers: 0,
        }
    }
}

impl Sockets {
    /// Returns the number of streams in both directions together.
    pub fn streams(&self) -> u32 {
        self.parallel
            .saturating_mul(1 + u32::from(self.bidirectional))
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
