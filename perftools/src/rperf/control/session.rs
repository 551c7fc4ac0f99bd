//! The server's side of one connection.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::admission;
use super::context::{Served, SessionContext, SessionResult};
use super::link::ControlLink;
use super::message::Message;
use super::socket_session::{self, SocketAddrs};
use crate::common::error::{Error, Kind, Result};
use crate::common::protocol::frame::DeadlineReader;
use crate::common::protocol::{frame, hello};
use crate::ribinfo::collect::peer::PeerFacts;
use crate::ribinfo::collect::root::Root;
use crate::rperf::engine::{self, Role};
use crate::rperf::report::host_conf::HostConf;
use crate::rperf::report::warning;
use crate::rperf::spec::Spec;
use crate::rperf::spec::test::Test;
use crate::rperf::transport::{Backend, ClientInfo, ConnectedEndpoint, ControlAddrs, ServerSetup};

/// How long a caller may take for its greeting.
const GREETING: Duration = Duration::from_secs(5);
/// How long, after that, for its request: it looks at its devices first.
const REQUEST: Duration = Duration::from_secs(15);

/// Serves one connection to its end.
///
/// # Errors
/// What went wrong, for the log; the peer has been told, as far as it listens.
pub fn serve<B: Backend>(
    mut stream: TcpStream,
    backend: &B,
    context: &SessionContext<'_>,
) -> Result<Served> {
    let system = |e| Error::system("cannot set the control connection up", &e);
    let hosts = hosts(&stream)?;
    stream.set_nodelay(true).map_err(system)?;
    stream.set_write_timeout(Some(GREETING)).map_err(system)?;
    // A client whose host went away without a word is noticed within half a minute.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    SockRef::from(&stream)
        .set_tcp_keepalive(&keepalive)
        .map_err(system)?;
    match hello::read(&mut DeadlineReader::new(&stream, GREETING))? {
        hello::Peer::Rperf(caller) => {
            match &context.rules.token {
                Some(_) => hello::write_requiring_token(&mut stream)?,
                None => hello::write(&mut stream)?,
            }
            // Told in words too: the other end compares as well, but may be a later program that
            // does not.
            if let Err(error) = hello::check(&caller, "the client") {
                return Err(refuse(&mut stream, error));
            }
            if let Some(token) = &context.rules.token {
                admission::challenge(&mut stream, token, GREETING)
                    .map_err(|error| refuse(&mut stream, error))?;
            }
        }
        hello::Peer::Qperf(begun) => return admission::qperf(stream, &begun, context, hosts),
        hello::Peer::QperfServer | hello::Peer::Unknown => {
            return Err(Error::protocol("neither rperf nor qperf: not answered"));
        }
    }
    let (spec, ask) = match frame::read::<Message>(&mut DeadlineReader::new(&stream, REQUEST)) {
        Ok(Message::Request { spec, ask }) => (*spec, ask),
        Ok(Message::AskFacts) => {
            let facts = PeerFacts::collect(&Root::host());
            return frame::write(&mut stream, &Message::Facts(Box::new(facts)))
                .map(|()| Served::Nothing);
        }
        // A client whose own device will not do says why, instead of asking.
        Ok(other) => {
            let other = other.or_error("the client")?;
            return Err(refuse(&mut stream, other.unexpected("the client")));
        }
        // A client of another version leaves after the greeting; so does one that only looked.
        Err(error) if error.kind() == Kind::Gone => return Ok(Served::Nothing),
        Err(error) => return Err(refuse(&mut stream, error)),
    };
    let outcome = match spec.test {
        Test::Conf => frame::write(&mut stream, &Message::Conf(HostConf::of_this_host()))
            .map(|()| Served::Test(Test::Conf)),
        Test::Quit => quit(&mut stream, context.rules.may_quit(hosts.local, hosts.peer)),
        test => measured(&stream, backend, &spec, ask, hosts, context).map(|()| Served::Test(test)),
    };
    outcome.map_err(|error| {
        if spec.test.moves_data() {
            error
        } else {
            refuse(&mut stream, error)
        }
    })
}

/// Tells a client why it is not served.
pub fn reject(mut stream: TcpStream, error: &Error) {
    let _ = stream.set_write_timeout(Some(GREETING));
    match hello::read(&mut DeadlineReader::new(&stream, GREETING)) {
        Ok(hello::Peer::Rperf(_)) => {
            let _ = hello::write(&mut stream);
            // What it asks is read, so that the answer is not lost to a reset.
            let _ = frame::read::<Message>(&mut DeadlineReader::new(&stream, GREETING));
            let _ = frame::write(
                &mut stream,
                &Message::Error {
                    text: error.to_string(),
                },
            );
        }
        Ok(hello::Peer::Qperf(begun)) => admission::refuse_qperf(stream, &begun, error),
        _ => {}
    }
}

