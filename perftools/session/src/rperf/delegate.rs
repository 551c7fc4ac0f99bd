//! A test that the server runs as the client of another server, at the request of a coordinator of
//! `rperf mesh`.
//!
//! ```text
//! coordinator                               server
//!   RunClient (peer, specification) ──────▶           checked against the server's limits
//!          ◀────────────────────────────── Heartbeat  once per second from now on
//!                                                     connects to the peer and prepares the test
//!          ◀────────────────────────────── Connected  if the test has a common start
//!   Start ────────────────────────────────▶
//!          ◀────────────────────────────── ClientResult
//! ```
//! The test ends when the coordinator disconnects.

use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use base::interrupt::Interrupt;
use base::log::log;
use base::peer_text::printable;
use base::threads::spawn_scoped;
use measure::transport::Backend;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::client::{self, ClientHooks};
use super::context::SessionContext;
use super::message::{ClientRequest, Message};
use super::rules::Rules;
use crate::connect::{self, ServerAddr};
use crate::diagnosis::EncodedRecord;
use crate::protocol::control_stream::{ControlReader, ControlStream, ControlWriter};

/// Interval of the heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval in milliseconds at which a waiting thread checks if the server stops.
const CHECK_MILLIS: u16 = 50;
/// Time limit for a message of the coordinator to arrive completely.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time that a connected test waits for its start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time that a coordinator may set for connecting to the peer.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(60);

/// Runs a requested test and sends its result.
///
/// # Errors
/// Returns an error for the log. It has already been sent to the coordinator if possible.
pub(super) fn serve<B: Backend>(
    stream: ControlStream,
    request: &ClientRequest,
    backend: &B,
    context: &SessionContext<'_>,
) -> Result<()> {
    let (reader, writer) = stream.split();
    let connection = Connection(Mutex::new(writer));
    let outcome = run(&connection, reader, request, backend, context);
    match outcome {
        Ok(result) => connection.send(&Message::ClientResult(result)),
        Err(error) => {
            let _ = connection.send(&Message::error(&error));
            Err(error)
        }
    }
}

/// The connection to the coordinator, which two threads write to.
struct Connection(Mutex<ControlWriter>);

impl Connection {
    fn send(&self, message: &Message) -> Result<()> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writer.send(message)
    }

    /// Ends the thread that waits for messages of the coordinator.
    fn end_reading(&self) {
        let writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // An error means that the coordinator has disconnected.
        let _ = writer.socket().shutdown(Shutdown::Read);
    }
}

fn run<B: Backend>(
    connection: &Connection,
    reader: ControlReader,
    request: &ClientRequest,
    backend: &B,
    context: &SessionContext<'_>,
) -> Result<EncodedRecord> {
    let rules = context.rules;
    rules.admit_mesh()?;
    if !request.spec.test.moves_data() {
        return Err(Error::protocol(format!(
            "the coordinator requested {}, which is not a measurement",
            request.spec.test.name()
        )));
    }
    let mut spec = request.spec.clone();
    spec.check()?;
    let _reserved = context.admit(&mut spec)?;
    spec.client.timeout = spec.client.timeout.min(rules.max_timeout);
    // They would exceed the length of a message.
    spec.tuning.samples = false;
    let peer = ServerAddr {
        host: admitted_peer(request, rules)?,
        port: request.port,
        wait: request.wait.min(MAX_CONNECT_TIME),
        bind: None,
        token: rules.token.clone(),
        qperf: false,
        interrupt: Interrupt::default(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, starts) = sync_channel(1);
    let failure = OnceLock::new();
    let awaits_start = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = Watcher {
            connection,
            reader,
            stop: Arc::clone(&stop),
            server_stop: context.stop,
            awaits_start: &awaits_start,
            starts: sender,
            failure: &failure,
        };
        spawn_scoped(scope, "coordinator", move || watcher.run())?;
        let before_start = || {
            if request.common_start {
                awaits_start.store(true, Ordering::Relaxed);
                connection.send(&Message::Connected)?;
                starts
                    .recv_timeout(START_TIMEOUT)
                    .map_err(|_| Error::test("the coordinator did not start the test"))?;
            }
            (context.on_begin)(request.spec.test);
            Ok(())
        };
        let control = ClientHooks {
            stop: Arc::clone(&stop),
            before_start: &before_start,
            on_begin: &|| {},
            counters: Vec::new(),
            has_intervals: false,
            diagnosis: context.diagnosis,
            admit_target: &|peer, target| rules.admit_target(peer, target),
        };
        let result = open(&peer, spec.client.timeout, &stop)
            .and_then(|stream| client::run_test(stream, &spec, backend, &control, &peer.interrupt));
        connection.end_reading();
        let result = result.map_err(|error| failure.get().cloned().unwrap_or(error))?;
        context.diagnosis.record(result)
    })
}

