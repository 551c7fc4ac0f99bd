//! The session of a test over sockets, at both ends.
//!
//! ```text
//! client                                    server
//!   Request ──────────────────────────────▶
//!          ◀────────────────────────────── Listening (ports, key)
//!                 the client connects streams, and both ends send their parts of the key
//!   Bound (its ports) ────────────────────▶
//!                 the server connects to the ports of datagrams
//!   Ready ◀───────────────────────────────▶ Ready
//!                 the test runs; both send Finished
//!   Stats ◀───────────────────────────────▶ Stats
//! ```

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base::error::{Error, Result};
use host::host_conf::HostConf;
use measure::data_key::DataKey;
use measure::engine::{Measurement, Peer, Role, threads};
use measure::sockets::endpoint::ListenInfo;
use measure::sockets::{EndMode, SocketKind, endpoint};
use measure::spec::{Side, Spec};
use measure::stats::port_counters::PortCounters;
use socket2::Socket;

use super::context::{SessionHooks, SessionResult};
use super::data_streams::DataStreams;
use super::link::{ControlLink, ThreadLink};
use super::message::Message;
use crate::hardware;

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
    let mut ports = vec![listen_info.port];
    ports.extend(&listen_info.more_ports);
    check_streams(spec, ports.len(), "the server")?;
    // The server accepts one stream after the other.
    let accepting = spec.client.timeout + spec.server.timeout;
    let connect = |port: &u16| {
        let socket = endpoint::connect(
            kind,
            addresses.local,
            addresses.peer,
            (*port, Some(listen_info.key)),
            spec.sockets,
            spec.client.timeout,
        )?;
        endpoint::check_server(kind, &socket, listen_info.key, accepting, &|| {
            link.is_gone()
        })?;
        Ok(socket)
    };
    let sockets: Result<Vec<Socket>> = ports.iter().map(connect).collect();
    let sockets = sockets.map_err(|e| link.explain(e))?;
    let own: Vec<u16> = sockets.iter().map(endpoint::port).collect::<Result<_>>()?;
    link.send(&Message::Bound {
        port: own[0],
        more_ports: own[1..].to_vec(),
    })?;
    run_connected(link, spec, Role::Client, kind, sockets, hooks)
}

/// Checks that the peer has one port for each stream.
fn check_streams(spec: &Spec, ports: usize, peer_name: &str) -> Result<()> {
    let streams = spec.sockets.streams();
    if ports == streams as usize {
        return Ok(());
    }
    Err(Error::protocol(format!(
        "{peer_name} sent {ports} ports for {streams} streams"
    )))
}

/// Runs the test at the server, after the request.
pub(super) fn server(
    link: &ControlLink,
    spec: &Spec,
    kind: SocketKind,
    addresses: SocketAddrs,
    data_streams: &DataStreams,
    hooks: &SessionHooks<'_>,
) -> Result<SessionResult> {
    let sockets = if endpoint::uses_control_port(kind, spec.sockets) {
        accept_at_control_port(link, spec, kind, addresses, data_streams)
    } else {
        accept_at_own_ports(link, spec, kind, addresses)
    };
    run_connected(link, spec, Role::Server, kind, sockets?, hooks)
}

/// Accepts the client's streams or datagrams at the port of the control connection.
fn accept_at_control_port(
    link: &ControlLink,
    spec: &Spec,
    kind: SocketKind,
    addresses: SocketAddrs,
    data_streams: &DataStreams,
) -> Result<Vec<Socket>> {
    let key = DataKey::random();
    let ports = vec![0; spec.sockets.streams() as usize];
    if kind.is_datagram() {
        send_listening(link, &ports, key)?;
        let join = |port| {
            endpoint::join_at_control_port(addresses.local, addresses.peer, port, spec.sockets)
        };
        return receive_bound(link, spec)?.into_iter().map(join).collect();
    }
    let streams = data_streams.expect(key);
    send_listening(link, &ports, key)?;
    let accept = |_| {
        let buffers = spec.sockets.server_buffers;
        streams.accept(buffers, accept_time(spec), &|| link.is_gone())
    };
    let sockets: Result<Vec<Socket>> = (0..spec.sockets.streams()).map(accept).collect();
    let sockets = sockets.map_err(|e| link.explain(e))?;
    // Further streams are closed.
    drop(streams);
    receive_bound(link, spec)?;
    Ok(sockets)
}

