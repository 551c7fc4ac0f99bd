//! Transfers the facts of a host over the control port.
//!
//! Both sides send a hello. Then the client sends `AskFacts`, and the server replies with `Facts`.
//! rperf servers and `ribinfo serve` answer this request.

use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::collect::peer::PeerFacts;
use super::collect::root::Root;
use crate::common::error::{Error, Kind, Result};
use crate::common::log::log;
use crate::common::protocol::frame::DeadlineReader;
use crate::common::protocol::{frame, hello};
use serde::{Deserialize, Serialize};

/// The messages of `rperf`'s control protocol that transfer the facts of a host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FactsMessage {
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
/// Time limit of the server for the hello and the request of a client.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The unspecified address, on which a server accepts connections to every local address.
pub const ANY_ADDRESS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Requests the facts of a host.
///
/// # Errors
/// Returns an error if the host cannot be reached, if the server does not speak this protocol or
/// needs a token, or if the reply is invalid.
pub fn request_facts(host: &str, port: u16) -> Result<PeerFacts> {
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|e| Error::system(format!("cannot resolve {host}"), &e))?;
    let mut last_error = Error::new(Kind::System, format!("{host} has no address"));
    for address in addresses {
        match TcpStream::connect_timeout(&address, CLIENT_TIMEOUT) {
            Ok(stream) => return exchange(stream),
            Err(error) => {
                last_error =
                    Error::system(format!("cannot connect to port {port} of {host}"), &error);
            }
        }
    }
    Err(last_error)
}

fn exchange(mut stream: TcpStream) -> Result<PeerFacts> {
    stream
        .set_write_timeout(Some(CLIENT_TIMEOUT))
        .map_err(|e| Error::system("cannot set the timeout of the connection", &e))?;
    hello::write(&mut stream)?;
    match hello::read(&mut DeadlineReader::new(&stream, CLIENT_TIMEOUT))? {
        hello::Peer::Rperf(server) => {
            hello::check(&server, "the peer")?;
            if server.requires_token {
                return Err(Error::protocol(
                    "the rperf server requires a token, which ribinfo does not support",
                ));
            }
        }
        _ => {
            return Err(Error::protocol("the server is neither ribinfo nor rperf"));
        }
    }
    frame::write(&mut stream, &FactsMessage::AskFacts)?;
    match frame::read::<FactsMessage>(&mut DeadlineReader::new(&stream, CLIENT_TIMEOUT))? {
        FactsMessage::Facts(facts) => facts.validated(),
        FactsMessage::Error { text } => Err(Error::new(Kind::Peer, format!("the peer: {text}"))),
        FactsMessage::AskFacts => Err(Error::protocol(
            "the peer requests facts instead of sending them",
        )),
    }
}

/// Answers clients one after the other until the process ends.
///
/// # Errors
/// Returns an error if the port cannot be bound.
pub fn serve(root: &Root, address: IpAddr, port: u16) -> Result<()> {
    let listener = TcpListener::bind((address, port)).map_err(|e| {
        Error::system(
            format!("cannot listen on port {port} (an rperf server on this port also answers check --peer)"),
            &e,
        )
    })?;
    log(format_args!("ribinfo: listening on port {port}"));
    for stream in listener.incoming() {
        let result = stream
            .map_err(|e| Error::system("cannot accept a connection", &e))
            .and_then(|stream| answer(stream, root));
        if let Err(error) = result {
            log(format_args!("ribinfo: {error}"));
        }
    }
    Ok(())
}

/// Answers one client.
fn answer(mut stream: TcpStream, root: &Root) -> Result<()> {
    stream
        .set_write_timeout(Some(SERVER_TIMEOUT))
        .map_err(|e| Error::system("cannot set the timeout of the connection", &e))?;
    if !matches!(
        hello::read(&mut DeadlineReader::new(&stream, SERVER_TIMEOUT))?,
        hello::Peer::Rperf(_)
    ) {
        return Err(Error::protocol("the client is neither ribinfo nor rperf"));
    }
    hello::write(&mut stream)?;
    let reply = match frame::read(&mut DeadlineReader::new(&stream, SERVER_TIMEOUT)) {
        Ok(FactsMessage::AskFacts) => FactsMessage::Facts(Box::new(PeerFacts::collect(root))),
        // The client only checked whether the port is open.
        Err(error) if error.kind() == Kind::Gone => return Ok(()),
        _ => FactsMessage::Error {
            text: "`ribinfo serve` only answers requests for facts; start `rperf` to run tests"
                .to_owned(),
        },
    };
    frame::write(&mut stream, &reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn facts_are_transferred() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            answer(stream, &Root::host())
        });
        let facts = request_facts("127.0.0.1", port).unwrap();
        server.join().unwrap().unwrap();
        assert_eq!(facts, PeerFacts::collect(&Root::host()));
    }

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
            let client = std::thread::spawn(move || request_facts("127.0.0.1", port));
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
        let text = request_facts("127.0.0.1", port).unwrap_err().to_string();
        assert!(text.contains(&port.to_string()), "{text}");
    }
}
