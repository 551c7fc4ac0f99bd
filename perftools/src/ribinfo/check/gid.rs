//! The GID table.

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::device::{Device, Port};

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let ports = facts
        .ports()
        .filter(|(device, port)| port.is_active() && !device.is_iwarp());
    ports
        .map(|(device, port)| {
            judge(facts, device, port).on(format!("{}/{}", device.name, port.port))
        })
        .collect()
}

fn judge(facts: &HostFacts<'_>, device: &Device, port: &Port) -> Finding {
    let count = port.gids.len();
    if !port.is_ethernet() {
        return match count {
            0 => Finding::fault("its GID table is empty")
                .mend("systemctl restart opensm (where the subnet manager runs)"),
            _ => Finding::ok(format!("{count} in its GID table")),
        };
    }
    let Some(netdev) = &port.netdev else {
        return Finding::fault("its GID table is empty, and no interface is behind it")
            .mend("rdma link show");
    };
    let has = |ip| port.gids.iter().any(|row| row.gid.to_ip() == Some(ip));
    let link_local = |ip: &std::net::IpAddr| matches!(ip, std::net::IpAddr::V6(v6) if v6.is_unicast_link_local());
    let missing = facts
        .addresses(netdev)
        .find(|address| !link_local(&address.ip) && !has(address.ip));
    if let Some(address) = missing {
        return Finding::fault(format!("{netdev} has the address {}, but its GID table has not", address.ip)).mend(
            format!("ip addr del {address} dev {netdev} && ip addr add {address} dev {netdev}; then ribinfo gids"),
        );
    }
    if !port.gids.iter().any(|row| !row.gid.is_link_local()) {
        return Finding::fault(format!(
            "no GID but link-local ones: {netdev} has no address, so no peer finds {} by one",
            device.name
        ))
        .mend(format!("ip addr add ADDRESS/BITS dev {netdev}"));
    }
    Finding::ok(format!(
        "{count} in its GID table, every address of {netdev} among them"
    ))
}
