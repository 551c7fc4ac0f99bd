//! The client: runs each test over a control connection of its own.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use base::interrupt::Interrupt;
use base::units::show_time;
use host::host_conf::HostConf;
use measure::engine::Role;
use measure::result::{DeviceRun, TestResult, TestRun};
use measure::spec::plan::{Pattern, Plan};
use measure::spec::socket_kind::SocketKind;
use measure::spec::test::Test;
use measure::spec::{Limit, Spec, UNLIMITED};
use measure::stats::SideStats;
use measure::stats::monitor::{Monitor, MonitorOptions, MonitorResult, TestInfo};
use measure::stats::thread_counters::ThreadCounters;
use measure::transport::{
    Backend, ClientSetup, ConnectMethod, ControlAddrs, LinkType, Offer, QpEndpoint,
};
use socket2::{Domain, Socket, Type};

use super::context::SessionHooks;
use super::link::ControlLink;
use super::message::Message;
use super::rdma_session;
use super::socket_session::{self, SocketAddrs};
use crate::answer::Answer;
use crate::diagnosis::Diagnosis;
use crate::protocol::control_stream::{ControlStream, Keys};
use crate::protocol::frame::DeadlineReader;
use crate::protocol::handshake;
use crate::protocol::hello::{self, Peer};
use crate::protocol::token::Token;
use crate::qperf;

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

/// Control over a session from outside.
pub(super) struct ClientControl<'a> {
    /// Stops the test when it is set.
    pub(super) stop: Arc<AtomicBool>,
    /// Called when the client is connected, before the test starts.
    pub(super) before_start: &'a dyn Fn() -> Result<()>,
    /// Called when both ends are ready.
    pub(super) on_begin: &'a dyn Fn(),
    /// Counters of the threads; empty if the test is not monitored.
    pub(super) counters: Vec<Arc<ThreadCounters>>,
    /// `true` if the counters are those of intervals.
    pub(super) has_intervals: bool,
    /// Judges failures.
    pub(super) diagnosis: &'a dyn Diagnosis,
    /// Checks that this end, connected to the first address, may send data to the second one.
    pub(super) admit_target: &'a dyn Fn(IpAddr, IpAddr) -> Result<()>,
}

/// Runs one test with a server.
///
/// # Errors
/// Returns an error if the server cannot be reached, the server rejected the request, or the test
/// failed.
pub fn run<B: Backend>(
    server_addr: &ServerAddr,
    spec: &Spec,
    backend: &B,
    diagnosis: &dyn Diagnosis,
    monitor_options: MonitorOptions<'_>,
) -> Result<Answer> {
    let timeout = spec.client.timeout;
    let mut stream = connect_with_options(server_addr, timeout)?;
    if server_addr.qperf {
        return qperf::client::run(stream, spec, monitor_options, &server_addr.interrupt);
    }
    let Some(keys) = greet(&mut stream, server_addr, timeout)? else {
        drop(stream);
        let stream = connect(server_addr)?;
        return qperf::client::run(stream, spec, monitor_options, &server_addr.interrupt);
    };
    let mut stream = ControlStream::new(stream, &keys);
    match spec.test {
        Test::Conf => match request(&mut stream, spec)? {
            Message::Conf(remote) => Ok(Answer::Conf {
                local: HostConf::read(),
                remote,
            }),
            other => Err(other.unexpected("the server")),
        },
        Test::Quit => match request(&mut stream, spec)? {
            Message::Quitting => Ok(Answer::Quit),
            other => Err(other.unexpected("the server")),
        },
        _ => {
            let monitor = Monitor::new(monitor_options, test_info(spec, 1));
            let control = ClientControl {
                stop: Arc::default(),
                before_start: &|| Ok(()),
                on_begin: &|| monitor.start(),
                counters: monitor.counters(),
                has_intervals: monitor_options.interval.is_some(),
                diagnosis,
                admit_target: &|_, _| Ok(()),
            };
            let interrupt = &server_addr.interrupt;
            let result = monitor.run(|| run_test(stream, spec, backend, &control, interrupt))?;
            let device = DeviceRun {
                device: String::new(),
                start_offset: 0,
                result,
            };
            Ok(monitored(vec![device], &monitor))
        }
    }
}

