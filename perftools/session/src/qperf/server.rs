//! Tests of an rperf server with a qperf client.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use host::host_conf::HostConf;
use measure::engine::{Peer, Role};
use measure::sockets::{EndMode, SocketKind, endpoint};
use measure::spec::modes::{Cm, Wait};
use measure::spec::plan::Plan;
use measure::spec::test::Test;
use measure::spec::tuning::Tuning;
use measure::spec::{Limit, Side, Sockets, Spec};
use measure::stats::SideStats;

use super::control_conn::ControlConn;
use super::request::{self, Request};
use super::stat::Stat;
use super::{VERSION, conf, index, rdma};

/// Time limit for receiving the request, and for synchronization outside a test.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Result of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// The test ran.
    Test(Test),
    /// The client requested that the server stop.
    Quit,
}

/// Decisions of the server about requests.
pub trait Admission {
    /// Checks that the server allows a test, and lowers the timeout of the server to its limit. The
    /// caller keeps the returned value until the test has ended, because it may hold a reservation.
    ///
    /// # Errors
    /// Returns an error that names the limit exceeded by the test.
    fn admit(&self, spec: &mut Spec) -> Result<Box<dyn std::any::Any>>;

    /// Checks that this client may stop the server.
    ///
    /// # Errors
    /// Returns an error that names the clients that may.
    fn admit_quit(&self) -> Result<()>;

    /// Called when a test begins.
    fn test_begins(&self, test: Test);
}

/// Serves a client. `prefix` is the part of its request that has already been read.
///
/// # Errors
/// Returns an error for the log. It has already been sent to the client.
pub(crate) fn serve(
    stream: TcpStream,
    prefix: &[u8],
    admission: &dyn Admission,
    stop: &Arc<AtomicBool>,
) -> Result<Handled> {
    let mut conn = ControlConn::new(stream, Role::Server, REQUEST_TIMEOUT, Arc::clone(stop))?;
    let served = handle_request(&mut conn, prefix, admission);
    served.inspect_err(|error| conn.send_error(error))
}

fn handle_request(
    conn: &mut ControlConn,
    prefix: &[u8],
    admission: &dyn Admission,
) -> Result<Handled> {
    let mut bytes = [0; request::LEN];
    let have = prefix.len().min(request::LEN);
    bytes[..have].copy_from_slice(&prefix[..have]);
    // The request of another version may have another length, so check the version first.
    if have >= 8 {
        check_version(&bytes)?;
    }
    conn.receive(&mut bytes[have..], "the request")?;
    check_version(&bytes)?;
    let request = Request::decode(&bytes);
    let name = index::name(request.index)
        .ok_or_else(|| Error::protocol(format!("unknown test number {}", request.index)))?;
    let test = Test::from_name(name).map_err(|_| unsupported_test(name))?;
    let mut spec = spec_from_request(test, &request)?;
    match (test, test.socket()) {
        (Test::Conf, _) => conn
            .send(&conf::encode(&HostConf::read()))
            .map(|()| Handled::Test(test)),
        (Test::Quit, _) => {
            admission.admit_quit()?;
            conn.synchronize_before()?;
            conn.wait_closed();
            Ok(Handled::Quit)
        }
        (_, Some(kind)) => {
            spec.check()?;
            let _reserved = admission.admit(&mut spec)?;
            conn.set_timeout(spec.server.timeout);
            run_over_sockets(conn, &spec, kind, admission).map(|()| Handled::Test(test))
        }
        _ => {
            let plan =
                rdma::plan(&spec, request.use_cm != 0).map_err(|error| error.context(name))?;
            spec.check()?;
            let _reserved = admission.admit(&mut spec)?;
            conn.set_timeout(spec.server.timeout);
            run_over_rdma(conn, &spec, plan, admission).map(|()| Handled::Test(test))
        }
    }
}

fn run_over_rdma(
    conn: &ControlConn,
    spec: &Spec,
    plan: Plan,
    admission: &dyn Admission,
) -> Result<()> {
    let end = rdma::QperfEndpoint::accept(conn, spec, plan, spec.server.timeout);
    let mut end = end.map_err(|e| conn.explain(e))?;
    let measurement = rdma::run(&mut end, spec, &spec.server, conn, &|| {
        admission.test_begins(spec.test);
    })?;
    send_statistics(conn, &measurement.stats)?;
    end.wait_disconnected(false);
    Ok(())
}

