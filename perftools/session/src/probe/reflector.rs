//! The reflectors of a server: one for each port with datagrams of RDMA, and one over UDP for the
//! host and its ports of iWARP.
//!
//! A reflector starts with the request of a prober and ends when neither a request nor a probe has
//! arrived for a while, or with the server. It answers only probes that contain its key, which only
//! clients get that the server admits, and that come from a network whose clients are served. The
//! LIDs of InfiniBand belong to no such network. An answer and a timing together are shorter than a
//! probe, so reflectors do not amplify traffic.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::system::random;
use ipnet::IpNet;
use measure::data_key::random_qkey;
use measure::transport::LinkType;
use measure::transport::device::{self, OpenedDevice};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::datagram_qp::DatagramQp;
use super::packet::{Kind, Packet};
use super::qp_reflector::QpReflector;
use super::udp::{Datagram, ProbeSocket};
use super::{ReflectorAddress, ReflectorInfo};
use crate::server::networks;

/// Interval in milliseconds at which a reflector checks whether the server stops.
pub(super) const CHECK_MILLIS: u16 = 200;
/// Time for which the list of the devices is not read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// Time without a request and without a probe after which a reflector ends. A monitor requests the
/// reflectors again when a path is lost.
const IDLE_TIME: Duration = Duration::from_secs(120);
/// Stack of a reflector.
const STACK: usize = 256 << 10;

/// The reflectors of a server.
#[derive(Debug)]
pub struct Reflectors {
    /// Preferred UDP port.
    udp_port: u16,
    settings: Settings,
    running: Mutex<Running>,
}

/// Settings of all reflectors.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Networks whose probes are answered; empty: all of them.
    allow: Arc<[IpNet]>,
    idle_time: Duration,
    stop: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Running {
    /// The reflectors of ports, by the name of the port.
    ports: HashMap<String, Reflector>,
    /// The ports of iWARP and their addresses.
    iwarp: Vec<(String, IpAddr)>,
    udp: Option<Reflector>,
    refreshed: Option<Instant>,
}

#[derive(Debug)]
struct Reflector {
    key: u64,
    /// The address; for UDP, that of all addresses of this host.
    address: ReflectorAddress,
    /// The port is ACTIVE.
    is_active: bool,
    usage: Arc<Usage>,
    thread: JoinHandle<()>,
}

/// The time of the latest use of a reflector; `None` if it has ended.
#[derive(Debug)]
pub(super) struct Usage(Mutex<Option<Instant>>);

impl Usage {
    fn new() -> Self {
        Self(Mutex::new(Some(Instant::now())))
    }

    fn latest(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a use. Returns `false` if the reflector has ended.
    pub(super) fn record(&self) -> bool {
        let mut latest = self.latest();
        if latest.is_some() {
            *latest = Some(Instant::now());
        }
        latest.is_some()
    }

    /// Ends the reflector if it was not used for `idle_time`. Returns `true` if it has ended.
    fn end_if_idle(&self, idle_time: Duration) -> bool {
        let mut latest = self.latest();
        if latest.is_some_and(|at| at.elapsed() >= idle_time) {
            *latest = None;
        }
        latest.is_none()
    }

    fn end(&self) {
        *self.latest() = None;
    }
}

impl Reflector {
    fn info(&self, name: String) -> ReflectorInfo {
        ReflectorInfo {
            name,
            key: self.key,
            address: self.address.clone(),
        }
    }

    /// Describes a reflector over UDP that is reached at `ip`.
    fn info_at(&self, name: String, ip: IpAddr) -> ReflectorInfo {
        let mut info = self.info(name);
        if let ReflectorAddress::Udp(address) = &mut info.address {
            address.set_ip(ip);
        }
        info
    }
}

impl Settings {
    /// Returns `true` if a reflector must end.
    pub(super) fn is_over(&self, usage: &Usage) -> bool {
        self.stop.load(Ordering::Relaxed) || usage.end_if_idle(self.idle_time)
    }

