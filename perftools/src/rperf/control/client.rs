//! The client's side: one connection for each test.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::link::ControlLink;
use super::message::Message;
use super::socket_session::{self, SocketAddrs};
use super::token::Token;
use super::{admission, session};
use crate::common::error::{Error, Kind, Result};
use crate::common::protocol::frame;
use crate::common::protocol::frame::DeadlineReader;
use crate::common::protocol::hello::{self, Peer};
use crate::common::units::show_time;
use crate::rperf::engine::Role;
use crate::rperf::qperf;
use crate::rperf::report::host_conf::HostConf;
use crate::rperf::report::record::{Measured, Outcome};
use crate::rperf::report::warning::{self, WarningInput};
use crate::rperf::spec::plan::Pattern;
use crate::rperf::spec::test::Test;
use crate::rperf::spec::{Limit, Spec};
use crate::rperf::stats::interval::DipKind;
use crate::rperf::stats::monitor::{Monitor, MonitorOptions, TestInfo};
use crate::rperf::stats::port_counters::PortCounters;
use crate::rperf::stats::summary::{Interpretation, Summary};
use crate::rperf::transport::{Backend, ClientSetup, ControlAddrs};

/// Where the server is, and how long to try.
#[derive(Clone, Debug)]
pub struct ServerAddr {
    /// Its name or address.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// How long to keep trying.
    pub wait: Duration,
    /// What a server that wants a token is shown.
    pub token: Option<Token>,
    /// The server is known to be a qperf.
    pub qperf: bool,
}

/// Runs one test against a server.
///
/// # Errors
/// The server cannot be reached, refuses, or the test failed.
pub fn run<B: Backend>(
    server_addr: &ServerAddr,
    spec: &Spec,
    backend: &B,
    monitor_options: MonitorOptions<'_>,
) -> Result<Outcome> {
    let mut stream = connect(server_addr)?;
    let system = |e| Error::system("cannot set the control connection up", &e);
    let timeout = spec.client.timeout;
    stream.set_nodelay(true).map_err(system)?;
    stream.set_write_timeout(Some(timeout)).map_err(system)?;
    if server_addr.qperf {
        return qperf::client::run(stream, spec, monitor_options);
    }
    if !greet(&mut stream, server_addr, timeout)? {
        drop(stream);
        return qperf::client::run(connect(server_addr)?, spec, monitor_options);
    }
    match spec.test {
        Test::Conf => match ask(&mut stream, spec)? {
            Message::Conf(remote) => Ok(Outcome::Conf {
                local: HostConf::of_this_host(),
                remote,
            }),
            other => Err(other.unexpected("the server")),
        },
        Test::Quit => match ask(&mut stream, spec)? {
            Message::Quitting => Ok(Outcome::Quit),
            other => Err(other.unexpected("the server")),
        },
        _ => measured(stream, spec, backend, monitor_options),
    }
}

fn ask(stream: &mut TcpStream, spec: &Spec) -> Result<Message> {
    frame::write(
        stream,
        &Message::Request {
            spec: Box::new(spec.clone()),
            ask: None,
        },
    )?;
    frame::read::<Message>(&mut DeadlineReader::new(stream, spec.client.timeout))?
        .or_error("the server")
}

/// Greets; false where the server is a qperf.
fn greet(stream: &mut TcpStream, server_addr: &ServerAddr, timeout: Duration) -> Result<bool> {
    hello::write(stream)?;
    let not_rperf = || {
        Error::protocol(format!(
            "what listens on port {} of {} is no rperf server (perhaps qperf, or another service): start `rperf` there, or give --listen-port (-lp) its port",
            server_addr.port, server_addr.host
        ))
    };
    match hello::read(&mut DeadlineReader::new(stream, timeout)) {
        Ok(Peer::Rperf(server)) => {
            hello::check(&server, "the server")?;
            if server.requires_token {
                admission::prove(stream, server_addr.token.as_ref(), timeout)?;
            }
            Ok(true)
        }
        Ok(Peer::QperfServer) => Ok(false),
        Ok(_) => Err(not_rperf()),
        Err(error) if error.kind() == Kind::Gone => Err(not_rperf()),
        Err(error) => {
            Err(error.context(format!("port {} of {}", server_addr.port, server_addr.host)))
        }
    }
}

