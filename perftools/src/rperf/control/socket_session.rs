//! The session of a test over sockets, at both ends.
//!
//! ```text
//! client                                    server
//!   Request ──────────────────────────────▶
//!          ◀────────────────────────────── Listening (port, token)
//!                 the client connects
//!   Bound (its port) ─────────────────────▶
//!   Ready ◀───────────────────────────────▶ Ready
//!                 the test runs; both send Finished
//!   Stats ◀───────────────────────────────▶ Stats
//! ```

use std::net::{SocketAddr, TcpStream};

use socket2::Socket;

use super::context::{SessionHooks, SessionResult};
use super::link::ControlLink;
use super::message::Message;
use crate::common::error::{Error, Result};
use crate::rperf::engine::Role;
use crate::rperf::report::host_conf::HostConf;
use crate::rperf::report::{hardware, warning};
use crate::rperf::sockets::{EndMode, SocketKind, endpoint};
use crate::rperf::spec::Spec;

/// Addresses of the control connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketAddrs {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

impl SocketAddrs {
    pub(super) fn of_stream(stream: &TcpStream) -> Result<Self> {
        let error = |e| Error::system("cannot get the addresses of the control connection", &e);
        Ok(Self {
            local: stream.local_addr().map_err(error)?,
            peer: stream.peer_addr().map_err(error)?,
        })
    }
}

/// Runs the test at the client, after its request.
pub(super) fn client(
    link: &ControlLink,
    spec: &Spec,
    kind: SocketKind,
    addresses: SocketAddrs,
    hooks: &SessionHooks<'_>,
) -> Result<SessionResult> {
    let listen_info = match link.receive()? {
        Message::Listening(listen_info) => listen_info,
        other => return Err(other.unexpected("the server")),
    };
    let timeout = spec.client.timeout;
    let socket = endpoint::connect(
        kind,
        addresses.local,
        addresses.peer,
        (listen_info.port, Some(listen_info.token)),
        spec.sockets,
        timeout,
    );
    let socket = socket.map_err(|e| link.explain(e))?;
    link.send(&Message::Bound {
        port: endpoint::port(&socket)?,
    })?;
    run_connected(link, spec, Role::Client, kind, socket, hooks)
}

/// Runs the test at the server, after the request.
pub(super) fn server(
    link: &ControlLink,
    spec: &Spec,
    kind: SocketKind,
    addresses: SocketAddrs,
    hooks: &SessionHooks<'_>,
) -> Result<SessionResult> {
    let server = endpoint::SocketServer::open(
        kind,
        addresses.local,
        spec.sockets,
        crate::common::system::random(),
    )?;
    link.send(&Message::Listening(server.listen_info()))?;
    let port = match link.receive()? {
        Message::Bound { port } => port,
        other => return Err(other.unexpected("the client")),
    };
    let socket = server.accept(addresses.peer, port, spec.server.timeout, &|| {
        link.is_gone()
    });
    run_connected(
        link,
        spec,
        Role::Server,
        kind,
        socket.map_err(|e| link.explain(e))?,
        hooks,
    )
}

fn run_connected(
    link: &ControlLink,
    spec: &Spec,
    role: Role,
    kind: SocketKind,
    socket: Socket,
    hooks: &SessionHooks<'_>,
) -> Result<SessionResult> {
    // Only the server sends warnings. The client reports those of both hosts.
    let (side, peer_name, warnings) = match role {
        Role::Client => (&spec.client, "the server", Vec::new()),
        Role::Server => (&spec.server, "the client", warning::host()),
    };
    let via = hardware::describe(endpoint::connection_info(kind, &socket, side));
    (hooks.before_ready)()?;
    link.send(&Message::Ready {
        via: via.clone(),
        memory: Vec::new(),
        host: Some(HostConf::read()),
        warnings,
    })?;
    let (peer_via, peer_host, peer_warnings) = match link.receive()? {
        Message::Ready {
            via,
            host,
            warnings,
            ..
        } => (via, host, warnings),
        other => return Err(other.unexpected(peer_name)),
    };
    (hooks.on_begin)(spec.test);
    let measurement = endpoint::run(
        kind,
        spec,
        role,
        side,
        socket,
        EndMode::Announced,
        &link.thread(0),
    )?;
    link.send(&Message::Stats(Box::new(measurement.stats.clone())))?;
    let peer_stats = match link.receive()? {
        Message::Stats(stats) => *stats,
        other => return Err(other.unexpected(peer_name)),
    };
    Ok(SessionResult {
        measurement,
        via,
        peer_via,
        peer_host,
        peer_stats,
        peer_warnings,
        plan: None,
        depth: 1,
    })
}
