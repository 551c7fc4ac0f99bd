//! Tuning of a test.

use std::time::Duration;

use ibverbs::{
    MemoryOptions,
    mr::{Backing, HugePageSize},
};
use serde::{Deserialize, Serialize};

/// Maximum number of requests posted with one doorbell.
pub(crate) const MAX_POST_LIST: u32 = 64;

/// Pages of the buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// Pages of the default size.
    #[default]
    Normal,
    /// Huge pages of 2 MiB.
    Huge2M,
    /// Huge pages of 1 GiB.
    Huge1G,
}

/// Tuning of a test. It applies to both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(clippy::struct_excessive_bools)] // Independent settings.
pub struct Tuning {
    /// Duration of the test before the measurement starts.
    pub warm_up: Duration,
    /// Rate limit of the sender in bytes per second.
    pub rate_limit: Option<u64>,
    /// Maximum number of messages posted with one doorbell.
    pub post_list: u32,
    /// Maximum size in bytes of messages that are sent inline; none: chosen automatically.
    pub inline: Option<u32>,
    /// Number of sends per requested completion; none: a quarter of the depth.
    pub signal_every: Option<u32>,
    /// Maximum number of RDMA reads and atomics in flight; none: the maximum of both devices.
    pub rd_atomic: Option<u8>,
    /// Index of the partition key in the P_Key table of the port.
    pub pkey_index: u16,
    /// InfiniBand service level.
    pub service_level: u8,
    /// Traffic class (DSCP and ECN bits on RoCE v2).
    pub traffic_class: u8,
    /// Pages of the buffers.
    pub pages: Pages,
    /// Register buffers for on-demand paging instead of pinning them.
    pub on_demand: bool,
    /// Let the device's writes become visible in any order before their completion.
    #[serde(skip_serializing_if = "is_true")]
    pub relaxed_ordering: bool,
    /// Flow label of the packets, 20 bits.
    #[serde(skip_serializing_if = "is_zero")]
    pub flow_label: u32,
    /// Acknowledgement timeout of the queue pairs: 4.096 µs × 2^N; none: 14, or the choice of
    /// rdma_cm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qp_timeout: Option<u8>,
    /// Number of retries of the queue pairs without an acknowledgement; none: 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<u8>,
    /// Completion vector of the completion queues.
    #[serde(skip_serializing_if = "is_zero")]
    pub cq_vector: u32,
    /// Number of messages that a sender with a rate limit sends at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Record each latency.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub samples: bool,
    /// Use one shared receive queue for all queue pairs of a thread.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub srq: bool,
    /// Number of receive requests that are reposted as a batch; none: as the test requires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recv_list: Option<u32>,
    /// Number of targets of each DC initiator; none: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dc_targets: Option<u32>,
    /// Read each received byte.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub access_received: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde requires.
fn is_true(value: &bool) -> bool {
    *value
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde requires.
fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            warm_up: Duration::ZERO,
            rate_limit: None,
            post_list: 16,
            inline: None,
            signal_every: None,
            rd_atomic: None,
            pkey_index: 0,
            service_level: 0,
            traffic_class: 0,
            pages: Pages::Normal,
            on_demand: false,
            relaxed_ordering: true,
            flow_label: 0,
            qp_timeout: None,
            retry_count: None,
            cq_vector: 0,
            burst: None,
            samples: false,
            srq: false,
            recv_list: None,
            dc_targets: None,
            access_received: false,
        }
    }
}

impl Tuning {
    /// Returns the options for allocating and registering memory.
    pub(crate) fn memory(&self) -> MemoryOptions {
        let backing = match self.pages {
            Pages::Normal => Backing::default(),
            Pages::Huge2M => Backing::HugePages(HugePageSize::Mib2),
            Pages::Huge1G => Backing::HugePages(HugePageSize::Gib1),
        };
        MemoryOptions::new()
            .backing(backing)
            .on_demand(self.on_demand)
            .relaxed_ordering(self.relaxed_ordering)
    }

    /// Returns `true` if packets carry attributes that rdma_cm does not let the program set.
    pub(crate) fn sets_packet_attributes(&self) -> bool {
        self.pkey_index != 0 || self.service_level != 0 || self.flow_label != 0
    }
}
