//! The server: accepts connections and serves each in a thread of its own.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};

use base::error::{Error, Result};
use base::log;
use base::peer_text::printable;
use measure::spec::test::Test;
use measure::transport::Backend;

use super::context::{Served, SessionContext};
use super::data_streams::DataStreams;
use super::rules::Rules;
use super::session;
use crate::diagnosis::Diagnosis;
use crate::probe::reflector::Reflectors;
use crate::restart;
use crate::server::connections::{Connections, Registration};
use crate::server::listener::{Listener, Stopper};
use crate::server::{self, Ended, Service};

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
    listener: Listener,
    rules: Rules,
    log_level: LogLevel,
    connections: Connections,
    yields_devices: bool,
    reflectors: Reflectors,
    data_streams: DataStreams,
}

/// The service of a server: tests over a backend.
struct Tests<'a, B> {
    server: &'a Server,
    backend: &'a B,
    diagnosis: &'a dyn Diagnosis,
}

impl<B: Backend> Service for Tests<'_, B> {
    fn serve(&self, stream: TcpStream, peer: SocketAddr, connection: &Registration<'_>) {
        match self.server.rules.admit_host(peer.ip()) {
            Ok(()) => self.server.serve(stream, peer, self, connection),
            Err(error) => {
                self.server.log(peer, &format!("rejected: {error}"));
                session::reject(stream, &error);
            }
        }
    }

    fn holds_removed_device(&self) -> bool {
        self.server.yields_devices && restart::holds_removed_device()
    }

    fn report(&self, peer: Option<SocketAddr>, text: &str) {
        match peer {
            Some(peer) => self.server.log(peer, text),
            None => log::log(format_args!("rperf: {text}")),
        }
    }
}

impl Server {
    /// Listens on a port of `address`, or of all IPv6 and IPv4 addresses of this host.
    pub fn bind(address: Option<IpAddr>, port: u16, rules: Rules) -> Result<Self> {
        let listener = Listener::bind(address, port).map_err(|e| {
            let error = Error::system(format!("cannot listen on port {port}"), &e);
            match e.kind() {
                ErrorKind::AddrInUse => error.with_help(
                    "stop the server that uses the port with `rperf localhost quit`, or set --port (-lp) to another port",
                ),
                ErrorKind::PermissionDenied => error.with_help(
                    "set --port (-lp) to a port above 1023, which needs no privileges",
                ),
                ErrorKind::AddrNotAvailable => {
                    error.with_help("set --bind to an address of this host")
                }
                _ => error,
            }
        })?;
        Ok(Self::new(listener, rules))
    }

    /// Creates a server that listens on this socket.
    pub fn new(listener: Listener, rules: Rules) -> Self {
        let port = listener.local_addr().map_or(0, |address| address.port());
        Self {
            connections: Connections::new(rules.max_clients),
            reflectors: Reflectors::new(port, &rules.allow),
            listener,
            rules,
            log_level: LogLevel::Errors,
            yields_devices: false,
            data_streams: DataStreams::default(),
        }
    }

    /// Lets [`run`](Self::run) end when a device is removed that this process holds open.
    #[must_use]
    pub fn yield_devices(mut self, yields: bool) -> Self {
        self.yields_devices = yields;
        self
    }

    /// Returns the socket that the server listens on.
    pub fn listener(&self) -> &Listener {
        &self.listener
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
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns a handle that stops the server.
    pub fn stopper(&self) -> Stopper {
        self.listener.stopper().clone()
    }

    /// Serves clients until the server is stopped, or must end to let the kernel remove a device.
    pub fn run<B: Backend>(&mut self, backend: &B, diagnosis: &dyn Diagnosis) -> Result<Ended> {
        let tests = Tests {
            server: self,
            backend,
            diagnosis,
        };
        server::run(&self.listener, &self.connections, &tests)
    }

    fn serve<B: Backend>(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        tests: &Tests<'_, B>,
        connection: &Registration<'_>,
    ) {
        let on_begin = |test: Test| {
            if self.log_level >= LogLevel::Tests {
                self.log(peer, &format!("{} begins", test.name()));
            }
        };
        let context = SessionContext {
            stop: self.listener.stopper().flag(),
            rules: &self.rules,
            connection,
            on_begin: &on_begin,
            data_streams: &self.data_streams,
            reflectors: &self.reflectors,
            diagnosis: tests.diagnosis,
        };
        let served = session::serve(stream, tests.backend, &context);
        // An idle server keeps no memory of large tests.
        if connection.is_session() {
            ibverbs::trim_heap();
        }
        match served {
            Ok(Served::Quit) => self.listener.stopper().stop(),
            Ok(Served::Test(_) | Served::Nothing) => {}
            Err(error) => self.log(peer, &error.to_string()),
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
