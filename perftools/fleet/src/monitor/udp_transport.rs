//! Probes over UDP, from the interface of a device.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use base::error::Result;
use base::system::random;
use nix::poll::{PollFd, PollFlags, poll};
use session::probe::datagram_qp::nanos_since;
use session::probe::packet::{Kind, Packet};
use session::probe::udp::{Datagram, ProbeSocket};
use session::probe::{ReflectorAddress, ReflectorInfo};

use super::prober::{Arrival, ProbeTransport};

/// Probes over UDP. Each flow label is the source port of a socket.
#[derive(Debug)]
pub struct UdpTransport {
    sockets: Vec<ProbeSocket>,
    targets: Vec<Option<(SocketAddr, u64)>>,
    session: u64,
    begin: Instant,
    posted: Vec<Arrival>,
}

impl UdpTransport {
    /// Creates a transport from an address, or from all addresses of this host, with a number of
    /// flow labels.
    pub fn new(address: Option<IpAddr>, flows: u8) -> Result<Self> {
        let bind = || {
            address.map_or_else(
                || ProbeSocket::bind_any(0),
                |address| ProbeSocket::bind(address, 0),
            )
        };
        let sockets = (0..flows).map(|_| bind());
        Ok(Self {
            sockets: sockets.collect::<Result<_>>()?,
            targets: Vec::new(),
            session: random(),
            begin: Instant::now(),
            posted: Vec::new(),
        })
    }
}

impl ProbeTransport for UdpTransport {
    fn now(&self) -> u64 {
        nanos_since(self.begin)
    }

    fn set_target(&mut self, path: u32, reflector: &ReflectorInfo) {
        let path = path as usize;
        if let ReflectorAddress::Udp(address) = reflector.address {
            if self.targets.len() <= path {
                self.targets.resize(path + 1, None);
            }
            self.targets[path] = Some((address, reflector.key));
        }
    }

    fn is_ready(&mut self, _path: u32) -> bool {
        true
    }

    fn slots_free(&mut self) -> usize {
        usize::MAX
    }

    fn send(&mut self, path: u32, flow: u8, id: u64) -> Result<()> {
        let target = self.targets.get(path as usize).copied().flatten();
        let socket = self.sockets.get(usize::from(flow));
        if let (Some((address, key)), Some(socket)) = (target, socket) {
            let packet = Packet {
                kind: Kind::Probe,
                flow_label: flow.into(),
                key,
                session: self.session,
                id,
                nanos: 0,
                qkey: 0,
            };
            let at = socket.send(&packet, address, None);
            self.posted.push(Arrival::Posted { id, at });
        }
        Ok(())
    }

    fn receive(&mut self, wait: Duration, arrivals: &mut Vec<Arrival>) -> Result<()> {
        let mut fds: Vec<PollFd<'_>> = self
            .sockets
            .iter()
            .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
            .collect();
        // Rounds up, so that short waits do not become a busy loop. An interrupted wait is as good
        // as a short one.
        let millis = u16::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        let _ = poll(&mut fds, millis);
        arrivals.append(&mut self.posted);
        for socket in &self.sockets {
            socket.receive(
                |Datagram {
                     packet, received, ..
                 }| {
                    if packet.session == self.session {
                        arrivals.extend(arrival(&packet, received));
                    }
                },
            );
        }
        Ok(())
    }

    fn flow_label(&self, _path: u32, flow: u8) -> u32 {
        let socket = self.sockets.get(usize::from(flow));
        let address = socket.and_then(|socket| socket.local_addr().ok());
        address.map_or(0, |address| address.port().into())
    }
}

/// Returns the arrival of a packet of a reflector.
pub(super) fn arrival(packet: &Packet, at: u64) -> Option<Arrival> {
    match packet.kind {
        Kind::Probe => None,
        Kind::Answer => Some(Arrival::Answer {
            id: packet.id,
            received: at,
        }),
        Kind::Timing => Some(Arrival::Timing {
            id: packet.id,
            nanos: packet.nanos,
        }),
    }
}
