//! The client's side, towards a qperf server.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::control_conn::ControlConn;
use super::request::Request;
use super::stat::{self, Stat};
use super::{AFTER, conf, index, rdma};
use crate::common::error::{Error, Result};
use crate::rperf::engine::{self, Peer, Role};
use crate::rperf::report::host_conf::HostConf;
use crate::rperf::report::record::{Measured, Outcome};
use crate::rperf::report::warning::{self, WarningInput};
use crate::rperf::sockets::{EndMode, SocketKind, endpoint};
use crate::rperf::spec::connection::ConnectionInfo;
use crate::rperf::spec::modes::{Cm, Wait};
use crate::rperf::spec::test::Test;
use crate::rperf::spec::tuning::Tuning;
use crate::rperf::spec::{Limit, Spec};
use crate::rperf::stats::monitor::MonitorOptions;
use crate::rperf::stats::port_counters::PortTraffic;
use crate::rperf::stats::summary::{Interpretation, Summary};

/// Runs one test against a qperf server.
///
/// # Errors
/// qperf has no such test or option, refuses, or the test failed.
pub fn run(stream: TcpStream, spec: &Spec, monitor_options: MonitorOptions<'_>) -> Result<Outcome> {
    if monitor_options.interval.is_some() {
        return Err(Error::limit(
            "the server is a qperf: --interval needs an rperf there; leave it away",
        ));
    }
    let spec = &as_qperf_can(spec)?;
    let request = request(spec)?;
    let address = |a: std::io::Result<SocketAddr>| {
        a.map_err(|e| Error::system("the control connection has no address", &e))
    };
    let (local, peer) = (address(stream.local_addr())?, address(stream.peer_addr())?);
    let conn = ControlConn::new(
        stream,
        "the server (qperf)",
        spec.client.timeout,
        Arc::default(),
    )?;
    conn.send(&request.encode())?;
    let run = || match (spec.test, spec.test.socket()) {
        (Test::Conf, _) => {
            let mut bytes = [0; conf::LEN];
            conn.receive(&mut bytes, "its configuration")?;
            Ok(Outcome::Conf {
                local: HostConf::of_this_host(),
                remote: conf::decode(&bytes),
            })
        }
        (Test::Quit, _) => conn.before().map(|()| Outcome::Quit),
        (_, Some(kind)) => over_sockets(&conn, spec, kind, local, peer),
        _ => over_rdma(&conn, spec, peer),
    };
    run().inspect_err(|error| conn.report(error))
}

/// The specification as far as qperf can follow it: whole seconds.
fn as_qperf_can(spec: &Spec) -> Result<Spec> {
    let mut spec = spec.clone();
    let atomic = spec.test.plan().is_some_and(|plan| plan.verb.is_atomic());
    if spec.verify && spec.test.moves_data() && !atomic {
        return Err(Error::limit(
            "--verify: the server is a qperf, which sends nothing that could be checked; run rperf there",
        ));
    }
    if spec.test.moves_data()
        && (spec.qps > 1
            || spec.threads > 1
            || spec.flip
            || spec.multicast.is_some()
            || spec.mtu.is_some()
            || spec.tuning != Tuning::default())
    {
        return Err(Error::limit(format!(
            "{}: the server is a qperf, which knows nothing of several queue pairs and threads, flip, MTU, rate, warm-up and the like; run rperf there",
            spec.test.name()
        )));
    }
    spec.limit = match spec.limit {
        Limit::Messages(_) if spec.test.socket().is_some() => {
            return Err(Error::limit(
                "--messages (-n): the server is a qperf, which ends tests over sockets by time only; give --time (-t)",
            ));
        }
        Limit::Time(time) => Limit::Time(Duration::from_secs(whole(time).into())),
        messages @ Limit::Messages(_) => messages,
    };
    Ok(spec)
}

/// Whole seconds, one at least: qperf fails at once where a timeout is 0.
fn whole(time: Duration) -> u32 {
    let secs = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(secs.max(1)).unwrap_or(u32::MAX)
}

fn no_such(test: Test) -> Error {
    Error::limit(format!(
        "the server is a qperf, with which {} cannot be run; run rperf there",
        test.name()
    ))
}

fn request(spec: &Spec) -> Result<Request> {
    let index = index::from_name(spec.test.name()).ok_or_else(|| no_such(spec.test))?;
    let msg_size =
        u32::try_from(spec.msg_size).map_err(|_| Error::limit("qperf's messages end at 4 GiB"))?;
    let (time, no_msgs) = match spec.limit {
        Limit::Time(time) => (whole(time), 0),
        Limit::Messages(n) => (
            0,
            u32::try_from(n)
                .map_err(|_| Error::limit("qperf counts at most 4294967295 messages"))?,
        ),
    };
    if spec.test.socket().is_none() && spec.test.moves_data() {
        rdma::plan(spec, spec.use_cm != Cm::Off)?;
    }
    let mut request = Request {
        msg_size,
        time,
        no_msgs,
        timeout: whole(spec.server.timeout),
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

/// The server's processor, from 1; 0: any.
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
        Error::limit(format!(
            "processors {cpus}: a qperf server runs on one; give --remote-cpu-affinity (-rca) a number"
        ))
    })
}