/// Runs one test with an rperf server, under the control of the caller.
///
/// # Errors
/// Returns the errors of [`run`], and an error if the server is a qperf.
pub(super) fn run_controlled<B: Backend>(
    server_addr: &ServerAddr,
    spec: &Spec,
    backend: &B,
    control: &ClientControl<'_>,
) -> Result<TestResult> {
    let stream = open(server_addr, spec.client.timeout)?;
    run_test(stream, spec, backend, control, &server_addr.interrupt)
}

/// Returns the addresses to which an offer directs the data of a client with a port of `link`. The
/// LIDs of InfiniBand are not among them.
fn targets(offer: &Offer, link: LinkType) -> Result<Vec<IpAddr>> {
    let ip = |end: &QpEndpoint| {
        let gid = end.gid.parse::<Ipv6Addr>();
        gid.map(|gid| gid.to_canonical())
            .map_err(|_| Error::protocol(format!("the server sent an invalid GID `{}`", end.gid)))
    };
    let mut targets = match &offer.method {
        ConnectMethod::Cm { address, .. } => vec![*address],
        ConnectMethod::Direct(_) if link == LinkType::InfiniBand => Vec::new(),
        ConnectMethod::Direct(ends) => ends.iter().map(ip).collect::<Result<_>>()?,
    };
    targets.dedup();
    Ok(targets)
}

/// Connects to an rperf server and authenticates.
///
/// # Errors
/// Returns an error if the server cannot be reached, rejects the client or is not an rperf.
pub fn open(server_addr: &ServerAddr, timeout: Duration) -> Result<ControlStream> {
    let mut stream = connect_with_options(server_addr, timeout)?;
    if let Some(keys) = greet(&mut stream, server_addr, timeout)? {
        return Ok(ControlStream::new(stream, &keys));
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

/// Sends the request of a test that moves no data and receives the reply.
fn request(stream: &mut ControlStream, spec: &Spec) -> Result<Message> {
    stream.send(&Message::Request {
        spec: Box::new(spec.clone()),
        client_info: None,
    })?;
    stream
        .receive::<Message>(spec.client.timeout)?
        .or_error("the server")
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
            "start `rperf` there, set --listen-port (-lp) to its port, or use --qperf for a qperf server",
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
            "see the log of `rperf` there, or start it; set --listen-port (-lp) to its port, or use --qperf for a qperf server",
        )),
        Err(error) => {
            Err(error.context(format!("port {} of {}", server_addr.port, server_addr.host)))
        }
    }
}

