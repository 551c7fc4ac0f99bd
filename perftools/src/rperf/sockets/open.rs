//! Makes connected sockets.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::SocketKind;
use crate::common::error::{Error, Kind as Failure, Result};
use crate::common::units::show_time;

/// How often a wait looks whether the peer is still there.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Bytes of SCTP's buffers where nothing else is asked for: the system gives as much of it as
/// anybody may have. Those that it makes by itself hold little more than one packet of a loopback
/// interface, and a packet that comes alone is acknowledged after 200 ms.
const SCTP_BUFFERS: u32 = 4 << 20;

/// A new socket of `kind`, bound to `address`.
fn bound(kind: SocketKind, address: SocketAddr) -> std::io::Result<Socket> {
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
        // Where it is the wildcard, it takes IPv4 as well.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn cannot(kind: SocketKind, what: &str, error: &std::io::Error) -> Error {
    let hint = match error.raw_os_error() {
        Some(nix::libc::EPROTONOSUPPORT | nix::libc::EAFNOSUPPORT | nix::libc::ESOCKTNOSUPPORT) => {
            match kind {
                SocketKind::Sctp => "; this host's kernel has no SCTP: `modprobe sctp` loads it",
                SocketKind::Rds => {
                    "; this host's kernel has no RDS: `modprobe rds_rdma` or `modprobe rds_tcp` loads it"
                }
                _ => "; this host's kernel has no such protocol",
            }
        }
        Some(nix::libc::EADDRNOTAVAIL) if kind == SocketKind::Rds => {
            "; RDS wants an address that an RDMA device or rds_tcp carries"
        }
        _ => "",
    };
    Error::new(
        Failure::System,
        format!("cannot {what} over {}: {error}{hint}", kind.name()),
    )
}

/// The size of the socket's buffers, where one was asked for; those of SCTP are larger than the
/// system makes them by itself.
fn set_buffers(socket: &Socket, kind: SocketKind, bytes: u32) -> std::io::Result<()> {
    let bytes = match (kind, bytes) {
        (SocketKind::Sctp, 0) => SCTP_BUFFERS,
        (_, 0) => return Ok(()),
        _ => bytes,
    };
    socket.set_send_buffer_size(bytes as usize)?;
    socket.set_recv_buffer_size(bytes as usize)
}

/// The peer that is awaited.
#[derive(Clone, Copy, Debug)]
pub enum ClientIdentity {
    /// Whoever says this number first.
    Token(u64),
    /// The first of this host.
    Host(IpAddr),
}

/// A place where one peer is awaited.
#[derive(Debug)]
pub struct BoundSocket {
    socket: Socket,
    kind: SocketKind,
    address: SocketAddr,
}

impl BoundSocket {
    /// Opens a place at `address`, whose port may be 0: any. Sockets' buffers are of `buffers`
    /// bytes, 0: as the system has them.
    ///
    /// # Errors
    /// The kernel has no such protocol, or the port is taken.
    pub fn open(kind: SocketKind, address: SocketAddr, buffers: u32) -> Result<Self> {
        let open = || {
            let socket = bound(kind, address)?;
            set_buffers(&socket, kind, buffers)?;
            if !kind.is_datagram() {
                socket.listen(1)?;
                socket.set_nonblocking(true)?;
            }
            Ok(socket)
        };
        let socket = open().map_err(|e| cannot(kind, "listen", &e))?;
        let address = socket.local_addr().ok().and_then(|a| a.as_socket());
        let address =
            address.ok_or_else(|| Error::new(Failure::System, "the socket has no address"))?;
        Ok(Self {
            socket,
            kind,
            address,
        })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes the stream of `whom`; anyone else is turned away.
    ///
    /// # Errors
    /// Nobody came in time, or the peer is `gone`.
    pub fn accept(
        self,
        whom: ClientIdentity,
        timeout: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<Socket> {
        let deadline = Instant::now() + timeout;
        loop {
            if gone() {
                return Err(Error::new(
                    Failure::Gone,
                    "the client went away before it connected",
                ));
            }
            if Instant::now() >= deadline {
                return Err(Error::new(
                    Failure::System,
                    format!(
                        "the client did not connect by {} within {}: can it reach {}, or does a firewall stand between?",
                        self.kind.name(),
                        show_time(timeout),
                        self.address
                    ),
                ));
            }
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let wait = u16::try_from(LOOK_EVERY.as_millis()).unwrap_or(u16::MAX);
            if !matches!(poll(&mut fds, PollTimeout::from(wait)), Ok(n) if n > 0) {
                continue;
            }
            let Ok((socket, peer)) = self.socket.accept() else {
                continue;
            };
            socket
                .set_nonblocking(false)
                .map_err(|e| cannot(self.kind, "accept", &e))?;
            let is_meant = match whom {
                ClientIdentity::Token(token) => says(&socket, token),
                ClientIdentity::Host(host) => peer
                    .as_socket()
                    .is_some_and(|p| p.ip().to_canonical() == host.to_canonical()),
            };
            if is_meant {
                return Ok(socket);
            }
        }
    }

    /// Joins a place of datagrams with a peer's: nobody else's are taken then.
    ///
    /// # Errors
    /// The address cannot be reached.
    pub fn join(self, peer: SocketAddr) -> Result<Socket> {
        self.socket
            .connect(&peer.into())
            .map_err(|e| cannot(self.kind, &format!("reach {peer}"), &e))?;
        Ok(self.socket)
    }

    /// The socket as it is: it takes datagrams of anyone.
    pub fn into_socket(self) -> Socket {
        self.socket
    }
}

/// Whether who connected says the token.
fn says(socket: &Socket, token: u64) -> bool {
    let mut said = [0; 8];
    let _ = socket.set_read_timeout(Some(Duration::from_secs(1)));
    let mut stream = socket;
    stream.read_exact(&mut said).is_ok() && said == token.to_be_bytes()
}

/// Connects a stream from `source` (whose port is 0) to `peer`, and says the token.
///
/// # Errors
/// The kernel has no such protocol, or the peer cannot be reached.
pub fn connect(
    kind: SocketKind,
    source: SocketAddr,
    peer: SocketAddr,
    token: Option<u64>,
    buffers: u32,
    timeout: Duration,
) -> Result<Socket> {
    let connect = || {
        let socket = bound(kind, source)?;
        set_buffers(&socket, kind, buffers)?;
        socket.connect_timeout(&SockAddr::from(peer), timeout)?;
        if let Some(token) = token {
            let mut stream = &socket;
            stream.write_all(&token.to_be_bytes())?;
        }
        Ok(socket)
    };
    connect().map_err(|e| cannot(kind, &format!("connect to {peer}"), &e))
}
