//! Requests the facts of another host over the control port.
//!
//! Both sides send a hello and authenticate if the server has a token. Then the client sends
//! `AskFacts`, and the server replies with `Facts`. rperf servers and `serve` answer this request.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::collect::peer::PeerFacts;
use crate::common::error::{Error, Kind, Result};
use crate::common::protocol::frame::DeadlineReader;
use crate::common::protocol::token::Token;
use crate::common::protocol::{auth, frame, hello};
use serde::{Deserialize, Serialize};

/// The messages of `rperf`'s control protocol that transfer the facts of a host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FactsMessage {
    /// A request for the facts.
    AskFacts,
    /// The facts.
    Facts(Box<PeerFacts>),
    /// The reason why the peer does not send them.
    Error {
        /// The text for the user.
        text: String,
    },
}

/// Time limit of the client for each step. A slow host needs several seconds to open many devices.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);

/// Requests the facts of a host.
///
/// # Errors
/// Returns an error if the host cannot be reached, if the server does not speak this protocol, if
/// the tokens differ, or if the reply is invalid.
pub fn request_facts(host: &str, port: u16, token: Option<&Token>) -> Result<PeerFacts> {
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|e| Error::system(format!("cannot resolve {host}"), &e))?;
    let mut last_error = Error::new(Kind::System, format!("{host} has no address"));
    for address in addresses {
        match TcpStream::connect_timeout(&address, CLIENT_TIMEOUT) {
            Ok(stream) => return exchange(stream, token),
            Err(error) => {
                last_error =
                    Error::system(format!("cannot connect to port {port} of {host}"), &error);
            }
        }
    }
    Err(last_error)
}

fn exchange(mut stream: TcpStream, token: Option<&Token>) -> Result<PeerFacts> {
    stream
        .set_write_timeout(Some(CLIENT_TIMEOUT))
        .map_err(|e| Error::system("cannot set the timeout of the connection", &e))?;
    hello::write_request(&mut stream)?;
    match hello::read_reply(&mut DeadlineReader::new(&stream, CLIENT_TIMEOUT))? {
        hello::Peer::Rperf(server) => {
            hello::check(&server, "the peer")?;
            auth::prove(&mut stream, &server, token, CLIENT_TIMEOUT)?;
        }
        _ => {
            return Err(Error::protocol("the server is neither ribinfo nor rperf"));
        }
    }
    frame::write(&mut stream, &FactsMessage::AskFacts)?;
    let mut reader = DeadlineReader::new(&stream, CLIENT_TIMEOUT);
    match frame::read_up_to(&mut reader, frame::MAX_FACTS_LEN)? {
        FactsMessage::Facts(facts) => facts.validated(),
        FactsMessage::Error { text } => Err(Error::new(Kind::Peer, format!("the peer: {text}"))),
        FactsMessage::AskFacts => Err(Error::protocol(
            "the peer requests facts instead of sending them",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn invalid_reply_is_an_error() {
        use std::io::{Read, Write};

        // Whether the server sends a valid hello, and the bytes that it sends next.
        let replies = [
            (false, Vec::new()),
            (false, b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
            (false, vec![0xff; 5000]),
            (true, Vec::new()),
            (true, vec![0xff; 64]),
            (true, vec![0, 0, 0, 5, b'{']),
            (true, vec![0; 4096]),
        ];
        for (sends_hello, reply) in replies {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let client = std::thread::spawn(move || request_facts("127.0.0.1", port, None));
            let (mut stream, _) = listener.accept().unwrap();
            if sends_hello {
                hello::write(&mut stream).unwrap();
            }
            let _ = stream.write_all(&reply);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
            assert!(client.join().unwrap().is_err(), "{reply:?}");
        }
    }

    #[test]
    fn connection_error_names_the_port() {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let text = request_facts("127.0.0.1", port, None)
            .unwrap_err()
            .to_string();
        assert!(text.contains(&port.to_string()), "{text}");
    }
}