/// Tells the peer, as far as it listens.
fn refuse(stream: &mut TcpStream, error: Error) -> Error {
    if error.kind() != Kind::Gone {
        let _ = frame::write(
            stream,
            &Message::Error {
                text: error.to_string(),
            },
        );
    }
    error
}

fn hosts(stream: &TcpStream) -> Result<ControlAddrs> {
    let addresses = SocketAddrs::of_stream(stream)?;
    Ok(ControlAddrs {
        local: addresses.local.ip().to_canonical(),
        peer: addresses.peer.ip().to_canonical(),
    })
}

fn quit(stream: &mut TcpStream, may_quit: Result<()>) -> Result<Served> {
    may_quit?;
    frame::write(stream, &Message::Quitting)?;
    Ok(Served::Quit)
}

fn measured<B: Backend>(
    stream: &TcpStream,
    backend: &B,
    spec: &Spec,
    ask: Option<ClientInfo>,
    hosts: ControlAddrs,
    context: &SessionContext<'_>,
) -> Result<()> {
    let system = |e| Error::system("cannot set the control connection up", &e);
    // From the specification on the client's word on timeouts holds, once it is checked.
    let timeout = spec.check().map_or(GREETING, |()| spec.server.timeout);
    let link = ControlLink::new(
        stream.try_clone().map_err(system)?,
        "the client",
        timeout,
        Arc::clone(context.stop),
    )?;
    let run = || {
        spec.check()?;
        let _reserved = context.rules.admit(spec)?;
        if let Some(kind) = spec.test.socket() {
            let done = socket_session::server(
                &link,
                spec,
                kind,
                SocketAddrs::of_stream(stream)?,
                context.begins,
            );
            return done.map(drop);
        }
        let ask =
            ask.ok_or_else(|| Error::protocol("the client did not say how it can be reached"))?;
        if ask.addresses.len() > 256 {
            return Err(Error::protocol(format!(
                "{} addresses: the limit is 256",
                ask.addresses.len()
            )));
        }
        let (setup, offer) = backend.server(spec, &ask, hosts)?;
        link.send(&Message::Offer(offer))?;
        let answer = match link.receive()? {
            Message::Answer(answer) => answer,
            other => return Err(other.unexpected("the client")),
        };
        let gone = || link.is_gone();
        let connected = setup
            .accept(&answer, timeout, &gone)
            .map_err(|e| link.explain(e))?;
        exchange(&link, spec, Role::Server, connected, context.begins).map(drop)
    };
    run().inspect_err(|error| link.report(error))
}

/// What both ends do once connected: receives, `Ready`, the test, `Stats`.
pub(super) fn exchange<W: engine::Wire + Send>(
    link: &ControlLink,
    spec: &Spec,
    role: Role,
    connected: ConnectedEndpoint<W>,
    begins: &dyn Fn(Test),
) -> Result<SessionResult> {
    let ConnectedEndpoint {
        mut wires,
        via,
        shape,
    } = connected;
    // Only the client tells of a host's faults, its own included.
    let (side, who, warnings) = match role {
        Role::Client => (&spec.client, "the server", Vec::new()),
        Role::Server => (&spec.server, "the client", warning::host()),
    };
    wires.iter_mut().try_for_each(W::post_receives)?;
    let memory = wires.iter().map(W::exposed).collect();
    link.send(&Message::Ready {
        via: via.clone(),
        memory,
        warnings,
    })?;
    let (peer_via, peer_warnings) = match link.receive_after(shape.memory())? {
        Message::Ready {
            via,
            memory,
            warnings,
        } => {
            for (wire, memory) in wires.iter_mut().zip(memory) {
                if let Some(memory) = memory {
                    wire.peer_exposes(memory);
                }
            }
            (via, warnings)
        }
        other => return Err(other.unexpected(who)),
    };
    begins(spec.test);
    let mut ends: Vec<_> = (0..)
        .zip(wires)
        .map(|(number, wire)| (wire, link.thread(number)))
        .collect();
    let measurement = engine::threads::run(role, &shape, side, &mut ends)?;
    link.send(&Message::Stats(Box::new(measurement.stats.clone())))?;
    let peer_stats = match link.receive_after(shape.memory())? {
        Message::Stats(stats) => *stats,
        other => return Err(other.unexpected(who)),
    };
    Ok(SessionResult {
        measurement,
        via,
        peer_via,
        peer_stats,
        peer_warnings,
        plan: Some(shape.plan),
        depth: shape.depth,
    })
}
