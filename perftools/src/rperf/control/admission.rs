//! Who is let in: the proof of a token, and clients that are qperfs.

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

/// The server: lets the client prove that it has the token, and proves the same.
///
/// # Errors
/// It has not, or it said something else.
pub(super) fn challenge(stream: &mut TcpStream, token: &Token, patience: Duration) -> Result<()> {
    let mine = token::nonce()?;
    frame::write(
        stream,
        &Message::Challenge {
            nonce: mine.clone(),
        },
    )?;
    let (theirs, mac) = match frame::read::<Message>(&mut DeadlineReader::new(stream, patience))? {
        Message::Proof { nonce, mac } => (nonce, mac),
        other => return Err(other.unexpected("the client")),
    };
    if theirs == mine || !token.is_proven(Prover::Client, &mine, &theirs, &mac) {
        return Err(Error::limit(
            "the client's token is not the server's: both want the same --token-file",
        ));
    }
    let mac = token.proof(Prover::Server, &mine, &theirs)?;
    frame::write(stream, &Message::Proof { nonce: mine, mac })
}

/// The client: proves that it has the token, and sees that the server has it.
///
/// # Errors
/// There is none, or it is another.
pub(super) fn prove(
    stream: &mut TcpStream,
    token: Option<&Token>,
    patience: Duration,
) -> Result<()> {
    let token = token.ok_or_else(|| {
        Error::limit("the server wants a token: give --token-file with the same secret")
    })?;
    let read = |stream: &TcpStream| {
        frame::read::<Message>(&mut DeadlineReader::new(stream, patience))?.or_error("the server")
    };
    let theirs = match read(stream)? {
        Message::Challenge { nonce } => nonce,
        other => return Err(other.unexpected("the server")),
    };
    let mine = token::nonce()?;
    let mac = token.proof(Prover::Client, &theirs, &mine)?;
    frame::write(
        stream,
        &Message::Proof {
            nonce: mine.clone(),
            mac,
        },
    )?;
    match read(stream)? {
        Message::Proof { mac, .. } if token.is_proven(Prover::Server, &theirs, &mine, &mac) => {
            Ok(())
        }
        Message::Proof { .. } => Err(Error::limit(
            "the server does not have the token: it is not the server that was meant",
        )),
        other => Err(other.unexpected("the server")),
    }
}

/// The terms, as they hold for a qperf client.
struct ForQperf<'a> {
    context: &'a SessionContext<'a>,
    hosts: ControlAddrs,
}

impl Admission for ForQperf<'_> {
    fn admit(&self, spec: &Spec) -> Result<Box<dyn std::any::Any>> {
        Ok(Box::new(self.context.rules.admit(spec)?))
    }

    fn admit_quit(&self) -> Result<()> {
        self.context
            .rules
            .may_quit(self.hosts.local, self.hosts.peer)
    }

    fn test_begins(&self, test: Test) {
        (self.context.begins)(test);
    }
}

/// Serves a qperf client.
///
/// # Errors
/// What went wrong, for the log; the client has been told.
pub(super) fn qperf(
    stream: TcpStream,
    begun: &[u8],
    context: &SessionContext<'_>,
    hosts: ControlAddrs,
) -> Result<Served> {
    if context.rules.token.is_some() {
        let error = Error::limit(
            "this server wants a token (--token-file), which qperf does not have: use rperf",
        );
        refuse_qperf(stream, begun, &error);
        return Err(error);
    }
    match qperf_server::serve(stream, begun, &ForQperf { context, hosts }, context.stop)? {
        qperf_server::Handled::Test(test) => Ok(Served::Test(test)),
        qperf_server::Handled::Quit => Ok(Served::Quit),
    }
}

/// Tells a qperf client why it is not served, in its own way.
pub(super) fn refuse_qperf(stream: TcpStream, begun: &[u8], error: &Error) {
    const PATIENCE: Duration = Duration::from_secs(3);
    if let Ok(conn) = ControlConn::new(
        stream,
        "the client (qperf)",
        PATIENCE,
        std::sync::Arc::default(),
    ) {
        // What it asks is read, so that the answer is not lost to a reset.
        let mut rest = vec![0; crate::rperf::qperf::request::LEN.saturating_sub(begun.len())];
        let _ = conn.receive(&mut rest, "the request");
        conn.send_error(error);
    }
}