    /// Returns `true` if a probe from `source` to the address `local` of this host is answered.
    pub(super) fn admits(&self, source: IpAddr, local: Option<IpAddr>) -> bool {
        let (source, local) = (source.to_canonical(), local.map(|ip| ip.to_canonical()));
        source.is_loopback() || Some(source) == local || networks::contain(&self.allow, source)
    }
}

impl Reflectors {
    /// Creates the reflectors of a server, which answer probes from the networks `allow`, or all
    /// probes if there are none. Those over UDP use this port, or a free one if another program
    /// uses it.
    pub(crate) fn new(udp_port: u16, allow: &[IpNet]) -> Self {
        Self {
            udp_port,
            settings: Settings {
                allow: allow.into(),
                idle_time: IDLE_TIME,
                stop: Arc::default(),
            },
            running: Mutex::default(),
        }
    }

    /// Returns the reflectors of all active ports, and starts those that do not run. `local` is the
    /// address of this host that the prober used.
    pub(crate) fn describe(&self, local: IpAddr) -> Result<Vec<ReflectorInfo>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = &mut *running;
        let ports = running.ports.len();
        running
            .ports
            .retain(|_, reflector| reflector.usage.record());
        let is_fresh = running.ports.len() == ports
            && running
                .refreshed
                .is_some_and(|at| at.elapsed() < REFRESH_INTERVAL);
        if !is_fresh {
            self.refresh(running)?;
            running.refreshed = Some(Instant::now());
        }
        let active = running.ports.iter().filter(|(_, r)| r.is_active);
        let mut infos: Vec<ReflectorInfo> = active.map(|(name, r)| r.info(name.clone())).collect();
        let over_udp: Vec<(String, IpAddr)> = match (infos.is_empty(), running.iwarp.is_empty()) {
            (true, true) => vec![(format!("{HOST}/{local}"), local)],
            _ => running.iwarp.clone(),
        };
        if !over_udp.is_empty() {
            running.udp = running.udp.take().filter(|r| r.usage.record());
            let udp = match &mut running.udp {
                Some(udp) => udp,
                none => none.insert(self.start_udp()?),
            };
            infos.extend(over_udp.into_iter().map(|(name, ip)| udp.info_at(name, ip)));
        }
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(infos)
    }

    /// Starts the reflectors of new ports, and updates those that run.
    fn refresh(&self, running: &mut Running) -> Result<()> {
        let ports = device::open_active_ports();
        for reflector in running.ports.values_mut() {
            reflector.is_active = false;
        }
        running.iwarp.clear();
        for port in ports {
            let name = port.name();
            if port.link == LinkType::Iwarp {
                running
                    .iwarp
                    .extend(preferred_ip(&port).map(|ip| (name, ip)));
                continue;
            }
            let Some(reflector) = running.ports.get_mut(&name) else {
                running
                    .ports
                    .insert(name.clone(), self.start_qp(&name, port)?);
                continue;
            };
            reflector.is_active = true;
            if let ReflectorAddress::QueuePair { addresses, lid, .. } = &mut reflector.address {
                addresses.clone_from(&port.addresses);
                *lid = port.port.lid.0;
            }
        }
        Ok(())
    }

    fn start_udp(&self) -> Result<Reflector> {
        let socket = ProbeSocket::bind_any(self.udp_port).or_else(|_| ProbeSocket::bind_any(0))?;
        let key = random();
        let address = ReflectorAddress::Udp(socket.local_addr()?);
        let settings = self.settings.clone();
        start(key, address, move |usage| {
            reflect_udp(&socket, key, &settings, usage);
        })
    }

    fn start_qp(&self, name: &str, port: OpenedDevice) -> Result<Reflector> {
        let key = random();
        let qkey = random_qkey();
        let mut qp = DatagramQp::new(&port, qkey).map_err(|e| e.context(name))?;
        let address = ReflectorAddress::QueuePair {
            link: port.link,
            addresses: port.addresses.clone(),
            lid: port.port.lid.0,
            qpn: qp.qp().qp_num().0,
            qkey: qkey.0,
        };
        let settings = self.settings.clone();
        start(key, address, move |usage| {
            let mut reflector = QpReflector::new(qp, port, key, settings);
            // The device failed. The next request starts the reflector again.
            let _ = reflector.run(usage);
        })
    }
}

