//! Creation of bound, listening and connected sockets.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use base::error::{Error, Kind as Failure, Result};
use base::units::show_time;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::SocketKind;
use crate::data_key::DataKey;

/// Interval at which a wait checks that the peer is still connected.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of accepted streams whose key has not arrived. A further stream takes the place
/// of the oldest one.
const MAX_CANDIDATES: usize = 16;

/// Maximum number of datagrams from other addresses that a socket discards, which arrived between
/// its bind and its connection. The peer can send without end.
const MAX_EARLY_DATAGRAMS: usize = 1024;

/// Maximum number of streams that wait to be accepted. If there are more, the client's first
/// attempt to connect is lost, and its next one follows a second later.
const BACKLOG: i32 = 64;

/// Size of SCTP buffers in bytes if the user requested none. The kernel reduces it to the limit for
/// unprivileged processes. Its default buffers hold little more than one packet of a loopback
/// interface, and a packet that arrives alone is acknowledged only after 200 ms.
const SCTP_BUFFERS: u32 = 4 << 20;

/// Creates a socket of `kind`, bound to `address`. With `shares_port`, other sockets that share it
/// can have the same address.
fn bind(kind: SocketKind, address: SocketAddr, shares_port: bool) -> std::io::Result<Socket> {
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
    if shares_port {
        // A reflector of `rperf monitor` has either option: see `ProbeSocket`.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Returns the error of a failed system call, with a remedy if the kernel lacks the protocol.
pub(super) fn socket_error(kind: SocketKind, what: &str, error: &std::io::Error) -> Error {
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
    /// The stream begins with the number of the client.
    Key(DataKey),
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
    pub(crate) fn open(kind: SocketKind, address: SocketAddr, buffers: u32) -> Result<Self> {
        let open = || {
            let socket = bind(kind, address, false)?;
            set_buffers(&socket, kind, buffers)?;
            if !kind.is_datagram() {
                socket.listen(BACKLOG)?;
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
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the stream of the client with this identity. Streams from other clients are
    /// closed, and do not delay it.
    pub(crate) fn accept(
        self,
        identity: ClientIdentity,
        timeout: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<Socket> {
        let begin = Instant::now();
        let mut candidates = VecDeque::new();
        loop {
            self.wait_for_input(&candidates);
            if let Some(candidate) = self.next_candidate(identity)? {
                if candidates.len() == MAX_CANDIDATES {
                    candidates.pop_front();
                }
                candidates.push_back(candidate);
            }
            let read: Vec<_> = candidates.drain(..).map(Candidate::read).collect();
            for key in read {
                match key {
                    KeyState::Matches(socket) => {
                        let reply = || {
                            socket.set_nonblocking(false)?;
                            let ClientIdentity::Key(key) = identity else {
                                return Ok(());
                            };
                            (&socket).write_all(&key.server_bytes())
                        };
                        reply().map_err(|e| socket_error(self.kind, "accept", &e))?;
                        return Ok(socket);
                    }
                    KeyState::Incomplete(candidate) => candidates.push_back(candidate),
                    KeyState::Differs => {}
                }
            }
            if gone() {
                return Err(Error::new(
                    Failure::Gone,
                    "the client closed the control connection before it opened the data connection",
                ));
            }
            if begin.elapsed() >= timeout {
                return Err(self.timeout_error(timeout, !candidates.is_empty()));
            }
        }
    }

    /// Waits briefly for a connection or for data.
    fn wait_for_input(&self, candidates: &VecDeque<Candidate>) {
        let sockets = candidates.iter().map(|candidate| &candidate.socket);
        let mut fds: Vec<_> = sockets
            .chain([&self.socket])
            .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
            .collect();
        let wait = u16::try_from(CHECK_INTERVAL.as_millis()).unwrap_or(u16::MAX);
        // After an error the sockets are tried, with the same result as without it.
        let _ = poll(&mut fds, PollTimeout::from(wait));
    }

    /// Accepts the next stream, and returns it if it may be the client's.
    fn next_candidate(&self, identity: ClientIdentity) -> Result<Option<Candidate>> {
        let Ok((socket, peer)) = self.socket.accept() else {
            return Ok(None);
        };
        let key = match identity {
            ClientIdentity::Key(key) => key.stream_bytes().to_vec(),
            ClientIdentity::Host(host) => {
                let peer = peer.as_socket().map(|peer| peer.ip().to_canonical());
                if peer != Some(host.to_canonical()) {
                    return Ok(None);
                }
                Vec::new()
            }
        };
        let nonblocking = socket.set_nonblocking(true);
        nonblocking.map_err(|e| socket_error(self.kind, "accept", &e))?;
        Ok(Some(Candidate { socket, key }))
    }

    /// Returns the error for a client that did not open its stream in time. `connected` is `true`
    /// if a stream is left whose key has not arrived. It may be the client's.
    fn timeout_error(&self, timeout: Duration, connected: bool) -> Error {
        let (protocol, timeout) = (self.kind.name(), show_time(timeout));
        if connected {
            return Error::new(
                Failure::System,
                format!(
                    "the client connected over {protocol}, but its first bytes did not arrive within {timeout}"
                ),
            )
            .with_help("check the path for lost packets, or set --timeout (-to) higher");
        }
        Error::new(
            Failure::System,
            format!("the client did not connect over {protocol} within {timeout}"),
        )
        .with_help(format!(
            "check that the client can reach {} and that no firewall blocks it",
            self.address
        ))
    }

    /// Connects a datagram socket to `peer`, so that it receives no datagrams from other addresses.
    pub(crate) fn join(self, peer: SocketAddr) -> Result<Socket> {
        self.socket
            .connect(&peer.into())
            .map_err(|e| socket_error(self.kind, &format!("reach {peer}"), &e))?;
        Ok(self.socket)
    }

    /// Returns the unconnected socket, which receives datagrams from every address.
    pub(crate) fn into_socket(self) -> Socket {
        self.socket
    }
}

/// Creates a UDP socket for datagrams from `peer` to `address`. Other sockets can use the port of
/// `address` with other peers.
pub(super) fn join_at(address: SocketAddr, peer: SocketAddr, buffers: u32) -> Result<Socket> {
    let kind = SocketKind::Udp;
    let join = || {
        let socket = bind(kind, address, true)?;
        set_buffers(&socket, kind, buffers)?;
        socket.connect(&peer.into())?;
        socket.set_nonblocking(true)?;
        for _ in 0..MAX_EARLY_DATAGRAMS {
            if (&socket).read(&mut [0]).is_err() {
                break;
            }
        }
        socket.set_nonblocking(false)?;
        Ok(socket)
    };
    join().map_err(|e| {
        let error = socket_error(kind, &format!("receive from {peer} at {address}"), &e);
        if e.kind() != ErrorKind::AddrInUse {
            return error;
        }
        error.with_help("set --ip-port (-ip) to a UDP port that no program on the server uses")
    })
}

/// Prepares a stream of the client with this key, which was accepted at the port of the control
/// connections, and sends the server's number. `buffers` is the size of the socket's buffers in
/// bytes; 0 selects the default.
pub fn accepted(stream: TcpStream, buffers: u32, key: DataKey) -> Result<Socket> {
    let socket = Socket::from(stream);
    let prepare = || {
        socket.set_read_timeout(None)?;
        set_buffers(&socket, SocketKind::Tcp, buffers)?;
        (&socket).write_all(&key.server_bytes())
    };
    prepare().map_err(|e| socket_error(SocketKind::Tcp, "accept", &e))?;
    Ok(socket)
}

/// An accepted stream that may be the client's.
struct Candidate {
    /// It does not block.
    socket: Socket,
    /// Bytes of the key that have not arrived.
    key: Vec<u8>,
}

/// Result of reading the key of a stream.
enum KeyState {
    Matches(Socket),
    Differs,
    Incomplete(Candidate),
}

impl Candidate {
    /// Reads as much of the key as has arrived.
    fn read(mut self) -> KeyState {
        while !self.key.is_empty() {
            let mut received = vec![0; self.key.len()];
            match (&self.socket).read(&mut received) {
                Ok(n) if n > 0 && self.key.starts_with(&received[..n]) => {
                    self.key.drain(..n);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return KeyState::Incomplete(self),
                _ => return KeyState::Differs,
            }
        }
        KeyState::Matches(self.socket)
    }
}

/// Connects a stream from `source`, whose port is 0, to `peer`, and sends the key if there is
/// one.
pub(crate) fn connect(
    kind: SocketKind,
    source: SocketAddr,
    peer: SocketAddr,
    key: Option<DataKey>,
    buffers: u32,
    timeout: Duration,
) -> Result<Socket> {
    let connect = || {
        let socket = bind(kind, source, false)?;
        set_buffers(&socket, kind, buffers)?;
        socket.connect_timeout(&SockAddr::from(peer), timeout)?;
        if let Some(key) = key {
            let mut stream = &socket;
            stream.write_all(&key.stream_bytes())?;
        }
        Ok(socket)
    };
    connect().map_err(|e| {
        let error = socket_error(kind, &format!("connect to {peer}"), &e);
        if e.kind() != ErrorKind::TimedOut {
            return error;
        }
        error.with_help(
            "check the path for lost packets and firewalls, or set --timeout (-to) higher",
        )
    })
}
