//! The hosts that are monitored, and their reflectors.
//!
//! A host decides how many paths there are and where probes go, so both have limits: the number of
//! reflectors of a host, and their addresses, which must belong to the host or to a network that
//! the user allows. The LIDs of InfiniBand cannot be checked.
//!
//! Each host is asked for its reflectors at the start, then at a long interval, and at a short one
//! while it does not respond or a path to it is lost: a server that was restarted has new
//! reflectors. Several threads do that, so that hosts that do not respond do not delay others.

use std::collections::HashSet;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::interrupt::Interrupt;
use ipnet::IpNet;
use measure::transport::LinkType;
use session::connect::{self, ServerAddr};
use session::probe::{ReflectorAddress, ReflectorInfo};
use session::protocol::token::Token;
use session::rperf::message::Message;
use session::server::networks;

use super::prober::{AssignReflector, LocalPort, PathName};
use super::tracker::PathState;

/// Time between two requests to a host whose paths are up.
const LONG_INTERVAL: Duration = Duration::from_secs(300);
/// Time between two requests to a host that does not respond, or to which a path is lost.
const SHORT_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit for a request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of reflectors of a host.
const MAX_REFLECTORS: usize = 64;
/// Maximum length of the name of a reflector in bytes.
const MAX_NAME: usize = 80;
/// Maximum length in bytes of a reply: 64 reflectors, and dozens of addresses for each.
const MAX_REPLY: usize = 512 << 10;
/// Longest time that a thread waits before it checks whether it must stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// A host and its server.
#[derive(Clone, Debug)]
pub struct MonitoredHost {
    /// The name of the host, and the port if it is not the default.
    pub name: Arc<str>,
    /// The host.
    pub host: String,
    /// The TCP port of its server.
    pub port: u16,
}

#[derive(Debug)]
struct HostState {
    target: MonitoredHost,
    is_reachable: Option<bool>,
    /// Time of the next request; `None` while one is in flight.
    next: Option<Instant>,
}

/// The hosts that are monitored.
#[derive(Debug)]
pub struct Hosts {
    states: Mutex<Vec<HostState>>,
    changed: Condvar,
    token: Option<Token>,
    /// Networks that reflectors may belong to, in addition to the addresses of their hosts.
    networks: Vec<IpNet>,
}

/// The kind of probes that a device of this host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalPortKind {
    /// Datagrams of RDMA.
    QueuePair(LinkType),
    /// Datagrams of UDP.
    Udp,
}

/// A device of this host, to which reflectors are assigned.
#[derive(Debug)]
pub struct LocalPortHandle {
    /// The device.
    pub source: Arc<LocalPort>,
    /// The kind of its probes.
    pub kind: LocalPortKind,
    /// Its reflectors.
    pub targets: Mutex<Sender<AssignReflector>>,
}

/// A change of the reachability of a host: its name, and the error.
pub type OnHost<'a> = &'a (dyn Fn(&str, Option<&Error>) + Sync);

impl Hosts {
    /// Creates the list of hosts. Their reflectors may also have addresses in `networks`.
    pub fn new(targets: Vec<MonitoredHost>, token: Option<Token>, networks: Vec<IpNet>) -> Self {
        let now = Instant::now();
        let states = targets.into_iter().map(|target| HostState {
            target,
            is_reachable: None,
            next: Some(now),
        });
        Self {
            states: Mutex::new(states.collect()),
            changed: Condvar::new(),
            token,
            networks,
        }
    }

    fn states(&self) -> MutexGuard<'_, Vec<HostState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of the hosts.
    pub fn names(&self) -> Vec<Arc<str>> {
        let states = self.states();
        states.iter().map(|s| Arc::clone(&s.target.name)).collect()
    }

    /// Returns the hosts whose servers have been requested, and whether the latest request
    /// succeeded.
    pub(crate) fn reachable(&self) -> Vec<(Arc<str>, bool)> {
        let states = self.states();
        let known = states
            .iter()
            .filter_map(|s| Some((Arc::clone(&s.target.name), s.is_reachable?)));
        known.collect()
    }

