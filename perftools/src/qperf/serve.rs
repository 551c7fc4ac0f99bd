//! The server's side, towards a qperf client.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::request::{self, Request};
use super::stat::Stat;
use super::talk::Talk;
use super::{VERSION, conf, index, rdma};
use crate::args::options::{Cm, Wait};
use crate::config::{Limit, Side, Sockets, Spec};
use crate::engine::{Peer, Role};
use crate::error::{Error, Result};
use crate::host;
use crate::plan::Plan;
use crate::socket::{Ending, Kind, ends};
use crate::stats::SideStats;
use crate::test::Test;
use crate::tuning::Tuning;

/// How long a client may take for its request, and for what belongs to no test.
const GREETING: Duration = Duration::from_secs(5);

/// What a client's request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
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
) -> Result<Served> {
    let mut talk = Talk::new(stream, "the client (qperf)", GREETING, Arc::clone(stop))?;
    let served = answer(&mut talk, begun, admission);
    served.inspect_err(|error| talk.report(error))
}

fn answer(talk: &mut Talk, begun: &[u8], admission: &dyn Admission) -> Result<Served> {
    let mut bytes = [0; request::LEN];
    let have = begun.len().min(request::LEN);
    bytes[..have].copy_from_slice(&begun[..have]);
    // A client of another version may have a request of another length.
    if have >= 8 {
        compatible(&bytes)?;
    }
    talk.receive(&mut bytes[have..], "its request")?;
    compatible(&bytes)?;
    let request = Request::decode(&bytes);
    let name = index::name(request.index)
        .ok_or_else(|| Error::protocol(format!("no test has the number {}", request.index)))?;
    let test = Test::from_name(name).map_err(|_| cannot(name))?;
    let spec = spec(test, &request)?;
    match (test, test.socket()) {
        (Test::Conf, _) => talk
            .send(&conf::encode(&host::conf()))
            .map(|()| Served::Test(test)),
        (Test::Quit, _) => {
            admission.may_quit()?;
            talk.before()?;
            talk.wait_closed();
            Ok(Served::Quit)
        }
        (_, Some(kind)) => {
            spec.check()?;
            let _reserved = admission.admit(&spec)?;
            talk.set_timeout(spec.server.timeout);
            over_sockets(talk, &spec, kind, admission).map(|()| Served::Test(test))
        }
        _ => {
            let plan =
                rdma::plan(&spec, request.use_cm != 0).map_err(|error| error.context(name))?;
            spec.check()?;
            let _reserved = admission.admit(&spec)?;
            talk.set_timeout(spec.server.timeout);
            over_rdma(talk, &spec, plan, admission).map(|()| Served::Test(test))
        }
    }
}

fn over_rdma(talk: &Talk, spec: &Spec, plan: Plan, admission: &dyn Admission) -> Result<()> {
    let end = rdma::End::accept(talk, spec, plan, spec.server.timeout);
    let mut end = end.map_err(|e| talk.explain(e))?;
    let outcome = rdma::run(&mut end, spec, &spec.server, talk, &|| {
        admission.begins(spec.test);
    })?;
    finish(talk, &outcome.stats)?;
    end.part_ways(false);
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

fn over_sockets(talk: &Talk, spec: &Spec, kind: Kind, admission: &dyn Admission) -> Result<()> {
    if kind == Kind::Rds {
        return Err(cannot(spec.test.name()));
    }
    let address = |a: std::io::Result<SocketAddr>| {
        a.map_err(|e| Error::system("the control connection has no address", &e))
    };
    let (local, peer) = (
        address(talk.stream().local_addr())?,
        address(talk.stream().peer_addr())?,
    );
    let place = ends::Server::open(kind, local, spec.sockets, 0)?;
    talk.send(&u32::from(place.port()).to_le_bytes())?;
    let socket = place
        .accept_from(peer.ip(), spec.server.timeout, &|| talk.is_gone())
        .map_err(|e| talk.explain(e))?;
    talk.before()?;
    admission.begins(spec.test);
    let outcome = ends::run(
        kind,
        spec,
        Role::Server,
        &spec.server,
        socket,
        Ending::Clock,
        talk,
    )?;
    finish(talk, &outcome.stats)
}

/// Sends this end's figures; the client has left its loop when it says so.
fn finish(talk: &Talk, stats: &SideStats) -> Result<()> {
    let begin = Instant::now();
    talk.send(&Stat::of(stats).encode())?;
    talk.expect_after().map_err(|error| {
        error.context(format!("{} ms after the test", begin.elapsed().as_millis()))
    })
}
