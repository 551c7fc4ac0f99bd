//! The server `ribinfo serve`. It answers requests for the facts of this host.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base::error::{Error, Kind, Result};
use base::log;
use base::peer_text::printable;
use host::peer::PeerFacts;
use host::root::Root;
use ipnet::IpNet;
use session::facts::FactsMessage;
use session::protocol::control_stream::ControlStream;
use session::protocol::frame::DeadlineReader;
use session::protocol::token::Token;
use session::protocol::{frame, handshake, hello};
use session::server::connections::{Connections, Registration};
use session::server::listener::{Listener, Stopper};
use session::server::{self, Service, networks};

use super::args::Serve;

/// Time limit for each step of a client.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of clients whose requests are answered at the same time. Each request opens the
/// devices of this host.
const MAX_SESSIONS: u32 = 16;
/// Maximum time to answer a request.
const MAX_SESSION_TIME: Duration = Duration::from_secs(60);

/// The server. It answers clients until it is stopped.
#[derive(Debug)]
pub(super) struct FactsServer<'a> {
    root: &'a Root,
    listener: Listener,
    connections: Connections,
    allow: &'a [IpNet],
    token: Option<Token>,
}

impl<'a> FactsServer<'a> {
    /// Listens on the address and the port of the options.
    ///
    /// # Errors
    /// Returns an error if the port cannot be bound or the token file cannot be used.
    pub(super) fn bind(root: &'a Root, options: &'a Serve) -> Result<Self> {
        let token = options.token_file.as_deref().map(Token::read).transpose()?;
        let listener = Listener::bind(options.bind, options.port).map_err(|e| {
            let error = Error::system(format!("cannot listen on port {}", options.port), &e);
            match e.kind() {
                ErrorKind::AddrInUse => error.with_help(
                    "set --port to another one; an rperf server on this port answers check --peer as well",
                ),
                ErrorKind::AddrNotAvailable => {
                    error.with_help("set --bind to an address of this host")
                }
                _ => error,
            }
        })?;
        Ok(Self {
            root,
            listener,
            connections: Connections::new(MAX_SESSIONS).shared_by_addresses(),
            allow: &options.allow,
            token,
        })
    }

    /// Returns the address that the server listens on.
    ///
    /// # Errors
    /// Returns an error if the kernel does not report it.
    pub(super) fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns a handle that stops the server.
    pub(super) fn stopper(&self) -> Stopper {
        self.listener.stopper().clone()
    }

    /// Answers clients until the server is stopped.
    ///
    /// # Errors
    /// Returns an error if the listening socket broke.
    pub(super) fn run(&self) -> Result<()> {
        server::run(&self.listener, &self.connections, self).map(drop)
    }

    /// Answers one client.
    fn answer(&self, mut stream: TcpStream, connection: &Registration<'_>) -> Result<()> {
        stream
            .set_write_timeout(Some(TIMEOUT))
            .map_err(|e| Error::system("cannot set the timeout of the connection", &e))?;
        let hello::Peer::Rperf(client) = hello::read(&mut DeadlineReader::new(&stream, TIMEOUT))?
        else {
            return Err(Error::protocol("the client is neither ribinfo nor rperf"));
        };
        match &self.token {
            Some(_) => hello::write_requiring_token(&mut stream)?,
            None => hello::write(&mut stream)?,
        }
        // The client also checks the version, and ends the connection.
        if hello::check(&client, "the client").is_err() {
            return Ok(());
        }
        let keys = handshake::accept(&stream, self.token.as_ref(), &client, TIMEOUT);
        let keys = keys.inspect_err(|_| {
            connection.delay_rejection(&stream);
            handshake::reject(&stream);
        })?;
        let mut stream = ControlStream::new(stream, &keys);
        let facts = self.request(&mut stream, connection);
        let reply = match &facts {
            Ok(Some(facts)) => FactsMessage::Facts(Box::new(facts.clone())),
            // The client only checked whether the port is open.
            Ok(None) => return Ok(()),
            Err(error) => FactsMessage::Error {
                text: error.to_string(),
            },
        };
        let sent = stream.send_up_to(&reply, frame::MAX_FACTS_LEN);
        facts.and(sent)
    }

    /// Reads the request of a client and collects the facts.
    fn request(
        &self,
        stream: &mut ControlStream,
        connection: &Registration<'_>,
    ) -> Result<Option<PeerFacts>> {
        match stream.receive(TIMEOUT) {
            Ok(FactsMessage::AskFacts) => {
                connection.begin_session(MAX_SESSION_TIME)?;
                Ok(Some(PeerFacts::collect(self.root)))
            }
            Err(error) if error.kind() == Kind::Gone => Ok(None),
            _ => Err(Error::protocol(
                "`ribinfo serve` only answers requests for facts; start `rperf` to run tests",
            )),
        }
    }
}

