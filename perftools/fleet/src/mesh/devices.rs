//! The endpoints of a mesh: the hosts, or RDMA devices of each of them.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::device_id::DeviceId;
use base::error::{Error, Result};
use base::log;
use host::peer::{PeerFacts, PeerPort};
use session::facts::request_facts;
use session::protocol::token::Token;

use super::endpoint::Endpoint;
use super::hosts::Host;

/// Number of hosts that are asked for their devices at the same time.
const CONCURRENT: usize = 64;

/// The devices to measure on each host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// One device, which the host selects by address.
    ByAddress,
    /// The devices with these names.
    Named(Vec<DeviceId>),
    /// All devices with an active port.
    All,
}

impl Devices {
    /// Returns the devices of the option `--devices`.
    pub fn new(names: &[DeviceId]) -> Self {
        match names {
            [] => Self::ByAddress,
            [one] if one.name == "all" && one.port.is_none() => Self::All,
            names => Self::Named(names.to_vec()),
        }
    }
}

/// Creates an endpoint for each host. `port` is the TCP port of hosts without one.
pub fn hosts(hosts: &[Host], port: u16) -> Result<Vec<Endpoint>> {
    let mut endpoints = Vec::new();
    let mut names = BTreeSet::new();
    for host in hosts {
        let repeats = hosts.iter().filter(|h| h.name == host.name).count() > 1;
        let own_port = host.port.unwrap_or(port);
        let name = if repeats {
            format!("{}:{own_port}", host.name)
        } else {
            host.name.clone()
        };
        if !names.insert(name.clone()) {
            return Err(Error::usage(format!("host {name} is named twice")));
        }
        endpoints.push(Endpoint {
            name,
            host: host.name.clone(),
            port: own_port,
            device: None,
            link: None,
        });
    }
    if hosts.len() < 2 {
        return Err(Error::usage(format!(
            "a mesh of {}: at least two hosts are needed",
            if hosts.is_empty() {
                "no host"
            } else {
                "one host"
            }
        )));
    }
    Ok(endpoints)
}

/// Replaces each host by its devices, about which it asks the server of the host. A host that does
/// not respond keeps the devices that were named, or is one endpoint whose tests will fail.
pub fn expand(hosts: Vec<Endpoint>, devices: &Devices, token: Option<&Token>) -> Vec<Endpoint> {
    if *devices == Devices::ByAddress {
        return hosts;
    }
    let facts = request_all(&hosts, token);
    let each = hosts.into_iter().zip(facts);
    each.flat_map(|(host, facts)| devices_of(host, devices, facts.as_ref()))
        .collect()
}

