//! Tests of an rperf client with a qperf server.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base::error::{Error, Result};
use base::interrupt::Interrupt;
use host::host_conf::HostConf;
use measure::engine::{self, Peer, Role};
use measure::result::{DeviceRun, TestResult, TestRun};
use measure::sockets::{EndMode, SocketKind, endpoint};
use measure::spec::connection::ConnectionInfo;
use measure::spec::modes::{Cm, Wait};
use measure::spec::test::Test;
use measure::spec::tuning::Tuning;
use measure::spec::{Limit, Spec};
use measure::stats::monitor::MonitorOptions;

use super::control_conn::ControlConn;
use super::request::Request;
use super::stat::{self, Stat};
use super::{SYNC_AFTER, conf, index, rdma};
use crate::answer::Answer;
use crate::hardware;

/// Runs one test with a qperf server.
pub(crate) fn run(
    stream: TcpStream,
    spec: &Spec,
    monitor_options: MonitorOptions<'_>,
    interrupt: &Interrupt,
) -> Result<Answer> {
    if monitor_options.interval.is_some() {
        return Err(
            Error::limit("--interval is not supported with a qperf server")
                .with_help("omit --interval, or run rperf on the server"),
        );
    }
    let spec = &adapt_spec(spec)?;
    let request = build_request(spec)?;
    let address = |a: std::io::Result<SocketAddr>| {
        a.map_err(|e| Error::system("cannot get the addresses of the control connection", &e))
    };
    let (local, peer) = (address(stream.local_addr())?, address(stream.peer_addr())?);
    let conn = ControlConn::new(
        stream,
        Role::Client,
        spec.client.timeout,
        Arc::clone(interrupt.flag()),
    )?;
    conn.send(&request.encode())?;
    let run = || match (spec.test, spec.test.socket()) {
        (Test::Conf, _) => {
            let mut bytes = [0; conf::LEN];
            conn.receive(&mut bytes, "the configuration")?;
            Ok(Answer::Conf {
                local: HostConf::read(),
                remote: conf::decode(&bytes),
            })
        }
        (Test::Quit, _) => conn.synchronize_before().map(|()| Answer::Quit),
        (_, Some(kind)) => run_over_sockets(&conn, spec, kind, local, peer),
        _ => run_over_rdma(&conn, spec, peer),
    };
    run().inspect_err(|error| conn.send_error(error))
}

/// Checks that qperf supports the specification, and rounds its times up to whole seconds.
fn adapt_spec(spec: &Spec) -> Result<Spec> {
    let mut spec = spec.clone();
    let atomic = spec.test.plan().is_some_and(|plan| plan.verb.is_atomic());
    if spec.verify && spec.test.moves_data() && !atomic {
        return Err(Error::limit(
            "--verify is not supported with a qperf server, which does not send verifiable data",
        )
        .with_help("omit --verify, or run rperf on the server"));
    }
    if spec.test.moves_data() && spec.uses_gpu() {
        return Err(Error::limit(
            "--gpu is not supported with a qperf server, which uses host memory",
        )
        .with_help("remove --gpu, or run rperf on the server"));
    }
    if spec.test.moves_data()
        && (spec.qps > 1
            || spec.threads > 1
            || spec.flip
            || spec.multicast.is_some()
            || spec.mtu.is_some()
            || spec.sockets.streams() > 1
            || spec.payload.is_some()
            || spec.tuning != Tuning::default())
    {
        return Err(Error::limit(format!(
            "{}: a qperf server does not support several queue pairs or threads, --flip, --multicast, --parallel, --bidir, --mtu, --payload-file and tuning options",
            spec.test.name()
        ))
        .with_help("omit these options, or run rperf on the server"));
    }
    spec.limit = match spec.limit {
        Limit::Messages(_) if spec.test.socket().is_some() => {
            return Err(Error::limit(
                "--messages (-n): a qperf server ends tests over sockets by time only",
            )
            .with_help("set --time (-t) instead"));
        }
        Limit::Time(time) => Limit::Time(Duration::from_secs(whole_seconds(time).into())),
        messages @ Limit::Messages(_) => messages,
    };
    Ok(spec)
}

/// Rounds up to whole seconds, at least one: qperf fails immediately if a timeout is 0.
fn whole_seconds(time: Duration) -> u32 {
    let secs = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(secs.max(1)).unwrap_or(u32::MAX)
}

fn unsupported_test(test: Test) -> Error {
    Error::limit(format!(
        "{} is not supported with a qperf server",
        test.name()
    ))
    .with_help("run rperf on the server")
}

fn build_request(spec: &Spec) -> Result<Request> {
    let index = index::from_name(spec.test.name()).ok_or_else(|| unsupported_test(spec.test))?;
    let msg_size = u32::try_from(spec.msg_size).map_err(|_| {
        Error::limit("the message size is 4 GiB or more, which qperf does not support")
    })?;
    let (time, no_msgs) = match spec.limit {
        Limit::Time(time) => (whole_seconds(time), 0),
        Limit::Messages(n) => (
            0,
            u32::try_from(n)
                .map_err(|_| Error::limit("qperf supports at most 4294967295 messages"))?,
        ),
    };
    if spec.test.socket().is_none() && spec.test.moves_data() {
        rdma::plan(spec, spec.use_cm != Cm::Off)?;
    }
    let mut request = Request {
        msg_size,
        time,
        no_msgs,
        timeout: whole_seconds(spec.server.timeout),
        poll_mode: u32::from(spec.server.wait == Wait::Poll),
        affinity: affinity(spec)?,
        ..Request::new(index)
    };
    if spec.test.socket().is_some() {
        request.port = spec.sockets.port.into();
        request.sock_buf_size = spec.sockets.server_buffers;
    } else if spec.test.moves_data() {
        request.use_cm = u32::from(spec.use_cm != Cm::Off);
        request.id = spec
            .server
            .id
            .as_ref()
            .map_or_else(String::new, ToString::to_string);
    }
    Ok(request)
}

