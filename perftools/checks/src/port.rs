//! The state of each port, the reason why it is not ACTIVE, and the state of its queue pair for
//! general services.

use host::HostFacts;
use host::device::{Device, Port, state};
use host::netdev::Netdev;
use host::udev::IPOIB_RULES;

use super::addresses::is_link_local;
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
    if let Some(finding) = check_link_type(facts, device, port) {
        return finding;
    }
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
    if facts.is_switchdev(device) && port.umad.is_none() {
        return Finding::ok(format!(
            "{}: a representor of the adapter's switch, in use only by a virtual function",
            state_name(port)
        ));
    }
    if facts.is_elsewhere(port) {
        return Finding::ok(format!(
            "{}: its network interface is in another network namespace",
            state_name(port)
        ));
    }
    if is_unused(facts, device, port) {
        return Finding::ok(format!(
            "not in use ({}): it has no address, and another port is ACTIVE (use --expect ports=N if N ports must be)",
            state_name(port)
        ));
    }
    if port.is_infiniband() {
        check_infiniband(facts, device, port)
    } else if port.is_ethernet() {
        check_ethernet(facts, device, port)
    } else {
        Finding::fault(state_name(port)).with_remedy(format!(
            "dmesg | grep -i {} (for the reason)",
            device.driver.as_deref().unwrap_or("rdma")
        ))
    }
}

/// Returns a fault if the port of an adapter that has both link types is in Ethernet mode, although
/// this host is configured for InfiniBand.
fn check_link_type(facts: &HostFacts, device: &Device, port: &Port) -> Option<Finding> {
    let has_infiniband = facts.ports().any(|(_, port)| port.is_infiniband());
    let is_candidate = port.is_ethernet() && !device.is_virtual && !has_infiniband;
    let is_used = port.netdev.as_ref().is_some_and(|name| {
        facts
            .addresses(name)
            .any(|address| !is_link_local(address.ip))
    });
    if !is_candidate || is_used {
        return None;
    }
    let configured = if let Some(profile) = facts.profiles.first() {
        profile.path.as_str()
    } else if !facts.udev_rules.is_empty() {
        IPOIB_RULES
    } else {
        let confs = facts.opensm.effective().into_iter();
        let mut guids = confs.filter(|conf| conf.guid().is_some());
        let sysconfig = facts.opensm.sysconfig.as_ref();
        let sysconfig = sysconfig.filter(|sysconfig| !sysconfig.guids.is_empty());
        let conf = guids.next().map(|conf| conf.path.as_str());
        conf.or(sysconfig.map(|sysconfig| sysconfig.path.as_str()))?
    };
    let remedy = set_link_type(device, port, true)?;
    let text = format!("the port is in Ethernet mode, but {configured} configures InfiniBand");
    Some(Finding::fault(text).with_remedy(remedy))
}

/// Returns the command that changes the link type of an adapter that has both.
fn set_link_type(device: &Device, port: &Port, to_infiniband: bool) -> Option<String> {
    let (slot, number) = (device.slot.as_deref().unwrap_or("SLOT"), port.port);
    match device.driver.as_deref()? {
        "mlx4_core" => {
            let kind = if to_infiniband { "ib" } else { "eth" };
            Some(format!(
                "when nothing uses the port: echo {kind} > /sys/bus/pci/devices/{slot}/mlx4_port{number}"
            ))
        }
        "mlx5_core" => {
            let kind = if to_infiniband { 1 } else { 2 };
            Some(format!(
                "mlxconfig -d {slot} set LINK_TYPE_P{number}={kind}, then reboot"
            ))
        }
        _ => None,
    }
}

/// Returns the end of the remedy for a link without a response: the other end can have the other
/// link type.
fn or_other_type(device: &Device, port: &Port) -> String {
    let (other, to_infiniband) = if port.is_ethernet() {
        ("InfiniBand", true)
    } else {
        ("Ethernet", false)
    };
    let command = set_link_type(device, port, to_infiniband).filter(|_| !device.is_virtual);
    command.map_or_else(String::new, |command| {
        format!("; if the other end is {other}: {command}")
    })
}

fn failed_gsi_qp(device: &Device, port: &Port) -> Finding {
    let remedy = match &port.netdev {
        Some(netdev) if device.is_software() => format!(
            "when nothing uses {0}: rdma link delete {0} && rdma link add {0} type rxe netdev {netdev}",
            device.name
        ),
        _ => format!(
            "when nothing uses {} (rdma resource show qp): unload its driver and load it again",
            device.name
        ),
    };
    Finding::fault("ACTIVE, but queue pair 1 (GSI) is in the state ERR: rdma_cm can neither send nor receive connection requests")
        .with_remedy(remedy)
}

