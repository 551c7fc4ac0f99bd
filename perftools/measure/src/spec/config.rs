//! The specification of a test.

use serde::{Deserialize, Serialize};

use super::limits::{DEFAULT_TIME, DEFAULT_TIMEOUT, MAX_QPS, default_depth};
use super::modes::{Cm, Wait};
use super::payload_file::PayloadFile;
use super::side::{Limit, Multicast, Side, Sockets};
use super::test::Test;
use super::tuning::Tuning;

/// The specification of a test, which the client sends to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Spec {
    /// The test.
    pub test: Test,
    /// Size of each message in bytes.
    pub msg_size: u64,
    /// End of the test: a duration or a number of messages.
    pub limit: Limit,
    /// Maximum number of messages in flight on each queue pair.
    pub depth: u32,
    /// Number of queue pairs of each thread.
    pub qps: u32,
    /// Number of threads at each end. Each thread has its own queue pairs.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub threads: u32,
    /// Reverses the direction of a one-way test, so that the server sends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub flip: bool,
    /// Use of immediate data; none: in RDMA writes, if the link supports it, and in sends over
    /// services whose messages carry numbers.
    pub immediate: Option<bool>,
    /// Send without flow control on unreliable services.
    pub flood: bool,
    /// Multicast group that the datagrams are sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<Multicast>,
    /// Use of rdma_cm to connect.
    pub use_cm: Cm,
    /// Path MTU in bytes; none: the smaller active MTU of the two ports.
    pub mtu: Option<u32>,
    /// Check each received byte.
    pub verify: bool,
    /// File whose bytes fill the messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<PayloadFile>,
    /// Tuning of requests, packets and memory.
    #[serde(default)]
    pub tuning: Tuning,
    /// Settings of tests over sockets.
    #[serde(default, skip_serializing_if = "Sockets::is_default")]
    pub sockets: Sockets,
    /// Settings of the client.
    pub client: Side,
    /// Settings of the server.
    pub server: Side,
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde requires.
fn is_one(n: &u32) -> bool {
    *n == 1
}

impl Spec {
    /// Creates the specification of a test with the defaults of all options.
    pub fn new(test: Test) -> Self {
        let msg_size = test.default_size();
        let side = Side::new(Wait::default(), DEFAULT_TIMEOUT);
        Self {
            test,
            msg_size,
            limit: Limit::Time(DEFAULT_TIME),
            depth: default_depth(msg_size),
            qps: 1,
            threads: 1,
            flip: false,
            immediate: None,
            flood: false,
            multicast: None,
            use_cm: Cm::default(),
            mtu: None,
            verify: test.verifies(),
            payload: None,
            sockets: Sockets::default(),
            tuning: Tuning::default(),
            client: side.clone(),
            server: side,
        }
    }

    /// Returns this specification with another message size and the default depth for it.
    #[must_use]
    pub fn with_msg_size(&self, msg_size: u64) -> Self {
        Self {
            msg_size,
            depth: default_depth(msg_size),
            ..self.clone()
        }
    }

    /// Returns the specification of one stream of a test over sockets, with its share of the
    /// messages and of the rate limit. The second half of the streams of a bidirectional test
    /// flows from the server to the client.
    #[must_use]
    pub fn stream(&self, number: u32) -> Self {
        let streams = u64::from(self.sockets.streams().max(1));
        let limit = match self.limit {
            Limit::Messages(n) => {
                Limit::Messages(n / streams + u64::from(u64::from(number) < n % streams))
            }
            time @ Limit::Time(_) => time,
        };
        let per_direction = u64::from(self.sockets.parallel.max(1));
        Self {
            limit,
            flip: self.flip || number >= self.sockets.parallel,
            tuning: Tuning {
                rate_limit: self
                    .tuning
                    .rate_limit
                    .map(|rate| (rate / per_direction).max(1)),
                ..self.tuning
            },
            ..self.clone()
        }
    }

    /// Returns this specification as a record contains it, without the bytes of the payload file.
    #[must_use]
    pub fn for_record(&self) -> Self {
        Self {
            payload: self.payload.as_ref().map(PayloadFile::without_bytes),
            ..self.clone()
        }
    }

    /// Returns the number of queue pairs of each end, or of its DC targets.
    pub fn total_qps(&self) -> u32 {
        let receivers = self.multicast.map_or(1, |multicast| multicast.receivers);
        self.threads
            .saturating_mul(self.qps.max(receivers))
            .saturating_mul(self.dc_targets())
            .min(MAX_QPS)
    }

    /// Returns the number of targets of each initiator, which is 1 for other services than DC.
    pub(crate) fn dc_targets(&self) -> u32 {
        let plan = self.test.plan();
        plan.map_or(1, |plan| plan.service.targets(&self.tuning))
    }

    /// Returns `true` if the depth is the default for the message size.
    pub fn has_default_depth(&self) -> bool {
        self.depth == default_depth(self.msg_size)
    }
}
