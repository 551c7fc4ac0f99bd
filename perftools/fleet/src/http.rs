//! An HTTP server for metrics. It answers `GET /metrics`, one request per connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use base::error::{Error, Result};
use base::log;
use ipnet::IpNet;
use session::protocol::frame::DeadlineReader;
use session::server::connections::{Connections, Registration};
use session::server::listener::{Listener, Stopper};
use session::server::{self, Service, networks};

use crate::exposition::Format;

/// Time limit for the request, for the end of other requests, and for sending the response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of requests that are answered at the same time.
const MAX_SESSIONS: u32 = 8;
/// Maximum time of a connection.
const MAX_SESSION_TIME: Duration = Duration::from_secs(60);
/// Maximum length of a request without its body, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// Maximum number of header fields.
const MAX_FIELDS: usize = 64;

/// An address to listen on: a port, or an address with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddr {
    address: Option<std::net::IpAddr>,
    port: u16,
}

impl FromStr for ListenAddr {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self {
                address: Some(address.ip()),
                port: address.port(),
            });
        }
        let port = text.strip_prefix(':').unwrap_or(text).parse();
        let port = port.map_err(|_| {
            format!("`{text}`: expected PORT, ADDRESS:PORT or [IPv6]:PORT, such as 127.0.0.1:9742")
        })?;
        Ok(Self {
            address: None,
            port,
        })
    }
}

/// Writes the metrics of this program in a format.
pub type Encode<'a> = &'a (dyn Fn(Format) -> String + Sync);

/// The server. It answers requests until it is stopped.
#[derive(Debug)]
pub struct MetricsServer {
    program: &'static str,
    listener: Listener,
    connections: Connections,
    allow: Vec<IpNet>,
}

impl MetricsServer {
    /// Listens on an address. Only clients from the networks, and from this host, are answered; all
    /// clients, if there are no networks.
    pub fn bind(program: &'static str, listen: ListenAddr, allow: Vec<IpNet>) -> Result<Self> {
        let listener = Listener::bind(listen.address, listen.port).map_err(|e| {
            let error = Error::system(format!("cannot listen on port {}", listen.port), &e);
            match e.kind() {
                ErrorKind::AddrInUse => error.with_help("set --listen to another port"),
                ErrorKind::AddrNotAvailable => {
                    error.with_help("set --listen to an address of this host")
                }
                _ => error,
            }
        })?;
        Ok(Self {
            program,
            listener,
            connections: Connections::new(MAX_SESSIONS)
                .shared_by_addresses()
                .wait_for_session(TIMEOUT),
            allow,
        })
    }

    /// Returns the address that the server listens on.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns a handle that stops the server.
    pub fn stopper(&self) -> Stopper {
        self.listener.stopper().clone()
    }

    /// Answers requests until the server is stopped.
    pub fn run(&self, encode: Encode<'_>) -> Result<()> {
        let service = Scrapes {
            server: self,
            encode,
        };
        server::run(&self.listener, &self.connections, &service).map(drop)
    }
}

/// The service of a server.
struct Scrapes<'a> {
    server: &'a MetricsServer,
    encode: Encode<'a>,
}

impl Scrapes<'_> {
    fn answer(&self, mut stream: TcpStream, connection: &Registration<'_>) -> Result<()> {
        let mut head = Vec::new();
        let request = read_request(&mut DeadlineReader::new(&stream, TIMEOUT), &mut head)?;
        let Some(request) = request else {
            return Ok(());
        };
        stream
            .set_write_timeout(Some(TIMEOUT))
            .map_err(|e| Error::system("cannot set the timeout of the connection", &e))?;
        if let Err(error) = connection.begin_session(MAX_SESSION_TIME) {
            let status = "503 Service Unavailable";
            let response = response(status, PLAIN, &format!("{status}\n"), true);
            let _ = stream.write_all(response.as_bytes());
            return Err(error);
        }
        let response = match request {
            HttpRequest::Metrics { format, with_body } => {
                let body = (self.encode)(format);
                response("200 OK", format.content_type(), &body, with_body)
            }
            HttpRequest::Root { with_body } => {
                let text = format!("Metrics of {}: /metrics\n", self.server.program);
                response("200 OK", PLAIN, &text, with_body)
            }
            HttpRequest::Rejected(status) => response(status, PLAIN, &format!("{status}\n"), true),
        };
        // A client that has gone does not matter.
        let _ = stream.write_all(response.as_bytes());
        Ok(())
    }
}

