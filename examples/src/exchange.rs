//! Exchange of queue pair addresses over TCP, in the format of the `ibv_*_pingpong` programs.
//!
//! Each queue pair takes 52 bytes: `LID:QPN:PSN:GID` in hexadecimal and a NUL. The client sends its
//! addresses first. The server connects its queue pairs, then sends its own addresses. The client
//! connects its queue pairs and sends `done`. Message sizes and counts are not exchanged, so both
//! sides must be started with the same options.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use ibverbs::{Endpoint, Gid, Lid, Psn, Qpn, RemoteMemory};

use crate::Result;

/// Length of an endpoint on the wire: digits, colons and a NUL.
const WIRE_LEN: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;
const DONE: &[u8] = b"done\0";
/// Timeout of each read from the peer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The side of the exchange.
#[derive(Clone, Copy, Debug)]
pub enum Role<'a> {
    /// Listens on this TCP port.
    Server(u16),
    /// Connects to this host and TCP port.
    Client(&'a str, u16),
}

/// Sends the local endpoints, receives as many remote ones, and calls `connect` with them.
///
/// The server calls `connect` before it sends its own endpoints, so that its queue pairs are ready
/// when the client uses them. Returns the TCP connection.
///
/// # Errors
/// The TCP connection fails, the peer sends something other than endpoints, or `connect` fails.
pub fn exchange(
    role: Role<'_>,
    local: &[Endpoint],
    connect: impl FnOnce(&[Endpoint]) -> Result<()>,
) -> Result<TcpStream> {
    match role {
        Role::Client(host, port) => {
            let stream = TcpStream::connect((host, port))
                .map_err(|error| format!("connect to {host}, TCP port {port}: {error}"))?;
            exchange_as_client(stream, local, connect)
        }
        Role::Server(port) => exchange_as_server(accept(&listen(port)?)?, local, connect),
    }
}

/// Listens on a TCP port of all local IPv6 and IPv4 addresses.
///
/// # Errors
/// The port is in use or not permitted.
pub fn listen(port: u16) -> Result<TcpListener> {
    let any: [SocketAddr; 2] = [
        (Ipv6Addr::UNSPECIFIED, port).into(),
        (Ipv4Addr::UNSPECIFIED, port).into(),
    ];
    TcpListener::bind(&any[..])
        .map_err(|error| format!("listen on TCP port {port}: {error}").into())
}

/// Accepts the next client.
///
/// # Errors
/// `accept(2)` fails.
pub fn accept(listener: &TcpListener) -> Result<TcpStream> {
    Ok(listener.accept()?.0)
}

/// Runs the client side of [`exchange`] on an open TCP connection.
///
/// # Errors
/// The same as for [`exchange`].
pub fn exchange_as_client(
    mut stream: TcpStream,
    local: &[Endpoint],
    connect: impl FnOnce(&[Endpoint]) -> Result<()>,
) -> Result<TcpStream> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(&to_wire(local))?;
    connect(&receive(&mut stream, local.len())?)?;
    stream.write_all(DONE)?;
    Ok(stream)
}

/// Runs the server side of [`exchange`] on an open TCP connection.
///
/// # Errors
/// The same as for [`exchange`].
pub fn exchange_as_server(
    mut stream: TcpStream,
    local: &[Endpoint],
    connect: impl FnOnce(&[Endpoint]) -> Result<()>,
) -> Result<TcpStream> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    connect(&receive(&mut stream, local.len())?)?;
    stream.write_all(&to_wire(local))?;
    let mut done = [0; DONE.len()];
    read(&mut stream, &mut done)?;
    if done == DONE {
        Ok(stream)
    } else {
        Err("exchange endpoints: the peer did not confirm with `done`".into())
    }
}

fn receive(stream: &mut TcpStream, count: usize) -> Result<Vec<Endpoint>> {
    let mut bytes = vec![0; count * WIRE_LEN];
    read(stream, &mut bytes)?;
    bytes.chunks(WIRE_LEN).map(from_wire).collect()
}

fn read(stream: &mut TcpStream, bytes: &mut [u8]) -> Result<()> {
    stream
        .read_exact(bytes)
        .map_err(|error| format!("receive from the peer: {error}").into())
}