/// Runs one test over an open control connection.
pub(super) fn run_test<B: Backend>(
    stream: ControlStream,
    spec: &Spec,
    backend: &B,
    control: &ClientControl<'_>,
    interrupt: &Interrupt,
) -> Result<TestResult> {
    let addresses = SocketAddrs::of_stream(stream.socket())?;
    let hosts = ControlAddrs {
        local: addresses.local.ip().to_canonical(),
        peer: addresses.peer.ip().to_canonical(),
    };
    let stop = Arc::clone(&control.stop);
    let qps = spec.total_qps();
    let link = ControlLink::new(stream, "the server", spec.client.timeout, qps, stop)?;
    let link = link
        .with_counters(control.counters.clone())
        .with_interrupt(interrupt.clone());
    let hooks = SessionHooks {
        before_ready: control.before_start,
        on_begin: &|_| (control.on_begin)(),
        diagnosis: control.diagnosis,
    };
    let run = || {
        if let Some(kind) = spec.test.socket() {
            link.send(&Message::Request {
                spec: Box::new(spec.clone()),
                client_info: None,
            })?;
            return socket_session::client(&link, spec, kind, addresses, &hooks);
        }
        let (mut setup, client_info) = backend.client(spec, hosts)?;
        let link_type = client_info.link;
        link.send(&Message::Request {
            spec: Box::new(spec.clone()),
            client_info: Some(client_info),
        })?;
        let offer = match link.receive_after_set_up(0)? {
            Message::Offer(offer) => offer,
            other => return Err(other.unexpected("the server")),
        };
        for target in targets(&offer, link_type)? {
            (control.admit_target)(hosts.peer, target)?;
        }
        let answer = setup.accept_offer(&offer)?;
        link.send(&Message::Answer(answer))?;
        let connected = setup
            .connect(&offer, spec.client.timeout)
            .map_err(|e| link.explain(e))?;
        if control.has_intervals && spec.flip && !connected.shape.plan.has_receiver() {
            return Err(Error::limit(
                "--interval with --flip (-f): the client cannot count one-sided operations of the server",
            )
            .with_help("omit --interval or --flip"));
        }
        rdma_session::run(&link, spec, Role::Client, connected, &hooks)
    };
    let done = run().inspect_err(|error| link.send_error(error))?;
    if !link.was_interrupted() {
        check_arrival(spec, done.plan, &done.measurement.stats, &done.peer_stats)?;
    }
    let one_host = hosts.local == hosts.peer;
    let one_port = one_host
        && (&done.via.device, done.via.port) == (&done.peer_via.device, done.peer_via.port);
    Ok(TestResult {
        partial: link.was_interrupted(),
        spec: spec.clone(),
        plan: done.plan,
        depth: done.depth,
        local: done.via,
        remote: done.peer_via,
        local_host: HostConf::read(),
        remote_host: done.peer_host,
        local_stats: done.measurement.stats,
        remote_stats: done.peer_stats,
        latency: done.measurement.latency,
        one_host,
        one_port,
        server_warnings: done.peer_warnings,
    })
}

/// Ends the monitor of a test and adds what it observed.
pub(super) fn monitored(devices: Vec<DeviceRun>, monitor: &Monitor<'_>) -> Answer {
    let stats = devices.iter().map(|d| d.result.local_stats.clone());
    let nanos = SideStats::sum(&stats.collect::<Vec<_>>()).nanos;
    let MonitorResult { intervals, dips } = monitor.finish(nanos);
    Answer::Measured(Box::new(TestRun {
        devices,
        intervals,
        dips,
    }))
}

/// Checks that the test has measured, and verified, anything. Unreliable services may lose all
/// messages, and a receiver that did not run for a while may have measured none.
fn check_arrival(
    spec: &Spec,
    plan: Option<Plan>,
    local: &SideStats,
    remote: &SideStats,
) -> Result<()> {
    let sent = local.sent.msgs + remote.sent.msgs;
    let arrived = local.received.msgs + remote.received.msgs;
    let has_receiver = plan.is_none_or(Plan::has_receiver);
    if sent + arrived == 0 {
        return Err(Error::test("no message was sent while the test measured").with_help(
            "set --time (-t) higher, or --msg-size (-m) lower: a message takes longer than the test",
        ));
    }
    if has_receiver && sent > 0 && arrived == 0 {
        let is_reliable = plan.map_or(spec.test.socket() != Some(SocketKind::Udp), |plan| {
            plan.service.is_reliable()
        });
        if is_reliable {
            return Err(Error::test(format!(
                "none of the {sent} messages arrived while the receiver measured"
            ))
            .with_help(
                "set --time (-t) higher: the receiver's host is too busy for a short test",
            ));
        }
        return Err(Error::test(format!("none of the {sent} messages arrived")).with_help(
            "check the path with `ribping` and the MTU of both ports, or limit the sender with --rate-limit",
        ));
    }
    if spec.verify && local.verified + remote.verified == 0 {
        return Err(
            Error::test("--verify checked nothing, because no message arrived in time")
                .with_help("set --time (-t) higher"),
        );
    }
    Ok(())
}

