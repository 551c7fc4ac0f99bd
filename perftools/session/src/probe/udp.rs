//! UDP sockets that report when the kernel received a datagram.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use base::error::{Error, Result};
use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Socket, Type};

use super::packet::{PROBE_LEN, Packet};

/// Maximum number of datagrams that are received at a time. More of them may arrive without end,
/// and a reflector checks between them whether it must end.
const MAX_RECEIVED: usize = 64;

/// A socket for probes. It does not block.
#[derive(Debug)]
pub struct ProbeSocket {
    socket: UdpSocket,
    is_v6: bool,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// The packet.
    pub packet: Packet,
    /// The sender.
    pub from: SocketAddr,
    /// The address of this host that the sender used.
    pub to: Option<IpAddr>,
    /// Time of its arrival, in nanoseconds.
    pub received: u64,
}

impl ProbeSocket {
    /// Binds a socket to a port of an address, or to a free one if the port is 0.
    pub fn bind(address: IpAddr, port: u16) -> Result<Self> {
        let failed =
            |e: io::Error| Error::system(format!("cannot use UDP on the address {address}"), &e);
        let bind = || {
            let address = SocketAddr::new(address, port);
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
            // Tests over UDP have sockets with both options at the same port. They are connected,
            // so the kernel gives them the datagrams of their peers. With one option at its bind
            // and the other one later, this socket shares the port with them, before and after its
            // bind, but not with the socket of another reflector.
            socket.set_reuse_address(port != 0)?;
            socket.bind(&address.into())?;
            socket.set_reuse_address(false)?;
            socket.set_reuse_port(port != 0)?;
            Ok(UdpSocket::from(socket))
        };
        let socket: UdpSocket = bind().map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true).map_err(|e| failed(e.into()))?;
        let reports_address = if address.is_ipv6() {
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)
        } else {
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)
        };
        reports_address.map_err(|e| failed(e.into()))?;
        Ok(Self {
            socket,
            is_v6: address.is_ipv6(),
        })
    }

    /// Binds a socket to a port of all addresses of this host, or to a free one if the port is 0.
    pub fn bind_any(port: u16) -> Result<Self> {
        // A socket for IPv6 also sends to IPv4. Some hosts have no IPv6.
        Self::bind(Ipv6Addr::UNSPECIFIED.into(), port)
            .or_else(|_| Self::bind(Ipv4Addr::UNSPECIFIED.into(), port))
    }

    /// Returns the address of the socket.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.socket
            .local_addr()
            .map_err(|e| Error::system("cannot get the address of the socket", &e))
    }

    /// Sends a packet and returns the time before that: the kernel can deliver it before the call
    /// returns. Losses are part of the measurement, so that errors are ignored. `from` is the
    /// source address; `None`: chosen by the kernel.
    pub fn send(&self, packet: &Packet, to: SocketAddr, from: Option<IpAddr>) -> u64 {
        let in_family = |ip: IpAddr| match ip {
            IpAddr::V4(ip) if self.is_v6 => ip.to_ipv6_mapped().into(),
            _ => ip,
        };
        let to = SockaddrStorage::from(SocketAddr::new(in_family(to.ip()), to.port()));
        let bytes = packet.encode();
        let iov = [IoSlice::new(&bytes)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let before = wall_clock();
        let send = |control: &[ControlMessage<'_>]| {
            sendmsg(self.socket.as_raw_fd(), &iov, control, flags, Some(&to))
        };
        let _ = match from.map(in_family) {
            None => send(&[]),
            Some(IpAddr::V4(ip)) => send(&[ControlMessage::Ipv4PacketInfo(&in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: in_addr {
                    s_addr: u32::from_ne_bytes(ip.octets()),
                },
                ipi_addr: in_addr { s_addr: 0 },
            })]),
            Some(IpAddr::V6(ip)) => send(&[ControlMessage::Ipv6PacketInfo(&in6_pktinfo {
                ipi6_ifindex: 0,
                ipi6_addr: in6_addr {
                    s6_addr: ip.octets(),
                },
            })]),
        };
        before
    }

    /// Passes the packets that have arrived to `handle`, up to a limit. Other datagrams are
    /// dropped.
    pub fn receive(&self, mut handle: impl FnMut(Datagram)) {
        for _ in 0..MAX_RECEIVED {
            match self.receive_any() {
                Ok(datagram) => datagram.into_iter().for_each(&mut handle),
                // The error belongs to a datagram that was sent before, such as "connection
                // refused". A few of them are dropped.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => return,
            }
        }
    }

    fn receive_any(&self) -> io::Result<Option<Datagram>> {
        let mut bytes = [0; PROBE_LEN + 1];
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let mut space = nix::cmsg_space!(TimeSpec, in6_pktinfo, in_pktinfo);
        let (len, from, to, received) = {
            let message = recvmsg::<SockaddrStorage>(
                self.socket.as_raw_fd(),
                &mut iov,
                Some(&mut space),
                MsgFlags::MSG_DONTWAIT,
            )?;
            let (mut received, mut to) = (None, None);
            for control in message.cmsgs()? {
                match control {
                    ControlMessageOwned::ScmTimestampns(time) => received = Some(nanos(time)),
                    ControlMessageOwned::Ipv4PacketInfo(info) => {
                        let octets = info.ipi_addr.s_addr.to_ne_bytes();
                        to = Some(IpAddr::from(octets));
                    }
                    ControlMessageOwned::Ipv6PacketInfo(info) => {
                        to = Some(IpAddr::from(info.ipi6_addr.s6_addr));
                    }
                    _ => {}
                }
            }
            let from = message.address.as_ref().and_then(socket_addr);
            let received = received.unwrap_or_else(wall_clock);
            (message.bytes, from, to, received)
        };
        let packet = bytes.get(..len).and_then(Packet::decode);
        Ok(packet.zip(from).map(|(packet, from)| Datagram {
            packet,
            from,
            to,
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
    use crate::probe::packet::Kind;
    use std::time::{Duration, Instant};

    #[test]
    fn arrivals_have_the_time_of_the_kernel() {
        let [a, b] = [0; 2].map(|_| ProbeSocket::bind("127.0.0.1".parse().unwrap(), 0).unwrap());
        let to = b.local_addr().unwrap();
        let packet = Packet {
            kind: Kind::Probe,
            flow_label: 1,
            key: 2,
            session: 3,
            id: 4,
            nanos: 5,
            qkey: 0,
        };
        a.socket.send_to(&[7; PROBE_LEN], to).unwrap();
        let before = wall_clock();
        let sent = a.send(&packet, to, None);
        // The datagram waits in the socket, which does not change the time of its arrival.
        std::thread::sleep(Duration::from_millis(50));
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut arrived = Vec::new();
        while arrived.is_empty() {
            assert!(Instant::now() < deadline);
            b.receive(|datagram| arrived.push(datagram));
        }
        let datagram = arrived.remove(0);
        assert!(arrived.is_empty());
        let ends = (datagram.from, datagram.to);
        assert_eq!(ends, (a.local_addr().unwrap(), Some(to.ip())));
        assert_eq!(datagram.packet, packet);
        assert!(sent >= before && datagram.received >= sent);
        assert!(wall_clock() - datagram.received >= 40_000_000);
    }

    #[test]
    fn a_flood_is_received_in_parts() {
        let [a, b] = [0; 2].map(|_| ProbeSocket::bind("127.0.0.1".parse().unwrap(), 0).unwrap());
        let to = b.local_addr().unwrap();
        let probe = Packet {
            kind: Kind::Probe,
            flow_label: 0,
            key: 0,
            session: 0,
            id: 0,
            nanos: 0,
            qkey: 0,
        };
        for _ in 0..2 * MAX_RECEIVED {
            a.send(&probe, to, None);
        }
        let receive = || {
            let mut count = 0;
            b.receive(|_| count += 1);
            count
        };
        assert_eq!(
            [receive(), receive(), receive()],
            [MAX_RECEIVED, MAX_RECEIVED, 0]
        );
    }

    #[test]
    fn answers_come_from_the_address_that_was_probed() {
        let server = ProbeSocket::bind_any(0).unwrap();
        let client = ProbeSocket::bind("127.0.0.1".parse().unwrap(), 0).unwrap();
        let probe = Packet {
            kind: Kind::Probe,
            flow_label: 0,
            key: 0,
            session: 0,
            id: 0,
            nanos: 0,
            qkey: 0,
        };
        let to: SocketAddr = (
            Ipv4Addr::new(127, 1, 2, 3),
            server.local_addr().unwrap().port(),
        )
            .into();
        client.send(&probe, to, None);
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut source = None;
        while source.is_none() && Instant::now() < deadline {
            server.receive(|d| {
                server.send(&d.packet, d.from, d.to);
            });
            client.receive(|d| source = Some(d.from));
        }
        assert_eq!(source, Some(to));
    }
}
