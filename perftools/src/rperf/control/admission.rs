//! Authentication with a token, and the admission of qperf clients.

use std::net::TcpStream;
use std::time::Duration;

use super::context::{Served, SessionContext};
use super::message::Message;
use super::token::{self, Prover, Token};
use crate::common::error::{Error, Result};
use crate::common::protocol::frame::{self, DeadlineReader};
use crate::rperf::qperf::control_conn::ControlConn;
use crate::rperf::qperf::server as qperf_server;
use crate::rperf::qperf::server::Admission;
use crate::rperf::spec::Spec;
use crate::rperf::spec::test::Test;
use crate::rperf::transport::ControlAddrs;

/// Authenticates a client, on the server: the client proves that it has the token, then the server
/// does.
///
/// # Errors
/// Returns an error if the client does not have the token or sent another message.
pub(super) fn challenge(stream: &mut TcpStream, token: &Token, timeout: Duration) -> Result<()> {
    let server_nonce = token::nonce()?;
    frame::write(
        stream,
        &Message::Challenge {
            nonce: server_nonce.clone(),
        },
    )?;
    let (client_nonce, mac) =
        match frame::read::<Message>(&mut DeadlineReader::new(stream, timeout))? {
            Message::Proof { nonce, mac } => (nonce, mac),
            other => return Err(other.unexpected("the client")),
        };
    if client_nonce == server_nonce
        || !token.is_proven(Prover::Client, &server_nonce, &client_nonce, &mac)
    {
        return Err(Error::limit("the client's token differs from the server's")
            .with_help("use the same --token-file on both ends"));
    }
    let mac = token.proof(Prover::Server, &server_nonce, &client_nonce)?;
    frame::write(
        stream,
        &Message::Proof {
            nonce: server_nonce,
            mac,
        },
    )
}

/// Authenticates a server, on the client: the client proves that it has the token and checks the
/// proof of the server.
///
/// # Errors
/// Returns an error if the client has no token or the server has another one.
pub(super) fn prove(
    stream: &mut TcpStream,
    token: Option<&Token>,
    timeout: Duration,
) -> Result<()> {
    let token = token.ok_or_else(|| {
        Error::limit("the server requires a token")
            .with_help("set --token-file to a file with the server's token")
    })?;
    let read = |stream: &TcpStream| {
        frame::read::<Message>(&mut DeadlineReader::new(stream, timeout))?.or_error("the server")
    };
    let server_nonce = match read(stream)? {
        Message::Challenge { nonce } => nonce,
        other => return Err(other.unexpected("the server")),
    };
    let client_nonce = token::nonce()?;
    let mac = token.proof(Prover::Client, &server_nonce, &client_nonce)?;
    frame::write(
        stream,
        &Message::Proof {
            nonce: client_nonce.clone(),
            mac,
        },
    )?;
    match read(stream)? {
        Message::Proof { mac, .. }
            if token.is_proven(Prover::Server, &server_nonce, &client_nonce, &mac) =>
        {
            Ok(())
        }
        Message::Proof { .. } => Err(Error::limit(
            "the server does not have the token: it is not the intended server",
        )),
        other => Err(other.unexpected("the server")),
    }
}

/// Decisions of the server about the requests of a qperf client.
struct QperfAdmission<'a> {
    context: &'a SessionContext<'a>,
    hosts: ControlAddrs,
}

impl Admission for QperfAdmission<'_> {
    fn admit(&self, spec: &Spec) -> Result<Box<dyn std::any::Any>> {
        Ok(Box::new(self.context.rules.admit(spec)?))
    }

    fn admit_quit(&self) -> Result<()> {
        self.context
            .rules
            .admit_quit(self.hosts.local, self.hosts.peer)
    }

    fn test_begins(&self, test: Test) {
        (self.context.on_begin)(test);
    }
}

/// Serves a qperf client. `prefix` is the part of its request that has already been read.
///
/// # Errors
/// Returns an error for the log. It has already been sent to the client.
pub(super) fn serve_qperf(
    stream: TcpStream,
    prefix: &[u8],
    context: &SessionContext<'_>,
    hosts: ControlAddrs,
) -> Result<Served> {
    if context.rules.token.is_some() {
        let error = Error::limit("the server requires a token, which qperf does not support")
            .with_help("use an rperf client with --token-file");
        reject_qperf(stream, prefix, &error);
        return Err(error);
    }
    match qperf_server::serve(
        stream,
        prefix,
        &QperfAdmission { context, hosts },
        context.stop,
    )? {
        qperf_server::Handled::Test(test) => Ok(Served::Test(test)),
        qperf_server::Handled::Quit => Ok(Served::Quit),
    }
}

/// Sends an error to a qperf client that is not served.
pub(super) fn reject_qperf(stream: TcpStream, prefix: &[u8], error: &Error) {
    const TIMEOUT: Duration = Duration::from_secs(3);
    if let Ok(conn) = ControlConn::new(
        stream,
        "the client (qperf)",
        TIMEOUT,
        std::sync::Arc::default(),
    ) {
        // Closing a connection with unread data resets it, and the client would not get the error.
        let mut rest = vec![0; crate::rperf::qperf::request::LEN.saturating_sub(prefix.len())];
        let _ = conn.receive(&mut rest, "the request");
        conn.send_error(error);
    }
}