    /// Requests reflectors until `is_stopped` returns `true`. Any number of threads call this.
    pub fn work(
        &self,
        sources: &[LocalPortHandle],
        on_host: OnHost<'_>,
        is_stopped: &(dyn Fn() -> bool + Sync),
    ) {
        while !is_stopped() {
            let Some((index, target)) = self.next_host() else {
                continue;
            };
            let result = self.request(&target);
            let usable = result.and_then(|(mut reflectors, addresses)| {
                let refused = self.retain_allowed(&mut reflectors, &addresses);
                let count = assign(sources, &target, &reflectors);
                if let Some((name, ip)) = refused {
                    return Err(foreign_address(&target, &name, ip, &addresses));
                }
                if count > 0 {
                    return Ok(());
                }
                let names: Vec<&str> = reflectors.iter().map(|r| r.name.as_str()).collect();
                Err(Error::device(format!(
                    "no device of this host reaches a device of {}, which has {}",
                    target.name,
                    names.join(", ")
                )))
            });
            let mut states = self.states();
            let state = &mut states[index];
            let is_reachable = usable.is_ok();
            let has_changed = state.is_reachable != Some(is_reachable);
            state.is_reachable = Some(is_reachable);
            let interval = if is_reachable {
                LONG_INTERVAL
            } else {
                SHORT_INTERVAL
            };
            state.next = Some(Instant::now() + interval);
            drop(states);
            if has_changed {
                on_host(&target.name, usable.err().as_ref());
            }
        }
    }

    /// Requests the reflectors of a host soon, because a path to it is lost.
    pub fn hurry(&self, name: &str) {
        let soon = Instant::now() + SHORT_INTERVAL;
        let mut states = self.states();
        for state in states.iter_mut().filter(|s| &*s.target.name == name) {
            state.next = state.next.map(|next| next.min(soon));
        }
        self.changed.notify_one();
    }

    /// Wakes all threads.
    pub fn wake(&self) {
        self.changed.notify_all();
    }

    /// Returns the next host to request, and waits shortly if none is due.
    fn next_host(&self) -> Option<(usize, MonitoredHost)> {
        let mut states = self.states();
        let now = Instant::now();
        let due = states.iter_mut().enumerate().find_map(|(index, state)| {
            let is_due = state.next.is_some_and(|next| next <= now);
            is_due.then(|| {
                state.next = None;
                (index, state.target.clone())
            })
        });
        if due.is_none() {
            drop(self.changed.wait_timeout(states, CHECK_INTERVAL));
        }
        due
    }

    /// Removes the addresses that belong neither to the host, whose addresses are `own`, nor to an
    /// allowed network, and the reflectors that are left without one. Returns the name and the
    /// address of such a reflector.
    fn retain_allowed(
        &self,
        reflectors: &mut Vec<ReflectorInfo>,
        own: &[IpAddr],
    ) -> Option<(String, IpAddr)> {
        let mut of_host = own.to_vec();
        if own.iter().any(|ip| networks::is_this_host(*ip)) {
            of_host.extend(networks::interface_addresses());
        }
        let is_allowed = |ip: IpAddr| {
            let ip = ip.to_canonical();
            of_host.contains(&ip) || self.networks.iter().any(|net| net.contains(&ip))
        };
        let mut refused = None;
        reflectors.retain_mut(|reflector| {
            let foreign = match &mut reflector.address {
                ReflectorAddress::Udp(address) => Some(address.ip()).filter(|ip| !is_allowed(*ip)),
                ReflectorAddress::QueuePair { addresses, .. } => {
                    let first = addresses.iter().find_map(|address| address.ip);
                    addresses.retain(|address| address.ip.is_none_or(is_allowed));
                    first.filter(|_| addresses.is_empty())
                }
            };
            if let Some(ip) = foreign {
                refused.get_or_insert_with(|| (reflector.name.clone(), ip));
            }
            foreign.is_none()
        });
        refused
    }

