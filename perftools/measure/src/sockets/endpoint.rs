//! Setup of both ends of a test over sockets, from its specification.
//!
//! The client connects its data sockets to the server's address of the control connection, and from
//! its own one. TCP and UDP use the port of the control connection as well, unless the
//! specification has another one. SCTP and RDS have a port that the server selects. A stream begins
//! with a key, so that the server rejects other connections.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use host::hardware::Hardware;
use serde::{Deserialize, Serialize};
use socket2::Socket;

use super::message_socket::MessageSocket;
use super::nodelay::disable_send_delay;
use super::open::{self, BoundSocket, ClientIdentity};
use super::run::{self, SocketLoop};
use super::{EndMode, LoopParams, SocketKind};
use crate::data_key::DataKey;
use crate::engine::payload::Payload;
use crate::engine::pin::Pinned;
use crate::engine::{Measurement, Peer, Role};
use crate::spec::connection::ConnectionInfo;
use crate::spec::modes::Wait;
use crate::spec::{Side, Sockets, Spec};

/// Port and key of a server that waits for its client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenInfo {
    /// Port of the data socket; 0: that of the control connection.
    pub port: u16,
    /// Ports of further streams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_ports: Vec<u16>,
    /// Key of the streams.
    pub key: DataKey,
}

/// The server's data socket before the client has connected.
#[derive(Debug)]
pub struct SocketServer {
    socket: BoundSocket,
    kind: SocketKind,
}

impl SocketServer {
    /// Binds a data socket to the address of the control connection, with the port and the buffer
    /// size of `sockets`.
    pub fn open(kind: SocketKind, control: SocketAddr, sockets: Sockets) -> Result<Self> {
        Ok(Self {
            socket: BoundSocket::open(
                kind,
                with_port(control, sockets.port),
                sockets.server_buffers,
            )?,
            kind,
        })
    }

    /// Returns the local port.
    pub fn port(&self) -> u16 {
        self.socket.address().port()
    }

