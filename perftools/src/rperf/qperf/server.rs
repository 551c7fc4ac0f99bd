//! The server's side, towards a qperf client.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::control_conn::ControlConn;
use super::request::{self, Request};
use super::stat::Stat;
use super::{VERSION, conf, index, rdma};
use crate::common::error::{Error, Result};
use crate::rperf::engine::{Peer, Role};
use crate::rperf::report::host_conf::HostConf;
use crate::rperf::sockets::{EndMode, SocketKind, endpoint};
use crate::rperf::spec::modes::{Cm, Wait};
use crate::rperf::spec::plan::Plan;
use crate::rperf::spec::test::Test;
use crate::rperf::spec::tuning::Tuning;
use crate::rperf::spec::{Limit, Side, Sockets, Spec};
use crate::rperf::stats::SideStats;

/// How long a client may take for its request, and for what belongs to no test.
const GREETING: Duration = Duration::from_secs(5);

/// What a client's request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// This test ran.
    Test(Test),
    /// The server shall end.
    Quit,
}

/// What the server says to a request before it is served.
pub trait Admission {
    /// Whether a client may have this test run; what comes back is kept until its end.
    ///
    /// # Errors
    /// Says what the server does not allow.
    fn admit(&self, spec: &Spec) -> Result<Box<dyn std::any::Any>>;

    /// Whether this client may end the server.
    ///
    /// # Errors
    /// Says who may.
    fn may_quit(&self) -> Result<()>;

    /// A test begins.
    fn begins(&self, test: Test);
}

/// Serves a client of whose request `begun` has arrived.
///
/// # Errors
/// What went wrong, for the log; the peer has been told.
pub fn serve(
    stream: TcpStream,
    begun: &[u8],
    admission: &dyn Admission,
    stop: &Arc<AtomicBool>,
) -> Result<Handled> {
    let mut conn = ControlConn::new(stream, "the client (qperf)", GREETING, Arc::clone(stop))?;
    let served = answer(&mut conn, begun, admission);
    served.inspect_err(|error| conn.report(error))
}

fn answer(conn: &mut ControlConn, begun: &[u8], admission: &dyn Admission) -> Result<Handled> {
    let mut bytes = [0; request::LEN];
    let have = begun.len().min(request::LEN);
    bytes[..have].copy_from_slice(&begun[..have]);
    // A client of another version may have a request of another length.
    if have >= 8 {
        compatible(&bytes)?;
    }
    conn.receive(&mut bytes[have..], "its request")?;
    compatible(&bytes)?;
    let request = Request::decode(&bytes);
    let name = index::name(request.index)
        .ok_or_else(|| Error::protocol(format!("no test has the number {}", request.index)))?;
    let test = Test::from_name(name).map_err(|_| cannot(name))?;
    let spec = spec(test, &request)?;
    match (test, test.socket()) {
        (Test::Conf, _) => conn
            .send(&conf::encode(&HostConf::of_this_host()))
            .map(|()| Handled::Test(test)),
        (Test::Quit, _) => {
            admission.may_quit()?;
            conn.before()?;
            conn.wait_closed();
            Ok(Handled::Quit)
        }
        (_, Some(kind)) => {
            spec.check()?;
            let _reserved = admission.admit(&spec)?;
            conn.set_timeout(spec.server.timeout);
            over_sockets(conn, &spec, kind, admission).map(|()| Handled::Test(test))
        }
        _ => {
            let plan =
                rdma::plan(&spec, request.use_cm != 0).map_err(|error| error.context(name))?;
            spec.check()?;
            let _reserved = admission.admit(&spec)?;
            conn.set_timeout(spec.server.timeout);
            over_rdma(conn, &spec, plan, admission).map(|()| Handled::Test(test))
        }
    }
}

fn over_rdma(conn: &ControlConn, spec: &Spec, plan: Plan, admission: &dyn Admission) -> Result<()> {
    let end = rdma::QperfEndpoint::accept(conn, spec, plan, spec.server.timeout);
    let mut end = end.map_err(|e| conn.explain(e))?;
    let measurement = rdma::run(&mut end, spec, &spec.server, conn, &|| {
        admission.begins(spec.test);
    })?;
    finish(conn, &measurement.stats)?;
    end.wait_disconnected(false);
    Ok(())
}

fn compatible(bytes: &[u8; request::LEN]) -> Result<()> {
    let request = Request::decode(bytes);
    if request.is_compatible() {
        return Ok(());
    }
    let (v, (major, minor, inc)) = (request.version, VERSION);
    Err(Error::protocol(format!(
        "this rperf speaks qperf {major}.{minor}.{inc}, the client is {}.{}.{}: use {major}.{minor} or rperf",
        v.0, v.1, v.2
    )))
}

fn cannot(name: &str) -> Error {
    Error::limit(format!(
        "{name}: rperf does not run this test with a qperf client: use rperf there too"
    ))
}

/// What the request asks for, as a specification.
fn spec(test: Test, request: &Request) -> Result<Spec> {
    let port = u16::try_from(request.port)
        .map_err(|_| Error::limit(format!("{} is no port", request.port)))?;
    let side = Side {
        id: request.id.parse().ok(),
        // From 1; 0 is any.
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
    // What qperf says of an atomic's size is its client's memory, or nothing.
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
        // qperf 0.4.11 takes the option, and heeds it in none of these tests.
        flip: false,
        immediate: None,
        flood: true,
        multicast: None,
        use_cm: if request.use_cm == 0 { Cm::Off } else { Cm::On },
        mtu: None,
        verify: false,
        tuning: Tuning {
            access_received: request.access_recv != 0,
            ..Tuning::default()
        },
        sockets: Sockets {
            port,
            client_buffers: 0,
            server_buffers: request.sock_buf_size,
        },
        client: side.clone(),
        server: side,
    })
}

fn over_sockets(
    conn: &ControlConn,
    spec: &Spec,
    kind: SocketKind,
    admission: &dyn Admission,
) -> Result<()> {
    if kind == SocketKind::Rds {
        return Err(cannot(spec.test.name()));
    }
    let address = |a: std::io::Result<SocketAddr>| {
        a.map_err(|e| Error::system("the control connection has no address", &e))
    };
    let (local, peer) = (
        address(conn.stream().local_addr())?,
        address(conn.stream().peer_addr())?,
    );
    let place = endpoint::SocketServer::open(kind, local, spec.sockets, 0)?;
    conn.send(&u32::from(place.port()).to_le_bytes())?;
    let socket = place
        .accept_from(peer.ip(), spec.server.timeout, &|| conn.is_gone())
        .map_err(|e| conn.explain(e))?;
    conn.before()?;
    admission.begins(spec.test);
    let measurement = endpoint::run(
        kind,
        spec,
        Role::Server,
        &spec.server,
        socket,
        EndMode::Clock,
        conn,
    )?;
    finish(conn, &measurement.stats)
}

/// Sends this end's figures; the client has left its loop when it says so.
fn finish(conn: &ControlConn, stats: &SideStats) -> Result<()> {
    let begin = Instant::now();
    conn.send(&Stat::from_side(stats).encode())?;
    conn.expect_after().map_err(|error| {
        error.context(format!("{} ms after the test", begin.elapsed().as_millis()))
    })
}
