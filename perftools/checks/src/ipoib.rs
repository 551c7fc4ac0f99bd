//! IPoIB interfaces: mode, MTU, partition and hardware address.

use host::HostFacts;
use host::device::{Device, Port};
use host::hwaddr::{DEFAULT_PREFIX, HwAddr};
use host::netdev::{Ipoib, Netdev, needs_interface};
use host::nm::Profile;
use host::udev::{IPOIB_RULES as RULES, RulePart, UdevRule};
use host::verbs::VerbsPort;
use ipnet::IpNet;

use super::finding::Finding;
use super::spelling;

/// Largest MTU of connected mode, in bytes.
const CONNECTED_MTU: u32 = 65520;
/// Length of the IPoIB header in a datagram, in bytes.
const HEADER: u32 = 4;
const FULL_MEMBER: u16 = 0x8000;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = spelling::check(facts, "/etc/NetworkManager/");
    // NetworkManager cannot create the interface of such a profile.
    let is_missing = |profile: &&Profile| facts.netdev(&profile.interface).is_none();
    let missing = facts.profiles.iter().filter(is_missing);
    findings.extend(
        missing.filter_map(|profile| Some(check_parent(facts, profile)?.on(&profile.interface))),
    );
    // A bond of IPoIB interfaces has their type, and no attributes of its own.
    for netdev in facts
        .netdevs
        .iter()
        .filter(|netdev| netdev.slaves.is_empty())
    {
        if let Some(ipoib) = &netdev.ipoib {
            let port = ipoib.hwaddr.and_then(|address| port_of(facts, address));
            let profile = facts
                .profiles
                .iter()
                .find(|profile| profile.interface == netdev.name);
            let all = [
                check_usable(facts, netdev, port),
                Some(check_mode(facts, netdev, ipoib, port)),
                profile.and_then(|profile| check_profile(facts, netdev, ipoib, profile)),
                check_pkey(netdev, ipoib, port),
                Some(check_address(facts, netdev, ipoib, port)),
            ];
            findings.extend(
                all.into_iter()
                    .flatten()
                    .map(|finding| finding.on(&netdev.name)),
            );
        }
    }
    findings
}

/// Returns the port whose GUID is in the hardware address.
fn port_of(facts: &HostFacts, address: HwAddr) -> Option<(&Device, &Port)> {
    facts
        .ports()
        .find(|(_, port)| port.is_infiniband() && port.guid() == Some(address.guid()))
}

/// Returns a warning if the interface is down or has no address although its port is active.
fn check_usable(
    facts: &HostFacts,
    netdev: &Netdev,
    port: Option<(&Device, &Port)>,
) -> Option<Finding> {
    let name = &netdev.name;
    let is_parent = facts.netdevs.iter().any(|other| {
        other
            .ipoib
            .as_ref()
            .is_some_and(|ipoib| ipoib.parent.as_ref() == Some(name))
    });
    let mut addresses = facts.addresses(name);
    let has_address = addresses.any(|address| !needs_interface(address.ip));
    let is_slave = facts.master(name).is_some();
    // A parent can be used only by its children, a slave only by its bond, and eIPoIB uses
    // interfaces without addresses.
    let needs_address = !is_parent && !is_slave && facts.eipoib.interfaces.is_none();
    if !port.is_some_and(|(_, port)| port.is_active()) {
        return None;
    }
    let has_profile = facts
        .profiles
        .iter()
        .any(|profile| profile.interface == *name);
    if !netdev.up && !has_address && !is_slave && !is_parent && !has_profile {
        return Some(Finding::ok(
            "not in use: the interface is down and has no address; verbs do not need it",
        ));
    }
    if !netdev.up {
        return Some(
            Finding::warning("the interface is down, although its port is ACTIVE")
                .with_command(format!("ip link set {name} up")),
        );
    }
    (needs_address && !has_address).then(|| {
        Finding::warning("the interface has no address, so no host can reach it over IPoIB")
            .with_remedy(format!("ip addr add ADDRESS/BITS dev {name}"))
    })
}

