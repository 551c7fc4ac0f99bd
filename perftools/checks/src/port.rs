//! The state of each port, the reason why it is not ACTIVE, and the state of its queue pair for
//! general services.

use host::HostFacts;
use host::device::{Device, Port, state};
use host::netdev::Netdev;

use super::finding::Finding;
use super::sm::START_OPA;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    facts
        .ports()
        .map(|(device, port)| {
            check_port(facts, device, port).on(format!("{}/{}", device.name, port.port))
        })
        .collect()
}

fn check_port(facts: &HostFacts, device: &Device, port: &Port) -> Finding {
    if port.is_active() {
        if facts.has_failed_gsi_qp(&device.name, port.port) {
            return failed_gsi_qp(device, port);
        }
        let netdev = port
            .netdev
            .as_ref()
            .map_or_else(String::new, |netdev| format!(" on {netdev}"));
        return Finding::ok(format!("ACTIVE, {}{netdev}", port.link_layer));
    }
    if is_unused(facts, device, port) {
        return Finding::ok(format!(
            "not in use ({}): it has no address, and another port is ACTIVE (use --expect ports=N if N ports must be)",
            state_name(port)
        ));
    }
    if port.is_infiniband() {
        check_infiniband(device, port)
    } else if port.is_ethernet() {
        check_ethernet(facts, port)
    } else {
        Finding::fault(state_name(port)).with_remedy(format!(
            "dmesg | grep -i {} (for the reason)",
            device.driver.as_deref().unwrap_or("rdma")
        ))
    }
}

fn failed_gsi_qp(device: &Device, port: &Port) -> Finding {
    let remedy = match &port.netdev {
        Some(netdev) if device.is_software() => format!(
            "rdma link delete {0} && rdma link add {0} type rxe netdev {netdev}",
            device.name
        ),
        _ => format!(
            "unload the driver of {} and load it again; rdma resource show qp",
            device.name
        ),
    };
    Finding::fault("ACTIVE, but queue pair 1 (GSI) is in the state ERR: rdma_cm can neither send nor receive connection requests")
        .with_remedy(remedy)
}

/// Returns `true` if nothing shows that the port should be connected: it has no link, its network
/// interface has no address, and another port of the adapter is active.
fn is_unused(facts: &HostFacts, device: &Device, port: &Port) -> bool {
    let has_active_port = facts
        .ports()
        .any(|(other, port)| device.is_same_adapter(other) && port.is_active());
    let has_link = port.state.code != state::DOWN || !matches!(port.phys_state.code, 2 | 3);
    let belongs = |netdev: &&Netdev| {
        let guid = netdev
            .ipoib
            .as_ref()
            .and_then(|ipoib| Some(ipoib.hwaddr?.guid()));
        port.netdev.as_ref() == Some(&netdev.name) || (guid.is_some() && guid == port.guid())
    };
    let is_configured = facts
        .netdevs
        .iter()
        .filter(belongs)
        .any(|netdev| facts.addresses(&netdev.name).next().is_some());
    has_active_port && !has_link && !is_configured && !device.is_software()
}

fn check_infiniband(device: &Device, port: &Port) -> Finding {
    if device.is_virtual {
        return check_virtual(port);
    }
    match port.state.code {
        state::INIT if device.is_omni_path() => {
            Finding::fault("INIT: no fabric manager has configured this port").with_remedy(START_OPA)
        }
        state::INIT => Finding::fault(
            "INIT: no subnet manager has configured this port; every InfiniBand fabric needs one, even two hosts connected back to back",
        )
        .with_remedy("systemctl enable --now opensm (on one host of the fabric, or in the switch)"),
        state::ARMED => Finding::fault("ARMED: the subnet manager did not finish configuring this port")
            .with_remedy("systemctl restart opensm (on the host that runs the subnet manager), then check its log"),
        state::DOWN => match port.phys_state.code {
            2 => Finding::fault("DOWN (Polling): no response from the other end of the cable").with_remedy(format!(
                "reseat the cable and check that the other end is powered on; iblinkinfo -C {} -P {}",
                device.name, port.port
            )),
            3 => Finding::fault("DOWN (Disabled): the port is administratively disabled")
                .with_remedy(format!("ibportstate -C {0} -P {1} -D 0 {1} enable", device.name, port.port)),
            _ => Finding::fault(format!("DOWN ({})", port.phys_state))
                .with_remedy(format!("ibstat {} {}; reseat the cable", device.name, port.port)),
        },
        _ => Finding::fault(format!("port state {}", state_name(port)))
            .with_remedy(format!("ibstat {} {}", device.name, port.port)),
    }
}

/// Checks the port of a virtual function, whose GUID and link the host of the adapter sets.
fn check_virtual(port: &Port) -> Finding {
    let text = format!(
        "virtual function: {} ({})",
        state_name(port),
        port.phys_state
    );
    Finding::fault(text).with_remedy(
        "on the host of the adapter: ip link set PF vf N node_guid GUID port_guid GUID state auto, then rebind the VF; opensm needs virt_enabled 2",
    )
}

fn check_ethernet(facts: &HostFacts, port: &Port) -> Finding {
    let Some(name) = &port.netdev else {
        return Finding::fault(format!(
            "{}: the port's network interface is not in this network namespace",
            state_name(port)
        ))
        .with_remedy("rdma link show (in the namespace of the host); move the interface: ip link set NETDEV netns NAME");
    };
    match facts.netdev(name) {
        None => Finding::fault(format!(
            "{}: network interface {name} no longer exists",
            state_name(port)
        ))
        .with_remedy("rdma link show; ip link show"),
        Some(netdev) if !netdev.up => Finding::fault(format!(
            "{}: network interface {name} is down",
            state_name(port)
        ))
        .with_command(format!("ip link set {name} up")),
        Some(netdev) if netdev.carrier == Some(false) => Finding::fault(format!(
            "{}: network interface {name} is up, but has no carrier",
            state_name(port)
        ))
        .with_remedy(format!(
            "reseat the cable and check that the other end is up; ethtool {name}"
        )),
        Some(_) => Finding::fault(format!(
            "{}, although network interface {name} is up",
            state_name(port)
        ))
        .with_remedy(format!("ip link set {name} down && ip link set {name} up")),
    }
}

fn state_name(port: &Port) -> &str {
    if port.state.name.is_empty() {
        "unknown"
    } else {
        &port.state.name
    }
}