/// Sends the address and key of memory that the peer may access.
///
/// # Errors
/// The TCP connection fails.
pub fn send_memory(stream: &mut TcpStream, memory: RemoteMemory) -> Result<()> {
    let RemoteMemory { addr, len, rkey } = memory;
    let mut bytes = [addr.to_be_bytes(), len.to_be_bytes()].concat();
    bytes.extend(rkey.to_be_bytes());
    Ok(stream.write_all(&bytes)?)
}

/// Receives the address and key of memory of the peer.
///
/// # Errors
/// The TCP connection fails.
pub fn receive_memory(stream: &mut TcpStream) -> Result<RemoteMemory> {
    let (mut addr, mut len, mut rkey) = ([0; 8], [0; 8], [0; 4]);
    for field in [&mut addr[..], &mut len, &mut rkey] {
        read(stream, field)?;
    }
    Ok(RemoteMemory {
        addr: u64::from_be_bytes(addr),
        len: u64::from_be_bytes(len),
        rkey: u32::from_be_bytes(rkey),
    })
}

/// Encodes all endpoints for one write: some peers expect an endpoint from a single read.
fn to_wire(endpoints: &[Endpoint]) -> Vec<u8> {
    let text = |end: &Endpoint| {
        let gid = u128::from_be_bytes(end.gid.0);
        format!(
            "{:04x}:{:06x}:{:06x}:{gid:032x}\0",
            end.lid.0, end.qpn.0, end.psn.0
        )
    };
    endpoints.iter().map(text).collect::<String>().into_bytes()
}

fn from_wire(bytes: &[u8]) -> Result<Endpoint> {
    let text = String::from_utf8_lossy(bytes);
    parse(text.trim_end_matches('\0')).ok_or_else(|| {
        format!("parse the endpoint of the peer: expected LID:QPN:PSN:GID, received {text:?}")
            .into()
    })
}

fn parse(text: &str) -> Option<Endpoint> {
    let mut fields = text.split(':');
    let mut number = || u32::from_str_radix(fields.next()?, 16).ok();
    let (lid, qpn, psn) = (number()?, number()?, number()?);
    let gid = u128::from_str_radix(fields.next()?, 16).ok()?;
    let lid = Lid(u16::try_from(lid).ok()?);
    fields.next().is_none().then_some(Endpoint {
        qpn: Qpn(qpn),
        psn: Psn(psn),
        lid,
        gid: Gid(gid.to_be_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Endpoint = Endpoint {
        qpn: Qpn(0x12),
        psn: Psn(0x00ab_cdef),
        lid: Lid(0x1f),
        gid: Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 99, 0, 1]),
    };

    #[test]
    fn wire_format_matches_ibv_pingpong() {
        let wire = to_wire(&[END]);
        assert_eq!(
            wire,
            b"001f:000012:abcdef:00000000000000000000ffff0a630001\0"
        );
        assert_eq!(wire.len(), WIRE_LEN);
        assert_eq!(from_wire(&wire).expect("round trip"), END);
    }

    #[test]
    fn invalid_endpoint_is_rejected_with_its_text() {
        for text in [
            "GET / HTTP/1.1",
            "0000:000001:000002",
            "10000:0:0:0",
            "0:0:0:0:0",
            "",
        ] {
            let error = from_wire(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn exchange_connects_the_server_before_the_client() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let address = listener.local_addr().expect("address");
        let other = Endpoint { qpn: Qpn(7), ..END };
        let (order, connected) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let server_order = order.clone();
            scope.spawn(move || {
                let connect = |ends: &[Endpoint]| Ok(server_order.send(("server", ends[0].qpn))?);
                exchange_as_server(accept(&listener).expect("client"), &[END], connect)
                    .expect("exchange");
            });
            let connect = |ends: &[Endpoint]| Ok(order.send(("client", ends[0].qpn))?);
            exchange_as_client(
                TcpStream::connect(address).expect("connect"),
                &[other],
                connect,
            )
            .expect("exchange");
        });
        assert_eq!(connected.recv().expect("first"), ("server", Qpn(7)));
        assert_eq!(connected.recv().expect("second"), ("client", Qpn(0x12)));
    }
}