impl Drop for Reflectors {
    fn drop(&mut self) {
        self.settings.stop.store(true, Ordering::Relaxed);
        let running = self.running.get_mut();
        let running = std::mem::take(running.unwrap_or_else(PoisonError::into_inner));
        for reflector in running.ports.into_values().chain(running.udp) {
            let _ = reflector.thread.join();
        }
    }
}

/// The name of the reflector of a host without RDMA.
pub const HOST: &str = "host";

/// Starts a reflector in a thread of its own.
fn start(
    key: u64,
    address: ReflectorAddress,
    run: impl FnOnce(&Usage) + Send + 'static,
) -> Result<Reflector> {
    let usage = Arc::new(Usage::new());
    let used = Arc::clone(&usage);
    let thread = std::thread::Builder::new()
        .name("reflector".into())
        .stack_size(STACK)
        .spawn(move || {
            run(&used);
            used.end();
        })
        .map_err(|e| Error::system("cannot create the thread of a reflector", &e))?;
    Ok(Reflector {
        key,
        address,
        is_active: true,
        usage,
        thread,
    })
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
fn reflect_udp(socket: &ProbeSocket, key: u64, settings: &Settings, usage: &Usage) {
    use std::os::fd::AsFd;
    while !settings.is_over(usage) {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::from(CHECK_MILLIS));
        socket.receive(
            |Datagram {
                 packet,
                 from,
                 to,
                 received,
             }| {
                if !is_probe(&packet, key) || !settings.admits(from.ip(), to) {
                    return;
                }
                usage.record();
                let sent = socket.send(&reply(&packet, Kind::Answer, 0), from, to);
                let nanos = sent.saturating_sub(received);
                socket.send(&reply(&packet, Kind::Timing, nanos), from, to);
            },
        );
    }
}

pub(super) fn is_probe(packet: &Packet, key: u64) -> bool {
    packet.kind == Kind::Probe && packet.key == key
}