impl Service for Scrapes<'_> {
    fn serve(&self, stream: TcpStream, peer: SocketAddr, connection: &Registration<'_>) {
        let answered = networks::admit(&self.server.allow, peer.ip())
            .and_then(|()| self.answer(stream, connection));
        if let Err(error) = answered {
            self.report(Some(peer), &error.to_string());
        }
    }

    fn report(&self, peer: Option<SocketAddr>, text: &str) {
        let program = self.server.program;
        match peer {
            Some(peer) => {
                let peer = peer.ip().to_canonical();
                log::log(format_args!("{program}: scrape from {peer}: {text}"));
            }
            None => log::log(format_args!("{program}: {text}")),
        }
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpRequest {
    /// `/metrics`.
    Metrics {
        /// Encoding of the metrics.
        format: Format,
        /// `true` for `GET`, `false` for `HEAD`.
        with_body: bool,
    },
    /// `/`.
    Root {
        /// `true` for `GET`, `false` for `HEAD`.
        with_body: bool,
    },
    /// Any other request, with the status of its response.
    Rejected(&'static str),
}

/// Reads a request. Returns `None` if the client sent nothing.
pub fn read_request(stream: &mut impl Read, head: &mut Vec<u8>) -> Result<Option<HttpRequest>> {
    loop {
        let mut chunk = [0; 1024];
        let n = stream
            .read(&mut chunk)
            .map_err(|e| Error::system("cannot read the request", &e))?;
        if n == 0 && head.is_empty() {
            return Ok(None);
        }
        head.extend_from_slice(&chunk[..n]);
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(head) {
            Ok(httparse::Status::Complete(_)) => return Ok(Some(classify(&request))),
            Ok(httparse::Status::Partial) if head.len() > MAX_HEAD => {
                return Ok(Some(HttpRequest::Rejected(
                    "431 Request Header Fields Too Large",
                )));
            }
            Ok(httparse::Status::Partial) if n > 0 => {}
            Ok(httparse::Status::Partial) | Err(_) => {
                return Ok(Some(HttpRequest::Rejected("400 Bad Request")));
            }
        }
    }
}

fn classify(request: &httparse::Request<'_, '_>) -> HttpRequest {
    let with_body = match request.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return HttpRequest::Rejected("405 Method Not Allowed"),
    };
    let path = request.path.unwrap_or_default();
    match path.split('?').next() {
        Some("/metrics") => {
            let accept = request
                .headers
                .iter()
                .find(|field| field.name.eq_ignore_ascii_case("accept"));
            let accept = accept.map_or("", |field| {
                std::str::from_utf8(field.value).unwrap_or_default()
            });
            HttpRequest::Metrics {
                format: Format::from_accept(accept),
                with_body,
            }
        }
        Some("/") => HttpRequest::Root { with_body },
        _ => HttpRequest::Rejected("404 Not Found"),
    }
}

fn response(status: &str, content_type: &str, body: &str, with_body: bool) -> String {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if with_body { head + body } else { head }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Option<HttpRequest> {
        read_request(&mut text.as_bytes(), &mut Vec::new()).unwrap()
    }

    #[test]
    fn requests_are_classified() {
        for (line, expected) in [
            ("GET /metrics?x=1", "Metrics"),
            ("HEAD /metrics", "with_body: false"),
            ("GET /", "Root"),
            ("GET /etc/passwd", "404"),
            ("POST /metrics", "405"),
            ("GET", "400"),
            ("\u{1}", "400"),
        ] {
            let request = request(&format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let text = format!("{request:?}");
            assert!(text.contains(expected), "{line}: {text}");
        }
        assert_eq!(request(""), None);
        let long = format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(MAX_HEAD));
        assert!(format!("{:?}", request(&long)).contains("431"));
        let cut = request("GET /metrics HTTP/1.1\r\nHost");
        assert_eq!(cut, Some(HttpRequest::Rejected("400 Bad Request")));
    }

    #[test]
    fn metrics_are_served_in_the_requested_format() {
        let listen = "127.0.0.1:0".parse().unwrap();
        let server = MetricsServer::bind("test", listen, Vec::new()).unwrap();
        let address = server.local_addr().unwrap();
        let get = |accept: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            let text = format!("GET /metrics HTTP/1.1\r\naccept: {accept}\r\n\r\n");
            stream.write_all(text.as_bytes()).unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            reply
        };
        std::thread::scope(|scope| {
            let running = scope.spawn(|| server.run(&|format| format!("{format:?}")));
            let silent = TcpStream::connect(address).unwrap();
            let (text, open) = (
                get("*/*"),
                get("application/openmetrics-text; version=1.0.0"),
            );
            server.stopper().stop();
            running.join().unwrap().unwrap();
            drop(silent);
            assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain"));
            assert!(text.ends_with("\r\n\r\nText"), "{text}");
            assert!(open.ends_with("\r\n\r\nOpenMetrics"), "{open}");
        });
    }

    #[test]
    fn listen_address_is_a_port_or_an_address_with_a_port() {
        let all = ListenAddr {
            address: None,
            port: 9,
        };
        assert_eq!(("9".parse(), ":9".parse()), (Ok(all), Ok(all)));
        let one: ListenAddr = "[::1]:9".parse().unwrap();
        assert_eq!(one.address, Some("::1".parse().unwrap()));
        let error = "node1".parse::<ListenAddr>().unwrap_err();
        assert!(error.contains("expected PORT"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn any_request_is_answered_without_a_panic(bytes: Vec<u8>) {
            let _ = read_request(&mut bytes.as_slice(), &mut Vec::new());
        }
    }
}
