//! The conversation of a test over sockets, and the test itself.
//!
//! ```text
//! client                                    server
//!   Request ──────────────────────────────▶
//!          ◀────────────────────────────── Listening (port, token)
//!                 the client connects
//!   Bound (its port) ─────────────────────▶
//!   Ready ◀───────────────────────────────▶ Ready
//!                 the test runs; Finished each way
//!   Stats ◀───────────────────────────────▶ Stats
//! ```

use std::net::{SocketAddr, TcpStream};

use socket2::Socket;

use super::context::SessionResult;
use super::link::ControlLink;
use super::message::Message;
use crate::common::error::{Error, Result};
use crate::rperf::engine::Role;
use crate::rperf::report::warning;
use crate::rperf::sockets::{EndMode, SocketKind, endpoint};
use crate::rperf::spec::Spec;
use crate::rperf::spec::test::Test;

/// The addresses of the control connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketAddrs {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

impl SocketAddrs {
    pub(super) fn of_stream(stream: &TcpStream) -> Result<Self> {
        let error = |e| Error::system("the control connection has no address", &e);
        Ok(Self {
            local: stream.local_addr().map_err(error)?,
            peer: stream.peer_addr().map_err(error)?,
        })
    }
}

/// The client's end, after its request.
pub(super) fn client(
    link: &ControlLink,
    spec: &Spec,
    kind: SocketKind,
    addresses: SocketAddrs,
    begins: &dyn Fn(Test),
) -> Result<SessionResult> {
    let listening = match link.receive()? {
        Message::Listening(listening) => listening,
        other => return Err(other.unexpected("the server")),
    };
    let timeout = spec.client.timeout;
    let place = (listening.port, Some(listening.token));
    let socket = endpoint::connect(
        kind,
        addresses.local,
        addresses.peer,
        place,
        spec.sockets,
        timeout,
    );
    let socket = socket.map_err(|e| link.explain(e))?;
    link.send(&Message::Bound {
        port: endpoint::port(&socket)?,
    })?;
    exchange(link, spec, Role::Client, kind, socket, begins)
}

/// The server's end, after the request.
pub(super) fn server(
    link: &ControlLink,
    spec: &Spec,
    kind: SocketKind,
    addresses: SocketAddrs,
    begins: &dyn Fn(Test),
) -> Result<SessionResult> {
    let place = endpoint::SocketServer::open(
        kind,
        addresses.local,
        spec.sockets,
        crate::common::system::random(),
    )?;
    link.send(&Message::Listening(place.listen_info()))?;
    let port = match link.receive()? {
        Message::Bound { port } => port,
        other => return Err(other.unexpected("the client")),
    };
    let socket = place.accept(addresses.peer, port, spec.server.timeout, &|| {
        link.is_gone()
    });
    exchange(
        link,
        spec,
        Role::Server,
        kind,
        socket.map_err(|e| link.explain(e))?,
        begins,
    )
}

fn exchange(
    link: &ControlLink,
    spec: &Spec,
    role: Role,
    kind: SocketKind,
    socket: Socket,
    begins: &dyn Fn(Test),
) -> Result<SessionResult> {
    // Only the client tells of a host's faults, its own included.
    let (side, who, warnings) = match role {
        Role::Client => (&spec.client, "the server", Vec::new()),
        Role::Server => (&spec.server, "the client", warning::host()),
    };
    let via = endpoint::connection_info(kind, &socket, side);
    link.send(&Message::Ready {
        via: via.clone(),
        memory: Vec::new(),
        warnings,
    })?;
    let (peer_via, peer_warnings) = match link.receive()? {
        Message::Ready { via, warnings, .. } => (via, warnings),
        other => return Err(other.unexpected(who)),
    };
    begins(spec.test);
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
        other => return Err(other.unexpected(who)),
    };
    Ok(SessionResult {
        measurement,
        via,
        peer_via,
        peer_stats,
        peer_warnings,
        plan: None,
        depth: 1,
    })
}