/// Compares the running mode and MTU with the profile of NetworkManager, which sets them at the
/// next activation.
fn check_profile(
    facts: &HostFacts,
    netdev: &Netdev,
    ipoib: &Ipoib,
    profile: &Profile,
) -> Option<Finding> {
    let Profile {
        path,
        source,
        interface,
        mode,
        mtu,
        ..
    } = profile;
    if let Some(finding) = check_parent(facts, profile).or_else(|| check_gateway(profile)) {
        return Some(finding);
    }
    // Interfaces without the file `mode` are in Enhanced mode (ipoib_ops of mlx5), or their kernel
    // was built without connected mode.
    if ipoib.mode.is_empty() && mode.as_deref() == Some("connected") {
        return Some(
            Finding::warning(format!(
                "{path} sets connected mode, which this interface does not have"
            ))
            .with_remedy(format!(
                "{}; ConnectX-4 and later have connected mode only with options ib_ipoib ipoib_enhanced=0 in /etc/modprobe.d, after a reboot",
                profile.change(&source.mode("datagram"))
            )),
        );
    }
    if let Some(mode) = mode
        .as_ref()
        .filter(|mode| !ipoib.mode.is_empty() && **mode != ipoib.mode)
    {
        return Some(
            Finding::warning(format!(
                "{} mode, but {path} sets {mode} mode at the next activation",
                ipoib.mode
            ))
            .with_remedy(format!(
                "{}; to keep the running mode: {}",
                source.apply(interface),
                profile.change(&source.mode(&ipoib.mode))
            )),
        );
    }
    let (running, configured) = (netdev.mtu?, (*mtu)?);
    (running != configured).then(|| {
        Finding::warning(format!(
            "MTU {running} bytes, but {path} sets {configured} bytes at the next activation"
        ))
        .with_remedy(profile.change(&source.mtu(running)))
    })
}

/// Returns a fault for a profile of a child interface whose parent is missing, or is a child.
fn check_parent(facts: &HostFacts, profile: &Profile) -> Option<Finding> {
    let (pkey, parent) = (profile.pkey?, profile.parent.as_ref()?);
    let interface = facts.netdev(parent);
    let ipoib = interface.and_then(|netdev| netdev.ipoib.as_ref());
    // NetworkManager names a child interface after its parent and key (nm-settings(5)).
    let name = &profile.interface;
    let names = [pkey, pkey | FULL_MEMBER].map(|key| format!("{parent}.{key:04x}"));
    let reason = match (interface, ipoib) {
        (None, _) => "does not exist".to_owned(),
        (Some(_), None) => "is not an InfiniBand interface".to_owned(),
        (_, Some(ipoib)) if ipoib.parent.is_some() => "is itself a child interface".to_owned(),
        _ if !names.contains(name) && name.contains('.') => {
            format!("is not that of {name}: its child is {}", names[1])
        }
        _ => return None,
    };
    let mut parents = facts.netdevs.iter().filter(|netdev| {
        let ipoib = netdev.ipoib.as_ref();
        ipoib.is_some_and(|ipoib| ipoib.parent.is_none())
    });
    let of_name = name.rsplit_once('.').map(|(parent, _)| parent);
    let right = parents
        .clone()
        .find(|netdev| Some(netdev.name.as_str()) == of_name);
    let right = right
        .or(parents.next())
        .map_or("IB_INTERFACE", |netdev| &netdev.name);
    Some(
        Finding::fault(format!(
            "{} gives p-key 0x{pkey:04x} the parent {parent}, which {reason}",
            profile.path
        ))
        .with_remedy(format!(
            "nmcli con mod {} infiniband.parent {right}; nmcli con up {0}",
            profile.interface
        )),
    )
}

/// Returns a warning for a profile whose gateway is in no subnet of its addresses.
fn check_gateway(profile: &Profile) -> Option<Finding> {
    let gateway = profile.gateway?;
    let nets = profile.addresses.iter();
    let mut nets = nets.filter_map(|(ip, bits)| IpNet::new(*ip, *bits).ok());
    let subnet = nets
        .clone()
        .find(|net| net.addr().is_ipv4() == gateway.is_ipv4())?;
    let is_outside = !nets.any(|net| net.contains(&gateway));
    is_outside.then(|| {
        let family = if gateway.is_ipv4() { "ipv4" } else { "ipv6" };
        Finding::warning(format!(
            "{}: the gateway {gateway} is outside of the subnet {}",
            profile.path,
            subnet.trunc()
        ))
        .with_remedy(format!(
            "nmcli con mod {} {family}.gateway ADDRESS (one in {}, or '' for none)",
            profile.interface,
            subnet.trunc()
        ))
    })
}

