//! A test over connected queue pairs, at either end.

use base::error::{Kind, Result};
use host::host_conf::HostConf;
use measure::engine::{self, Role};
use measure::spec::Spec;
use measure::stats::port_counters::PortCounters;
use measure::transport::ConnectedEndpoint;

use super::context::{SessionHooks, SessionResult};
use super::link::ControlLink;
use super::message::Message;
use crate::hardware;

/// Runs the test: posts receives, exchanges `Ready`, moves the data and exchanges `Stats`.
pub(super) fn run<W: engine::DataPath + Send>(
    link: &ControlLink,
    spec: &Spec,
    role: Role,
    connected: ConnectedEndpoint<W>,
    hooks: &SessionHooks<'_>,
) -> Result<SessionResult> {
    let ConnectedEndpoint {
        mut data_paths,
        via,
        shape,
    } = connected;
    // Only the server sends warnings. The client reports those of both hosts.
    let (side, warnings) = match role {
        Role::Client => (&spec.client, Vec::new()),
        Role::Server => (&spec.server, hooks.diagnosis.host_warnings()),
    };
    let via = hardware::describe(via);
    let counters = PortCounters::read(&via);
    data_paths.iter_mut().try_for_each(W::post_receives)?;
    (hooks.before_ready)()?;
    let memory = data_paths.iter().map(W::exposed).collect();
    link.send(&Message::Ready {
        via: via.clone(),
        memory,
        host: Some(HostConf::read()),
        warnings,
    })?;
    let (peer_via, peer_host, peer_warnings) = match link.receive_after_set_up(shape.memory())? {
        Message::Ready {
            via,
            memory,
            host,
            warnings,
        } => {
            for (data_path, memory) in data_paths.iter_mut().zip(memory) {
                if let Some(memory) = memory {
                    data_path.peer_exposes(memory);
                }
            }
            (via, host, warnings)
        }
        other => return Err(other.unexpected(role.peer_name())),
    };
    (hooks.on_begin)(spec.test);
    let mut ends: Vec<_> = (0..)
        .zip(data_paths)
        .map(|(number, data_path)| (data_path, link.thread(number)))
        .collect();
    let measurement =
        engine::threads::run(role, &shape, side, &mut ends).map_err(|error| match error.kind() {
            Kind::Device | Kind::Test | Kind::Peer => hardware::name_inactive_port(error, &via),
            _ => error,
        });
    let measurement = hooks.with_counters(measurement, &counters)?;
    link.send(&Message::Stats(Box::new(measurement.stats.clone())))?;
    let peer_stats = match link.receive_after_memory_work(shape.memory())? {
        Message::Stats(stats) => *stats,
        other => return Err(other.unexpected(role.peer_name())),
    };
    Ok(SessionResult {
        measurement,
        via,
        peer_via,
        peer_host,
        peer_stats,
        peer_warnings,
        plan: Some(shape.plan),
        depth: shape.depth,
    })
}
