//! The client's side: one connection for each test.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::frame::Until;
use super::hello::{self, Caller};
use super::link::ControlLink;
use super::message::Message;
use super::sockets::{self, Addresses};
use super::token::Token;
use super::{admission, frame, session};
use crate::config::{Limit, Spec};
use crate::engine::Role;
use crate::error::{Error, Kind, Result};
use crate::host;
use crate::plan::Pattern;
use crate::qperf;
use crate::report::record::{Measured, Outcome};
use crate::report::warning::{self, Known};
use crate::stats::counters::Counters;
use crate::stats::interval::DipKind;
use crate::stats::summary::{Meaning, Summary};
use crate::stats::watch::{Watch, Watched, Watching};
use crate::test::Test;
use crate::transport::{Backend, ClientSetup, Hosts};
use crate::units::show_time;

/// Where the server is, and how long to try.
#[derive(Clone, Debug)]
pub struct Target {
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
    target: &Target,
    spec: &Spec,
    backend: &B,
    watch: Watch<'_>,
) -> Result<Outcome> {
    let mut stream = connect(target)?;
    let system = |e| Error::system("cannot set the control connection up", &e);
    let timeout = spec.client.timeout;
    stream.set_nodelay(true).map_err(system)?;
    stream.set_write_timeout(Some(timeout)).map_err(system)?;
    if target.qperf {
        return qperf::client::run(stream, spec, watch);
    }
    if !greet(&mut stream, target, timeout)? {
        drop(stream);
        return qperf::client::run(connect(target)?, spec, watch);
    }
    match spec.test {
        Test::Conf => match ask(&mut stream, spec)? {
            Message::Conf(remote) => Ok(Outcome::Conf {
                local: host::conf(),
                remote,
            }),
            other => Err(other.unexpected("the server")),
        },
        Test::Quit => match ask(&mut stream, spec)? {
            Message::Quitting => Ok(Outcome::Quit),
            other => Err(other.unexpected("the server")),
        },
        _ => measured(stream, spec, backend, watch),
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
    frame::read::<Message>(&mut Until::new(stream, spec.client.timeout))?.or_error("the server")
}

/// Greets; false where the server is a qperf.
fn greet(stream: &mut TcpStream, target: &Target, timeout: Duration) -> Result<bool> {
    hello::write(stream)?;
    let not_rperf = || {
        Error::protocol(format!(
            "what listens on port {} of {} is no rperf server (perhaps qperf, or another service): start `rperf` there, or give --listen-port (-lp) its port",
            target.port, target.host
        ))
    };
    match hello::read(&mut Until::new(stream, timeout)) {
        Ok(Caller::Rperf(server)) => {
            hello::check(&server, "the server")?;
            if server.wants_token {
                admission::prove(stream, target.token.as_ref(), timeout)?;
            }
            Ok(true)
        }
        Ok(Caller::QperfServer) => Ok(false),
        Ok(_) => Err(not_rperf()),
        Err(error) if error.kind() == Kind::Gone => Err(not_rperf()),
        Err(error) => Err(error.context(format!("port {} of {}", target.port, target.host))),
    }
}

fn measured<B: Backend>(
    stream: TcpStream,
    spec: &Spec,
    backend: &B,
    watch: Watch<'_>,
) -> Result<Outcome> {
    let addresses = Addresses::of(&stream)?;
    let hosts = Hosts {
        local: addresses.local.ip().to_canonical(),
        peer: addresses.peer.ip().to_canonical(),
    };
    let link = ControlLink::new(stream, "the server", spec.client.timeout, Arc::default())?;
    let watching = Watching::new(watch, watched(spec));
    let link = link.watched(watching.lanes());
    let begins = |_| watching.begin();
    let run = || {
        if let Some(kind) = spec.test.socket() {
            link.send(&Message::Request {
                spec: Box::new(spec.clone()),
                ask: None,
            })?;
            return sockets::client(&link, spec, kind, addresses, &begins);
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
        if watch.interval.is_some() && spec.flip && !connected.shape.plan.has_receiver() {
            return Err(Error::limit(
                "--interval: with --flip (-f) the server works on memory here, and nobody here sees what moves; leave one of the two away",
            ));
        }
        session::exchange(&link, spec, Role::Client, connected, &begins)
    };
    let before = Counters::now();
    let done = watching
        .during(run)
        .inspect_err(|error| link.report(error))?;
    let seen = watching.seen(done.outcome.stats.nanos);
    let one_host = hosts.local == hosts.peer;
    let one_port = one_host
        && (&done.via.device, done.via.port) == (&done.peer_via.device, done.peer_via.port);
    let warnings = warning::gather(&Known {
        spec,
        via: &done.via,
        ends: [&done.outcome.stats, &done.peer_stats],
        one_host,
        one_port,
        port: Counters::now().since(&before, &done.via.device, done.via.port),
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
            Meaning::of(spec.test, done.plan).flipped(spec.flip),
            &done.outcome.stats,
            &done.peer_stats,
        ),
        latency: done.outcome.latency.and_then(|l| l.percentiles()),
        local_stats: done.outcome.stats,
        remote_stats: done.peer_stats,
    })))
}

/// What there is to see of a test.
fn watched(spec: &Spec) -> Watched {
    let both = spec
        .test
        .plan()
        .is_some_and(|plan| plan.pattern == Pattern::BothWays);
    let (time, messages) = match spec.limit {
        Limit::Time(time) => (Some(time), None),
        Limit::Messages(n) if both => (None, Some(n.saturating_mul(2))),
        Limit::Messages(n) => (None, Some(n)),
    };
    Watched {
        latency: spec.test.is_latency(),
        size: spec.msg_size,
        warm_up: spec.tuning.warm_up,
        time,
        messages,
        threads: spec.threads,
    }
}

/// Connects, and keeps trying while nobody listens.
fn connect(target: &Target) -> Result<TcpStream> {
    let Target {
        host, port, wait, ..
    } = target;
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