    /// Requests the reflectors of a host. Returns them and the addresses of the host.
    fn request(&self, target: &MonitoredHost) -> Result<(Vec<ReflectorInfo>, Vec<IpAddr>)> {
        let addr = ServerAddr {
            host: target.host.clone(),
            port: target.port,
            wait: CONNECT_TIMEOUT,
            bind: None,
            token: self.token.clone(),
            qperf: false,
            interrupt: Interrupt::default(),
        };
        let mut stream = connect::open_rperf(&addr, TIMEOUT)?;
        stream.send(&Message::AskReflectors)?;
        let reply: Message = stream.receive_up_to(TIMEOUT, MAX_REPLY)?;
        let reflectors = match reply.or_error("the server")? {
            Message::Reflectors(reflectors) => reflectors,
            other => return Err(other.unexpected("the server")),
        };
        check_reflectors(&reflectors)?;
        let resolved = (target.host.as_str(), target.port).to_socket_addrs();
        let addresses = resolved
            .into_iter()
            .flatten()
            .chain(stream.socket().peer_addr());
        let addresses = addresses.map(|address| address.ip().to_canonical());
        Ok((reflectors, addresses.collect()))
    }
}

/// Checks that a host has not more reflectors than a host can have.
fn check_reflectors(reflectors: &[ReflectorInfo]) -> Result<()> {
    if reflectors.len() > MAX_REFLECTORS {
        return Err(Error::limit(format!(
            "the server has {} reflectors: the limit is {MAX_REFLECTORS}",
            reflectors.len()
        )));
    }
    if let Some(long) = reflectors.iter().find(|r| r.name.len() > MAX_NAME) {
        return Err(Error::limit(format!(
            "the name of a reflector has {} bytes: the limit is {MAX_NAME}",
            long.name.len()
        )));
    }
    Ok(())
}

fn foreign_address(target: &MonitoredHost, name: &str, ip: IpAddr, own: &[IpAddr]) -> Error {
    let own: Vec<String> = own.iter().map(ToString::to_string).collect();
    Error::limit(format!(
        "{name} of {} has the address {ip}, which is not one of the host: {}",
        target.name,
        own.join(", ")
    ))
    .with_help("add its network to --reflector-networks if probes may go there")
}

/// Assigns the reflectors of a host to the devices of this host. Returns the number of paths.
fn assign(
    sources: &[LocalPortHandle],
    target: &MonitoredHost,
    reflectors: &[ReflectorInfo],
) -> usize {
    let mut count = 0;
    for handle in sources {
        let mut wanted = HashSet::new();
        for reflector in reflectors {
            let kind = match &reflector.address {
                ReflectorAddress::QueuePair { link, .. } => LocalPortKind::QueuePair(*link),
                ReflectorAddress::Udp(_) => LocalPortKind::Udp,
            };
            if kind != handle.kind {
                continue;
            }
            let (path, change) = handle.source.path(PathName {
                target: Arc::clone(&target.name),
                device: reflector.name.as_str().into(),
            });
            wanted.insert(path);
            let set = AssignReflector {
                path,
                change,
                reflector: reflector.clone(),
            };
            let sender = handle
                .targets
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let _ = sender.send(set);
        }
        handle.source.retain(&target.name, &wanted);
        count += wanted.len();
    }
    count
}