fn check_mode(
    facts: &HostFacts,
    netdev: &Netdev,
    ipoib: &Ipoib,
    port: Option<(&Device, &Port)>,
) -> Finding {
    let name = &netdev.name;
    let mtu = netdev.mtu.unwrap_or(0);
    match ipoib.mode.as_str() {
        "connected" if mtu > CONNECTED_MTU => Finding::fault(format!("connected mode, MTU {mtu} bytes: the maximum is {CONNECTED_MTU}"))
            .with_remedy(format!("ip link set {name} mtu {CONNECTED_MTU}")),
        "connected" if mtu < CONNECTED_MTU => Finding::warning(format!(
            "connected mode, MTU {mtu} bytes: up to {CONNECTED_MTU} is possible (multicast always uses datagram mode)"
        ))
        .with_remedy(format!("ip link set {name} mtu {CONNECTED_MTU}; nmcli con mod {name} infiniband.mtu {CONNECTED_MTU}")),
        "connected" => Finding::ok(format!("connected mode, MTU {mtu} bytes")),
        "datagram" => {
            let verbs = port.and_then(|(device, port)| facts.verbs_port(&device.name, port.port));
            let link = verbs.and_then(VerbsPort::active_mtu_bytes);
            let mut limits = link.map_or_else(|| vec![2044, 4092], |link| vec![link.saturating_sub(HEADER)]);
            // Verbs has no codes for the MTUs of Omni-Path, 8192 and 10240 bytes.
            if port.is_some_and(|(device, _)| device.is_omni_path()) {
                limits.extend([8188, 10236]);
            }
            let largest = limits.last().copied().unwrap_or(0);
            let on_link = link.map_or_else(String::new, |link| format!(" on a link with MTU {link} bytes"));
            // OpenSM's default MTU of a partition is 2048 bytes.
            let is_default = mtu == 2044 && matches!(largest, 4092 | 10236);
            if mtu > largest {
                Finding::fault(format!("datagram mode, MTU {mtu} bytes: the maximum is {largest}{on_link}"))
                    .with_remedy(format!("ip link set {name} mtu {largest}"))
            } else if is_default {
                Finding::ok(format!("datagram mode, MTU {mtu} bytes{on_link} ({largest} needs mtu=5 for the partition in partitions.conf)"))
            } else if !limits.contains(&mtu) {
                Finding::warning(format!("datagram mode, MTU {mtu} bytes: up to {largest} is possible{on_link}")).with_remedy(format!(
                    "ip link set {name} mtu {largest} (4092 also needs mtu=5 for the partition in partitions.conf)"
                ))
            } else {
                Finding::ok(format!("datagram mode, MTU {mtu} bytes{on_link}"))
            }
        }
        "" => Finding::ok(format!("Enhanced mode (datagram only), MTU {mtu} bytes")),
        other => Finding::warning(format!("unknown mode `{other}`; expected: datagram, connected"))
            .with_remedy(format!("echo datagram > /sys/class/net/{name}/mode")),
    }
}

fn check_pkey(netdev: &Netdev, ipoib: &Ipoib, port: Option<(&Device, &Port)>) -> Option<Finding> {
    let pkey = ipoib.pkey?;
    let child = match &ipoib.parent {
        Some(parent) => format!("partition 0x{pkey:04x}, child of {parent}"),
        None => format!("partition 0x{pkey:04x}"),
    };
    if pkey & !FULL_MEMBER == 0 {
        return Some(
            Finding::fault(format!("{child}: partition number 0 is invalid")).with_remedy(format!(
                "when nothing uses {0}: ip link delete {0}; then create it with a valid key, for example nmcli: infiniband.p-key 0x8002",
                netdev.name
            )),
        );
    }
    let Some((device, port)) = port else {
        return Some(Finding::ok(child));
    };
    let same = |key: &&u16| **key & !FULL_MEMBER == pkey & !FULL_MEMBER;
    match port.pkeys.iter().find(same) {
        None if !port.pkeys.is_empty() => Some(
            Finding::fault(format!("{child}: port {}/{} is not a member of this partition", device.name, port.port)).with_remedy(format!(
                "add to partitions.conf: NAME=0x{pkey:04x}, ipoib : {}=full; then systemctl restart opensm",
                port.guid().map_or_else(|| "PORTGUID".into(), |guid| format!("0x{:016x}", guid.0))
            )),
        ),
        Some(key) if key & FULL_MEMBER == 0 => Some(
            Finding::warning(format!("{child}: limited member, so it cannot communicate with other limited members"))
                .with_remedy("set defmember=full or GUID=full in partitions.conf; then systemctl restart opensm"),
        ),
        _ => Some(Finding::ok(child)),
    }
}

