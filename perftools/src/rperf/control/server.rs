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
use crate::common::error::{self, Error, Kind, Result};
use crate::rperf::spec::test::Test;
use crate::rperf::transport::Backend;

/// How long running tests may take to end when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// How often, in milliseconds, it is looked whether a connection is open for too long.
const SWEEP: u16 = 1000;

/// Connections beyond the limit that are told so at the same time; what comes still is closed
/// without a word.
const MAX_REJECTIONS: usize = 16;

/// What a server says on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Log {
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
    log: Log,
    open: Mutex<HashMap<u64, Open>>,
}

/// A connection that is served.
#[derive(Debug)]
struct Open {
    stream: TcpStream,
    /// When it is cut.
    until: Option<Instant>,
}

/// Stops a server, from any thread or signal.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    wake: Arc<UnixStream>,
}

impl Stopper {
    /// Stops the server: it takes no more clients, and tests that run are ended.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = (&*self.wake).write(b"q");
    }

    /// Stops the server at SIGTERM and SIGINT.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn at_signals(&self) -> Result<()> {
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            let system = |e| Error::system("cannot catch signals", &e);
            // The flag first: whoever the pipe wakes finds it set.
            signal_hook::flag::register(signal, Arc::clone(&self.stop)).map_err(system)?;
            let wake = self.wake.try_clone().map_err(system)?;
            signal_hook::low_level::pipe::register(signal, wake).map_err(system)?;
        }
        Ok(())
    }
}

impl Server {
    /// Listens on a port of this address, or of all (IPv6 and IPv4) where none is given.
    ///
    /// # Errors
    /// The port is taken or not allowed.
    pub fn bind(address: Option<IpAddr>, port: u16, rules: Rules) -> Result<Self> {
        let listener = match address {
            Some(ip) => listen(SocketAddr::new(ip, port), false),
            None => listen((Ipv6Addr::UNSPECIFIED, port).into(), true).or_else(|e| match e.kind() {
                ErrorKind::AddrInUse | ErrorKind::PermissionDenied => Err(e),
                // A host without IPv6.
                _ => listen((Ipv4Addr::UNSPECIFIED, port).into(), false),
            }),
        }
        .map_err(|e| {
            let hint = match e.kind() {
                ErrorKind::AddrInUse => "; another server runs there: end it with `rperf localhost quit`, or give --listen-port (-lp) another port",
                ErrorKind::PermissionDenied => "; ports below 1024 need privileges: give --listen-port (-lp) another port",
                ErrorKind::AddrNotAvailable => "; --bind wants an address of this host",
                _ => "",
            };
            Error::new(Kind::System, format!("cannot listen on port {port}: {e}{hint}"))
        })?;
        let system = |e| Error::system("cannot make a pipe", &e);
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
            log: Log::Errors,
            open: Mutex::default(),
        })
    }

    /// Logs nothing.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.log = Log::Nothing;
        self
    }

    /// Logs each test that begins.
    #[must_use]
    pub fn verbose(mut self) -> Self {
        self.log = Log::Tests;
        self
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener
            .local_addr()
            .map_err(|e| Error::system("the server has no address", &e))
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// The listening socket broke.
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
                let entered = this.enter(number, &stream, peer);
                if this.open().len() > this.rules.max_clients as usize + MAX_REJECTIONS {
                    this.open().remove(&number);
                    continue;
                }
                let serve = move || {
                    match entered {
                        Ok(()) => this.serve(stream, peer, backend),
                        Err(error) => {
                            this.log(peer, &format!("turned away: {error}"));
                            session::reject(stream, &error);
                        }
                    }
                    this.open().remove(&number);
                };
                if let Err(error) = std::thread::Builder::new()
                    .name("client".into())
                    .spawn_scoped(scope, serve)
                {
                    this.open().remove(&number);
                    this.log(peer, &format!("turned away: no thread: {error}"));
                }
            }
            this.drain_on_shutdown();
            Ok(())
        })
    }

    /// Notes a connection down, and says whether there is room for one more.
    fn enter(&self, number: u64, stream: &TcpStream, peer: SocketAddr) -> Result<()> {
        let system = |e| Error::system("cannot take a client", &e);
        stream.set_nonblocking(false).map_err(system)?;
        let mut open = self.open();
        let served = open.len();
        let until = Instant::now().checked_add(self.rules.longest());
        open.insert(
            number,
            Open {
                stream: stream.try_clone().map_err(system)?,
                until,
            },
        );
        self.rules.admit_host(peer.ip())?;
        if served < self.rules.max_clients as usize {
            return Ok(());
        }
        Err(Error::new(
            Kind::Limit,
            format!(
                "the server has as many clients as it takes, {served} (--max-clients sets how many)"
            ),
        ))
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve<B: Backend>(&self, stream: TcpStream, peer: SocketAddr, backend: &B) {
        let begins = |test: Test| {
            if self.log >= Log::Tests {
                self.log(peer, &format!("{} begins", test.name()));
            }
        };
        let context = SessionContext {
            stop: &self.stopper.stop,
            rules: &self.rules,
            begins: &begins,
        };
        match session::serve(stream, backend, &context) {
            Ok(Served::Quit) => self.stopper.stop(),
            Ok(Served::Test(_) | Served::Nothing) => {}
            Err(error) => self.log(peer, &error.to_string()),
        }
    }

    /// The next connection; none when the server shall stop.
    fn accept(&self) -> Result<Option<(TcpStream, SocketAddr)>> {
        loop {
            let mut fds = [
                PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::from(SWEEP)) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(Error::system("cannot wait for clients", &errno.into())),
            }
            if self.stopper.stop.load(Ordering::Relaxed) {
                let _ = (&self.wake).read(&mut [0; 16]);
                return Ok(None);
            }
            self.cut_overdue();
            match self.listener.accept() {
                Ok((stream, peer)) => return Ok(Some((stream, peer))),
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::WouldBlock
                            | ErrorKind::Interrupted
                            | ErrorKind::ConnectionAborted
                    ) => {}
                // Out of descriptors or memory: those that are served will give some back.
                Err(e) => {
                    error::log(format_args!("rperf: cannot accept a client: {e}"));
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// Cuts connections that are open for longer than any test may take.
    fn cut_overdue(&self) {
        let now = Instant::now();
        for open in self.open().values_mut() {
            if open.until.is_some_and(|until| now >= until) {
                open.until = None;
                let _ = open.stream.shutdown(std::net::Shutdown::Both);
            }
        }
    }

    /// Gives running tests a moment to tell their clients, then cuts what is left.
    fn drain_on_shutdown(&self) {
        let end = Instant::now() + DRAIN_TIMEOUT;
        while !self.open().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        for open in self.open().values() {
            let _ = open.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn log(&self, peer: SocketAddr, text: &str) {
        if self.log >= Log::Errors {
            error::log(format_args!("rperf: {}: {text}", peer.ip().to_canonical()));
        }
    }
}

fn listen(address: SocketAddr, dual: bool) -> std::io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(!dual)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(128)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