/// Returns the CPU that the server runs on, counted from 1; 0 for any.
fn affinity(spec: &Spec) -> Result<u32> {
    let Some(cpus) = spec
        .server
        .cpus
        .as_ref()
        .map(ToString::to_string)
        .filter(|cpus| cpus != "any")
    else {
        return Ok(0);
    };
    let cpu: Option<u32> = cpus.parse().ok();
    cpu.and_then(|cpu| cpu.checked_add(1)).ok_or_else(|| {
        Error::limit(format!("CPUs {cpus}: a qperf server runs on one CPU"))
            .with_help("name a single CPU: --cpu-affinity remote=N (-rca N)")
    })
}

fn run_over_sockets(
    conn: &ControlConn,
    spec: &Spec,
    kind: SocketKind,
    local_addr: SocketAddr,
    peer_addr: SocketAddr,
) -> Result<Answer> {
    if kind == SocketKind::Rds {
        return Err(unsupported_test(spec.test));
    }
    let port = u16::try_from(conn.receive_u32("the port of the data connection")?)
        .map_err(|_| Error::protocol("the server sent an invalid port number"))?;
    let socket = endpoint::connect(
        kind,
        local_addr,
        peer_addr,
        (port, None),
        spec.sockets,
        spec.client.timeout,
    )
    .map_err(|e| conn.explain(e))?;
    let local = endpoint::connection_info(kind, &socket, &spec.client);
    // The description of the hardware is only known for this end.
    let remote = ConnectionInfo {
        address: SocketAddr::new(peer_addr.ip().to_canonical(), port).to_string(),
        ..local.clone()
    };
    let local = hardware::describe(local);
    conn.synchronize_before()?;
    let measurement = endpoint::run(
        kind,
        spec,
        Role::Client,
        &spec.client,
        socket,
        EndMode::Clock,
        conn,
    )?;
    collect_results(conn, spec, measurement, (local, remote))
}

fn run_over_rdma(conn: &ControlConn, spec: &Spec, peer: SocketAddr) -> Result<Answer> {
    let plan = spec
        .test
        .plan()
        .ok_or_else(|| unsupported_test(spec.test))?;
    let mut end =
        rdma::QperfEndpoint::connect(conn, spec, plan, peer).map_err(|e| conn.explain(e))?;
    let (local, remote) = end.connection_infos(&spec.client);
    let connections = (hardware::describe(local), remote);
    let measurement = rdma::run(&mut end, spec, &spec.client, conn, &|| ())?;
    let outcome = collect_results(conn, spec, measurement, connections)?;
    end.wait_disconnected(true);
    Ok(outcome)
}

/// Receives the statistics of the server and combines them with those of this end.
fn collect_results(
    conn: &ControlConn,
    spec: &Spec,
    mut measurement: engine::Measurement,
    (local, remote): (ConnectionInfo, ConnectionInfo),
) -> Result<Answer> {
    let mut bytes = [0; stat::LEN];
    conn.receive(&mut bytes, "the statistics")?;
    let peer_stat = Stat::decode(&bytes);
    conn.send(SYNC_AFTER)?;
    // A server that reads this end's memory counts messages for this end. No test does so today.
    measurement.stats.sent.msgs += peer_stat.peer_sent.msgs;
    measurement.stats.sent.bytes += peer_stat.peer_sent.bytes;
    let mut remote_stats = peer_stat.to_side_stats();
    if spec.test.may_lose() {
        // Each end stops by its own clock, so messages in flight at that time count as lost.
        remote_stats.lost = measurement
            .stats
            .sent
            .msgs
            .saturating_sub(remote_stats.received.msgs);
    }
    let result = TestResult {
        partial: false,
        spec: spec.clone(),
        plan: spec.test.plan(),
        depth: 1,
        local,
        remote,
        local_host: HostConf::read(),
        remote_host: None,
        local_stats: measurement.stats,
        remote_stats,
        latency: measurement.latency,
        one_host: false,
        one_port: false,
        server_warnings: Vec::new(),
    };
    let device = DeviceRun {
        device: String::new(),
        start_offset: 0,
        result,
    };
    Ok(Answer::Measured(Box::new(TestRun {
        devices: vec![device],
        intervals: Vec::new(),
        dips: Vec::new(),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::spec::test::Test;

    #[test]
    fn request_times_are_whole_seconds_and_not_zero() {
        let mut spec = Spec::new(Test::TcpBw);
        spec.limit = Limit::Time(Duration::from_millis(1500));
        spec.client.timeout = Duration::from_millis(20);
        spec.server.timeout = spec.client.timeout;
        spec.server.wait = Wait::Poll;
        let spec = adapt_spec(&spec).unwrap();
        let request = build_request(&spec).unwrap();
        assert_eq!(
            (
                request.index,
                request.time,
                request.timeout,
                request.poll_mode
            ),
            (8, 2, 1, 1)
        );
        assert_eq!(spec.limit, Limit::Time(Duration::from_secs(2)));
    }

    #[test]
    fn unsupported_options_are_rejected() {
        let spec = Spec::new(Test::TcpBw);
        let with_verify = Spec {
            verify: true,
            ..spec.clone()
        };
        let with_messages = Spec {
            limit: Limit::Messages(10),
            ..spec.clone()
        };
        let with_mtu = Spec {
            mtu: Some(1024),
            ..spec
        };
        for spec in [with_verify, with_messages, with_mtu] {
            let text = adapt_spec(&spec).unwrap_err().to_string();
            assert!(text.contains("qperf"), "{text}");
        }
    }
}
