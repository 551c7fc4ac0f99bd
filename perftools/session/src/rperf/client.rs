//! The client of one test, on a control connection of its own.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use base::error::{Error, Result};
use base::interrupt::Interrupt;
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

use super::context::SessionHooks;
use super::link::ControlLink;
use super::message::Message;
use super::rdma_session;
use super::socket_session::{self, SocketAddrs};
use crate::answer::Answer;
use crate::connect::{self, ServerAddr};
use crate::diagnosis::Diagnosis;
use crate::protocol::control_stream::ControlStream;

/// Control over a session from outside.
pub(super) struct ClientHooks<'a> {
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

/// Runs one test over a new control connection.
pub(crate) fn run<B: Backend>(
    mut stream: ControlStream,
    spec: &Spec,
    backend: &B,
    diagnosis: &dyn Diagnosis,
    monitor_options: MonitorOptions<'_>,
    interrupt: &Interrupt,
) -> Result<Answer> {
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
            let control = ClientHooks {
                stop: Arc::default(),
                before_start: &|| Ok(()),
                on_begin: &|| monitor.start(),
                counters: monitor.counters(),
                has_intervals: monitor_options.interval.is_some(),
                diagnosis,
                admit_target: &|_, _| Ok(()),
            };
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
pub(super) fn run_controlled<B: Backend>(
    server_addr: &ServerAddr,
    spec: &Spec,
    backend: &B,
    control: &ClientHooks<'_>,
) -> Result<TestResult> {
    let stream = connect::open_rperf(server_addr, spec.client.timeout)?;
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

/// Runs one test over an open control connection.
pub(super) fn run_test<B: Backend>(
    stream: ControlStream,
    spec: &Spec,
    backend: &B,
    control: &ClientHooks<'_>,
    interrupt: &Interrupt,
) -> Result<TestResult> {
    let addresses = SocketAddrs::of_stream(stream.socket())?;
    let hosts = ControlAddrs {
        local: addresses.local.ip().to_canonical(),
        peer: addresses.peer.ip().to_canonical(),
    };
    let stop = Arc::clone(&control.stop);
    let qps = spec.total_qps();
    let link = ControlLink::new(stream, Role::Client, spec.client.timeout, qps, stop)?;
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
    let local_host = HostConf::read();
    let has_one_address = hosts.local == hosts.peer;
    let peer_boot = done.peer_host.as_ref().and_then(|host| host.boot.as_ref());
    let has_one_kernel = peer_boot.is_some() && peer_boot == local_host.boot.as_ref();
    let one_port = has_one_address
        && (&done.via.device, done.via.port) == (&done.peer_via.device, done.peer_via.port);
    Ok(TestResult {
        partial: link.was_interrupted(),
        spec: spec.clone(),
        plan: done.plan,
        depth: done.depth,
        local: done.via,
        remote: done.peer_via,
        local_host,
        remote_host: done.peer_host,
        local_stats: done.measurement.stats,
        remote_stats: done.peer_stats,
        latency: done.measurement.latency,
        one_host: has_one_address || has_one_kernel,
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
            .with_help("set --time (-t) higher: one of the hosts is too busy for a short test"));
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
    let plan = spec.test.plan();
    let both = plan.is_some_and(|plan| plan.pattern == Pattern::BothWays);
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
        both_ways: spec.sockets.bidirectional || both && plan.is_some_and(Plan::has_receiver),
        size: spec.msg_size,
        warm_up: spec.tuning.warm_up,
        time,
        messages,
        threads: spec.threads.max(spec.sockets.streams()) * sessions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::spec::test::Test;
    use test_support::text::assert_contains;

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
        assert_contains(&error, &["set --time (-t) higher"]);
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
