//! Both ends of a test over sockets, from its specification.
//!
//! The server opens a place next to the control connection's address and says its port; the client
//! connects from its own side of the control connection and says the port it has there. Streams
//! begin with a token, so that nobody else slips in.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::Socket;

use super::message_socket::MessageSocket;
use super::nodelay::send_at_once;
use super::open::{self, BoundSocket, ClientIdentity};
use super::run::{self, LoopKind};
use super::{EndMode, LoopParams, SocketKind};
use crate::common::error::{Error, Result};
use crate::rperf::engine::pin::Pinned;
use crate::rperf::engine::{Measurement, Peer, Role};
use crate::rperf::spec::connection::ConnectionInfo;
use crate::rperf::spec::modes::Wait;
use crate::rperf::spec::{Side, Sockets, Spec};

/// Where the server waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The port.
    pub port: u16,
    /// What a stream has to begin with.
    pub token: u64,
}

/// The server's end before the client came.
#[derive(Debug)]
pub struct SocketServer {
    place: BoundSocket,
    kind: SocketKind,
    token: u64,
}

impl SocketServer {
    /// Opens a place at the control connection's address, with the port and the buffers of
    /// `sockets`.
    ///
    /// # Errors
    /// The kernel has no such protocol, or the port is taken.
    pub fn open(
        kind: SocketKind,
        control: SocketAddr,
        sockets: Sockets,
        token: u64,
    ) -> Result<Self> {
        Ok(Self {
            place: BoundSocket::open(kind, at(control, sockets.port), sockets.server_buffers)?,
            kind,
            token,
        })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.place.address().port()
    }

    /// Takes the first client of this host; datagrams are taken of whoever sends the first.
    ///
    /// # Errors
    /// It did not come in time, or is `gone`.
    pub fn accept_from(
        self,
        host: IpAddr,
        timeout: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<Socket> {
        if self.kind.is_datagram() {
            return Ok(self.place.into_socket());
        }
        self.place.accept(ClientIdentity::Host(host), timeout, gone)
    }

    /// What the client has to know.
    pub fn listening(&self) -> Listening {
        Listening {
            port: self.place.address().port(),
            token: self.token,
        }
    }

    /// Takes the client, who has `port` on its side.
    ///
    /// # Errors
    /// It did not come in time, or is `gone`.
    pub fn accept(
        self,
        client: SocketAddr,
        port: u16,
        timeout: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<Socket> {
        if self.kind.is_datagram() {
            return self.place.join(at(client, port));
        }
        self.place
            .accept(ClientIdentity::Token(self.token), timeout, gone)
    }
}

/// Connects the client's end, from its side of the control connection to the port where the server
/// waits; a stream says the token, if there is one.
///
/// # Errors
/// The kernel has no such protocol, or the server cannot be reached.
pub fn connect(
    kind: SocketKind,
    local: SocketAddr,
    server: SocketAddr,
    (port, token): (u16, Option<u64>),
    sockets: Sockets,
    timeout: Duration,
) -> Result<Socket> {
    let server = at(server, port);
    if kind.is_datagram() {
        return BoundSocket::open(kind, at(local, 0), sockets.client_buffers)?.join(server);
    }
    open::connect(
        kind,
        at(local, 0),
        server,
        token,
        sockets.client_buffers,
        timeout,
    )
}

/// The local port of a connected socket.
///
/// # Errors
/// The system does not say.
pub fn port(socket: &Socket) -> Result<u16> {
    let address = socket
        .local_addr()
        .map_err(|e| Error::system("the socket has no address", &e))?;
    address
        .as_socket()
        .map(|a| a.port())
        .ok_or_else(|| Error::protocol("the socket has no port"))
}

/// How this end is connected, for the record.
pub fn via(kind: SocketKind, socket: &Socket, side: &Side) -> ConnectionInfo {
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
        wait: side.wait,
    }
}

fn is_v6(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_ipv6()
}

/// Runs the test over a connected socket.
///
/// # Errors
/// See [`run::run`].
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
    // Small messages over SCTP fill the buffer while they wait, and then all wait for an
    // acknowledgement that comes late.
    if latency || kind == SocketKind::Sctp {
        send_at_once(&socket, kind);
    }
    let polled = side.wait == Wait::Poll;
    let mut line = MessageSocket::new(socket, kind, polled)?;
    let size = usize::try_from(spec.msg_size)
        .map_err(|_| Error::limit("the message is larger than the memory"))?;
    let access = spec.tuning.access_received;
    let plan = LoopParams {
        size,
        limit: spec.limit,
        verify: spec.verify,
        access,
        timeout: side.timeout,
        end_mode,
    };
    run::run(
        LoopKind::new(role, latency, spec.flip),
        &mut line,
        &plan,
        polled,
        peer,
    )
}

/// The same host (and scope, which link-local addresses have) with another port.
fn at(mut address: SocketAddr, port: u16) -> SocketAddr {
    match address.ip().to_canonical() {
        // As a server of both families sees a client of IPv4.
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(_) => {
            address.set_port(port);
            address
        }
    }
}