impl Service for FactsServer<'_> {
    fn serve(&self, stream: TcpStream, peer: SocketAddr, connection: &Registration<'_>) {
        let answered =
            networks::admit(self.allow, peer.ip()).and_then(|()| self.answer(stream, connection));
        if let Err(error) = answered {
            self.report(Some(peer), &error.to_string());
        }
    }

    fn report(&self, peer: Option<SocketAddr>, text: &str) {
        let text = printable(text);
        match peer {
            Some(peer) => {
                let peer = peer.ip().to_canonical();
                log::log(format_args!("ribinfo: {peer}: {text}"));
            }
            None => log::log(format_args!("ribinfo: {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::peer::PeerPort;
    use session::facts::request_facts;
    use std::io::{Read, Write};
    use std::time::Instant;

    fn options() -> Serve {
        Serve {
            port: 0,
            bind: Some("127.0.0.1".parse().unwrap()),
            allow: Vec::new(),
            token_file: None,
        }
    }

    /// Runs `body` with the port of a server.
    fn with_server(options: &Serve, body: impl FnOnce(u16)) {
        let root = Root::host();
        let server = FactsServer::bind(&root, options).unwrap();
        let port = server.local_addr().unwrap().port();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| server.run());
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(port)));
            server.stopper().stop();
            running.join().unwrap().unwrap();
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    #[test]
    fn facts_are_transferred() {
        with_server(&options(), |port| {
            let facts = request_facts("127.0.0.1", port, None).unwrap();
            assert_eq!(facts, PeerFacts::collect(&Root::host()));
        });
    }

    #[test]
    fn silent_clients_do_not_block_others() {
        with_server(&options(), |port| {
            let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
            let silent: Vec<_> = (0..100).map(|_| connect()).collect();
            let mut slow = connect();
            slow.write_all(b"\x89rp").unwrap();
            let begin = Instant::now();
            request_facts("127.0.0.1", port, None).unwrap();
            assert!(begin.elapsed() < Duration::from_secs(3));
            drop(silent);
        });
    }

    #[test]
    fn only_clients_with_the_token_get_facts() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("ribinfo-token-{}", std::process::id()));
        std::fs::write(&path, "a secret of some length").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let token = Token::read(&path).unwrap();
        let with_token = Serve {
            token_file: Some(path.clone()),
            ..options()
        };
        with_server(&with_token, |port| {
            request_facts("127.0.0.1", port, Some(&token)).unwrap();
            let text = request_facts("127.0.0.1", port, None)
                .unwrap_err()
                .to_string();
            assert!(text.contains("the server requires a token"), "{text}");
        });
        with_server(&options(), |port| {
            let error = request_facts("127.0.0.1", port, Some(&token)).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("the server requires no token"), "{text}");
        });
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn clients_of_other_networks_get_no_facts() {
        let options = Serve {
            allow: vec!["192.0.2.0/24".parse().unwrap()],
            ..options()
        };
        let root = Root::host();
        let server = FactsServer::bind(&root, &options).unwrap();
        assert!(server.local_addr().unwrap().ip().is_loopback());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for (peer, is_served) in [("192.0.2.9", true), ("203.0.113.9", false)] {
            let client =
                std::thread::spawn(move || request_facts("127.0.0.1", address.port(), None));
            let (stream, own) = listener.accept().unwrap();
            let connection = server.connections.register(&stream, own.ip()).unwrap();
            // The address is that of a client on another host.
            let peer = SocketAddr::new(peer.parse().unwrap(), 1);
            server.serve(stream, peer, &connection.unwrap());
            assert_eq!(client.join().unwrap().is_ok(), is_served, "{peer}");
        }
    }

    #[test]
    fn a_test_is_refused_with_the_remedy() {
        with_server(&options(), |port| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream
                .write_all(&hello::encode_request(hello::PROTOCOL))
                .unwrap();
            stream.read_exact(&mut [0; hello::LEN]).unwrap();
            frame::write(&mut stream, &serde_json::json!({ "request": {} })).unwrap();
            let reply: FactsMessage = frame::read(&mut stream).unwrap();
            let FactsMessage::Error { text } = reply else {
                panic!("{reply:?}")
            };
            assert!(text.contains("start `rperf` to run tests"), "{text}");
        });
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
