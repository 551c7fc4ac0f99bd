//! Creation of bound, listening and connected sockets.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::SocketKind;
use crate::common::error::{Error, Kind as Failure, Result};
use crate::common::units::show_time;

/// Interval at which a wait checks that the peer is still connected.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Longest wait for the token of a stream that was accepted. SCTP sends lost data again after up to
/// 3 s, and after 6 s more.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Size of SCTP buffers in bytes if the user requested none. The kernel reduces it to the limit for
/// unprivileged processes. Its default buffers hold little more than one packet of a loopback
/// interface, and a packet that arrives alone is acknowledged only after 200 ms.
const SCTP_BUFFERS: u32 = 4 << 20;

/// Creates a socket of `kind`, bound to `address`.
fn bind(kind: SocketKind, address: SocketAddr) -> std::io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = match kind {
        SocketKind::Tcp => Socket::new(domain, Type::STREAM, Some(Protocol::TCP)),
        SocketKind::Udp => Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)),
        SocketKind::Sctp => Socket::new(
            domain,
            Type::STREAM,
            Some(Protocol::from(nix::libc::IPPROTO_SCTP)),
        ),
        SocketKind::Rds => Socket::new(Domain::from(nix::libc::AF_RDS), Type::SEQPACKET, None),
    }?;
    if address.is_ipv6() && kind != SocketKind::Rds {
        // A socket bound to the wildcard address accepts IPv4 as well.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Returns the error of a failed system call, with a remedy if the kernel lacks the protocol.
fn socket_error(kind: SocketKind, what: &str, error: &std::io::Error) -> Error {
    let message = format!("cannot {what} over {}: {error}", kind.name());
    let failure = Error::new(Failure::System, message);
    match (kind, error.raw_os_error()) {
        (
            SocketKind::Sctp,
            Some(nix::libc::EPROTONOSUPPORT | nix::libc::EAFNOSUPPORT | nix::libc::ESOCKTNOSUPPORT),
        ) => failure.with_help("load the kernel module with `modprobe sctp`"),
        (
            SocketKind::Rds,
            Some(nix::libc::EPROTONOSUPPORT | nix::libc::EAFNOSUPPORT | nix::libc::ESOCKTNOSUPPORT),
        ) => failure
            .with_help("load the kernel module with `modprobe rds_rdma` or `modprobe rds_tcp`"),
        (SocketKind::Rds, Some(nix::libc::EADDRNOTAVAIL)) => failure.with_help(
            "RDS needs the address of an RDMA device or of an interface used by rds_tcp",
        ),
        _ => failure,
    }
}

/// Sets the size of both socket buffers to `bytes`. 0 selects the default, which is
/// [`SCTP_BUFFERS`] for SCTP and the kernel's for all others.
fn set_buffers(socket: &Socket, kind: SocketKind, bytes: u32) -> std::io::Result<()> {
    let bytes = match (kind, bytes) {
        (SocketKind::Sctp, 0) => SCTP_BUFFERS,
        (_, 0) => return Ok(()),
        _ => bytes,
    };
    socket.set_send_buffer_size(bytes as usize)?;
    socket.set_recv_buffer_size(bytes as usize)
}

/// Condition that an incoming stream must meet to be accepted.
#[derive(Clone, Copy, Debug)]
pub enum ClientIdentity {
    /// The stream begins with this number.
    Token(u64),
    /// The stream comes from this host.
    Host(IpAddr),
}

/// A server's socket before its client has connected: listening, or bound for datagrams.
#[derive(Debug)]
pub struct BoundSocket {
    socket: Socket,
    kind: SocketKind,
    address: SocketAddr,
}

impl BoundSocket {
    /// Binds a socket to `address` and listens on it unless it is for datagrams. Port 0 lets the
    /// kernel select a port. `buffers` is the size of the socket's buffers in bytes; 0 selects the
    /// default.
    ///
    /// # Errors
    /// Returns an error if the kernel does not support the protocol or the port is in use.
    pub fn open(kind: SocketKind, address: SocketAddr, buffers: u32) -> Result<Self> {
        let open = || {
            let socket = bind(kind, address)?;
            set_buffers(&socket, kind, buffers)?;
            if !kind.is_datagram() {
                socket.listen(1)?;
                socket.set_nonblocking(true)?;
            }
            Ok(socket)
        };
        let socket = open().map_err(|e| socket_error(kind, "listen", &e))?;
        let address = socket.local_addr().ok().and_then(|a| a.as_socket());
        let address =
            address.ok_or_else(|| Error::new(Failure::System, "the socket has no address"))?;
        Ok(Self {
            socket,
            kind,
            address,
        })
    }

    /// Returns the local address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the stream of the client with this identity. Streams from other clients are
    /// closed.
    ///
    /// # Errors
    /// Returns an error if no such client connected within `timeout`, or if `gone` returned `true`.
    pub fn accept(
        self,
        identity: ClientIdentity,
        timeout: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<Socket> {
        let deadline = Instant::now() + timeout;
        loop {
            if gone() {
                return Err(Error::new(
                    Failure::Gone,
                    "the client closed the control connection before it opened the data connection",
                ));
            }
            if Instant::now() >= deadline {
                return Err(Error::new(
                    Failure::System,
                    format!(
                        "the client did not connect over {} within {}",
                        self.kind.name(),
                        show_time(timeout)
                    ),
                )
                .with_help(format!(
                    "check that the client can reach {} and that no firewall blocks it",
                    self.address
                )));
            }
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let wait = u16::try_from(CHECK_INTERVAL.as_millis()).unwrap_or(u16::MAX);
            if !matches!(poll(&mut fds, PollTimeout::from(wait)), Ok(n) if n > 0) {
                continue;
            }
            let Ok((socket, peer)) = self.socket.accept() else {
                continue;
            };
            socket
                .set_nonblocking(false)
                .map_err(|e| socket_error(self.kind, "accept", &e))?;
            let matches = match identity {
                ClientIdentity::Token(token) => begins_with_token(&socket, token),
                ClientIdentity::Host(host) => peer
                    .as_socket()
                    .is_some_and(|p| p.ip().to_canonical() == host.to_canonical()),
            };
            if matches {
                return Ok(socket);
            }
        }
    }

    /// Connects a datagram socket to `peer`, so that it receives no datagrams from other addresses.
    ///
    /// # Errors
    /// Returns an error if the address cannot be reached.
    pub fn join(self, peer: SocketAddr) -> Result<Socket> {
        self.socket
            .connect(&peer.into())
            .map_err(|e| socket_error(self.kind, &format!("reach {peer}"), &e))?;
        Ok(self.socket)
    }

    /// Returns the unconnected socket, which receives datagrams from every address.
    pub fn into_socket(self) -> Socket {
        self.socket
    }
}

/// Reads 8 bytes and returns `true` if they are the token.
fn begins_with_token(socket: &Socket, token: u64) -> bool {
    let mut received = [0; 8];
    let _ = socket.set_read_timeout(Some(TOKEN_TIMEOUT));
    let mut stream = socket;
    stream.read_exact(&mut received).is_ok() && received == token.to_be_bytes()
}

/// Connects a stream from `source`, whose port is 0, to `peer`, and sends the token if there is
/// one.
///
/// # Errors
/// Returns an error if the kernel does not support the protocol or the peer cannot be reached.
pub fn connect(
    kind: SocketKind,
    source: SocketAddr,
    peer: SocketAddr,
    token: Option<u64>,
    buffers: u32,
    timeout: Duration,
) -> Result<Socket> {
    let connect = || {
        let socket = bind(kind, source)?;
        set_buffers(&socket, kind, buffers)?;
        socket.connect_timeout(&SockAddr::from(peer), timeout)?;
        if let Some(token) = token {
            let mut stream = &socket;
            stream.write_all(&token.to_be_bytes())?;
        }
        Ok(socket)
    };
    connect().map_err(|e| socket_error(kind, &format!("connect to {peer}"), &e))
}