fn check_address(
    facts: &HostFacts,
    netdev: &Netdev,
    ipoib: &Ipoib,
    port: Option<(&Device, &Port)>,
) -> Finding {
    let Some(address) = ipoib.hwaddr else {
        return Finding::warning(format!(
            "hardware address {:?} does not have 20 bytes",
            netdev.address
        ))
        .with_remedy(format!("ip link show {}", netdev.name));
    };
    let prefix = if address.prefix() == DEFAULT_PREFIX {
        " (default)"
    } else {
        ""
    };
    let owner = port.map_or_else(String::new, |(device, port)| {
        format!(", {}/{}", device.name, port.port)
    });
    let text = format!(
        "hardware address: flags 0x{:02x}, QP 0x{:06x}, subnet prefix {:016x}{prefix}, port GUID {}{owner}",
        address.flags(),
        address.qpn(),
        address.prefix(),
        address.guid()
    );
    let rules = || facts.udev_rules.iter();
    // The first 12 bytes change: a rule that compares all 20 bytes stops matching.
    let is_whole = |value: &str| {
        let value = value.to_ascii_lowercase().parse::<HwAddr>();
        value.is_ok_and(|rule| rule.guid() == address.guid())
    };
    let mut values = rules().filter_map(|rule| rule.get("ATTR{address}"));
    if values.any(is_whole) {
        return Finding::fault(format!(
            "{text}; the rule in {RULES} compares all 20 bytes, and only the last 8 are stable"
        ))
        .with_remedy(address.udev_rule(&netdev.name));
    }
    let stable = address.stable_part();
    let is_named = |rule: &&UdevRule| {
        let address = rule.get("ATTR{address}").unwrap_or_default();
        address.to_ascii_lowercase().contains(&stable)
    };
    if ipoib.parent.is_some() {
        return Finding::ok(text);
    }
    let mismatches: Vec<Option<String>> = rules()
        .filter(is_named)
        .map(|rule| mismatch(rule, netdev))
        .collect();
    let names: Vec<&str> = rules()
        .filter(|rule| is_named(rule) && mismatch(rule, netdev).is_none())
        .filter_map(|rule| rule.get("NAME"))
        .collect();
    // A rule for the address of no interface was perhaps meant for this one.
    let foreign = rules()
        .filter_map(|rule| rule.get("ATTR{address}"))
        .find(|value| {
            let value = value.to_ascii_lowercase();
            !facts.netdevs.iter().any(|netdev| {
                let hwaddr = netdev.ipoib.as_ref().and_then(|ipoib| ipoib.hwaddr);
                hwaddr.is_some_and(|address| value.contains(&address.stable_part()))
            })
        });
    match (names.as_slice(), mismatches.into_iter().flatten().next()) {
        ([], None) if foreign.is_some() => Finding::warning(format!(
            "no rule in {RULES} has the address of this interface, but one has {}, which no interface has",
            foreign.unwrap_or_default()
        ))
        .with_remedy(address.udev_rule(&netdev.name)),
        ([], None) => Finding::ok(format!(
            "{text}; for a persistent name, add to {RULES}: {}",
            address.udev_rule(&netdev.name)
        )),
        ([], Some(mismatch)) => {
            Finding::warning(format!("the rule in {RULES} does not match: {mismatch}"))
                .with_remedy(address.udev_rule(&netdev.name))
        }
        (names, _) if names.contains(&netdev.name.as_str()) => {
            Finding::ok(format!("{text}; named by {RULES}"))
        }
        _ => Finding::warning(format!(
            "{text}; after a reboot, {RULES} gives it a name other than {}",
            netdev.name
        ))
        .with_remedy(address.udev_rule(&netdev.name)),
    }
}

/// Returns the first condition of a rule that an interface does not fulfil when it appears.
fn mismatch(rule: &UdevRule, netdev: &Netdev) -> Option<String> {
    let actual = |key: &str| {
        Some(match key {
            "ACTION" => "add".to_owned(),
            "SUBSYSTEM" => "net".to_owned(),
            // The name that the kernel gives.
            "KERNEL" => "ib0".to_owned(),
            "ATTR{type}" => netdev.kind.to_string(),
            "ATTR{address}" => netdev.address.clone(),
            "ATTR{dev_port}" => netdev.dev_port.to_string(),
            _ => return None,
        })
    };
    rule.parts.iter().find_map(|part| {
        let actual = actual(&part.key)?;
        let RulePart {
            key,
            operator,
            value,
        } = part;
        if part.rejects(&actual) {
            return Some(format!("{key}{operator}\"{value}\", but it is {actual}"));
        }
        let is_condition = matches!(operator.as_str(), "==" | "!=");
        (!is_condition).then(|| format!("{key}{operator}\"{value}\" is an assignment, == compares"))
    })
}
