//! The server: accepts connections and serves each in a thread of its own.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::context::{Served, SessionContext};
use super::rules::Rules;
use super::session;
use crate::common::error::{Error, Kind, Result};
use crate::common::log;
use crate::common::peer_text::printable;
use crate::rperf::spec::test::Test;
use crate::rperf::transport::Backend;

/// Time that running tests have to end when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval in milliseconds at which connections that are open for too long are closed.
const OVERDUE_CHECK_MILLIS: u16 = 1000;

/// Maximum number of clients beyond the limit that receive an error message at the same time.
/// Further connections are closed without a message.
const MAX_REJECTIONS: usize = 16;

/// Messages that a server writes to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LogLevel {
    Nothing,
    Errors,
    Tests,
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    wake: UnixStream,
    stopper: Stopper,
    rules: Rules,
    log_level: LogLevel,
    connections: Mutex<HashMap<u64, OpenConnection>>,
}

/// A connection that is served or rejected.
#[derive(Debug)]
struct OpenConnection {
    stream: TcpStream,
    /// Time at which it is closed. `None` if it has been closed.
    deadline: Option<Instant>,
}

/// Stops a server, from any thread or signal.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    wake: Arc<UnixStream>,
}

impl Stopper {
    /// Stops the server: it accepts no more clients, and running tests are aborted.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = (&*self.wake).write(b"q");
    }

    /// Stops the server when the process receives SIGTERM or SIGINT.
    ///
    /// # Errors
    /// Returns an error if the signal handlers cannot be installed.
    pub fn stop_on_signals(&self) -> Result<()> {
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
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

impl Server {
    /// Listens on a port of `address`, or of all IPv6 and IPv4 addresses of this host.
    ///
    /// # Errors
    /// Returns an error if the port is in use or requires privileges.
    pub fn bind(address: Option<IpAddr>, port: u16, rules: Rules) -> Result<Self> {
        let listener = match address {
            Some(ip) => listen(SocketAddr::new(ip, port), false),
            None => listen((Ipv6Addr::UNSPECIFIED, port).into(), true).or_else(|e| match e.kind() {
                ErrorKind::AddrInUse | ErrorKind::PermissionDenied => Err(e),
                // The host has no IPv6.
                _ => listen((Ipv4Addr::UNSPECIFIED, port).into(), false),
            }),
        }
        .map_err(|e| {
            let error = Error::system(format!("cannot listen on port {port}"), &e);
            match e.kind() {
                ErrorKind::AddrInUse => error.with_help(
                    "stop the server that uses the port with `rperf localhost quit`, or set --listen-port (-lp) to another port",
                ),
                ErrorKind::PermissionDenied => error.with_help(
                    "set --listen-port (-lp) to a port above 1023, which needs no privileges",
                ),
                ErrorKind::AddrNotAvailable => {
                    error.with_help("set --bind to an address of this host")
                }
                _ => error,
            }
        })?;
        let system = |e| Error::system("cannot create a socket pair", &e);
        let (wake, waker) = UnixStream::pair().map_err(system)?;
        waker.set_nonblocking(true).map_err(system)?;
        let stopper = Stopper {
            stop: Arc::new(AtomicBool::new(false)),
            wake: Arc::new(waker),
        };
        Ok(Self {
            listener,
            wake,
            stopper,
            rules,
            log_level: LogLevel::Errors,
            connections: Mutex::default(),
        })
    }

    /// Disables all log messages.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.log_level = LogLevel::Nothing;
        self
    }

    /// Logs the beginning of each test, in addition to errors.
    #[must_use]
    pub fn verbose(mut self) -> Self {
        self.log_level = LogLevel::Tests;
        self
    }

    /// Returns the address that the server listens on.
    ///
    /// # Errors
    /// Returns an error if the kernel does not report it.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener
            .local_addr()
            .map_err(|e| Error::system("cannot get the address of the server", &e))
    }

    /// Returns a handle that stops the server.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves clients until the server is stopped.
    ///
    /// # Errors
    /// Returns an error if the listening socket broke.
    pub fn run<B: Backend>(&mut self, backend: &B) -> Result<()> {
        let this = &*self;
        std::thread::scope(|scope| {
            for number in 0.. {
                let (stream, peer) = match this.accept() {
                    Ok(Some(accepted)) => accepted,
                    Ok(None) => break,
                    Err(error) => {
                        this.stopper.stop();
                        this.drain_on_shutdown();
                        return Err(error);
                    }
                };
                let admitted = this.register(number, &stream, peer);
                if this.connections().len() > this.rules.max_clients as usize + MAX_REJECTIONS {
                    this.connections().remove(&number);
                    continue;
                }
                let serve = move || {
                    match admitted {
                        Ok(()) => this.serve(stream, peer, backend),
                        Err(error) => {
                            this.log(peer, &format!("rejected: {error}"));
                            session::reject(stream, &error);
                        }
                    }
                    this.connections().remove(&number);
                };
                if let Err(error) = std::thread::Builder::new()
                    .name("client".into())
                    .spawn_scoped(scope, serve)
                {
                    this.connections().remove(&number);
                    this.log(peer, &format!("rejected: cannot create a thread: {error}"));
                }
            }
            this.drain_on_shutdown();
            Ok(())
        })
    }

    /// Registers a connection and checks that its client may be served.
    fn register(&self, number: u64, stream: &TcpStream, peer: SocketAddr) -> Result<()> {
        let system = |e| Error::system("cannot accept a client", &e);
        stream.set_nonblocking(false).map_err(system)?;
        let mut connections = self.connections();
        let other_clients = connections.len();
        let deadline = Instant::now().checked_add(self.rules.max_connection_time());
        connections.insert(
            number,
            OpenConnection {
                stream: stream.try_clone().map_err(system)?,
                deadline,
            },
        );
        self.rules.admit_host(peer.ip())?;
        if other_clients < self.rules.max_clients as usize {
            return Ok(());
        }
        Err(Error::new(
            Kind::Limit,
            format!("the server has reached its maximum number of clients, {other_clients}"),
        )
        .with_help("try again later, or set --max-clients higher on the server"))
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<u64, OpenConnection>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn serve<B: Backend>(&self, stream: TcpStream, peer: SocketAddr, backend: &B) {
        let on_begin = |test: Test| {
            if self.log_level >= LogLevel::Tests {
                self.log(peer, &format!("{} begins", test.name()));
            }
        };
        let context = SessionContext {
            stop: &self.stopper.stop,
            rules: &self.rules,
            on_begin: &on_begin,
        };
        match session::serve(stream, backend, &context) {
            Ok(Served::Quit) => self.stopper.stop(),
            Ok(Served::Test(_) | Served::Nothing) => {}
            Err(error) => self.log(peer, &error.to_string()),
        }
    }

    /// Waits for the next connection. Returns `None` when the server is stopped.
    fn accept(&self) -> Result<Option<(TcpStream, SocketAddr)>> {
        loop {
            let mut fds = [
                PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::from(OVERDUE_CHECK_MILLIS)) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(Error::system("cannot wait for clients", &errno.into())),
            }
            if self.stopper.stop.load(Ordering::Relaxed) {
                let _ = (&self.wake).read(&mut [0; 16]);
                return Ok(None);
            }
            self.close_overdue();
            match self.listener.accept() {
                Ok((stream, peer)) => return Ok(Some((stream, peer))),
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::WouldBlock
                            | ErrorKind::Interrupted
                            | ErrorKind::ConnectionAborted
                    ) => {}
                // There are no descriptors or no memory. Connections that end will release some.
                Err(e) => {
                    log::log(format_args!("rperf: cannot accept a client: {e}"));
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// Closes connections that have been open for longer than any test may take.
    fn close_overdue(&self) {
        let now = Instant::now();
        for connection in self.connections().values_mut() {
            if connection.deadline.is_some_and(|deadline| now >= deadline) {
                connection.deadline = None;
                let _ = connection.stream.shutdown(std::net::Shutdown::Both);
            }
        }
    }

    /// Waits for running tests to notify their clients, then closes the remaining connections.
    fn drain_on_shutdown(&self) {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while !self.connections().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        for connection in self.connections().values() {
            let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn log(&self, peer: SocketAddr, text: &str) {
        if self.log_level >= LogLevel::Errors {
            // Some errors quote the peer, and each one is one line.
            let text = printable(text);
            log::log(format_args!("rperf: {}: {text}", peer.ip().to_canonical()));
        }
    }
}

/// Creates a listening socket. With `dual_stack`, an IPv6 socket accepts IPv4 as well.
fn listen(address: SocketAddr, dual_stack: bool) -> std::io::Result<TcpListener> {
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
    socket.listen(128)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