/// Connects to the server of the test. All targets that are no rperf server of this version give
/// the same error after the same time, so that a coordinator cannot tell closed ports from those of
/// other programs. The log has the cause.
fn open(peer: &ServerAddr, timeout: Duration, stop: &AtomicBool) -> Result<ControlStream> {
    let end = Instant::now() + peer.wait + timeout;
    connect::open_rperf(peer, timeout).map_err(|error| {
        if error.kind() == Kind::Limit {
            return error;
        }
        log(format_args!("rperf: {}", printable(&error.to_string())));
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(CHECK_MILLIS.into()));
        }
        Error::new(
            Kind::System,
            format!(
                "cannot reach an rperf server of this version at port {} of {}",
                peer.port, peer.host
            ),
        )
        .with_help("start `rperf` there; the log of the server that connects to it has the cause")
    })
}

/// Returns the address of the requested peer, if this server may connect to it.
fn admitted_peer(request: &ClientRequest, rules: &Rules) -> Result<String> {
    let host = &request.host;
    let addresses = (host.as_str(), request.port)
        .to_socket_addrs()
        .map_err(|e| {
            Error::new(
                Kind::System,
                format!("cannot resolve the host name {host}: {e}"),
            )
            .with_help("use names that all hosts of the mesh can resolve, or IP addresses")
        })?;
    let mut rejected = None;
    for address in addresses {
        match rules.admit_mesh_peer(address.ip()) {
            Ok(()) => return Ok(numeric(&address)),
            Err(error) => rejected = Some(error),
        }
    }
    Err(rejected.map_or_else(
        || Error::new(Kind::System, format!("host name {host} has no address")),
        |error| error.context(format!("cannot run a test with {host}")),
    ))
}

/// Formats an IP address with its scope.
fn numeric(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        _ => address.ip().to_string(),
    }
}

/// Reads the connection to the coordinator while a test runs.
struct Watcher<'a> {
    connection: &'a Connection,
    reader: ControlReader,
    /// Stops the test.
    stop: Arc<AtomicBool>,
    /// Set when the server stops.
    server_stop: &'a AtomicBool,
    /// The test is connected, and the coordinator has not started it yet.
    awaits_start: &'a AtomicBool,
    starts: SyncSender<()>,
    /// Error of a coordinator that sends messages out of turn.
    failure: &'a OnceLock<Error>,
}

impl Watcher<'_> {
    /// Replies to the coordinator and sends heartbeats until the connection cannot be read anymore.
    /// Stops the test if the coordinator disconnects or sends a message out of turn, or if the
    /// server stops.
    fn run(mut self) {
        let mut heartbeat = Instant::now();
        while !self.server_stop.load(Ordering::Relaxed) {
            if let Err(error) = self.step(&mut heartbeat) {
                if error.kind() == Kind::Protocol {
                    let _ = self.failure.set(error);
                }
                break;
            }
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    fn step(&mut self, heartbeat: &mut Instant) -> Result<()> {
        if heartbeat.elapsed() >= HEARTBEAT_INTERVAL {
            *heartbeat = Instant::now();
            self.connection.send(&Message::Heartbeat)?;
        }
        let mut fds = [PollFd::new(self.reader.socket().as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(CHECK_MILLIS)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) => {
                return Err(Error::system(
                    "cannot wait for the coordinator",
                    &errno.into(),
                ));
            }
        }
        match self.reader.receive::<Message>(Some(MESSAGE_TIMEOUT))? {
            // A second start would fill the memory of this host, and no test needs one.
            Message::Start if self.awaits_start.swap(false, Ordering::Relaxed) => {
                let _ = self.starts.try_send(());
                Ok(())
            }
            other => Err(other.unexpected("the coordinator")),
        }
    }
}
