//! Authentication with a shared token, after the greetings.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::frame::{self, DeadlineReader};
use super::hello::Hello;
use super::token::{self, Prover, Token};

/// Delay of the reply to a client that failed to authenticate.
const FAILURE_DELAY: Duration = Duration::from_secs(1);

/// The messages that authenticate both ends. `Error` is that of the messages that follow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AuthMessage {
    /// From the server: requests a proof that the client has the token.
    Challenge {
        /// Random number of the sender, used once.
        nonce: String,
    },
    /// From either end: proves that the sender has the token.
    Proof {
        /// Random number of the sender, used once.
        nonce: String,
        /// HMAC over both numbers.
        mac: String,
    },
    /// From either end: the sender ends the connection.
    Error {
        /// Error text.
        text: String,
    },
}

impl AuthMessage {
    fn read(stream: &TcpStream, timeout: Duration, peer_name: &str) -> Result<Self> {
        match frame::read(&mut DeadlineReader::new(stream, timeout))? {
            Self::Error { text } => Err(Error::new(Kind::Peer, format!("{peer_name}: {text}"))),
            other => Ok(other),
        }
    }

    fn unexpected(&self, peer_name: &str) -> Error {
        let name = match self {
            Self::Challenge { .. } => "challenge",
            Self::Proof { .. } => "proof",
            Self::Error { .. } => "error",
        };
        Error::protocol(format!("{peer_name} sent an unexpected message: {name}"))
    }
}

/// Authenticates a client, on the server: the client proves that it has the token, then the server
/// does.
///
/// # Errors
/// Returns an error if the client does not have the token or sent another message. It returns late,
/// unless `stop` is set: together with the limits of pending connections, this bounds the rate of
/// guesses.
pub fn challenge(
    stream: &mut TcpStream,
    token: &Token,
    timeout: Duration,
    stop: &AtomicBool,
) -> Result<()> {
    authenticate_client(stream, token, timeout).inspect_err(|_| {
        let end = Instant::now() + FAILURE_DELAY;
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
    })
}

fn authenticate_client(stream: &mut TcpStream, token: &Token, timeout: Duration) -> Result<()> {
    let server_nonce = token::nonce()?;
    frame::write(
        stream,
        &AuthMessage::Challenge {
            nonce: server_nonce.clone(),
        },
    )?;
    let (client_nonce, mac) = match AuthMessage::read(stream, timeout, "the client")? {
        AuthMessage::Proof { nonce, mac } => (nonce, mac),
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
        &AuthMessage::Proof {
            nonce: server_nonce,
            mac,
        },
    )
}

/// Authenticates a server after its greeting, on the client. With a token, the client proves that
/// it has it and checks the proof of the server.
///
/// # Errors
/// Returns an error if only one end has a token, or the tokens differ.
pub(crate) fn prove(
    stream: &mut TcpStream,
    server: &Hello,
    token: Option<&Token>,
    timeout: Duration,
) -> Result<()> {
    let token = match (token, server.requires_token) {
        (None, false) => return Ok(()),
        (Some(_), false) => return Err(unauthenticated("the server requires no token")),
        (None, true) => {
            return Err(Error::limit("the server requires a token")
                .with_help("set --token-file to a file with the server's token"));
        }
        (Some(token), true) => token,
    };
    let server_nonce = match AuthMessage::read(stream, timeout, "the server")? {
        AuthMessage::Challenge { nonce } => nonce,
        other => return Err(other.unexpected("the server")),
    };
    let client_nonce = token::nonce()?;
    let mac = token.proof(Prover::Client, &server_nonce, &client_nonce)?;
    frame::write(
        stream,
        &AuthMessage::Proof {
            nonce: client_nonce.clone(),
            mac,
        },
    )?;
    match AuthMessage::read(stream, timeout, "the server")? {
        AuthMessage::Proof { mac, .. }
            if token.is_proven(Prover::Server, &server_nonce, &client_nonce, &mac) =>
        {
            Ok(())
        }
        AuthMessage::Proof { .. } => Err(Error::limit(
            "the server does not have the token: it is not the intended server",
        )),
        other => Err(other.unexpected("the server")),
    }
}

/// Returns the error of a client with a token whose server does not prove that it has it.
pub(crate) fn unauthenticated(cause: &str) -> Error {
    Error::limit(format!("{cause}, so it may not be the intended server"))
        .with_help("start the server with the same --token-file, or omit it here")
}
