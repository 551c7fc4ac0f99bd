//! Connections to a server of rperf or qperf. The greeting tells which of them it is.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use base::interrupt::Interrupt;
use base::units::show_time;
use socket2::{Domain, Socket, Type};

use crate::protocol::control_stream::{ControlStream, Keys};
use crate::protocol::frame::DeadlineReader;
use crate::protocol::handshake;
use crate::protocol::hello::{self, Peer};
use crate::protocol::token::Token;

/// Address of a server, and how to connect to it.
#[derive(Clone, Debug)]
pub struct ServerAddr {
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Time to retry while the server does not accept connections.
    pub wait: Duration,
    /// Local address of the connection; none: chosen by the system.
    pub bind: Option<IpAddr>,
    /// Token for a server that requires one.
    pub token: Option<Token>,
    /// If `true`, the server is a qperf.
    pub qperf: bool,
    /// Ends a running test early, with what has been measured.
    pub interrupt: Interrupt,
}

/// Control connection to a server.
pub(crate) enum Connection {
    /// Authenticated.
    Rperf(ControlStream),
    /// The server waits for a request.
    Qperf(TcpStream),
}

/// Connects to a server, and authenticates if it is an rperf.
pub(crate) fn open(server_addr: &ServerAddr, timeout: Duration) -> Result<Connection> {
    let mut stream = connect_with_options(server_addr, timeout)?;
    if server_addr.qperf {
        return Ok(Connection::Qperf(stream));
    }
    match greet(&mut stream, server_addr, timeout)? {
        Some(keys) => Ok(Connection::Rperf(ControlStream::new(stream, &keys))),
        // A qperf closes the connection after the greeting, which it does not know.
        None => connect_with_options(server_addr, timeout).map(Connection::Qperf),
    }
}

/// Connects to an rperf server and authenticates.
pub fn open_rperf(server_addr: &ServerAddr, timeout: Duration) -> Result<ControlStream> {
    if let Connection::Rperf(stream) = open(server_addr, timeout)? {
        return Ok(stream);
    }
    Err(Error::usage(format!(
        "port {} of {} belongs to a qperf server, which supports neither a mesh nor several devices",
        server_addr.port, server_addr.host
    ))
    .with_help("start `rperf` there"))
}

fn connect_with_options(server_addr: &ServerAddr, timeout: Duration) -> Result<TcpStream> {
    let stream = connect(server_addr)?;
    let system = |e| Error::system("cannot set the options of the control connection", &e);
    stream.set_nodelay(true).map_err(system)?;
    stream.set_write_timeout(Some(timeout)).map_err(system)?;
    Ok(stream)
}

/// Exchanges greetings and authenticates. Returns `None` if the server is a qperf.
fn greet(
    stream: &mut TcpStream,
    server_addr: &ServerAddr,
    timeout: Duration,
) -> Result<Option<Keys>> {
    hello::write_request(stream)?;
    let not_rperf = || {
        Error::protocol(format!(
            "port {} of {} belongs to a program other than an rperf server",
            server_addr.port, server_addr.host
        ))
        .with_help(
            "start `rperf` there, set --port (-lp) to its port, or use --qperf for a qperf server",
        )
    };
    match hello::read_reply(&mut DeadlineReader::new(stream, timeout)) {
        Ok(Peer::Rperf(server)) => {
            hello::check(&server, "the server")?;
            handshake::connect(stream, &server, server_addr.token.as_ref(), timeout).map(Some)
        }
        Ok(Peer::QperfServer) if server_addr.token.is_some() => Err(handshake::unauthenticated(
            "the server is a qperf, which supports no token",
        )),
        Ok(Peer::QperfServer) => Ok(None),
        Ok(_) => Err(not_rperf()),
        Err(error) if error.kind() == Kind::Gone => Err(Error::protocol(format!(
            "port {} of {} closed the connection before a greeting",
            server_addr.port, server_addr.host
        ))
        .with_help(
            "see the log of `rperf` there, or start it; set --port (-lp) to its port, or use --qperf for a qperf server",
        )),
        Err(error) => {
            Err(error.context(format!("port {} of {}", server_addr.port, server_addr.host)))
        }
    }
}

/// Connects to the server. Retries for the configured time if that fails.
fn connect(server_addr: &ServerAddr) -> Result<TcpStream> {
    let ServerAddr {
        host, port, wait, ..
    } = server_addr;
    if *port == 0 {
        return Err(Error::usage(format!(
            "cannot reach the server at {host} port 0: 0 lets a server choose its port"
        ))
        .with_help("set --port (-lp) to the port that the server prints"));
    }
    let deadline = Instant::now() + *wait;
    // Users may write an IPv6 address in brackets, as before a port.
    let name = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    let addresses: Vec<SocketAddr> = (name, *port)
        .to_socket_addrs()
        .map_err(|e| resolve_error(host, &e))?
        .collect();
    loop {
        let mut last = None;
        for address in &addresses {
            let left = deadline
                .saturating_duration_since(Instant::now())
                .max(Duration::from_millis(100));
            match connect_from(server_addr.bind, address, left) {
                Ok(stream) => return Ok(stream),
                Err(error)
                    if server_addr.bind.is_some()
                        && error.kind() == io::ErrorKind::AddrNotAvailable =>
                {
                    let text = format!("cannot reach the server at {host}: {error}");
                    return Err(Error::new(Kind::System, text)
                        .with_help("set --bind to an address of this host"));
                }
                Err(error) if lacks_scope(address) => {
                    return Err(missing_scope_error(host, &error));
                }
                Err(error) => last = Some(error),
            }
        }
        if let Some(error) = server_addr.interrupt.error() {
            return Err(error);
        }
        if Instant::now() + Duration::from_millis(100) >= deadline {
            let cause = last.map_or_else(|| "it has no address".to_owned(), |e| e.to_string());
            return Err(Error::new(
                Kind::System,
                format!(
                    "cannot reach the server at {host} port {port} within {}: {cause}",
                    show_time(*wait)
                ),
            )
            .with_help(
                "start `rperf` there, check that no firewall blocks the port, or set --wait-server (-ws) higher",
            ));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Connects to a server from a local address, if one is given.
fn connect_from(
    local: Option<IpAddr>,
    server: &SocketAddr,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let Some(local) = local else {
        return TcpStream::connect_timeout(server, timeout);
    };
    let socket = Socket::new(Domain::for_address(*server), Type::STREAM, None)?;
    socket
        .bind(&SocketAddr::new(local, 0).into())
        .map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("cannot connect from {local} (--bind): {e}"),
            )
        })?;
    socket.connect_timeout(&(*server).into(), timeout)?;
    Ok(socket.into())
}

fn resolve_error(host: &str, error: &std::io::Error) -> Error {
    let help = match host.rsplit_once('%') {
        Some((_, interface)) => {
            format!("check that this host has an interface {interface} with `ip link`")
        }
        None if host.is_empty() => "specify a host name or an IP address".to_owned(),
        None if host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok()) =>
        {
            "specify the port with --port (-lp)".to_owned()
        }
        None => "check the spelling, or specify an IP address".to_owned(),
    };
    Error::new(
        Kind::System,
        format!("cannot resolve the host name {host}: {error}"),
    )
    .with_help(help)
}

/// Returns `true` if the address is link-local and does not name an interface.
fn lacks_scope(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

fn missing_scope_error(host: &str, error: &std::io::Error) -> Error {
    Error::new(Kind::System, format!("cannot reach {host}: {error}")).with_help(format!(
        "add the interface to the link-local address: {host}%INTERFACE"
    ))
}
