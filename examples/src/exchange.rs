//! What the `ibv_*_pingpong` programs tell each other over TCP before they use RDMA.
//!
//! For each queue pair 52 bytes, `LID:QPN:PSN:GID` in hexadecimal and a NUL. The client sends
//! first; the server connects its queue pairs before it replies in kind; the client connects its
//! own and says `done`. Sizes and counts are not exchanged: both sides must be given the same.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use ibverbs::{Endpoint, Gid, Lid, Psn, Qpn, RemoteMemory};

use crate::Result;

/// The length of an endpoint on the wire: digits, colons, NUL.
const LENGTH: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;
const DONE: &[u8] = b"done\0";
/// How long the peer may be silent.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The way to the peer: a client knows the server's name, a server waits for a client.
#[derive(Clone, Copy, Debug)]
pub enum Role<'a> {
    /// Waits at this TCP port.
    Server(u16),
    /// Connects to this host and TCP port.
    Client(&'a str, u16),
}

/// Tells the peer `mine`, learns as many endpoints of it, and calls `connect` with them at the
/// right moment. Returns the open connection.
///
/// # Errors
/// When there is no peer, or it does not speak this language; and what `connect` returns.
pub fn exchange(
    role: Role<'_>,
    mine: &[Endpoint],
    connect: impl FnOnce(&[Endpoint]) -> Result<()>,
) -> Result<TcpStream> {
    match role {
        Role::Client(host, port) => {
            let stream = TcpStream::connect((host, port))
                .map_err(|error| format!("{host} port {port}: {error}"))?;
            as_client(stream, mine, connect)
        }
        Role::Server(port) => as_server(accept(&listen(port)?)?, mine, connect),
    }
}

/// Listens at a TCP port of every address, IPv6 and IPv4.
///
/// # Errors
/// When the port is in use.
pub fn listen(port: u16) -> Result<TcpListener> {
    let any: [SocketAddr; 2] = [
        (Ipv6Addr::UNSPECIFIED, port).into(),
        (Ipv4Addr::UNSPECIFIED, port).into(),
    ];
    TcpListener::bind(&any[..])
        .map_err(|error| format!("cannot listen at TCP port {port}: {error}").into())
}

/// The next client.
///
/// # Errors
/// When the listener is broken.
pub fn accept(listener: &TcpListener) -> Result<TcpStream> {
    Ok(listener.accept()?.0)
}

/// The client's part on a connection that is there.
///
/// # Errors
/// As [`exchange`].
pub fn as_client(
    mut stream: TcpStream,
    mine: &[Endpoint],
    connect: impl FnOnce(&[Endpoint]) -> Result<()>,
) -> Result<TcpStream> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(&to_wire(mine))?;
    connect(&receive(&mut stream, mine.len())?)?;
    stream.write_all(DONE)?;
    Ok(stream)
}

/// The server's part on a connection that is there.
///
/// # Errors
/// As [`exchange`].
pub fn as_server(
    mut stream: TcpStream,
    mine: &[Endpoint],
    connect: impl FnOnce(&[Endpoint]) -> Result<()>,
) -> Result<TcpStream> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    connect(&receive(&mut stream, mine.len())?)?;
    stream.write_all(&to_wire(mine))?;
    let mut done = [0; DONE.len()];
    read(&mut stream, &mut done)?;
    if done == DONE {
        Ok(stream)
    } else {
        Err("the peer did not say that it is done".into())
    }
}

fn receive(stream: &mut TcpStream, count: usize) -> Result<Vec<Endpoint>> {
    let mut bytes = vec![0; count * LENGTH];
    read(stream, &mut bytes)?;
    bytes.chunks(LENGTH).map(from_wire).collect()
}

fn read(stream: &mut TcpStream, bytes: &mut [u8]) -> Result<()> {
    stream
        .read_exact(bytes)
        .map_err(|error| format!("the peer does not say where its queue pairs are: {error}").into())
}

/// Tells the peer of memory that it may use.
///
/// # Errors
/// When the peer is gone.
pub fn send_memory(stream: &mut TcpStream, memory: RemoteMemory) -> Result<()> {
    let RemoteMemory { addr, len, rkey } = memory;
    let mut bytes = [addr.to_be_bytes(), len.to_be_bytes()].concat();
    bytes.extend(rkey.to_be_bytes());
    Ok(stream.write_all(&bytes)?)
}

/// Hears of memory of the peer.
///
/// # Errors
/// When the peer is gone.
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

/// One after the other, in one piece: some peers read each with a single call.
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
    parse(text.trim_end_matches('\0'))
        .ok_or_else(|| format!("the peer speaks another language: it said {text:?}").into())
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
    fn the_wire_is_that_of_the_c_programs() {
        let wire = to_wire(&[END]);
        assert_eq!(
            wire,
            b"001f:000012:abcdef:00000000000000000000ffff0a630001\0"
        );
        assert_eq!(wire.len(), LENGTH);
        assert_eq!(from_wire(&wire).expect("its own text"), END);
    }

    #[test]
    fn what_is_not_an_endpoint_is_refused_with_what_was_said() {
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
    fn both_sides_learn_of_each_other_and_the_server_connects_first() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let address = listener.local_addr().expect("address");
        let other = Endpoint { qpn: Qpn(7), ..END };
        let (order, connected) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let server_order = order.clone();
            scope.spawn(move || {
                let connect = |ends: &[Endpoint]| Ok(server_order.send(("server", ends[0].qpn))?);
                as_server(accept(&listener).expect("client"), &[END], connect).expect("exchange");
            });
            let connect = |ends: &[Endpoint]| Ok(order.send(("client", ends[0].qpn))?);
            as_client(
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