/// Returns the properties of a test with this number of sessions that the monitor needs.
pub(super) fn test_info(spec: &Spec, sessions: u32) -> TestInfo {
    let both = spec
        .test
        .plan()
        .is_some_and(|plan| plan.pattern == Pattern::BothWays);
    // A bidirectional test over sockets divides the number of messages among all its streams.
    let (time, messages) = match spec.limit {
        Limit::Time(UNLIMITED) => (None, None),
        Limit::Time(time) => (Some(time), None),
        Limit::Messages(n) => {
            let directions = 1 + u64::from(both);
            (
                None,
                Some(n.saturating_mul(directions * u64::from(sessions))),
            )
        }
    };
    #[allow(clippy::cast_precision_loss)] // An estimate.
    let gap = |rate: u64| Duration::from_secs_f64(spec.msg_size as f64 / rate.max(1) as f64);
    // Without this option, each message has a completion if the rate is low.
    let signal_every = spec
        .tuning
        .signal_every
        .unwrap_or(1)
        .max(spec.tuning.burst.unwrap_or(1));
    TestInfo {
        usual_gap: spec.tuning.rate_limit.map_or(Duration::ZERO, |rate| {
            gap(rate).saturating_mul(signal_every)
        }),
        latency: spec.test.is_latency(),
        size: spec.msg_size,
        warm_up: spec.tuning.warm_up,
        time,
        messages,
        threads: spec.threads.max(spec.sockets.streams()) * sessions,
    }
}

/// Connects to the server. Retries for the configured time if that fails.
fn connect(server_addr: &ServerAddr) -> Result<TcpStream> {
    let ServerAddr {
        host, port, wait, ..
    } = server_addr;
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
            "specify the port with --listen-port (-lp)".to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;
    use measure::spec::test::Test;

    #[test]
    fn receiver_that_measured_nothing_is_a_failure() {
        let [mut sender, receiver] = [SideStats::default(), SideStats::default()];
        sender.sent.msgs = 48;
        for (test, is_reliable) in [(Test::RcBw, true), (Test::UdBw, false)] {
            let spec = Spec::new(test);
            let error = check_arrival(&spec, test.plan(), &receiver, &sender).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("none of the 48 messages arrived"), "{text}");
            let advises_more_time = text.contains("set --time (-t) higher");
            assert_eq!(advises_more_time, is_reliable, "{text}");
        }
        // TCP is reliable, too, and its MTU is not the cause.
        let spec = Spec::new(Test::TcpBw);
        let error = check_arrival(&spec, None, &receiver, &sender).unwrap_err();
        assert!(
            error.to_string().contains("set --time (-t) higher"),
            "{error}"
        );
        // A timed test that moved nothing.
        let spec = Spec::new(Test::RcBw);
        let error = check_arrival(&spec, spec.test.plan(), &receiver, &receiver).unwrap_err();
        assert!(error.to_string().contains("no message was sent"), "{error}");
    }

    #[test]
    fn verifying_nothing_is_a_failure() {
        let spec = Spec {
            verify: true,
            ..Spec::new(Test::UcBw)
        };
        let check = |sent, received, verified| {
            let mut sides = [SideStats::default(), SideStats::default()];
            sides[0].sent.msgs = sent;
            (sides[1].received.msgs, sides[1].verified) = (received, verified);
            let outcome = check_arrival(&spec, spec.test.plan(), &sides[0], &sides[1]);
            outcome.map_err(|error| error.to_string())
        };
        assert_eq!(check(5, 1, 8), Ok(()));
        let text = check(5, 0, 0).unwrap_err();
        assert!(text.contains("none of the 5 messages arrived"), "{text}");
        let text = check(0, 0, 0).unwrap_err();
        assert!(text.contains("no message was sent"), "{text}");
        let text = check(5, 1, 0).unwrap_err();
        assert!(text.contains("--verify checked nothing"), "{text}");
    }
}
