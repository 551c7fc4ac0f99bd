//! Detection of a listener that its driver has closed. Soft-iWARP listens on a TCP socket of the
//! kernel, and closes it without an event if a peer ends its TCP connection early
//! (`docs/drivers.md`, fault 61).

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use host::tcp_table;

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The TCP socket of a listener.
#[derive(Debug)]
pub(super) struct ListeningSocket {
    address: SocketAddr,
    next_check: Instant,
}

impl ListeningSocket {
    /// Returns the socket of the listener on `address`. `None` if the kernel has none, because the
    /// adapter has its own implementation of TCP, or is not an iWARP adapter.
    pub(super) fn of(address: SocketAddr) -> Option<Self> {
        let is_found = is_listening(&read_table(address), address);
        is_found.then(|| Self {
            address,
            next_check: Instant::now() + CHECK_INTERVAL,
        })
    }

    /// Returns `true` if the kernel no longer has the socket. Checks it once a second.
    pub(super) fn is_closed(&mut self) -> bool {
        if Instant::now() < self.next_check {
            return false;
        }
        self.next_check = Instant::now() + CHECK_INTERVAL;
        let table = read_table(self.address);
        // A table that cannot be read says nothing.
        !table.is_empty() && !is_listening(&table, self.address)
    }
}

fn read_table(address: SocketAddr) -> String {
    let path = match address {
        SocketAddr::V4(_) => "/proc/net/tcp",
        SocketAddr::V6(_) => "/proc/net/tcp6",
    };
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns `true` if a table has a listening socket with exactly this address.
fn is_listening(table: &str, address: SocketAddr) -> bool {
    let wanted = local_address(address);
    tcp_table::listening(table).any(|(address, _)| address == wanted)
}

/// Returns an address as the tables have it: words of 32 bits in the order of the host's bytes.
fn local_address(address: SocketAddr) -> String {
    let bytes = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let mut text = String::new();
    for word in bytes.chunks_exact(4) {
        let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        let _ = write!(text, "{word:08X}");
    }
    let _ = write!(text, ":{:04X}", address.port());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn sockets_of_this_process_are_found_until_they_are_closed() {
        for ip in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind((ip, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let mut socket = ListeningSocket::of(address).unwrap();
            socket.next_check = Instant::now();
            assert!(!socket.is_closed());
            drop(listener);
            // It is not checked again for a while.
            assert!(!socket.is_closed());
            socket.next_check = Instant::now();
            assert!(socket.is_closed());
            assert!(ListeningSocket::of(address).is_none());
        }
    }

    #[test]
    fn only_a_listening_socket_with_the_same_address_counts() {
        let table = |address: &str, state: &str| {
            format!("sl local\n 0: {address} 00000000:0000 {state} 00000000:00000000 00:0\n")
        };
        let address: SocketAddr = "10.98.0.1:7174".parse().unwrap();
        let ip = format!("{:08X}", u32::from_ne_bytes([10, 98, 0, 1]));
        assert!(is_listening(&table(&format!("{ip}:1C06"), "0A"), address));
        assert!(!is_listening(&table(&format!("{ip}:1C06"), "01"), address));
        assert!(!is_listening(&table(&format!("{ip}:1C07"), "0A"), address));
        assert!(!is_listening(&table("00000000:1C06", "0A"), address));
        assert!(!is_listening("", address));
    }
}
