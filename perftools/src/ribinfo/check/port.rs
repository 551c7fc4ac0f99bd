//! The state of each port, and why it is not ACTIVE.

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::device::{Device, Port, state};

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    facts
        .ports()
        .map(|(device, port)| {
            judge(facts, device, port).on(format!("{}/{}", device.name, port.port))
        })
        .collect()
}

fn judge(facts: &HostFacts<'_>, device: &Device, port: &Port) -> Finding {
    if port.is_active() {
        let netdev = port
            .netdev
            .as_ref()
            .map_or_else(String::new, |netdev| format!(" on {netdev}"));
        return Finding::ok(format!("ACTIVE, {}{netdev}", port.link_layer));
    }
    if port.is_ethernet() {
        ethernet(facts, port)
    } else {
        infiniband(device, port)
    }
}

fn infiniband(device: &Device, port: &Port) -> Finding {
    match port.state.code {
        state::INIT => Finding::fault(
            "INIT: no subnet manager has configured it; every fabric needs one, even two hosts back to back",
        )
        .mend("systemctl enable --now opensm (on one host of the fabric, or in the switch)"),
        state::ARMED => Finding::fault("ARMED: a subnet manager began and did not finish")
            .mend("systemctl restart opensm (where the subnet manager runs), and look at its log"),
        state::DOWN => match port.phys_state.code {
            2 => Finding::fault("DOWN, polling: nobody answers at the other end of the cable").mend(format!(
                "seat the cable, switch the other end on; iblinkinfo -C {} -P {}",
                device.name, port.port
            )),
            3 => Finding::fault("DOWN, switched off")
                .mend(format!("ibportstate -C {0} -P {1} -D 0 {1} enable", device.name, port.port)),
            _ => Finding::fault(format!("DOWN, {}", port.phys_state))
                .mend(format!("ibstat {} {}; seat the cable", device.name, port.port)),
        },
        _ => Finding::fault(format!("its state is {}", known(port)))
            .mend(format!("ibstat {} {}", device.name, port.port)),
    }
}

fn ethernet(facts: &HostFacts<'_>, port: &Port) -> Finding {
    let Some(name) = &port.netdev else {
        return Finding::fault(format!(
            "{}: no network interface is behind it",
            known(port)
        ))
        .mend("rdma link show; modprobe the Ethernet driver of the card");
    };
    match facts.netdev(name) {
        None => Finding::fault(format!("{}: its interface {name} is gone", known(port)))
            .mend("rdma link show; ip link show"),
        Some(netdev) if !netdev.up => {
            Finding::fault(format!("{}: its interface {name} is down", known(port)))
                .mend(format!("ip link set {name} up"))
        }
        Some(netdev) if netdev.carrier == Some(false) => Finding::fault(format!(
            "{}: {name} is up, but nobody is at the other end",
            known(port)
        ))
        .mend(format!(
            "seat the cable, switch the other end on; ethtool {name}"
        )),
        Some(_) => Finding::fault(format!(
            "{}, though its interface {name} is up",
            known(port)
        ))
        .mend(format!("ip link set {name} down && ip link set {name} up")),
    }
}

fn known(port: &Port) -> &str {
    if port.state.name.is_empty() {
        "not known"
    } else {
        &port.state.name
    }
}