pub(super) fn reply(probe: &Packet, kind: Kind, nanos: u64) -> Packet {
    Packet {
        kind,
        nanos,
        ..*probe
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::time::Duration;

    use measure::sockets::endpoint::join_at_control_port;
    use measure::spec::Sockets;

    use super::*;

    fn port_of(reflector: &Reflector) -> u16 {
        match reflector.address {
            ReflectorAddress::Udp(address) => address.port(),
            ReflectorAddress::QueuePair { .. } => panic!("{reflector:?}"),
        }
    }

    fn stop(reflectors: &Reflectors, started: impl IntoIterator<Item = Reflector>) {
        reflectors.settings.stop.store(true, Ordering::Relaxed);
        for reflector in started {
            reflector.thread.join().unwrap();
        }
    }

    #[test]
    fn reflectors_use_their_port_or_a_free_one() {
        let free = ProbeSocket::bind_any(0).unwrap().local_addr().unwrap();
        let reflectors = Reflectors::new(free.port(), &[]);
        let first = reflectors.start_udp().unwrap();
        let second = reflectors.start_udp().unwrap();
        assert_eq!(port_of(&first), free.port());
        assert_ne!(port_of(&second), free.port());
        stop(&reflectors, [first, second]);
    }

    #[test]
    fn tests_over_udp_share_the_port_of_a_reflector() {
        let port = ProbeSocket::bind_any(0).unwrap().local_addr().unwrap();
        let at = SocketAddr::new([127, 0, 0, 1].into(), port.port());
        let client = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let serve = |client: &UdpSocket| {
            let port = client.local_addr().unwrap().port();
            let socket = join_at_control_port(at, at, port, Sockets::default());
            let socket = UdpSocket::from(socket.unwrap());
            let timeout = Some(Duration::from_secs(60));
            socket.set_read_timeout(timeout).unwrap();
            socket
        };
        let clients = [client(), client()];
        let before = serve(&clients[0]);
        let reflectors = Reflectors::new(at.port(), &[]);
        let reflector = reflectors.start_udp().unwrap();
        assert_eq!(port_of(&reflector), at.port());
        let after = serve(&clients[1]);
        for (number, (client, server)) in (0..).zip(clients.iter().zip([before, after])) {
            client.send_to(&[number], at).unwrap();
            let mut received = [9];
            assert_eq!(server.recv(&mut received).unwrap(), 1);
            assert_eq!(received, [number]);
        }
        let packets = [probe(1, reflector.key)];
        let replies = replies(&reflector, &packets, |replies| !replies.is_empty());
        assert_eq!(replies[0].id, 1);
        stop(&reflectors, [reflector]);
    }

    fn probe(id: u64, key: u64) -> Packet {
        Packet {
            kind: Kind::Probe,
            flow_label: 5,
            key,
            session: 3,
            id,
            nanos: 0,
            qkey: 0,
        }
    }

    /// Sends probes to a reflector from 127.0.0.1 and returns its first two replies.
    fn replies(
        to: &Reflector,
        probes: &[Packet],
        mut until: impl FnMut(&[Packet]) -> bool,
    ) -> Vec<Packet> {
        let socket = ProbeSocket::bind("127.0.0.1".parse().unwrap(), 0).unwrap();
        for probe in probes {
            socket.send(probe, ([127, 0, 0, 1], port_of(to)).into(), None);
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut replies = Vec::new();
        while !until(&replies) && Instant::now() < deadline {
            socket.receive(|d| replies.push(d.packet));
        }
        replies
    }

    #[test]
    fn probes_over_udp_are_answered_only_with_the_key() {
        let reflectors = Reflectors::new(0, &[]);
        let reflector = reflectors.start_udp().unwrap();
        let probes = [probe(1, reflector.key ^ 1), probe(2, reflector.key)];
        let replies = replies(&reflector, &probes, |replies| replies.len() == 2);
        let fields = replies
            .iter()
            .map(|p| (p.kind, p.id, p.session, p.nanos > 0));
        assert_eq!(
            fields.collect::<Vec<_>>(),
            [(Kind::Answer, 2, 3, false), (Kind::Timing, 2, 3, true)]
        );
        // Both replies with 64 bytes of headers each are not longer than the probe.
        let sent: usize = replies
            .iter()
            .map(|packet| packet.encode().len() + 64)
            .sum();
        assert!(sent <= probes[1].encode().len(), "{sent}");
        stop(&reflectors, [reflector]);
    }

    #[test]
    fn probes_are_answered_to_allowed_networks_only() {
        let allow = ["192.0.2.0/24", "2001:db8::/32"].map(|net| net.parse().unwrap());
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let settings = Reflectors::new(0, &allow).settings.clone();
        let local = Some(ip("203.0.113.7"));
        for (source, is_admitted) in [
            ("192.0.2.9", true),
            ("::ffff:192.0.2.9", true),
            ("2001:db8::1", true),
            ("127.0.0.9", true),
            ("203.0.113.7", true),
            ("203.0.113.8", false),
            ("fe80::1", false),
        ] {
            assert_eq!(settings.admits(ip(source), local), is_admitted, "{source}");
        }
        let settings = Reflectors::new(0, &[]).settings.clone();
        assert!(settings.admits(ip("203.0.113.8"), local));
    }

    #[test]
    fn all_addresses_of_a_host_share_a_reflector() {
        let reflectors = Reflectors::new(0, &[]);
        let infos: Vec<ReflectorInfo> = (1..=100)
            .flat_map(|n| reflectors.describe([127, 1, 0, n].into()).unwrap())
            .filter(|info| info.name.starts_with(HOST))
            .collect();
        let mut addresses: Vec<String> = infos.iter().map(|i| format!("{:?}", i.address)).collect();
        addresses.dedup();
        assert_eq!(addresses.len(), infos.len());
        assert!(infos.iter().all(|info| info.key == infos[0].key));
    }

    #[test]
    fn a_reflector_ends_when_it_is_unused() {
        let mut reflectors = Reflectors::new(0, &[]);
        reflectors.settings.idle_time = Duration::ZERO;
        let ended = reflectors.start_udp().unwrap();
        ended.thread.join().unwrap();
        assert!(!ended.usage.record());
        // The next request starts another one.
        reflectors.settings.idle_time = IDLE_TIME;
        let (thread, key) = (std::thread::spawn(|| {}), ended.key);
        let ended = Reflector { thread, ..ended };
        reflectors.running.lock().unwrap().udp = Some(ended);
        let infos = reflectors.describe([127, 0, 0, 1].into()).unwrap();
        assert!(infos.iter().all(|info| info.key != key));
    }
}
