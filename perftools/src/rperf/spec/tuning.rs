//! How a test is tuned, checked.

use std::time::Duration;

use ibverbs::{
    MemoryOptions,
    mr::{Backing, HugePageSize},
};
use serde::{Deserialize, Serialize};

use crate::common::error::{Error, Result};
use crate::common::units::show_time;

/// The most that one doorbell posts.
pub const MAX_POST_LIST: u32 = 64;
/// The longest time before the counting.
const MAX_WARM_UP: Duration = Duration::from_secs(3600);

/// Where buffers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// In ordinary pages.
    #[default]
    Normal,
    /// In pages of 2 MiB.
    Huge2M,
    /// In pages of 1 GiB.
    Huge1G,
}

/// How a test is tuned; the same on both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Tuning {
    /// Time before anything is counted.
    pub warm_up: Duration,
    /// Bytes a second at most.
    pub rate_limit: Option<u64>,
    /// Messages a doorbell at most.
    pub post_list: u32,
    /// Bytes that go inline; none: a good choice.
    pub inline: Option<u32>,
    /// Every so many sends ask for a completion; none: a quarter of the depth.
    pub signal_every: Option<u32>,
    /// RDMA reads and atomics in flight; none: what both devices have.
    pub rd_atomic: Option<u8>,
    /// Place of the partition key.
    pub pkey_index: u16,
    /// Service level.
    pub service_level: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Where buffers are.
    pub pages: Pages,
    /// Buffers are not pinned.
    pub on_demand: bool,
    /// The queue pairs of a thread receive from one queue.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub srq: bool,
    /// Receives that are posted again together; none: as they come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recv_list: Option<u32>,
    /// Each byte is read once it has arrived.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub access_received: bool,
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
            srq: false,
            recv_list: None,
            access_received: false,
        }
    }
}

impl Tuning {
    /// Checks every number against what this program does.
    ///
    /// # Errors
    /// Says which number, what the limit is, and what to do.
    pub fn check(&self) -> Result<()> {
        if self.post_list == 0 || self.post_list > MAX_POST_LIST {
            return Err(Error::limit(format!(
                "{} messages a doorbell: give --post-list a number from 1 to {MAX_POST_LIST}",
                self.post_list
            )));
        }
        if let Some(n) = self.recv_list.filter(|n| *n == 0 || *n > MAX_POST_LIST) {
            return Err(Error::limit(format!(
                "{n} receives a doorbell: give --recv-list a number from 1 to {MAX_POST_LIST}"
            )));
        }
        if self.warm_up > MAX_WARM_UP {
            return Err(Error::limit(format!(
                "warm-up of {}: give --warm-up at most 1h",
                show_time(self.warm_up)
            )));
        }
        if self.rate_limit == Some(0) {
            return Err(Error::limit(
                "a rate of 0 sends nothing: give --rate-limit at least 1 byte a second",
            ));
        }
        if self.signal_every == Some(0) {
            return Err(Error::limit(
                "no completions at all: give --cq-moderation at least 1",
            ));
        }
        if self.rd_atomic == Some(0) {
            return Err(Error::limit(
                "no reads and atomics in flight: give --rd-atomic (-nr) at least 1",
            ));
        }
        Ok(())
    }

    /// How memory is obtained and registered.
    pub fn memory(&self) -> MemoryOptions {
        let backing = match self.pages {
            Pages::Normal => Backing::default(),
            Pages::Huge2M => Backing::HugePages(HugePageSize::Mib2),
            Pages::Huge1G => Backing::HugePages(HugePageSize::Gib1),
        };
        MemoryOptions {
            backing,
            on_demand: self.on_demand,
            ..MemoryOptions::default()
        }
    }

    /// Whether packets carry something that only a connection made here gives them.
    pub fn marks_packets(&self) -> bool {
        self.pkey_index != 0 || self.service_level != 0 || self.traffic_class != 0
    }
}