/// Accepts the client's streams or datagrams at a port for each of them.
fn accept_at_own_ports(
    link: &ControlLink,
    spec: &Spec,
    kind: SocketKind,
    addresses: SocketAddrs,
) -> Result<Vec<Socket>> {
    let key = DataKey::random();
    let open = |number: u32| {
        let mut sockets = spec.sockets;
        if sockets.port > 0 {
            let port = u32::from(sockets.port) + number;
            sockets.port = u16::try_from(port).unwrap_or(u16::MAX);
        }
        endpoint::SocketServer::open(kind, addresses.local, sockets)
    };
    let servers: Vec<_> = (0..spec.sockets.streams())
        .map(open)
        .collect::<Result<_>>()?;
    let ports: Vec<u16> = servers.iter().map(endpoint::SocketServer::port).collect();
    send_listening(link, &ports, key)?;
    if kind.is_datagram() {
        let servers = servers.into_iter().zip(receive_bound(link, spec)?);
        return servers
            .map(|(server, port)| server.join(addresses.peer, port))
            .collect();
    }
    let accept =
        |server: endpoint::SocketServer| server.accept(key, accept_time(spec), &|| link.is_gone());
    let sockets: Result<Vec<Socket>> = servers.into_iter().map(accept).collect();
    let sockets = sockets.map_err(|e| link.explain(e))?;
    receive_bound(link, spec)?;
    Ok(sockets)
}

fn send_listening(link: &ControlLink, ports: &[u16], key: DataKey) -> Result<()> {
    link.send(&Message::Listening(ListenInfo {
        port: ports[0],
        more_ports: ports[1..].to_vec(),
        key,
    }))
}

/// Receives the ports of the client's data sockets.
fn receive_bound(link: &ControlLink, spec: &Spec) -> Result<Vec<u16>> {
    let ports = match link.receive_after_wait(connect_time(spec))? {
        Message::Bound { port, more_ports } => [vec![port], more_ports].concat(),
        other => return Err(other.unexpected("the client")),
    };
    check_streams(spec, ports.len(), "the client")?;
    Ok(ports)
}

/// Returns the time that a client may take to connect a socket. Only the timeout of the server is
/// limited by the server.
fn connect_time(spec: &Spec) -> Duration {
    spec.client.timeout.min(spec.server.timeout)
}

/// Returns the time to wait for a stream, which the client connects first.
fn accept_time(spec: &Spec) -> Duration {
    spec.server.timeout + connect_time(spec)
}

fn run_connected(
    link: &ControlLink,
    spec: &Spec,
    role: Role,
    kind: SocketKind,
    sockets: Vec<Socket>,
    hooks: &SessionHooks<'_>,
) -> Result<SessionResult> {
    // Only the server sends warnings. The client reports those of both hosts.
    let (side, warnings) = match role {
        Role::Client => (&spec.client, Vec::new()),
        Role::Server => (&spec.server, hooks.diagnosis.host_warnings()),
    };
    let via = hardware::describe(endpoint::connection_info(kind, &sockets[0], side));
    let counters = PortCounters::read(&via);
    (hooks.before_ready)()?;
    link.send(&Message::Ready {
        via: via.clone(),
        memory: Vec::new(),
        host: Some(HostConf::read()),
        warnings,
    })?;
    let ready = match role {
        // The server waits for the data connections first.
        Role::Client => link.receive_after_wait(spec.server.timeout),
        Role::Server => link.receive(),
    };
    let (peer_via, peer_host, peer_warnings) = match ready? {
        Message::Ready {
            via,
            host,
            warnings,
            ..
        } => (via, host, warnings),
        other => return Err(other.unexpected(role.peer_name())),
    };
    // The kernel forgets the counts of a TCP connection that both ends have closed. Therefore each
    // end closes its sockets when the peer has read its counts.
    let kept: std::io::Result<Vec<Socket>> = sockets.iter().map(Socket::try_clone).collect();
    let kept = kept.map_err(|e| Error::system("cannot duplicate the data socket", &e))?;
    (hooks.on_begin)(spec.test);
    let measurement = run_streams(link, spec, role, kind, side, sockets);
    let measurement = hooks.with_counters(measurement, &counters)?;
    link.send(&Message::Stats(Box::new(measurement.stats.clone())))?;
    let peer_stats = match link.receive()? {
        Message::Stats(stats) => *stats,
        other => return Err(other.unexpected(role.peer_name())),
    };
    drop(kept);
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

/// Runs all streams of a test, each in a thread of its own if there are several.
fn run_streams(
    link: &ControlLink,
    spec: &Spec,
    role: Role,
    kind: SocketKind,
    side: &Side,
    mut sockets: Vec<Socket>,
) -> Result<Measurement> {
    let run = |spec: &Spec, side: &Side, socket, peer: ThreadLink<'_>| {
        endpoint::run(kind, spec, role, side, socket, EndMode::Announced, &peer)
            .inspect_err(|error| peer.give_up(error))
    };
    if sockets.len() == 1 {
        return run(spec, side, sockets.remove(0), link.thread(0));
    }
    let sides = threads::sides(role, side, sockets.len())?;
    let (run, streams) = (&run, (0..).zip(sockets.into_iter().zip(&sides)));
    let bodies = streams.map(|(number, (socket, side))| {
        let (spec, peer) = (spec.stream(number), link.thread(number));
        move || run(&spec, side, socket, peer)
    });
    let measurements = threads::run_all(bodies.collect());
    threads::sum(measurements, sides)
}
