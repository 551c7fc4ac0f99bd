//! The GID table.

use std::net::IpAddr;

use host::HostFacts;
use host::device::{Device, Port};
use host::netdev::{Netdev, needs_interface};

use super::addresses::is_spare;
use super::finding::Finding;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let ports = facts
        .ports()
        .filter(|(device, port)| port.is_active() && !device.is_iwarp() && !device.is_usnic());
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
    if facts.is_elsewhere(port) {
        return Some(Finding::ok(
            "the port's interface is in another network namespace",
        ));
    }
    let container = facts.environment.container;
    let container = container.map_or_else(|| "this process".to_owned(), |c| c.to_string());
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
    // The kernel adds the addresses of a bond to the table of its active slave only.
    let master = facts.master(netdev);
    let is_master = |other: &Netdev| master.is_some_and(|master| master.name == other.name);
    let uppers = facts.netdevs.iter();
    let uppers = uppers.filter(|other| other.name == *netdev || other.is_on(netdev));
    let uppers = uppers.filter(|other| !is_master(other));
    let names: Vec<&str> = uppers.map(|other| other.name.as_str()).collect();
    let mut addresses = names.iter().flat_map(|name| facts.addresses(name));
    if let Some(address) =
        addresses.find(|address| !needs_interface(address.ip) && !has(address.ip))
    {
        let (name, ip) = (&address.netdev, address.ip);
        let vlan = if name == netdev {
            String::new()
        } else if name.starts_with(&format!("{netdev}.")) {
            format!(", a VLAN of {netdev},")
        } else {
            format!(", which is on {netdev},")
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
        .any(|address| !needs_interface(address.ip));
    if facts.is_switchdev(device) && !has_address {
        return Some(Finding::ok(format!(
            "GID table entries: {count}; {netdev} is the uplink of an adapter in switchdev mode and has no address"
        )));
    }
    if !port.gids.iter().any(|row| !row.gid.is_link_local()) {
        return Some(check_unreachable(facts, netdev, (device, port), master));
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

/// Returns the finding for a port whose GID table has no address that a peer can connect to.
fn check_unreachable(
    facts: &HostFacts,
    netdev: &str,
    (device, port): (&Device, &Port),
    master: Option<&Netdev>,
) -> Finding {
    let count = port.gids.len();
    if master.is_none() && is_spare(facts, device) {
        return Finding::ok(format!(
            "GID table entries: {count}; {netdev} has no address, but another function of the adapter has one"
        ));
    }
    if let Some(master) = master.filter(|master| is_served_elsewhere(facts, master, netdev)) {
        return Finding::ok(format!(
            "GID table entries: {count}; the addresses of {} belong to another of its interfaces now",
            master.name
        ));
    }
    let table = if count == 0 {
        "is empty"
    } else {
        "has only link-local entries"
    };
    let name = master.map_or(netdev, |master| &master.name);
    // The interface with the addresses of a switch in software is not above the port's.
    let remedy = if name == "ovs-system" {
        format!(
            "Open vSwitch has the address in an interface of its own, which has no RDMA: use a virtual function of the adapter, or, when nothing uses {netdev}, take it out of the bridge and give it the address"
        )
    } else {
        format!("ip addr add ADDRESS/BITS dev {name}")
    };
    Finding::fault(format!(
        "the GID table {table}: {netdev} has no address that a peer can connect to"
    ))
    .with_remedy(remedy)
}

/// Checks a port of InfiniBand or EFA, which sets its GID itself.
fn check_other(port: &Port) -> Finding {
    let remedy = if port.is_infiniband() {
        "systemctl restart opensm (on the host that runs the subnet manager)"
    } else {
        "when nothing uses the device: load its driver again"
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

/// Returns `true` if the address of a bond is in the GID table of another port. A slave that is not
/// active has no GIDs (`is_eth_port_of_netdev_filter`, `is_eth_port_inactive_slave_filter`).
fn is_served_elsewhere(facts: &HostFacts, master: &Netdev, slave: &str) -> bool {
    let mut ports = facts.ports().filter(|(_, port)| {
        let netdev = port.netdev.as_deref();
        netdev.is_some_and(|name| name != slave)
    });
    let addresses: Vec<IpAddr> = facts.addresses(&master.name).map(|a| a.ip).collect();
    ports.any(|(_, port)| {
        let mut ips = port.gids.iter().filter_map(|row| row.gid.to_ip());
        ips.any(|ip| !needs_interface(ip) && addresses.contains(&ip))
    })
}
