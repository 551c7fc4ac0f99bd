//! Parts that TCP servers share: the listening socket ([`listener`]), the table of open connections
//! ([`connections`]), the networks whose clients are served ([`networks`]), and the loop that
//! serves each connection on a thread ([`run`]). `rperf` and the exporters use them.

pub mod connections;
pub mod listener;
pub mod networks;

use std::net::{SocketAddr, TcpStream};
use std::thread::{Scope, scope};
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::threads::{SESSION_STACK, spawn_scoped_with_stack};
use connections::{Connections, Registration};
use listener::{Accepted, Listener};

/// Time that running sessions have to end when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval of the checks for removed devices.
const DEVICE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Reason why a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was stopped.
    Stopped,
    /// The process holds a device open that is being removed, and no session runs.
    DeviceRemoved,
}

/// A service for the clients of a server.
pub trait Service: Sync {
    /// Serves a client until its connection ends.
    fn serve(&self, stream: TcpStream, peer: SocketAddr, connection: &Registration<'_>);

    /// Returns `true` if the server must end to let the kernel remove a device. It is asked about
    /// once per second while no session runs.
    fn holds_removed_device(&self) -> bool {
        false
    }

    /// Reports a connection that cannot be served.
    fn report(&self, peer: Option<SocketAddr>, text: &str);
}

/// Serves each connection on a thread of its own until the server is stopped, or must end to let
/// the kernel remove a device.
pub fn run(listener: &Listener, connections: &Connections, service: &dyn Service) -> Result<Ended> {
    let mut next_check = Instant::now();
    scope(|scope| {
        let result = loop {
            if Instant::now() >= next_check && !connections.has_sessions() {
                next_check = Instant::now() + DEVICE_CHECK_INTERVAL;
                if service.holds_removed_device() {
                    connections.drain(Duration::ZERO);
                    return Ok(Ended::DeviceRemoved);
                }
            }
            connections.close_overdue();
            match listener.accept() {
                Ok(Accepted::Connection(stream, peer)) => {
                    if let Err(error) = spawn(scope, stream, peer, connections, service) {
                        service.report(Some(peer), &format!("rejected: {error}"));
                    }
                }
                Ok(Accepted::Nothing) => {}
                Ok(Accepted::Failed(error)) => {
                    service.report(None, &format!("cannot accept a client: {error}"));
                }
                Ok(Accepted::Stopped) => break Ok(Ended::Stopped),
                Err(error) => {
                    listener.stopper().stop();
                    break Err(error);
                }
            }
        };
        connections.drain(DRAIN_TIMEOUT);
        result
    })
}

fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    stream: TcpStream,
    peer: SocketAddr,
    connections: &'scope Connections,
    service: &'scope dyn Service,
) -> Result<()> {
    let registered = connections.register(&stream, peer.ip());
    let registered = registered.map_err(|e| Error::system("cannot accept a client", &e))?;
    let connection = registered.ok_or_else(|| Error::limit("too many connections"))?;
    let serve = move || service.serve(stream, peer, &connection);
    spawn_scoped_with_stack(scope, "client", SESSION_STACK, serve).map(drop)
}