/// Returns the facts of the hosts that respond.
fn request_all(hosts: &[Endpoint], token: Option<&Token>) -> Vec<Option<PeerFacts>> {
    let facts: Vec<Mutex<Option<PeerFacts>>> = hosts.iter().map(|_| Mutex::default()).collect();
    let next = AtomicUsize::new(0);
    let ask = || {
        while let Some((host, slot)) = {
            let id = next.fetch_add(1, Ordering::Relaxed);
            hosts.get(id).zip(facts.get(id))
        } {
            match request_facts(&host.host, host.port, token) {
                Ok(found) => *slot.lock().expect("no thread panics") = Some(found),
                Err(error) => log::log(format_args!("rperf: {}: {error}", host.name)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..hosts.len().min(CONCURRENT) {
            scope.spawn(ask);
        }
    });
    let values = facts.into_iter().map(Mutex::into_inner);
    values.map(|f| f.expect("no thread panics")).collect()
}

/// Returns the endpoints of a host.
fn devices_of(host: Endpoint, devices: &Devices, facts: Option<&PeerFacts>) -> Vec<Endpoint> {
    let ports = facts.map_or(&[][..], |f| &f.ports);
    let ids: Vec<DeviceId> = match devices {
        Devices::ByAddress => Vec::new(),
        Devices::Named(ids) => ids.clone(),
        Devices::All => {
            let active = ports.iter().filter(|p| p.active);
            active.map(|port| id_of(port, ports)).collect()
        }
    };
    if ids.is_empty() {
        return vec![host];
    }
    let has_several = ids.len() > 1;
    ids.into_iter()
        .map(|id| Endpoint {
            name: if has_several {
                format!("{}/{id}", host.name)
            } else {
                host.name.clone()
            },
            link: link_of(&id, ports).map(str::to_owned),
            device: Some(id),
            ..host.clone()
        })
        .collect()
}

/// Returns the name of a port's device, with the number of the port if the device has several.
fn id_of(port: &PeerPort, all: &[PeerPort]) -> DeviceId {
    let is_only = all.iter().filter(|p| p.device == port.device).count() == 1;
    DeviceId {
        name: port.device.clone(),
        port: u8::try_from(port.port).ok().filter(|_| !is_only),
    }
}

/// Returns the technology of a device's port, or of its first active port.
fn link_of(id: &DeviceId, ports: &[PeerPort]) -> Option<&'static str> {
    let mut own = ports.iter().filter(|port| port.device == id.name);
    let port = match id.port {
        Some(number) => own.find(|port| port.port == u32::from(number)),
        None => own.find(|port| port.active),
    };
    port.map(PeerPort::technology)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::hosts::parse_host;

    fn port(device: &str, port: u32, iwarp: bool, active: bool) -> PeerPort {
        PeerPort {
            device: device.to_owned(),
            port,
            iwarp,
            link_layer: "Ethernet".to_owned(),
            active,
            roce_mode: None,
            kinds: Vec::new(),
            addresses: Vec::new(),
            subnet_prefix: None,
            mtu: None,
            netdev: None,
        }
    }

    fn names(host: &Endpoint, devices: &str, facts: Option<&PeerFacts>) -> Vec<String> {
        let ids: Vec<DeviceId> = devices.split(',').map(|d| d.parse().unwrap()).collect();
        let found = devices_of(host.clone(), &Devices::new(&ids), facts);
        let link = |e: &Endpoint| e.link.clone().unwrap_or_default();
        found
            .iter()
            .map(|e| format!("{} {}", e.name, link(e)))
            .collect()
    }

    #[test]
    fn a_host_has_an_endpoint_for_each_active_port() {
        let host = &hosts(&["a", "b"].map(|h| parse_host(h).unwrap()), 7).unwrap()[0];
        let facts = PeerFacts {
            host: "a".to_owned(),
            ports: vec![
                port("mlx4_0", 1, false, true),
                port("mlx4_0", 2, false, true),
                port("mlx5_0", 1, false, false),
                port("siw0", 1, true, true),
            ],
        };
        assert_eq!(
            names(host, "all", Some(&facts)),
            ["a/mlx4_0:1 RoCE", "a/mlx4_0:2 RoCE", "a/siw0 iWARP"]
        );
        assert_eq!(names(host, "siw0", Some(&facts)), ["a iWARP"]);
        assert_eq!(
            names(host, "mlx4_0:2,mlx5_0", Some(&facts)),
            ["a/mlx4_0:2 RoCE", "a/mlx5_0 "]
        );
        // A host that does not respond.
        assert_eq!(names(host, "all", None), ["a "]);
        assert_eq!(
            names(host, "rxe0,siw0", None),
            ["a/rxe0 ".to_owned(), "a/siw0 ".to_owned()]
        );
    }

    #[test]
    fn hosts_of_a_mesh_are_distinct() {
        let names = |line: &str| -> Result<Vec<String>> {
            let list: Vec<Host> = line.split(',').map(|h| parse_host(h).unwrap()).collect();
            Ok(hosts(&list, 1)?.into_iter().map(|e| e.name).collect())
        };
        assert_eq!(names("a:1,a:2").unwrap(), ["a:1", "a:2"]);
        for line in ["a", "a,a", "a:1,a"] {
            assert!(names(line).is_err(), "{line}");
        }
    }

    #[test]
    fn only_ports_of_one_technology_are_measured() {
        let both = hosts(&["a", "b"].map(|h| parse_host(h).unwrap()), 7).unwrap();
        let with = |host: &Endpoint, link: Option<&str>| Endpoint {
            link: link.map(str::to_owned),
            ..host.clone()
        };
        let (a, b) = (&both[0], &both[1]);
        assert!(a.can_reach(b) && !a.can_reach(a));
        let a = with(a, Some("RoCE"));
        assert!(a.can_reach(b) && a.can_reach(&with(b, Some("RoCE"))));
        assert!(!a.can_reach(&with(b, Some("iWARP"))));
    }
}
