//! A whole test.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::DEFAULT_DEPTH;
use super::side::{Limit, Side, Sockets};
use crate::args::options::{Cm, DeviceId, Options, Wait};
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
    /// Queue pairs.
    pub qps: u32,
    /// RDMA writes with immediate data; none: where the link has it.
    pub immediate: Option<bool>,
    /// Unreliable services: send without regard to what the receiver is ready for.
    pub flood: bool,
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
        let spec = Self {
            test,
            msg_size: o.msg_size.map_or(test.default_size(), |s| s.0),
            limit,
            depth: o.depth.unwrap_or(DEFAULT_DEPTH),
            qps: o.qps.unwrap_or(1),
            immediate: o.immediate,
            flood: o.flood,
            use_cm: o.use_cm.unwrap_or_default(),
            mtu,
            verify: o.verify || test.verifies(),
            sockets: Sockets::from(&o.sockets),
            tuning: o.tuning.tuning(),
            client: Side {
                cpus: t.local_cpu_affinity.clone().or_else(|| t.cpu_affinity.clone()),
                gid_index: t.local_gid_index.or(t.gid_index),
                ..side(&o.local_id, o.local_wait, o.local_timeout)
            },
            server: Side {
                cpus: t.remote_cpu_affinity.clone().or_else(|| t.cpu_affinity.clone()),
                gid_index: t.remote_gid_index.or(t.gid_index),
                ..side(&o.remote_id, o.remote_wait, o.remote_timeout)
            },
        };
        spec.check()?;
        Ok(spec)
    }
}