/// Returns `true` if nothing shows that the port should be connected: it has no link, its network
/// interface has no address, and another port is active. Over InfiniBand, which needs no address,
/// that is a port of the same adapter or of one of another model.
fn is_unused(facts: &HostFacts, device: &Device, port: &Port) -> bool {
    let replaces = |other: &Device| {
        let is_other_model = other.hca_type.is_some() && other.hca_type != device.hca_type;
        device.is_same_adapter(other) || is_other_model || !port.is_infiniband()
    };
    let has_active_port = facts
        .ports()
        .any(|(other, port)| replaces(other) && port.is_active());
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

fn check_infiniband(facts: &HostFacts, device: &Device, port: &Port) -> Finding {
    if device.is_virtual {
        return check_virtual(port);
    }
    match port.state.code {
        state::INIT if device.is_omni_path() => {
            Finding::fault("INIT: no fabric manager has configured this port").with_remedy(START_OPA)
        }
        state::INIT => check_init(facts, device, port),
        state::ARMED => Finding::fault("ARMED: the subnet manager did not finish configuring this port")
            .with_remedy("systemctl restart opensm (on the host that runs the subnet manager), then check its log"),
        state::DOWN => match port.phys_state.code {
            2 => Finding::fault("DOWN (Polling): no response from the other end of the cable").with_remedy(format!(
                "reseat the cable and check that the other end is powered on; iblinkinfo -C {} -P {}{}",
                device.name, port.port, or_other_type(device, port)
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

/// Returns the finding for a port without a subnet manager. Without a GUID, opensm manages one port
/// of a host, so on a host with several, this one must be named (opensm(8), option `--guid`).
fn check_init(facts: &HostFacts, device: &Device, port: &Port) -> Finding {
    let local = || facts.ports().filter(|(_, port)| port.is_infiniband());
    let guid = port.guid().map_or(0, |guid| guid.0);
    let is_local =
        |guid: u64| local().any(|(_, port)| port.guid().is_some_and(|own| own.0 == guid));
    let mut managers = facts.probe.sms.iter().filter_map(|found| {
        let sm = found.sm.as_ref().ok()?;
        is_local(sm.guid).then(|| format!("{}/{}", found.device, found.port))
    });
    let on = format!("{}/{}", device.name, port.port);
    let confs = facts.opensm.effective();
    let conf = confs
        .iter()
        .find(|conf| conf.guid().is_none_or(|other| other != guid));
    let elsewhere = managers.find(|other| *other != on);
    let reason = match (&elsewhere, conf) {
        (Some(other), _) => format!("the subnet manager of this host serves {other} only"),
        (None, Some(conf)) if local().count() > 1 => format!(
            "{} names {}, and opensm serves one port",
            conf.path,
            if conf.guid().is_some_and(|guid| guid != 0) {
                "another port"
            } else {
                "no port (guid)"
            }
        ),
        _ => {
            let several = if local().count() > 1 {
                format!(
                    "; opensm serves one port: set guid 0x{guid:016x} in opensm.conf for this one"
                )
            } else {
                String::new()
            };
            return Finding::fault("INIT: no subnet manager has configured this port; every InfiniBand fabric needs one, even two hosts connected back to back")
                .with_remedy(format!(
                    "systemctl enable --now opensm (on one host of the fabric, or in the switch){several}"
                ));
        }
    };
    Finding::fault(format!(
        "INIT: no subnet manager has configured this port: {reason}"
    ))
    .with_remedy(format!(
        "connect the port to the same fabric, or start opensm for it: opensm -B -g 0x{guid:016x}; permanently: guid 0x{guid:016x} in a file of its own (opensm.conf.N), then systemctl restart opensm"
    ))
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

fn check_ethernet(facts: &HostFacts, device: &Device, port: &Port) -> Finding {
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
            "reseat the cable and check that the other end is up; ethtool {name}{}",
            or_other_type(device, port)
        )),
        Some(_) => Finding::fault(format!(
            "{}, although network interface {name} is up",
            state_name(port)
        ))
        .with_remedy(format!(
            "when nothing uses {name}: ip link set {name} down && ip link set {name} up, and add the routes over {name} again, which the first command removes"
        )),
    }
}

fn state_name(port: &Port) -> &str {
    if port.state.name.is_empty() {
        "unknown"
    } else {
        &port.state.name
    }
}
