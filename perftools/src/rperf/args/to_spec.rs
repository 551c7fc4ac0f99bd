//! Builds the specification of a test from the options of the command line.

use std::time::Duration;

use super::command_line::Options;
use super::tuning::End;
use crate::common::device_id::DeviceId;
use crate::common::error::Result;
use crate::rperf::spec::modes::Wait;
use crate::rperf::spec::test::Test;
use crate::rperf::spec::{Limit, Multicast, Side, Spec, default_depth};

impl Options {
    /// Builds the specification of `test` from these options.
    ///
    /// # Errors
    /// A limit error if a value is out of range; see [`Spec::check`].
    pub fn to_spec(&self, test: Test) -> Result<Spec> {
        let o = self;
        let timeout = o.timeout.unwrap_or(Duration::from_secs(5));
        let side =
            |id: &Option<DeviceId>, wait: Option<Wait>, own_timeout: Option<Duration>| Side {
                id: id.clone().or_else(|| o.id.clone()),
                ..Side::new(
                    wait.or(o.wait).unwrap_or_default(),
                    own_timeout.unwrap_or(timeout),
                )
            };
        let t = &o.tuning;
        let mtu = o.mtu.map(|m| u32::try_from(m.0).unwrap_or(u32::MAX));
        let limit = match o.messages {
            Some(n) => Limit::Messages(n),
            None => Limit::Time(o.time.unwrap_or(Duration::from_secs(2))),
        };
        let msg_size = o.msg_size.map_or(test.default_size(), |s| s.0);
        let spec = Spec {
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
            sockets: o.sockets.to_sockets(),
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
}
