//! A listening TCP socket that can be stopped.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::error::{Error, Result};
use base::interrupt::stop_signals;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Longest time in milliseconds that [`Listener::accept`] waits.
const ACCEPT_MILLIS: u16 = 1000;

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    wake: UnixStream,
    stopper: Stopper,
}

/// Stops a server, from any thread or signal.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    wake: Arc<UnixStream>,
}

/// Result of a wait for a connection.
#[derive(Debug)]
pub enum Accepted {
    /// A connection and the address of its client.
    Connection(TcpStream, SocketAddr),
    /// None arrived within a second.
    Nothing,
    /// The connection could not be accepted, for example without free file descriptors.
    Failed(io::Error),
    /// The server was stopped.
    Stopped,
}

impl Stopper {
    /// Stops the server: it accepts no more clients, and running tests are aborted.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = (&*self.wake).write(b"q");
    }

    /// Returns the flag that is set when the server is stopped.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Stops the server when the process receives SIGTERM, SIGINT or SIGHUP.
    pub fn stop_on_signals(&self) -> Result<()> {
        for signal in stop_signals() {
            let system = |e| Error::system("cannot catch signals", &e);
            // Handlers run in the order of registration, so the flag is set before the pipe wakes
            // the server.
            signal_hook::flag::register(signal, Arc::clone(&self.stop)).map_err(system)?;
            let wake = self.wake.try_clone().map_err(system)?;
            signal_hook::low_level::pipe::register(signal, wake).map_err(system)?;
        }
        Ok(())
    }
}

impl Listener {
    /// Listens on a port of `address`, or of all IPv6 and IPv4 addresses of this host.
    pub fn bind(address: Option<IpAddr>, port: u16) -> io::Result<Self> {
        let socket = match address {
            Some(ip) => listen(SocketAddr::new(ip, port), false),
            None => {
                listen((Ipv6Addr::UNSPECIFIED, port).into(), true).or_else(|e| match e.kind() {
                    ErrorKind::AddrInUse | ErrorKind::PermissionDenied => Err(e),
                    // The host has no IPv6.
                    _ => listen((Ipv4Addr::UNSPECIFIED, port).into(), false),
                })
            }
        }?;
        Self::from_socket(socket)
    }

    /// Returns the listening socket that is the standard input of this process, if it is one.
    pub fn from_stdin() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !SockRef::from(&stdin).is_listener().unwrap_or(false) {
            return Ok(None);
        }
        let socket = TcpListener::from(stdin.as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        Self::from_socket(socket).map(Some)
    }

    fn from_socket(socket: TcpListener) -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        let stopper = Stopper {
            stop: Arc::new(AtomicBool::new(false)),
            wake: Arc::new(waker),
        };
        Ok(Self {
            socket,
            wake,
            stopper,
        })
    }

    /// Returns the socket as the standard input of a program, for [`from_stdin`](Self::from_stdin).
    pub fn to_stdin(&self) -> io::Result<Stdio> {
        Ok(Stdio::from(self.socket.as_fd().try_clone_to_owned()?))
    }

    /// Returns the address of the socket.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.socket
            .local_addr()
            .map_err(|e| Error::system("cannot get the address of the server", &e))
    }

    /// Returns a handle that stops the server.
    pub fn stopper(&self) -> &Stopper {
        &self.stopper
    }

    /// Waits for the next connection, at most for a second. After a failure it waits shortly,
    /// because connections that end release file descriptors and memory.
    pub(crate) fn accept(&self) -> Result<Accepted> {
        let mut fds = [
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::from(ACCEPT_MILLIS)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(Error::system("cannot wait for clients", &errno.into())),
        }
        if self.stopper.stop.load(Ordering::Relaxed) {
            let _ = (&self.wake).read(&mut [0; 16]);
            return Ok(Accepted::Stopped);
        }
        let accepted = self.socket.accept().and_then(|(stream, peer)| {
            stream.set_nonblocking(false)?;
            Ok((stream, peer))
        });
        Ok(match accepted {
            Ok((stream, peer)) => Accepted::Connection(stream, peer),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) =>
            {
                Accepted::Nothing
            }
            Err(e) => {
                std::thread::sleep(Duration::from_millis(100));
                Accepted::Failed(e)
            }
        })
    }
}

/// Creates a listening socket. With `dual_stack`, an IPv6 socket accepts IPv4 as well.
fn listen(address: SocketAddr, dual_stack: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(!dual_stack)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    // A flood must not fill the queue before the server closes its connections.
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
