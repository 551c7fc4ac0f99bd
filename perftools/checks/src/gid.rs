//! The GID table.

use host::HostFacts;
use host::device::Port;

use super::finding::Finding;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let ports = facts
        .ports()
        .filter(|(device, port)| port.is_active() && !device.is_iwarp());
    ports
        .map(|(device, port)| check_port(facts, port).on(format!("{}/{}", device.name, port.port)))
        .collect()
}

fn check_port(facts: &HostFacts, port: &Port) -> Finding {
    let count = port.gids.len();
    if !port.is_ethernet() {
        return match count {
            0 => Finding::fault("the GID table is empty")
                .with_remedy("systemctl restart opensm (on the host that runs the subnet manager)"),
            _ => Finding::ok(format!("GID table entries: {count}")),
        };
    }
    let Some(netdev) = &port.netdev else {
        return Finding::fault("the GID table is empty, and the port has no network interface")
            .with_remedy("rdma link show");
    };
    let has = |ip| port.gids.iter().any(|row| row.gid.to_ip() == Some(ip));
    let link_local = |ip: &std::net::IpAddr| matches!(ip, std::net::IpAddr::V6(v6) if v6.is_unicast_link_local());
    let missing = facts
        .addresses(netdev)
        .find(|address| !link_local(&address.ip) && !has(address.ip));
    if let Some(address) = missing {
        return Finding::fault(format!("{netdev} has the address {}, but the GID table has no entry for it", address.ip)).with_remedy(
            format!("ip addr del {address} dev {netdev} && ip addr add {address} dev {netdev}; check with ribinfo gids"),
        );
    }
    if !port.gids.iter().any(|row| !row.gid.is_link_local()) {
        return Finding::fault(format!(
            "the GID table has only link-local entries: {netdev} has no address that a peer can connect to"
        ))
        .with_remedy(format!("ip addr add ADDRESS/BITS dev {netdev}"));
    }
    Finding::ok(format!(
        "GID table entries: {count}, including every address of {netdev}"
    ))
}
