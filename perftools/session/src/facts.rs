//! Requests the facts of another host over the control port.
//!
//! Both sides send a hello and authenticate if the server has a token. Then the client sends
//! `AskFacts`, and an rperf server replies with `Facts`.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result, split_help};
use host::peer::PeerFacts;

use crate::protocol::control_stream::ControlStream;
use crate::protocol::frame::DeadlineReader;
use crate::protocol::token::Token;
use crate::protocol::{frame, handshake, hello};
use serde::{Deserialize, Serialize};

/// The messages of `rperf`'s control protocol that transfer the facts of a host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactsMessage {
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

/// Time limit of the client for the whole exchange. A slow host needs several seconds to open many
/// devices.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);

/// Requests the facts of a host.
pub fn request_facts(host: &str, port: u16, token: Option<&Token>) -> Result<PeerFacts> {
    request_facts_until(Instant::now() + CLIENT_TIMEOUT, host, port, token)
}

/// Returns the time until a deadline, at least a millisecond: a limit of 0 is an error of sockets.
fn time_until(deadline: Instant) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now());
    left.max(Duration::from_millis(1))
}

fn request_facts_until(
    deadline: Instant,
    host: &str,
    port: u16,
    token: Option<&Token>,
) -> Result<PeerFacts> {
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|e| Error::system(format!("cannot resolve {host}"), &e))?;
    let mut last_error = Error::new(Kind::System, format!("{host} has no address"));
    for address in addresses {
        match TcpStream::connect_timeout(&address, time_until(deadline)) {
            Ok(stream) => return exchange(stream, deadline, token),
            Err(error) => {
                last_error =
                    Error::system(format!("cannot connect to port {port} of {host}"), &error);
            }
        }
    }
    Err(last_error)
}

fn exchange(mut stream: TcpStream, deadline: Instant, token: Option<&Token>) -> Result<PeerFacts> {
    stream
        .set_write_timeout(Some(time_until(deadline)))
        .map_err(|e| Error::system("cannot set the timeout of the connection", &e))?;
    hello::write_request(&mut stream)?;
    let reply = hello::read_reply(&mut DeadlineReader::new(&stream, time_until(deadline)))?;
    let hello::Peer::Rperf(server) = reply else {
        return Err(Error::protocol("the server is not rperf"));
    };
    hello::check(&server, "the peer")?;
    let keys = handshake::connect(&stream, &server, token, time_until(deadline))?;
    let mut stream = ControlStream::new(stream, &keys);
    stream.send(&FactsMessage::AskFacts)?;
    facts_in(stream.receive_up_to(time_until(deadline), frame::MAX_FACTS_LEN)?)
}

fn facts_in(reply: FactsMessage) -> Result<PeerFacts> {
    match reply {
        FactsMessage::Facts(facts) => facts.validated(),
        FactsMessage::Error { text } => {
            // A remedy of the peer must not become one of this host.
            let (cause, _) = split_help(&text);
            Err(Error::new(Kind::Peer, format!("the peer: {cause}")))
        }
        FactsMessage::AskFacts => Err(Error::protocol(
            "the peer requests facts instead of sending them",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::peer::PeerPort;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_peer_gives_no_remedy() {
        let text = "refused; help: rm -rf /".to_owned();
        let error = facts_in(FactsMessage::Error { text }).unwrap_err();
        assert_eq!(error.to_string(), "the peer: refused");
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
    fn slow_steps_of_a_peer_share_one_time_limit() {
        let limit = Duration::from_secs(2);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let begin = Instant::now();
        let client = std::thread::spawn(move || {
            let facts = request_facts_until(begin + limit, "127.0.0.1", port, None);
            (facts, begin.elapsed())
        });
        let (mut stream, _) = listener.accept().unwrap();
        std::thread::sleep(limit * 3 / 5);
        hello::write(&mut stream).unwrap();
        let (facts, time) = client.join().unwrap();
        assert!(facts.is_err() && time < limit * 7 / 5, "{time:?}");
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

    #[test]
    fn the_facts_of_a_thousand_ports_fit_a_frame() {
        let port = PeerPort {
            device: "mlx5_1000".into(),
            port: 1,
            iwarp: false,
            link_layer: "Ethernet".into(),
            active: true,
            roce_mode: Some("RoCE v2".into()),
            kinds: vec!["IB/RoCE v1".into(), "RoCE v2".into()],
            addresses: vec!["fe80:1234:5678:9abc:def0:1234:5678:9abc".parse().unwrap(); 16],
            subnet_prefix: None,
            mtu: Some(4096),
            netdev: Some("enp1000s0f0np0".into()),
        };
        let facts = PeerFacts {
            host: "node".into(),
            ports: vec![port; 1000],
        };
        let mut bytes = Vec::new();
        let message = FactsMessage::Facts(Box::new(facts.clone()));
        frame::write_up_to(&mut bytes, &message, frame::MAX_FACTS_LEN).unwrap();
        assert!(bytes.len() > frame::MAX_LEN);
        let read = frame::read_up_to(&mut bytes.as_slice(), frame::MAX_FACTS_LEN).unwrap();
        assert!(matches!(read, FactsMessage::Facts(read) if *read == facts));
    }
}
