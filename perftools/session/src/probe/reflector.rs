//! The reflectors of a server: one for each RDMA port, or one for the host if it has none.
//!
//! They start with the first request of a prober and run as long as the server. A reflector answers
//! only packets that contain its key, which only clients get that the server admits. An answer is
//! as long as its probe, so reflectors do not amplify traffic.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::system::random;
use ibverbs::wr::{Destination, HeldAddress};
use ibverbs::{AhAttr, GRH_LEN, Gid, GlobalRoute, Lid, Qkey, UdSource};
use measure::transport::LinkType;
use measure::transport::device::{self, OpenedDevice};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::datagram_qp::{DatagramQp, Event};
use super::packet::{Kind, Packet};
use super::udp::ProbeSocket;
use super::{ReflectorAddress, ReflectorInfo};

/// Interval in milliseconds at which a reflector checks whether the server stops.
const CHECK_MILLIS: u16 = 200;
/// Time for which the list of the devices is not read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of addresses of probers that a reflector keeps.
const MAX_ADDRESSES: usize = 16_384;
/// Stack of a reflector.
const STACK: usize = 256 << 10;

/// The reflectors of a server.
#[derive(Debug)]
pub struct Reflectors {
    /// Preferred UDP port.
    udp_port: u16,
    running: Mutex<Running>,
    stop: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Running {
    reflectors: Vec<Reflector>,
    refreshed: Option<Instant>,
}

#[derive(Debug)]
struct Reflector {
    info: ReflectorInfo,
    /// The port is ACTIVE.
    is_active: bool,
    thread: JoinHandle<()>,
}

impl Reflectors {
    /// Creates the reflectors of a server. Those over UDP use this port, or a free one if another
    /// program uses it.
    pub fn new(udp_port: u16) -> Self {
        Self {
            udp_port,
            running: Mutex::default(),
            stop: Arc::default(),
        }
    }

    /// Returns the reflectors of all active ports, and starts those that do not run. `local` is the
    /// address of this host that the prober used.
    ///
    /// # Errors
    /// Returns an error if none can be started.
    pub fn describe(&self, local: IpAddr) -> Result<Vec<ReflectorInfo>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.reflectors.retain(|r| !r.thread.is_finished());
        let is_fresh = running
            .refreshed
            .is_some_and(|at| at.elapsed() < REFRESH_INTERVAL);
        if !is_fresh {
            self.refresh(&mut running)?;
            running.refreshed = Some(Instant::now());
        }
        let infos = running.reflectors.iter().filter(|r| r.is_active);
        let infos: Vec<ReflectorInfo> = infos.map(|r| r.info.clone()).collect();
        let is_of_port = |info: &&ReflectorInfo| !info.name.starts_with(HOST);
        if infos.iter().any(|info| is_of_port(&info)) {
            return Ok(infos.iter().filter(is_of_port).cloned().collect());
        }
        let name = format!("{HOST}/{local}");
        if let Some(info) = infos.into_iter().find(|info| info.name == name) {
            return Ok(vec![info]);
        }
        let reflector = self.start_udp(name, local)?;
        let info = reflector.info.clone();
        running.reflectors.push(reflector);
        Ok(vec![info])
    }

    /// Starts the reflectors of new ports, and updates those that run.
    fn refresh(&self, running: &mut Running) -> Result<()> {
        let ports = device::open_active_ports();
        for reflector in &mut running.reflectors {
            reflector.is_active = reflector.info.name.starts_with(HOST);
        }
        for port in ports {
            let name = port.name();
            let found = running.reflectors.iter_mut().find(|r| r.info.name == name);
            match found {
                Some(reflector) => {
                    reflector.is_active = true;
                    if let ReflectorAddress::QueuePair { addresses, lid, .. } =
                        &mut reflector.info.address
                    {
                        addresses.clone_from(&port.addresses);
                        *lid = port.port.lid.0;
                    }
                }
                None if port.link == LinkType::Iwarp => {
                    if let Some(ip) = preferred_ip(&port) {
                        let reflector = self.start_udp(name, ip)?;
                        running.reflectors.push(reflector);
                    }
                }
                None => running.reflectors.push(self.start_qp(name, port)?),
            }
        }
        Ok(())
    }

    fn start_udp(&self, name: String, ip: IpAddr) -> Result<Reflector> {
        let socket = ProbeSocket::bind(ip, self.udp_port).or_else(|_| ProbeSocket::bind(ip, 0))?;
        let key = random();
        let info = ReflectorInfo {
            name,
            key,
            address: ReflectorAddress::Udp(socket.local_addr()?),
        };
        let stop = Arc::clone(&self.stop);
        let thread = spawn(move || reflect_udp(&socket, key, &stop))?;
        Ok(Reflector {
            info,
            is_active: true,
            thread,
        })
    }