/// Returns `true` if the state of a path suggests that the server of its host was restarted.
pub fn is_suspect(state: PathState) -> bool {
    matches!(state, PathState::Lost | PathState::Stalled)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use measure::transport::address::PortAddress;

    use super::*;
    use crate::monitor::tracker::MonitorSettings;

    fn udp(name: &str, address: &str) -> ReflectorInfo {
        ReflectorInfo {
            name: name.into(),
            key: 1,
            address: ReflectorAddress::Udp(address.parse().unwrap()),
        }
    }

    fn qp(name: &str, addresses: &[&str]) -> ReflectorInfo {
        let address = |ip: &&str| PortAddress {
            ip: Some(ip.parse().unwrap()),
            prefix: 24,
            gid_index: Some(1),
        };
        ReflectorInfo {
            name: name.into(),
            key: 1,
            address: ReflectorAddress::QueuePair {
                link: LinkType::Roce,
                addresses: addresses.iter().map(address).collect(),
                lid: 0,
                qpn: 2,
                qkey: 3,
            },
        }
    }

    #[test]
    fn probes_go_to_the_host_and_to_allowed_networks_only() {
        let networks = vec!["198.51.100.0/24".parse().unwrap()];
        let hosts = Hosts::new(Vec::new(), None, networks);
        let own = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        let retained = |reflector: ReflectorInfo| {
            let mut reflectors = vec![reflector];
            let refused = hosts.retain_allowed(&mut reflectors, &own);
            assert_eq!(refused.is_some(), reflectors.is_empty());
            reflectors.pop()
        };
        for (address, is_allowed) in [
            ("192.0.2.1:1", true),
            ("[::ffff:192.0.2.1]:1", true),
            ("[2001:db8::1]:1", true),
            ("198.51.100.9:1", true),
            ("192.0.2.2:1", false),
            ("127.0.0.1:1", false),
            ("[fe80::1]:1", false),
            ("255.255.255.255:1", false),
        ] {
            assert_eq!(
                retained(udp("d", address)).is_some(),
                is_allowed,
                "{address}"
            );
        }
        assert_eq!(retained(qp("d", &["192.0.2.2", "fe80::1"])), None);
        let both = retained(qp("d", &["203.0.113.1", "198.51.100.9"]));
        assert_eq!(both, Some(qp("d", &["198.51.100.9"])));
        // A host that is this one has the addresses of its interfaces.
        let this_host = ["127.0.0.1".parse().unwrap()];
        let mut reflectors = vec![udp("a", "127.0.0.1:1"), udp("b", "127.0.0.9:1")];
        let refused = hosts.retain_allowed(&mut reflectors, &this_host);
        assert_eq!(refused, Some(("b".into(), "127.0.0.9".parse().unwrap())));
    }

    #[test]
    fn hosts_have_a_limited_number_of_reflectors() {
        let reflectors = |count| vec![udp("d", "192.0.2.1:1"); count];
        check_reflectors(&reflectors(MAX_REFLECTORS)).unwrap();
        let error = check_reflectors(&reflectors(MAX_REFLECTORS + 1)).unwrap_err();
        assert!(error.to_string().contains("65 reflectors"), "{error}");
        let long = [udp(&"d".repeat(MAX_NAME + 1), "192.0.2.1:1")];
        check_reflectors(&long).unwrap_err();
    }

    #[test]
    fn a_host_that_renames_its_devices_needs_bounded_memory() {
        const SECOND: u64 = 1_000_000_000;
        let settings = MonitorSettings {
            interval: Duration::from_secs(1),
            timeout: Duration::from_millis(500),
            late_limit: Duration::from_secs(2),
            lost_after: 3,
            flows: 1,
            max_rate: 1000,
        };
        let source = LocalPort::new("host".into(), false, settings);
        let name = |target: &str, device: String| PathName {
            target: target.into(),
            device: device.into(),
        };
        let (kept, _) = source.path(name("b", "d".into()));
        for round in 0..100 {
            let begin = round * 5 * SECOND;
            let devices = (0..MAX_REFLECTORS).map(|n| format!("{round}.{n}"));
            let paths: HashSet<u32> = devices
                .map(|device| source.path(name("a", device)).0)
                .collect();
            assert!(!paths.contains(&kept));
            source.retain("a", &paths);
            let tracker = &mut source.state().tracker;
            for path in paths {
                tracker.enable(path, true);
                assert_eq!(tracker.paths()[path as usize].totals.sent, 0);
            }
            while tracker.next_probe(begin).is_some() {}
            tracker.expire(begin + 4 * SECOND);
        }
        let state = source.state();
        let count = (state.names.len(), state.tracker.paths().len());
        assert_eq!(count, (2 * MAX_REFLECTORS + 1, 2 * MAX_REFLECTORS + 1));
        let enabled = state
            .tracker
            .paths()
            .iter()
            .filter(|path| path.is_enabled());
        assert_eq!(enabled.count(), MAX_REFLECTORS);
    }
}
