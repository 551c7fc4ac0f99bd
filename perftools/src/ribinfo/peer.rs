//! What a host is, asked over the control port: a hello each way, then `AskFacts` and `HostFacts`.
//! Any rperf server answers, and `ribinfo serve`, which answers nothing else.

use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::collect::peer::PeerFacts;
use super::collect::root::Root;
use crate::common::error::{Error, Kind, Result, log};
use crate::common::protocol::frame::DeadlineReader;
use crate::common::protocol::{frame, hello, printable};
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

/// How long who asks waits: a slow host with many devices takes its time to open them.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a caller may take for what it wants.
const GREETING: Duration = Duration::from_secs(5);

/// All addresses, for a server.
pub const ANY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Asks a host.
///
/// # Errors
/// It cannot be reached, what answers does not know the question, or the answer makes no sense.
pub fn ask(host: &str, port: u16) -> Result<PeerFacts> {
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|e| Error::system(format!("cannot find {host}"), &e))?;
    let mut failed = Error::new(Kind::System, format!("{host} has no address"));
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return converse(stream),
            Err(error) => {
                failed = Error::system(format!("cannot connect to port {port} of {host}"), &error);
            }
        }
    }
    Err(failed)
}

fn converse(mut stream: TcpStream) -> Result<PeerFacts> {
    stream
        .set_write_timeout(Some(PATIENCE))
        .map_err(|e| Error::system("cannot set the connection up", &e))?;
    hello::write(&mut stream)?;
    match hello::read(&mut DeadlineReader::new(&stream, PATIENCE))? {
        hello::Peer::Rperf(server) => {
            hello::check(&server, "the peer")?;
            if server.requires_token {
                return Err(Error::protocol(
                    "the rperf server there wants a token, which ribinfo does not have",
                ));
            }
        }
        _ => {
            return Err(Error::protocol(
                "what listens there is neither ribinfo nor rperf",
            ));
        }
    }
    frame::write(&mut stream, &FactsMessage::AskFacts)?;
    match frame::read::<FactsMessage>(&mut DeadlineReader::new(&stream, PATIENCE))? {
        FactsMessage::Facts(facts) => facts.validated(),
        FactsMessage::Error { text } => Err(Error::new(
            Kind::Peer,
            format!("the peer: {}", printable(&text)),
        )),
        FactsMessage::AskFacts => Err(Error::protocol(
            "the peer requests facts instead of sending them",
        )),
    }
}

/// Answers whoever asks, one after the other, until the process ends.
///
/// # Errors
/// The port is taken.
pub fn serve(root: &Root, address: IpAddr, port: u16) -> Result<()> {
    let listener = TcpListener::bind((address, port)).map_err(|e| {
        Error::system(
            format!("cannot listen on port {port} (an rperf server there answers as well)"),
            &e,
        )
    })?;
    log(format_args!("ribinfo: answering on port {port}"));
    for stream in listener.incoming() {
        let answered = stream
            .map_err(|e| Error::system("cannot accept", &e))
            .and_then(|stream| answer(stream, root));
        if let Err(error) = answered {
            log(format_args!("ribinfo: {error}"));
        }
    }
    Ok(())
}

/// Answers one connection.
fn answer(mut stream: TcpStream, root: &Root) -> Result<()> {
    stream
        .set_write_timeout(Some(GREETING))
        .map_err(|e| Error::system("cannot set the connection up", &e))?;
    if !matches!(
        hello::read(&mut DeadlineReader::new(&stream, GREETING))?,
        hello::Peer::Rperf(_)
    ) {
        return Err(Error::protocol("neither ribinfo nor rperf: not answered"));
    }
    hello::write(&mut stream)?;
    let reply = match frame::read(&mut DeadlineReader::new(&stream, GREETING)) {
        Ok(FactsMessage::AskFacts) => FactsMessage::Facts(Box::new(PeerFacts::of_this_host(root))),
        // Who only looked whether somebody is here.
        Err(error) if error.kind() == Kind::Gone => return Ok(()),
        _ => FactsMessage::Error {
            text: "this is `ribinfo serve`, which only tells facts: start `rperf` for tests"
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
    fn facts_are_asked_for_and_given() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            answer(stream, &Root::host())
        });
        let facts = ask("127.0.0.1", port).unwrap();
        server.join().unwrap().unwrap();
        assert_eq!(facts, PeerFacts::of_this_host(&Root::host()));
    }

    #[test]
    fn a_peer_that_talks_nonsense_is_an_error() {
        use std::io::{Read, Write};

        // Whether it says hello first, and what it says then.
        let answers = [
            (false, Vec::new()),
            (false, b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
            (false, vec![0xff; 5000]),
            (true, Vec::new()),
            (true, vec![0xff; 64]),
            (true, vec![0, 0, 0, 5, b'{']),
            (true, vec![0; 4096]),
        ];
        for (is_polite, answer) in answers {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let asked = std::thread::spawn(move || ask("127.0.0.1", port));
            let (mut stream, _) = listener.accept().unwrap();
            if is_polite {
                hello::write(&mut stream).unwrap();
            }
            let _ = stream.write_all(&answer);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
            assert!(asked.join().unwrap().is_err(), "{answer:?}");
        }
    }

    #[test]
    fn nobody_there_is_an_error_that_names_the_port() {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let text = ask("127.0.0.1", port).unwrap_err().to_string();
        assert!(text.contains(&port.to_string()), "{text}");
    }
}