    fn start_qp(&self, name: String, port: OpenedDevice) -> Result<Reflector> {
        let key = random();
        // Keys with the top bit set are privileged.
        let qkey = u32::try_from(random() >> 33).unwrap_or(1);
        let mut qp = DatagramQp::new(&port, Qkey(qkey)).map_err(|e| e.context(&name))?;
        let info = ReflectorInfo {
            name,
            key,
            address: ReflectorAddress::QueuePair {
                link: port.link,
                addresses: port.addresses.clone(),
                lid: port.port.lid.0,
                qpn: qp.qp().qp_num().0,
                qkey,
            },
        };
        let stop = Arc::clone(&self.stop);
        let thread = spawn(move || {
            let mut reflector = QpReflector {
                addresses: HashMap::new(),
                arrived: HashMap::new(),
                qp,
                port,
                key,
            };
            // The device failed. The next request starts the reflector again.
            let _ = reflector.run(&stop);
        })?;
        Ok(Reflector {
            info,
            is_active: true,
            thread,
        })
    }
}

impl Drop for Reflectors {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let running = std::mem::take(
            &mut self
                .running
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .reflectors,
        );
        for reflector in running {
            let _ = reflector.thread.join();
        }
    }
}

/// The name of the reflector of a host without RDMA.
pub const HOST: &str = "host";

/// The queue key of all probers.
pub const PROBER_QKEY: Qkey = Qkey(0x1111_1111);

fn spawn(run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("reflector".into())
        .stack_size(STACK)
        .spawn(run)
        .map_err(|e| Error::system("cannot create the thread of a reflector", &e))
}

/// Returns the address of an interface that probes use: not a link-local one, and IPv4 before IPv6.
pub fn preferred_ip(port: &OpenedDevice) -> Option<IpAddr> {
    let is_link_local = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let all = port.addresses.iter().filter_map(|address| address.ip);
    all.filter(|ip| !is_link_local(ip))
        .min_by_key(IpAddr::is_ipv6)
}

/// Answers probes over UDP.
fn reflect_udp(socket: &ProbeSocket, key: u64, stop: &AtomicBool) {
    use std::os::fd::AsFd;
    while !stop.load(Ordering::Relaxed) {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::from(CHECK_MILLIS));
        while let Some(datagram) = socket.receive() {
            let Some(probe) = Packet::decode(&datagram.bytes).filter(|p| is_probe(p, key)) else {
                continue;
            };
            let sent = socket.send(&reply(&probe, Kind::Answer, 0).encode(), datagram.from);
            let nanos = sent.saturating_sub(datagram.received);
            socket.send(&reply(&probe, Kind::Timing, nanos).encode(), datagram.from);
        }
    }
}

fn is_probe(packet: &Packet, key: u64) -> bool {
    packet.kind == Kind::Probe && packet.key == key
}

fn reply(probe: &Packet, kind: Kind, nanos: u64) -> Packet {
    Packet {
        kind,
        nanos,
        ..*probe
    }
}

/// The address of a prober: its GID and the index of the local GID, or its LID; flow label, and
/// service level.
type Prober = (Option<(Gid, u32)>, u16, u32, u8);

/// A reflector on a queue pair.
struct QpReflector {
    qp: DatagramQp,
    port: OpenedDevice,
    key: u64,
    addresses: HashMap<Prober, HeldAddress>,
    /// Probes whose answer is not sent yet, by the tag of the answer: the probe, its sender and
    /// the time of its arrival.
    arrived: HashMap<u64, (Packet, Destination, u64)>,
}

impl QpReflector {
    fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut events = Vec::new();
        let mut next_tag = 1;
        while !stop.load(Ordering::Relaxed) {
            self.qp.wait(Duration::from_millis(CHECK_MILLIS.into()))?;
            self.qp.poll(&mut events)?;
            for event in events.drain(..) {
                match event {
                    Event::Received {
                        packet,
                        header,
                        source,
                        at,
                    } if is_probe(&packet, self.key) => {
                        // Without an address the probe is lost, as in the network.
                        let Some(to) = self.destination(&source, &header, packet.flow_label) else {
                            continue;
                        };
                        let answer = reply(&packet, Kind::Answer, 0);
                        if self.qp.send(&answer, to, next_tag)? {
                            self.arrived.insert(next_tag, (packet, to, at));
                            next_tag += 1;
                        }
                    }
                    Event::Sent { tag, at } => {
                        // The tag of a timing is 0.
                        let Some((probe, to, arrived)) = self.arrived.remove(&tag) else {
                            continue;
                        };
                        let nanos = at.saturating_sub(arrived);
                        let _ = self.qp.send(&reply(&probe, Kind::Timing, nanos), to, 0)?;
                    }
                    Event::Received { .. } => {}
                }
            }
            if self.addresses.len() > MAX_ADDRESSES && self.arrived.is_empty() {
                // Fails while timings are in flight, and is tried again.
                if self.qp.qp().release_addresses().is_ok() {
                    self.addresses.clear();
                }
            }
        }
        Ok(())
    }

    /// Returns the destination of an answer, which gets the flow label of the probe.
    fn destination(
        &mut self,
        source: &UdSource,
        header: &[u8; GRH_LEN],
        flow_label: u32,
    ) -> Option<Destination> {
        let gids = match self.port.link {
            LinkType::Roce => {
                let (from, to) = gids(header);
                let local = self
                    .port
                    .addresses
                    .iter()
                    .find(|a| a.ip.map(Gid::from) == Some(to));
                Some((from, local?.gid_index?))
            }
            _ => None,
        };
        let prober = (gids, source.slid.0, flow_label, source.sl);
        let address = if let Some(address) = self.addresses.get(&prober) {
            *address
        } else {
            let attr = path(&prober, self.port.port_num);
            let handle = self.qp.pd().create_ah(&attr).ok()?;
            let held = self.qp.qp().hold_address(&handle).ok()?;
            self.addresses.insert(prober, held);
            held
        };
        Some(Destination {
            address,
            qpn: source.qpn,
            qkey: PROBER_QKEY,
        })
    }
}

