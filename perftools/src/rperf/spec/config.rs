//! A whole test.

use serde::{Deserialize, Serialize};

use super::limits::default_depth;
use super::modes::Cm;
use super::side::{Limit, Multicast, Side, Sockets};
use super::test::Test;
use super::tuning::Tuning;

/// A whole test, as the client sends it to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spec {
    /// The test.
    pub test: Test,
    /// Bytes a message.
    pub msg_size: u64,
    /// When it ends.
    pub limit: Limit,
    /// Messages in flight at most, on each queue pair.
    pub depth: u32,
    /// Queue pairs, of each thread.
    pub qps: u32,
    /// Threads at each end, each with queue pairs of its own.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub threads: u32,
    /// Where data goes one way: from the server to the client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub flip: bool,
    /// RDMA writes with immediate data; none: where the link has it.
    pub immediate: Option<bool>,
    /// Unreliable services: send without regard to what the receiver is ready for.
    pub flood: bool,
    /// Datagrams to a group of receivers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<Multicast>,
    /// How to connect.
    pub use_cm: Cm,
    /// The path MTU, if not the port's.
    pub mtu: Option<u32>,
    /// Check every byte.
    pub verify: bool,
    /// How it is tuned.
    #[serde(default)]
    pub tuning: Tuning,
    /// For tests over sockets.
    #[serde(default, skip_serializing_if = "Sockets::is_default")]
    pub sockets: Sockets,
    /// The client's end.
    pub client: Side,
    /// The server's end.
    pub server: Side,
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
fn is_one(n: &u32) -> bool {
    *n == 1
}

impl Spec {
    /// The same with messages of this size, and as many in flight as is usual for it.
    #[must_use]
    pub fn of_size(&self, msg_size: u64) -> Self {
        Self {
            msg_size,
            depth: default_depth(msg_size),
            ..self.clone()
        }
    }

    /// Whether as many messages are in flight as where nothing is asked for.
    pub fn has_default_depth(&self) -> bool {
        self.depth == default_depth(self.msg_size)
    }
}