    /// Waits for the first stream from `host`. A datagram socket is returned unconnected; the
    /// sender of the first datagram becomes the peer.
    pub fn accept_from(
        self,
        host: IpAddr,
        timeout: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<Socket> {
        if self.kind.is_datagram() {
            return Ok(self.socket.into_socket());
        }
        let identity = ClientIdentity::Host(host);
        self.socket.accept(identity, timeout, gone)
    }

    /// Connects the datagram socket to the client's `port`.
    pub fn join(self, client: SocketAddr, port: u16) -> Result<Socket> {
        self.socket.join(with_port(client, port))
    }

    /// Waits for the client's stream, which begins with the key.
    pub fn accept(
        self,
        key: DataKey,
        timeout: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<Socket> {
        let identity = ClientIdentity::Key(key);
        self.socket.accept(identity, timeout, gone)
    }
}

/// Returns `true` if the data sockets use the port of the control connection.
pub fn uses_control_port(kind: SocketKind, sockets: Sockets) -> bool {
    sockets.port == 0 && matches!(kind, SocketKind::Tcp | SocketKind::Udp)
}

/// Creates the server's UDP socket for datagrams from `port` of the client to the port of the
/// control connection.
pub fn join_at_control_port(
    control: SocketAddr,
    client: SocketAddr,
    port: u16,
    sockets: Sockets,
) -> Result<Socket> {
    let address = with_port(control, control.port());
    open::join_at(address, with_port(client, port), sockets.server_buffers)
}

/// Checks that the server has accepted the client's data socket, which [`connect`] returned.
pub fn check_server(
    kind: SocketKind,
    socket: &Socket,
    key: DataKey,
    timeout: Duration,
    gone: &dyn Fn() -> bool,
) -> Result<()> {
    if kind.is_datagram() {
        return Ok(());
    }
    let mut received = [0; 8];
    receive_exact(socket, &mut received, timeout, gone)
        .map_err(|e| open::socket_error(kind, "receive the key of the server", &e))?;
    key.check_server(&received)
}

fn receive_exact(
    mut socket: &Socket,
    bytes: &mut [u8],
    timeout: Duration,
    gone: &dyn Fn() -> bool,
) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    let mut len = 0;
    socket.set_read_timeout(Some(open::CHECK_INTERVAL))?;
    while len < bytes.len() {
        match socket.read(&mut bytes[len..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => len += n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
        if len < bytes.len() && (gone() || Instant::now() >= deadline) {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    socket.set_read_timeout(None)
}

/// Connects the client's data socket from `local`, the client's address of the control connection,
/// to the server's data port, or to the port of `server` if it is 0. A stream begins with the key,
/// if there is one.
pub fn connect(
    kind: SocketKind,
    local: SocketAddr,
    server: SocketAddr,
    (port, key): (u16, Option<DataKey>),
    sockets: Sockets,
    timeout: Duration,
) -> Result<Socket> {
    let server = if port == 0 {
        server
    } else {
        with_port(server, port)
    };
    if kind.is_datagram() {
        return BoundSocket::open(kind, with_port(local, 0), sockets.client_buffers)?.join(server);
    }
    open::connect(
        kind,
        with_port(local, 0),
        server,
        key,
        sockets.client_buffers,
        timeout,
    )
}

/// Returns the local port of a connected socket.
pub fn port(socket: &Socket) -> Result<u16> {
    let address = socket
        .local_addr()
        .map_err(|e| Error::system("cannot get the address of the data socket", &e))?;
    address.as_socket().map(|a| a.port()).ok_or_else(|| {
        Error::protocol("cannot get the port of the data socket: it has no IP address")
    })
}

/// Returns the description of this end's connection for the record.
pub fn connection_info(kind: SocketKind, socket: &Socket, side: &Side) -> ConnectionInfo {
    let address = socket.local_addr().ok().and_then(|a| a.as_socket());
    let family = if address.is_some_and(|a| is_v6(&a)) {
        "IPv6"
    } else {
        "IPv4"
    };
    let address = address.map_or_else(String::new, |a| {
        SocketAddr::new(a.ip().to_canonical(), a.port()).to_string()
    });
    ConnectionInfo {
        device: kind.name().to_lowercase(),
        port: 0,
        link: format!("{}/{family}", kind.name()),
        gid_index: None,
        address,
        cm: false,
        mtu: None,
        port_mtu: None,
        memory: None,
        hardware: Hardware::default(),
        wait: side.wait,
    }
}

fn is_v6(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_ipv6()
}

/// Runs the test over a connected socket.
pub fn run<P: Peer>(
    kind: SocketKind,
    spec: &Spec,
    role: Role,
    side: &Side,
    socket: Socket,
    end_mode: EndMode,
    peer: &P,
) -> Result<Measurement> {
    let _pinned = Pinned::to(side.cpus.as_ref())?;
    let latency = spec.test.is_latency();
    // Delayed small messages fill the buffer of SCTP, and then all wait for an acknowledgement that
    // is delayed as well.
    if latency || kind == SocketKind::Sctp {
        disable_send_delay(&socket, kind);
    }
    let polled = side.wait == Wait::Poll;
    let mut socket = MessageSocket::new(socket, kind, polled)?;
    let size = usize::try_from(spec.msg_size)
        .map_err(|_| Error::limit("the message size exceeds the address space"))?;
    let access = spec.tuning.access_received;
    let gap = spec.tuning.rate_limit.map(|rate| {
        let nanos = u128::from(spec.msg_size) * 1_000_000_000 / u128::from(rate.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    });
    let params = LoopParams {
        size,
        limit: spec.limit,
        verify: spec.verify,
        payload: Payload::new(spec),
        access,
        // The receiver waits for the next message as long as the rate limit requires.
        timeout: side.timeout.saturating_add(
            gap.unwrap_or_default()
                .saturating_mul(spec.tuning.burst.unwrap_or(1)),
        ),
        heartbeat: spec.heartbeat(),
        end_mode,
        gap,
        burst: spec.tuning.burst,
        samples: spec.tuning.samples,
    };
    run::run(
        SocketLoop::new(role, latency, spec.flip),
        &mut socket,
        &params,
        polled,
        peer,
    )
}

/// Returns the address with another port. The scope of a link-local address is kept.
fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    match address.ip().to_canonical() {
        // A dual-stack server sees an IPv4 client at an IPv4-mapped address.
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(_) => {
            address.set_port(port);
            address
        }
    }
}