/// Returns the path to a prober.
fn path(prober: &Prober, port_num: u8) -> AhAttr {
    let (gids, lid, flow_label, sl) = *prober;
    match gids {
        Some((gid, index)) => {
            let index = u8::try_from(index).unwrap_or(u8::MAX);
            let route = GlobalRoute::new(gid, index).flow_label(flow_label);
            AhAttr::for_lid(port_num, Lid(0)).grh(route)
        }
        None => AhAttr::for_lid(port_num, Lid(lid)).sl(sl),
    }
}

/// Returns the source and the destination in a global route header. With RoCE v2 over IPv4, the
/// header is in the last 20 bytes.
fn gids(header: &[u8; GRH_LEN]) -> (Gid, Gid) {
    let v6 = |at: usize| {
        let bytes = header[at..].first_chunk::<16>().copied();
        Gid::from(Ipv6Addr::from(bytes.unwrap_or_default()))
    };
    let v4 = |at: usize| {
        let bytes = header[at..].first_chunk::<4>().copied();
        Gid::from(Ipv4Addr::from(bytes.unwrap_or_default()))
    };
    if header[0] >> 4 == 6 {
        (v6(8), v6(24))
    } else {
        (v4(32), v4(36))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_of_both_versions_of_ip_are_found() {
        let mut header = [0; GRH_LEN];
        header[20] = 0x45;
        header[32..36].copy_from_slice(&[10, 0, 0, 1]);
        header[36..40].copy_from_slice(&[10, 0, 0, 2]);
        let text = |(a, b): (Gid, Gid)| format!("{a} {b}");
        assert_eq!(text(gids(&header)), "::ffff:10.0.0.1 ::ffff:10.0.0.2");
        header[0] = 0x60;
        header[8..10].copy_from_slice(&[0xfd, 0x99]);
        header[24..26].copy_from_slice(&[0xfd, 0x98]);
        header[39] = 2;
        header[20..24].fill(0);
        let (_, to) = gids(&header);
        assert!(to.to_string().starts_with("fd98:"), "{to}");
    }

    #[test]
    fn reflectors_use_their_port_or_a_free_one() {
        let ip: IpAddr = "127.0.0.1".parse().unwrap();
        let port_of = |reflector: &Reflector| match reflector.info.address {
            ReflectorAddress::Udp(address) => address.port(),
            ReflectorAddress::QueuePair { .. } => panic!("{reflector:?}"),
        };
        let free = ProbeSocket::bind(ip, 0).unwrap().local_addr().unwrap();
        let reflectors = Reflectors::new(free.port());
        let first = reflectors.start_udp("host".into(), ip).unwrap();
        let second = reflectors.start_udp("host".into(), ip).unwrap();
        assert_eq!(port_of(&first), free.port());
        assert_ne!(port_of(&second), free.port());
        reflectors.stop.store(true, Ordering::Relaxed);
        for reflector in [first, second] {
            reflector.thread.join().unwrap();
        }
    }

    #[test]
    fn probes_over_udp_are_answered_only_with_the_key() {
        let reflectors = Reflectors::new(0);
        let reflector = reflectors
            .start_udp("host".into(), "127.0.0.1".parse().unwrap())
            .unwrap();
        let ReflectorAddress::Udp(to) = reflector.info.address else {
            panic!("{reflector:?}")
        };
        let socket = ProbeSocket::bind("127.0.0.1".parse().unwrap(), 0).unwrap();
        let probe = |id, key| Packet {
            kind: Kind::Probe,
            flow_label: 5,
            key,
            session: 3,
            id,
            nanos: 0,
        };
        socket.send(&probe(1, reflector.info.key ^ 1).encode(), to);
        socket.send(&probe(2, reflector.info.key).encode(), to);
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut replies = Vec::new();
        while replies.len() < 2 && Instant::now() < deadline {
            let packet = socket.receive().and_then(|d| Packet::decode(&d.bytes));
            replies.extend(packet.map(|p| (p.kind, p.id, p.session, p.nanos > 0)));
        }
        assert_eq!(
            replies,
            [(Kind::Answer, 2, 3, false), (Kind::Timing, 2, 3, true)]
        );
        reflectors.stop.store(true, Ordering::Relaxed);
        reflector.thread.join().unwrap();
    }
}
