//! One control connection on the server.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use base::error::{Error, Kind, Result};
use host::host_conf::HostConf;
use host::peer::PeerFacts;
use host::root::Root;
use measure::engine::Role;
use measure::spec::Spec;
use measure::spec::test::Test;
use measure::transport::{Backend, ClientInfo, ControlAddrs, ServerSetup};
use socket2::{SockRef, TcpKeepalive};

use super::admission;
use super::context::{Served, SessionContext, SessionHooks};
use super::delegate;
use super::link::ControlLink;
use super::message::Message;
use super::rdma_session;
use super::socket_session::{self, SocketAddrs};
use crate::protocol::control_stream::{ControlStream, Keys};
use crate::protocol::frame::DeadlineReader;
use crate::protocol::{frame, handshake, hello};

/// Time to wait for the hello message of the client.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time to send a reply that is not a test.
const REPLY_TIME: Duration = Duration::from_secs(60);
/// Time to wait for the request that follows. The client examines its devices first.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Serves one connection until it ends.
///
/// # Errors
/// Returns an error for the log. It has already been sent to the client if possible.
pub(crate) fn serve<B: Backend>(
    mut stream: TcpStream,
    backend: &B,
    context: &SessionContext<'_>,
) -> Result<Served> {
    let system = |e| Error::system("cannot set the options of the control connection", &e);
    let hosts = hosts(&stream)?;
    let peer = hello::read(&mut DeadlineReader::new(&stream, HELLO_TIMEOUT))?;
    if let hello::Peer::Data(number) = peer {
        let delivered = context.data_streams.deliver(number, stream);
        return delivered.map(|()| Served::Nothing);
    }
    stream.set_nodelay(true).map_err(system)?;
    stream
        .set_write_timeout(Some(HELLO_TIMEOUT))
        .map_err(system)?;
    // The loss of a client's host is noticed within half a minute.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    SockRef::from(&stream)
        .set_tcp_keepalive(&keepalive)
        .map_err(system)?;
    let mut stream = match peer {
        hello::Peer::Rperf(client) => {
            match &context.rules.token {
                Some(_) => hello::write_requiring_token(&mut stream)?,
                None => hello::write(&mut stream)?,
            }
            // The client checks the version as well, but a later version of it might not.
            if let Err(error) = hello::check(&client, "the client") {
                let mut stream = ControlStream::new(stream, &Keys::none());
                return Err(notify_client(&mut stream, error));
            }
            let token = context.rules.token.as_ref();
            let keys = handshake::accept(&stream, token, &client, HELLO_TIMEOUT);
            let keys = keys.inspect_err(|_| {
                context.connection.delay_rejection(&stream);
                handshake::reject(&stream);
            })?;
            ControlStream::new(stream, &keys)
        }
        hello::Peer::Qperf(prefix) => {
            return admission::serve_qperf(stream, &prefix, context, hosts);
        }
        hello::Peer::QperfServer | hello::Peer::Data(_) | hello::Peer::Unknown => {
            return Err(Error::protocol(
                "the client is neither rperf nor qperf; no reply was sent",
            ));
        }
    };
    let (spec, client_info) = match stream.receive::<Message>(REQUEST_TIMEOUT) {
        Ok(Message::Request { spec, client_info }) => (*spec, client_info),
        Ok(Message::RunClient(request)) => {
            return delegate::serve(stream, &request, backend, context)
                .map(|()| Served::Test(request.spec.test));
        }
        Ok(Message::AskFacts) => {
            if let Err(error) = context.connection.begin_session(REPLY_TIME) {
                return Err(notify_client(&mut stream, error));
            }
            let facts = PeerFacts::collect(&Root::host());
            let reply = Message::Facts(Box::new(facts));
            return stream
                .send_up_to(&reply, frame::MAX_FACTS_LEN)
                .map(|()| Served::Nothing);
        }
        Ok(Message::AskReflectors) => {
            let reply = context
                .connection
                .begin_session(REPLY_TIME)
                .and_then(|()| context.reflectors.describe(hosts.local))
                .map_err(|error| notify_client(&mut stream, error))?;
            let reply = Message::Reflectors(reply);
            return stream
                .send_up_to(&reply, frame::MAX_FACTS_LEN)
                .map(|()| Served::Nothing);
        }
        // A client whose device does not support the test sends an error instead of a request.
        Ok(other) => {
            let other = other.or_error("the client")?;
            return Err(notify_client(&mut stream, other.unexpected("the client")));
        }
        // A client of another version disconnects after the hello message, and so does a port
        // scan.
        Err(error) if error.kind() == Kind::Gone => return Ok(Served::Nothing),
        Err(error) => return Err(notify_client(&mut stream, error)),
    };
    let outcome = match spec.test {
        Test::Conf => context
            .connection
            .begin_session(REPLY_TIME)
            .and_then(|()| stream.send(&Message::Conf(HostConf::read())))
            .map(|()| Served::Test(Test::Conf)),
        Test::Quit => quit(
            &mut stream,
            context.rules.admit_quit(hosts.local, hosts.peer),
        ),
        test => {
            return run_test(stream, backend, spec, client_info, hosts, context)
                .map(|()| Served::Test(test));
        }
    };
    outcome.map_err(|error| notify_client(&mut stream, error))
}

