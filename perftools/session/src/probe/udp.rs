//! UDP sockets that report when the kernel received a datagram.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use base::error::{Error, Result};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use super::packet::LEN;

/// A socket for probes. It does not block.
#[derive(Debug)]
pub struct ProbeSocket {
    socket: UdpSocket,
    is_v6: bool,
}

/// A datagram that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// The bytes.
    pub bytes: [u8; LEN],
    /// The sender.
    pub from: SocketAddr,
    /// Time of its arrival, in nanoseconds.
    pub received: u64,
}

impl ProbeSocket {
    /// Binds a socket to a port of an address, or to a free one if the port is 0.
    ///
    /// # Errors
    /// Returns an error if the address is not one of this host, or if the port is used.
    pub fn bind(address: IpAddr, port: u16) -> Result<Self> {
        let failed =
            |e: io::Error| Error::system(format!("cannot use UDP on the address {address}"), &e);
        let socket = UdpSocket::bind((address, port)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true).map_err(|e| failed(e.into()))?;
        Ok(Self {
            socket,
            is_v6: address.is_ipv6(),
        })
    }

    /// Binds a socket to a free port of all addresses of this host.
    ///
    /// # Errors
    /// Returns an error if the system has no free port or memory.
    pub fn bind_any() -> Result<Self> {
        // A socket for IPv6 also sends to IPv4. Some hosts have no IPv6.
        Self::bind(Ipv6Addr::UNSPECIFIED.into(), 0)
            .or_else(|_| Self::bind(Ipv4Addr::UNSPECIFIED.into(), 0))
    }

    /// Returns the address of the socket.
    ///
    /// # Errors
    /// Returns an error if the kernel does not report it.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.socket
            .local_addr()
            .map_err(|e| Error::system("cannot get the address of the socket", &e))
    }

    /// Sends a packet and returns the time before that: the kernel can deliver it before the call
    /// returns. Losses are part of the measurement, so that errors are ignored.
    pub fn send(&self, bytes: &[u8], to: SocketAddr) -> u64 {
        let to = match to.ip() {
            IpAddr::V4(ip) if self.is_v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), to.port()),
            _ => to,
        };
        let before = wall_clock();
        let _ = self.socket.send_to(bytes, to);
        before
    }

    /// Returns the next datagram; `None` if there is none. Datagrams of other lengths are dropped.
    pub fn receive(&self) -> Option<Datagram> {
        loop {
            match self.receive_any() {
                Ok(Some(datagram)) => return Some(datagram),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // The error belongs to a datagram that was sent before, such as "connection
                // refused". A few of them are dropped.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => return None,
            }
        }
    }

    fn receive_any(&self) -> io::Result<Option<Datagram>> {
        let mut bytes = [0; LEN + 1];
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let mut space = nix::cmsg_space!(TimeSpec);
        let (len, from, received) = {
            let message = recvmsg::<SockaddrStorage>(
                self.socket.as_raw_fd(),
                &mut iov,
                Some(&mut space),
                MsgFlags::MSG_DONTWAIT,
            )?;
            let stamps = message.cmsgs()?.find_map(|control| match control {
                ControlMessageOwned::ScmTimestampns(time) => Some(nanos(time)),
                _ => None,
            });
            let from = message.address.as_ref().and_then(socket_addr);
            (message.bytes, from, stamps.unwrap_or_else(wall_clock))
        };
        let exact = bytes.first_chunk().filter(|_| len == LEN);
        Ok(exact.zip(from).map(|(bytes, from)| Datagram {
            bytes: *bytes,
            from,
            received,
        }))
    }
}

impl AsFd for ProbeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn socket_addr(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|a| SocketAddr::V4((*a).into()));
    v4.or_else(|| {
        address
            .as_sockaddr_in6()
            .map(|a| SocketAddr::V6((*a).into()))
    })
}

fn nanos(time: TimeSpec) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec()).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(rest)
}

/// Returns the time of the clock that the kernel uses for arrivals, in nanoseconds.
pub(crate) fn wall_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn arrivals_have_the_time_of_the_kernel() {
        let [a, b] = [0; 2].map(|_| ProbeSocket::bind("127.0.0.1".parse().unwrap(), 0).unwrap());
        let to = b.local_addr().unwrap();
        a.send(&[7; LEN - 1], to);
        let before = wall_clock();
        let sent = a.send(&[9; LEN], to);
        // The datagram waits in the socket, which does not change the time of its arrival.
        std::thread::sleep(Duration::from_millis(50));
        let deadline = Instant::now() + Duration::from_secs(5);
        let datagram = loop {
            if let Some(datagram) = b.receive() {
                break datagram;
            }
            assert!(Instant::now() < deadline);
        };
        assert_eq!(
            (datagram.bytes, datagram.from),
            ([9; LEN], a.local_addr().unwrap())
        );
        assert!(sent >= before && datagram.received >= sent);
        assert!(wall_clock() - datagram.received >= 40_000_000);
        assert!(b.receive().is_none());
    }
}
