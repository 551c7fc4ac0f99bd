//! The kernel's counts of a TCP connection, over `NETLINK_SOCK_DIAG`.
//!
//! The connection may belong to this process, or to a driver: Soft-iWARP has its TCP in the kernel.

use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::Emitable;
use rustix::net::netlink::SOCK_DIAG;

use crate::netlink::{Attributes, Netlink};

/// `SOCK_DIAG_BY_FAMILY`: queries sockets of one family.
const BY_FAMILY: u16 = 20;
/// `INET_DIAG_INFO`: the attribute with a `struct tcp_info`.
const TCP_INFO: u16 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// Length in bytes of `struct inet_diag_req_v2`.
const REQUEST_LEN: usize = 56;
/// Length in bytes of `struct inet_diag_msg`, which precedes the attributes of a reply.
const REPLY_LEN: usize = 72;
/// Offset of `tcpi_total_retrans` in a `struct tcp_info`, whose length depends on the kernel.
const TOTAL_RETRANS: usize = 100;

/// The ends of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConnection {
    /// Address of this end.
    pub local: SocketAddr,
    /// Address of the peer.
    pub peer: SocketAddr,
}

/// Returns the number of segments that this end has retransmitted on all of `connections`; `None`
/// if there are none, or the kernel does not report one of them.
pub fn retransmitted(connections: &[TcpConnection]) -> Option<u64> {
    if connections.is_empty() {
        return None;
    }
    let mut netlink = Netlink::open(Some(SOCK_DIAG)).ok()?;
    let counts = connections.iter().map(|connection| {
        let reply = netlink.get(BY_FAMILY, &Request::new(connection)).ok()?;
        reply.payloads().find_map(total_retransmitted)
    });
    counts.map(|count| count.map(u64::from)).sum()
}

/// Returns the increase of a count that may be unknown.
pub fn increase(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

/// A `struct inet_diag_req_v2`.
struct Request([u8; REQUEST_LEN]);

impl Request {
    /// Creates the request for the `struct tcp_info` of one connection.
    fn new(connection: &TcpConnection) -> Self {
        let (local, peer) = (connection.local, connection.peer);
        let family = match peer.ip().to_canonical() {
            IpAddr::V4(_) => AF_INET,
            IpAddr::V6(_) => AF_INET6,
        };
        let interface = match peer {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        let mut bytes = [0; REQUEST_LEN];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &[family, IPPROTO_TCP, 1 << (TCP_INFO - 1)]);
        // Sockets in any state.
        put(4, &u32::MAX.to_ne_bytes());
        put(8, &local.port().to_be_bytes());
        put(10, &peer.port().to_be_bytes());
        for (at, address) in [(12, local.ip()), (28, peer.ip())] {
            match address.to_canonical() {
                IpAddr::V4(address) => put(at, &address.octets()),
                IpAddr::V6(address) => put(at, &address.octets()),
            }
        }
        put(44, &interface.to_ne_bytes());
        // Any socket with these addresses.
        put(48, &[0xff; 8]);
        Self(bytes)
    }
}

impl Emitable for Request {
    fn buffer_len(&self) -> usize {
        REQUEST_LEN
    }

    fn emit(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.0);
    }
}

/// Returns the count in the kernel's description of a socket.
pub fn total_retransmitted(bytes: &[u8]) -> Option<u32> {
    let info = Attributes(bytes.get(REPLY_LEN..)?).all(TCP_INFO).next()?;
    let field = info.get(TOTAL_RETRANS..TOTAL_RETRANS + 4)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn ends(stream: &TcpStream) -> TcpConnection {
        TcpConnection {
            local: stream.local_addr().unwrap(),
            peer: stream.peer_addr().unwrap(),
        }
    }

    #[test]
    fn each_connection_has_a_count_of_its_own() {
        // A socket of IPv6 with the IPv4 address of a client is one of IPv4 for the kernel.
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            let host = if address == "[::1]:0" {
                "::1"
            } else {
                "127.0.0.1"
            };
            let client = TcpStream::connect((host, port)).unwrap();
            let (server, _) = listener.accept().unwrap();
            let connections = [ends(&client), ends(&server)];
            assert_eq!(retransmitted(&connections), Some(0), "{connections:?}");
        }
    }

    #[test]
    fn unknown_counts_are_not_zero() {
        let address = "127.0.0.1:1".parse().unwrap();
        let unknown = TcpConnection {
            local: address,
            peer: address,
        };
        assert_eq!(retransmitted(&[unknown]), None);
        assert_eq!(retransmitted(&[]), None);
        assert_eq!(total_retransmitted(&[0; 72]), None);
    }
}