fn check_version(bytes: &[u8; request::LEN]) -> Result<()> {
    let request = Request::decode(bytes);
    if request.is_compatible() {
        return Ok(());
    }
    let (v, (major, minor, inc)) = (request.version, VERSION);
    Err(Error::protocol(format!(
        "the client is qperf {}.{}.{}, but this rperf server is compatible with qperf {major}.{minor}.{inc}",
        v.0, v.1, v.2
    ))
    .with_help(format!("use qperf {major}.{minor} or rperf")))
}

fn unsupported_test(name: &str) -> Error {
    Error::limit(format!("{name} is not supported with a qperf client"))
        .with_help("use an rperf client")
}

/// Converts the request to a specification.
pub fn spec_from_request(test: Test, request: &Request) -> Result<Spec> {
    let port = u16::try_from(request.port)
        .map_err(|_| Error::limit(format!("{} is not a valid port number", request.port)))?;
    let side = Side {
        id: request.id.parse().ok(),
        // CPUs count from 1; 0 means any.
        cpus: request
            .affinity
            .checked_sub(1)
            .and_then(|cpu| cpu.to_string().parse().ok()),
        ..Side::new(
            if request.poll_mode == 0 {
                Wait::Events
            } else {
                Wait::Poll
            },
            Duration::from_secs(u64::from(request.timeout.clamp(1, 86_400))),
        )
    };
    // For atomics, qperf sends the size of the client's memory or 0 instead of the operand size.
    let atomic = test.plan().is_some_and(|plan| plan.verb.is_atomic());
    Ok(Spec {
        test,
        msg_size: if atomic { 8 } else { request.msg_size.into() },
        limit: match request.no_msgs {
            0 => Limit::Time(Duration::from_secs(request.time.into())),
            n => Limit::Messages(n.into()),
        },
        depth: 1024,
        qps: 1,
        threads: 1,
        // qperf 0.4.11 accepts the option but ignores it in all of these tests.
        flip: false,
        immediate: None,
        flood: true,
        multicast: None,
        use_cm: if request.use_cm == 0 { Cm::Off } else { Cm::On },
        mtu: None,
        verify: false,
        payload: None,
        tuning: Tuning {
            access_received: request.access_recv != 0,
            ..Tuning::default()
        },
        sockets: Sockets {
            port,
            server_buffers: request.sock_buf_size,
            ..Sockets::default()
        },
        client: side.clone(),
        server: side,
    })
}

fn run_over_sockets(
    conn: &ControlConn,
    spec: &Spec,
    kind: SocketKind,
    admission: &dyn Admission,
) -> Result<()> {
    if kind == SocketKind::Rds {
        return Err(unsupported_test(spec.test.name()));
    }
    let address = |a: std::io::Result<SocketAddr>| {
        a.map_err(|e| Error::system("cannot get the addresses of the control connection", &e))
    };
    let (local, peer) = (
        address(conn.stream().local_addr())?,
        address(conn.stream().peer_addr())?,
    );
    let server = endpoint::SocketServer::open(kind, local, spec.sockets)?;
    conn.send(&u32::from(server.port()).to_le_bytes())?;
    let socket = server
        .accept_from(peer.ip(), spec.server.timeout, &|| conn.is_gone())
        .map_err(|e| conn.explain(e))?;
    conn.synchronize_before()?;
    admission.test_begins(spec.test);
    let measurement = endpoint::run(
        kind,
        spec,
        Role::Server,
        &spec.server,
        socket,
        EndMode::Clock,
        conn,
    )?;
    send_statistics(conn, &measurement.stats)
}

/// Sends the statistics of this end and waits until the client confirms the end of the test.
fn send_statistics(conn: &ControlConn, stats: &SideStats) -> Result<()> {
    let begin = Instant::now();
    conn.send(&Stat::from_side_stats(stats).encode())?;
    conn.expect_sync_after().map_err(|error| {
        error.context(format!("{} ms after the test", begin.elapsed().as_millis()))
    })
}