fn measured<B: Backend>(
    stream: TcpStream,
    spec: &Spec,
    backend: &B,
    monitor_options: MonitorOptions<'_>,
) -> Result<Outcome> {
    let addresses = SocketAddrs::of_stream(&stream)?;
    let hosts = ControlAddrs {
        local: addresses.local.ip().to_canonical(),
        peer: addresses.peer.ip().to_canonical(),
    };
    let link = ControlLink::new(stream, "the server", spec.client.timeout, Arc::default())?;
    let monitor = Monitor::new(monitor_options, test_info(spec));
    let link = link.with_counters(monitor.counters());
    let begins = |_| monitor.begin();
    let run = || {
        if let Some(kind) = spec.test.socket() {
            link.send(&Message::Request {
                spec: Box::new(spec.clone()),
                ask: None,
            })?;
            return socket_session::client(&link, spec, kind, addresses, &begins);
        }
        let (mut setup, ask) = backend.client(spec, hosts)?;
        link.send(&Message::Request {
            spec: Box::new(spec.clone()),
            ask: Some(ask),
        })?;
        let offer = match link.receive()? {
            Message::Offer(offer) => offer,
            other => return Err(other.unexpected("the server")),
        };
        let answer = setup.answer(&offer)?;
        link.send(&Message::Answer(answer))?;
        let connected = setup
            .connect(&offer, spec.client.timeout)
            .map_err(|e| link.explain(e))?;
        if monitor_options.interval.is_some() && spec.flip && !connected.shape.plan.has_receiver() {
            return Err(Error::limit(
                "--interval: with --flip (-f) the server works on memory here, and nobody here sees what moves; leave one of the two away",
            ));
        }
        session::exchange(&link, spec, Role::Client, connected, &begins)
    };
    let before = PortCounters::now();
    let done = monitor
        .during(run)
        .inspect_err(|error| link.report(error))?;
    let seen = monitor.seen(done.measurement.stats.nanos);
    let one_host = hosts.local == hosts.peer;
    let one_port = one_host
        && (&done.via.device, done.via.port) == (&done.peer_via.device, done.peer_via.port);
    let warnings = warning::gather(&WarningInput {
        spec,
        via: &done.via,
        ends: [&done.measurement.stats, &done.peer_stats],
        one_host,
        one_port,
        port: PortCounters::now().since(&before, &done.via.device, done.via.port),
        stalls: seen.dips.iter().any(|dip| dip.kind == DipKind::Stall),
        server: &done.peer_warnings,
    });
    Ok(Outcome::Measured(Box::new(Measured {
        intervals: seen.intervals,
        dips: seen.dips,
        warnings,
        spec: spec.clone(),
        plan: done.plan,
        depth: done.depth,
        local: done.via,
        remote: done.peer_via,
        summary: Summary::new(
            Interpretation::new(spec.test, done.plan).flipped(spec.flip),
            &done.measurement.stats,
            &done.peer_stats,
        ),
        latency: done.measurement.latency.and_then(|l| l.percentiles()),
        local_stats: done.measurement.stats,
        remote_stats: done.peer_stats,
    })))
}

/// What there is to see of a test.
fn test_info(spec: &Spec) -> TestInfo {
    let both = spec
        .test
        .plan()
        .is_some_and(|plan| plan.pattern == Pattern::BothWays);
    let (time, messages) = match spec.limit {
        Limit::Time(time) => (Some(time), None),
        Limit::Messages(n) if both => (None, Some(n.saturating_mul(2))),
        Limit::Messages(n) => (None, Some(n)),
    };
    TestInfo {
        latency: spec.test.is_latency(),
        size: spec.msg_size,
        warm_up: spec.tuning.warm_up,
        time,
        messages,
        threads: spec.threads,
    }
}

/// Connects, and keeps trying while nobody listens.
fn connect(server_addr: &ServerAddr) -> Result<TcpStream> {
    let ServerAddr {
        host, port, wait, ..
    } = server_addr;
    let deadline = Instant::now() + *wait;
    // `[::1]` is how an IPv6 address is written before a port.
    let name = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    let addresses: Vec<SocketAddr> = (name, *port)
        .to_socket_addrs()
        .map_err(|e| not_found(host, &e))?
        .collect();
    loop {
        let mut last = None;
        for address in &addresses {
            let left = deadline
                .saturating_duration_since(Instant::now())
                .max(Duration::from_millis(100));
            match TcpStream::connect_timeout(address, left) {
                Ok(stream) => return Ok(stream),
                Err(error) if is_without_scope(address) => return Err(without_scope(host, &error)),
                Err(error) => last = Some(error),
            }
        }
        if Instant::now() + Duration::from_millis(100) >= deadline {
            let why = last.map_or_else(|| "it has no address".to_owned(), |e| e.to_string());
            return Err(Error::new(
                Kind::System,
                format!(
                    "cannot reach the server at {host} port {port} for {}: {why}; start `rperf` there, and see that no firewall closes the port (--wait-server (-ws) sets how long to try)",
                    show_time(*wait)
                ),
            ));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn not_found(host: &str, error: &std::io::Error) -> Error {
    let hint = match host.rsplit_once('%') {
        Some((_, interface)) => {
            format!("is there an interface {interface} here? `ip link` lists them")
        }
        None if host.is_empty() => "a host has a name or an address".to_owned(),
        None if host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok()) =>
        {
            "its port is given by --listen-port (-lp)".to_owned()
        }
        None => "is it spelt right? An IP address needs no name service".to_owned(),
    };
    Error::new(
        Kind::System,
        format!("cannot find the host {host}: {error}; {hint}"),
    )
}

/// Whether an address is of every link, and does not say which.
fn is_without_scope(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

fn without_scope(host: &str, error: &std::io::Error) -> Error {
    Error::new(
        Kind::System,
        format!(
            "cannot reach {host}: {error}; a link-local address wants the interface with it: {host}%INTERFACE"
        ),
    )
}