fn over_sockets(
    conn: &ControlConn,
    spec: &Spec,
    kind: SocketKind,
    local: SocketAddr,
    peer: SocketAddr,
) -> Result<Outcome> {
    if kind == SocketKind::Rds {
        return Err(no_such(spec.test));
    }
    let port = u16::try_from(conn.receive_u32("its port")?)
        .map_err(|_| Error::protocol("the server's port is none"))?;
    let socket = endpoint::connect(
        kind,
        local,
        peer,
        (port, None),
        spec.sockets,
        spec.client.timeout,
    )
    .map_err(|e| conn.explain(e))?;
    let here = endpoint::connection_info(kind, &socket, &spec.client);
    let there = ConnectionInfo {
        address: SocketAddr::new(peer.ip().to_canonical(), port).to_string(),
        ..here.clone()
    };
    conn.before()?;
    let measurement = endpoint::run(
        kind,
        spec,
        Role::Client,
        &spec.client,
        socket,
        EndMode::Clock,
        conn,
    )?;
    measured(conn, spec, measurement, (here, there))
}

fn over_rdma(conn: &ControlConn, spec: &Spec, peer: SocketAddr) -> Result<Outcome> {
    let plan = spec.test.plan().ok_or_else(|| no_such(spec.test))?;
    let mut end =
        rdma::QperfEndpoint::connect(conn, spec, plan, peer).map_err(|e| conn.explain(e))?;
    let via = end.via(&spec.client);
    let measurement = rdma::run(&mut end, spec, &spec.client, conn, &|| ())?;
    let measured = measured(conn, spec, measurement, via)?;
    end.wait_disconnected(true);
    Ok(measured)
}

/// Takes the server's figures, and makes the record of both.
fn measured(
    conn: &ControlConn,
    spec: &Spec,
    mut measurement: engine::Measurement,
    via: (ConnectionInfo, ConnectionInfo),
) -> Result<Outcome> {
    let mut bytes = [0; stat::LEN];
    conn.receive(&mut bytes, "its figures")?;
    let theirs = Stat::decode(&bytes);
    conn.send(AFTER)?;
    // What the peer knows of this end: nothing, in the tests there are; but it may say so.
    measurement.stats.sent.msgs += theirs.peer_sent.msgs;
    measurement.stats.sent.bytes += theirs.peer_sent.bytes;
    let mut remote = theirs.side();
    if spec.test.may_lose() {
        // By both ends' clocks: what was under way when they stopped is among it.
        remote.lost = measurement
            .stats
            .sent
            .msgs
            .saturating_sub(remote.received.msgs);
    }
    Ok(Outcome::Measured(Box::new(Measured {
        intervals: Vec::new(),
        dips: Vec::new(),
        warnings: warning::gather(&WarningInput {
            spec,
            via: &via.0,
            ends: [&measurement.stats, &remote],
            one_host: false,
            one_port: false,
            port: PortTraffic::default(),
            stalls: false,
            server: &[],
        }),
        spec: spec.clone(),
        depth: 1,
        local: via.0,
        remote: via.1,
        plan: spec.test.plan(),
        summary: Summary::new(
            Interpretation::new(spec.test, spec.test.plan()),
            &measurement.stats,
            &remote,
        ),
        latency: measurement.latency.and_then(|l| l.percentiles()),
        local_stats: measurement.stats,
        remote_stats: remote,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::args::options::Options;
    use clap::Parser;

    fn spec(test: Test, line: &str) -> Spec {
        let args = std::iter::once("rperf").chain(line.split_whitespace());
        Options::try_parse_from(args)
            .unwrap()
            .to_spec(test)
            .unwrap()
    }

    #[test]
    fn a_request_says_whole_seconds_and_never_a_timeout_of_none() {
        let spec = as_qperf_can(&spec(
            Test::TcpBw,
            "--time 1500ms --timeout 20ms --remote-wait poll",
        ))
        .unwrap();
        let request = request(&spec).unwrap();
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
    fn what_qperf_cannot_do_is_refused_before_it_is_asked() {
        for line in ["--verify", "--messages 10", "--mtu 1024"] {
            assert!(
                as_qperf_can(&spec(Test::TcpBw, line))
                    .unwrap_err()
                    .to_string()
                    .contains("qperf"),
                "{line}"
            );
        }
    }
}
