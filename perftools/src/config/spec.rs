//! A whole test.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::default_depth;
use super::side::{Limit, Multicast, Side, Sockets};
use crate::args::options::{Cm, DeviceId, Options, Wait};
use crate::args::tuning::End;
use crate::error::Result;
use crate::test::Test;
use crate::tuning::Tuning;

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
    /// The specification that these options make for `test`.
    ///
    /// # Errors
    /// A number outside what this program does; see [`Spec::check`].
    pub fn new(test: Test, o: &Options) -> Result<Self> {
        let timeout = o.timeout.unwrap_or(Duration::from_secs(5));
        let side = |id: &Option<DeviceId>, wait: Option<Wait>, own: Option<Duration>| Side {
            id: id.clone().or_else(|| o.id.clone()),
            ..Side::new(wait.or(o.wait).unwrap_or_default(), own.unwrap_or(timeout))
        };
        let t = &o.tuning;
        let mtu = o.mtu.map(|m| u32::try_from(m.0).unwrap_or(u32::MAX));
        let limit = match o.messages {
            Some(n) => Limit::Messages(n),
            None => Limit::Time(o.time.unwrap_or(Duration::from_secs(2))),
        };
        let msg_size = o.msg_size.map_or(test.default_size(), |s| s.0);
        let spec = Self {
            test,
            msg_size,
            limit,
            depth: o.depth.unwrap_or_else(|| default_depth(msg_size)),
            qps: o.qps.unwrap_or(1),
            threads: o.threads.unwrap_or(1),
            flip: o.flip.unwrap_or(false),
            immediate: o.immediate,
            flood: o.flood,
            multicast: o.multicast.map(|receivers| Multicast {
                receivers,
                group: o.multicast_group,
            }),
            use_cm: o.use_cm.unwrap_or_default(),
            mtu,
            verify: o.verify || test.verifies(),
            sockets: Sockets::from(&o.sockets),
            tuning: o.tuning.tuning(),
            client: Side {
                cpus: t
                    .local_cpu_affinity
                    .clone()
                    .or_else(|| t.cpu_affinity.clone()),
                gid_index: t.local_gid_index.or(t.gid_index),
                path: t.path(End::Local),
                ..side(&o.local_id, o.local_wait, o.local_timeout)
            },
            server: Side {
                cpus: t
                    .remote_cpu_affinity
                    .clone()
                    .or_else(|| t.cpu_affinity.clone()),
                gid_index: t.remote_gid_index.or(t.gid_index),
                path: t.path(End::Remote),
                ..side(&o.remote_id, o.remote_wait, o.remote_timeout)
            },
        };
        spec.check()?;
        Ok(spec)
    }

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
