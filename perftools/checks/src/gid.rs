//! The GID table.

use host::HostFacts;
use host::device::{Device, Port};

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
        // EFA sets its GID itself.
        let sm = if port.is_infiniband() {
            "systemctl restart opensm (on the host that runs the subnet manager)"
        } else {
            "reload the driver"
        };
        return Some(match count {
            0 => Finding::fault("the GID table is empty").with_remedy(sm),
            _ => Finding::ok(format!("GID table entries: {count}")),
        });
    }
    // A device whose node was not given to this container is reported by the check `nodes`.
    let node = facts
        .probe
        .nodes
        .iter()
        .find(|node| Some(&node.name) == device.uverbs.as_ref());
    if port.netdev.is_none() && node.is_none() && !facts.probe.nodes.is_empty() {
        return None;
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
    let has = |ip| port.gids.iter().any(|row| row.gid.to_ip() == Some(ip));
    let link_local = |ip: &std::net::IpAddr| matches!(ip, std::net::IpAddr::V6(v6) if v6.is_unicast_link_local());
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
    if !port.gids.iter().any(|row| !row.gid.is_link_local()) {
        return Some(Finding::fault(format!(
            "the GID table has only link-local entries: {netdev} has no address that a peer can connect to"
        ))
        .with_remedy(format!("ip addr add ADDRESS/BITS dev {netdev}")));
    }
    // The interface can be in another network namespace.
    let complete = match names.as_slice() {
        [] => String::new(),
        names => format!(", including every address of {}", names.join(", ")),
    };
    Some(Finding::ok(format!("GID table entries: {count}{complete}")))
}

/// Returns `true` if an interface is a VLAN of another one, by its usual name.
fn is_vlan_of(name: &str, netdev: &str) -> bool {
    let id = name
        .strip_prefix(netdev)
        .and_then(|rest| rest.strip_prefix('.'));
    id.is_some_and(|id| id.parse::<u16>().is_ok())
}
