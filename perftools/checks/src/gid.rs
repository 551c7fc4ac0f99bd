//! The GID table.

use std::net::IpAddr;

use host::HostFacts;
use host::device::{Device, Port};
use host::netdev::Netdev;

use super::finding::Finding;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let ports = facts
        .ports()
        .filter(|(device, port)| port.is_active() && !device.is_iwarp());
    ports
        .filter_map(|(device, port)| {
            Some(check_port(facts, device, port)?.on(format!("{}/{}", device.name, port.port)))
        })
        .collect()
}

fn check_port(facts: &HostFacts, device: &Device, port: &Port) -> Option<Finding> {
    let count = port.gids.len();
    if !port.is_ethernet() {
        return Some(check_other(port));
    }
    // A device whose node is missing is reported by the check `nodes`.
    if port.netdev.is_none() && !facts.has_node(device) && !facts.probe.nodes.is_empty() {
        return None;
    }
    if facts.is_raw(device, port) {
        return Some(check_raw(facts, device));
    }
    let container = facts.environment.container.unwrap_or("this process");
    let Some(netdev) = &port.netdev else {
        let table = if count == 0 {
            "is empty"
        } else {
            "has only entries of other namespaces"
        };
        let text = format!(
            "the GID table {table}, because {container} runs in a network namespace without the port's interface"
        );
        return Some(Finding::fault(text).with_remedy(
            "use the host's network, or add an interface of this adapter to the namespace (SR-IOV or macvlan; for Kubernetes with the RDMA CNI)",
        ));
    };
    let interface = facts.netdev(netdev);
    if device.is_software() && interface.is_some_and(Netdev::lacks_address) {
        return Some(Finding::fault(format!(
            "{netdev} has no hardware address, so rdma_cm cannot resolve addresses: nothing can connect over RoCE"
        ))
        .with_remedy(format!(
            "put the device on an Ethernet interface: rdma link add NAME type rxe netdev NETDEV; over {netdev}, Soft-iWARP works: modprobe siw && rdma link add siw_{netdev} type siw netdev {netdev}"
        )));
    }
    let has = |ip| port.gids.iter().any(|row| row.gid.to_ip() == Some(ip));
    let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let uppers = facts.netdevs.iter().map(|other| other.name.as_str());
    let names: Vec<&str> = uppers
        .filter(|name| *name == netdev || is_vlan_of(name, netdev))
        .collect();
    let mut addresses = names.iter().flat_map(|name| facts.addresses(name));
    if let Some(address) = addresses.find(|address| !link_local(&address.ip) && !has(address.ip)) {
        let (name, ip) = (&address.netdev, address.ip);
        let vlan = if name == netdev {
            String::new()
        } else {
            format!(", a VLAN of {netdev},")
        };
        let text =
            format!("{name}{vlan} has the address {ip}, but the GID table has no entry for it");
        return Some(Finding::fault(text).with_remedy(match address.bits {
            // A second entry of the address makes the kernel add the GID, and changes no route.
            Some(bits) if ip.is_ipv4() && bits < 32 => {
                format!("ip addr add {ip}/32 dev {name}; check with ribinfo gids")
            }
            _ => format!(
                "when nothing uses {name}: ip addr del {address} dev {name} && ip addr add {address} dev {name}, and add the routes over {name} again, which the first command removes"
            ),
        }));
    }
    let has_address = facts
        .addresses(netdev)
        .any(|address| !link_local(&address.ip));
    if facts.is_switchdev(device) && !has_address {
        return Some(Finding::ok(format!(
            "GID table entries: {count}; {netdev} is the uplink of an adapter in switchdev mode and has no address"
        )));
    }
    if !port.gids.iter().any(|row| !row.gid.is_link_local()) {
        let table = if count == 0 {
            "is empty"
        } else {
            "has only link-local entries"
        };
        return Some(
            Finding::fault(format!(
                "the GID table {table}: {netdev} has no address that a peer can connect to"
            ))
            .with_remedy(format!("ip addr add ADDRESS/BITS dev {netdev}")),
        );
    }
    if let Some(stale) = interface.and_then(|interface| stale_gid(facts, interface, port)) {
        return Some(Finding::warning(format!(
            "the GID table has {stale}, which is the address of an earlier MAC of {netdev} (now {})",
            interface.map_or("", |interface| &interface.address)
        ))
        .with_remedy(format!(
            "when nothing uses {netdev}: ip link set {netdev} down && ip link set {netdev} up, and add the routes over {netdev} again, which the first command removes; check with ribinfo gids"
        )));
    }
    // The interface can be in another network namespace.
    let complete = match names.as_slice() {
        [] => String::new(),
        names => format!(", including every address of {}", names.join(", ")),
    };
    Some(Finding::ok(format!("GID table entries: {count}{complete}")))
}

/// Checks a port of InfiniBand or EFA, which sets its GID itself.
fn check_other(port: &Port) -> Finding {
    let remedy = if port.is_infiniband() {
        "systemctl restart opensm (on the host that runs the subnet manager)"
    } else {
        "reload the driver"
    };
    match port.gids.len() {
        0 => Finding::fault("the GID table is empty").with_remedy(remedy),
        count => Finding::ok(format!("GID table entries: {count}")),
    }
}

/// Returns the finding for a port that carries raw packets only. In switchdev mode this is normal:
/// the virtual functions have RoCE.
fn check_raw(facts: &HostFacts, device: &Device) -> Finding {
    if facts.is_switchdev(device) {
        return Finding::ok(
            "no GIDs: the adapter is in switchdev mode, and this port carries raw packets only; virtual functions have RoCE",
        );
    }
    if device.driver.as_deref() == Some("mana") {
        return Finding::fault("no GIDs: this kernel's driver has raw packets only")
            .with_remedy("use a newer kernel, whose mana_ib has RoCE");
    }
    let slot = device.slot.as_deref().unwrap_or("SLOT");
    Finding::fault("no GIDs: this port carries raw packets only, because RoCE is disabled or the adapter is in switchdev mode")
        .with_remedy(format!(
            "devlink dev eswitch show pci/{slot} (in switchdev mode, use a virtual function); devlink dev param show pci/{slot} name enable_roce; when nothing uses the adapter: devlink dev param set pci/{slot} name enable_roce value true cmode driverinit && devlink dev reload pci/{slot}"
        ))
}

/// Returns a link-local GID of an interface if neither its MAC nor one of its addresses gives any
/// of them. The kernel makes the default GIDs of the MAC (`make_default_gid`).
fn stale_gid(facts: &HostFacts, netdev: &Netdev, port: &Port) -> Option<IpAddr> {
    let expected = IpAddr::V6(netdev.eui64()?);
    let rows = port.gids.iter().filter(|row| row.gid.is_link_local());
    let rows = rows.filter(|row| row.netdev.as_ref() == Some(&netdev.name));
    let gids: Vec<IpAddr> = rows.filter_map(|row| row.gid.to_ip()).collect();
    let is_of = |ip: &IpAddr| *ip == expected || facts.addresses(&netdev.name).any(|a| a.ip == *ip);
    gids.first().copied().filter(|_| !gids.iter().any(is_of))
}

/// Returns `true` if an interface is a VLAN of another one, by its usual name.
pub(super) fn is_vlan_of(name: &str, netdev: &str) -> bool {
    let id = name
        .strip_prefix(netdev)
        .and_then(|rest| rest.strip_prefix('.'));
    id.is_some_and(|id| id.parse::<u16>().is_ok())
}