/// Sends an error to a client that is not served.
pub(crate) fn reject(mut stream: TcpStream, error: &Error) {
    let _ = stream.set_write_timeout(Some(HELLO_TIMEOUT));
    match hello::read(&mut DeadlineReader::new(&stream, HELLO_TIMEOUT)) {
        Ok(hello::Peer::Rperf(_)) => {
            let _ = hello::write_rejection(&mut stream);
            // Closing a connection with unread data resets it, and the client would not get the
            // error.
            let _ = frame::read::<Message>(&mut DeadlineReader::new(&stream, HELLO_TIMEOUT));
            let _ = frame::write(&mut stream, &Message::error(error));
        }
        Ok(hello::Peer::Qperf(prefix)) => admission::reject_qperf(stream, &prefix, error),
        _ => {}
    }
}

/// Sends an error to the client, if it is still connected, and returns the error.
fn notify_client(stream: &mut ControlStream, error: Error) -> Error {
    if error.kind() != Kind::Gone {
        let _ = stream.send(&Message::error(&error));
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

fn quit(stream: &mut ControlStream, admitted: Result<()>) -> Result<Served> {
    admitted?;
    stream.send(&Message::Quitting)?;
    Ok(Served::Quit)
}

fn run_test<B: Backend>(
    stream: ControlStream,
    backend: &B,
    mut spec: Spec,
    client_info: Option<ClientInfo>,
    hosts: ControlAddrs,
    context: &SessionContext<'_>,
) -> Result<()> {
    let addresses = SocketAddrs::of_stream(stream.socket())?;
    // The timeout of the specification applies if the test is admitted.
    let admitted = spec.check().and_then(|()| context.admit(&mut spec));
    let timeout = match &admitted {
        Ok(_) => spec.server.timeout,
        Err(_) => HELLO_TIMEOUT,
    };
    let spec = &spec;
    let qps = admitted.as_ref().map_or(0, |_| spec.total_qps());
    let link = ControlLink::new(stream, Role::Server, timeout, qps, Arc::clone(context.stop))?;
    let run = || {
        let mut reservation = admitted?;
        if let Some(kind) = spec.test.socket() {
            let done = socket_session::server(
                &link,
                spec,
                kind,
                addresses,
                context.data_streams,
                &SessionHooks::server(context),
            );
            return done.map(drop);
        }
        let client_info = client_info
            .ok_or_else(|| Error::protocol("the request does not describe the client's device"))?;
        if client_info.addresses.len() > 256 {
            return Err(Error::protocol(format!(
                "the request contains {} addresses: the limit is 256",
                client_info.addresses.len()
            )));
        }
        let (setup, offer) = backend.server(spec, &client_info, hosts)?;
        let target = client_info.addresses.get(offer.client_address);
        if let Some(target) = target.and_then(|address| address.ip) {
            context.rules.admit_target(hosts.peer, target)?;
        }
        link.send(&Message::Offer(offer))?;
        let answer = match link.receive_after_set_up(0)? {
            Message::Answer(answer) => answer,
            other => return Err(other.unexpected("the client")),
        };
        let gone = || link.is_gone();
        let connected = setup
            .accept(&answer, timeout, &gone)
            .map_err(|e| link.explain(e))?;
        reservation.reduce_to(connected.shape.footprint());
        let hooks = SessionHooks::server(context);
        rdma_session::run(&link, spec, Role::Server, connected, &hooks).map(drop)
    };
    run().inspect_err(|error| link.send_error(error))
}
