//! Width and speed of the link and of the PCIe slot.

use std::time::{Duration, UNIX_EPOCH};

use host::HostFacts;
use host::device::{Device, Port};
use host::link_caps::LinkCaps;
use host::link_log::{LinkChange, LinkLog};
use host::netdev::Netdev;
use host::pci::path;
use host::pci_link::PciLink;
use host::rate::{LaneSpeed, Rate};

use super::finding::Finding;

/// Adapter models: prefix of `hca_type`, name, and highest speed of a lane.
const MODELS: &[(&str, &str, &str)] = &[
    ("MT25408", "ConnectX", "DDR"),
    ("MT26428", "ConnectX-2", "QDR"),
    ("MT4099", "ConnectX-3", "FDR"),
    ("MT4103", "ConnectX-3 Pro", "FDR"),
    ("MT4113", "Connect-IB", "FDR"),
    ("MT4115", "ConnectX-4", "EDR"),
    ("MT4119", "ConnectX-5", "EDR"),
    ("MT4121", "ConnectX-5 Ex", "EDR"),
    ("MT4123", "ConnectX-6", "HDR"),
    ("MT4129", "ConnectX-7", "NDR"),
    ("MT4131", "ConnectX-8", "XDR"),
];
/// Number of lanes assumed for an InfiniBand port that does not report its supported width.
const DEFAULT_LANES: u32 = 4;
/// Time after the start of the kernel in which links may change, in seconds.
const BOOT: u64 = 300;
/// Time for which outages are reported, in seconds.
const DAY: u64 = 24 * 60 * 60;
/// Shortest outage that is a fault, in seconds. Connections survive shorter ones.
const OUTAGE: u64 = 30;
/// Number of shorter outages that is reported.
const FLAPS: usize = 3;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in &facts.devices {
        if facts.is_management_only(device) || !facts.is_given(device) {
            continue;
        }
        if device.is_software() && !device.ports.iter().any(Port::is_infiniband) {
            findings.push(
                Finding::ok("software device: speed depends on the network interface and the CPU")
                    .on(&device.name),
            );
            continue;
        }
        findings.extend(
            device
                .pci
                .as_ref()
                .map(|pci| check_slot(facts, device, pci).on(&device.name)),
        );
        findings.extend(check_bridges(facts, device).map(|finding| finding.on(&device.name)));
        let active = device.ports.iter().filter(|port| port.is_active());
        let netdevs = active.clone().filter_map(|port| {
            Some((
                format!("{}/{}", device.name, port.port),
                port.netdev.as_deref()?,
            ))
        });
        for (on, netdev) in netdevs {
            let found = check_outages(&facts.probe.link_log, netdev).into_iter();
            let found = found.chain(check_transceiver(facts, netdev));
            findings.extend(found.map(|finding| finding.on(&on)));
        }
        findings.extend(active.clone().filter_map(|port| {
            let netdev = port.netdev.as_deref()?;
            let found =
                check_bond(facts, netdev).or_else(|| check_two_adapters(facts, device, netdev))?;
            Some(found.on(format!("{}/{}", device.name, port.port)))
        }));
        findings.extend(active.filter_map(|port| {
            Some(check_link(facts, device, port)?.on(format!("{}/{}", device.name, port.port)))
        }));
    }
    findings
}

/// Returns a warning for a PCIe link above the slot that is narrower or slower than both of its
/// ends support.
fn check_bridges(facts: &HostFacts, device: &Device) -> Option<Finding> {
    let path = path(&facts.probe.pci, device.slot.as_ref()?);
    // A link connects each function with the port above it, and a switch has no link inside.
    let above = path.chunks_exact(2).skip(1);
    let found = above.filter_map(|ends| Some((ends[0].link.as_ref()?, ends[1])));
    let mut slow = found.filter_map(|(link, port)| {
        let upper = port.link.as_ref()?;
        let width = link.max_width.min(upper.max_width);
        let transfers = link.max_transfers().min(upper.max_transfers());
        let is_slow = link.current_width < width || link.current_transfers() < transfers;
        is_slow.then_some((link, port, width, transfers))
    });
    let (link, port, width, transfers) = slow.next()?;
    Some(
        Finding::warning(format!(
            "the PCIe link below {} is {} x{}, but both of its ends support {transfers} GT/s x{width}",
            port.slot, link.current_speed, link.current_width
        ))
        .with_remedy(format!(
            "lspci -vvs {} (LnkSta); reseat the riser or the switch board; check the BIOS settings of the slot",
            port.slot
        )),
    )
}

/// Returns a fault for an outage of the link, or a warning for many changes, in the last day.
fn check_outages(log: &LinkLog, netdev: &str) -> Option<Finding> {
    let start = log
        .boot
        .saturating_add(BOOT)
        .max(log.read.saturating_sub(DAY));
    let changes = log.changes.iter();
    let changes: Vec<&LinkChange> = changes
        .filter(|change| change.netdev == netdev && change.at >= start)
        .collect();
    let downs = changes.iter().filter(|change| !change.up);
    let outages = downs.clone().filter_map(|down| {
        let up = changes
            .iter()
            .find(|change| change.up && change.at >= down.at)?;
        Some((down.at, up.at - down.at))
    });
    let remedy = format!(
        "check the cable and the log of the switch port; ethtool -m {netdev}; journalctl -k -g 'link (is )?(up|down)'"
    );
    let longest = outages.max_by_key(|(_, seconds)| *seconds);
    if let Some((at, seconds)) = longest.filter(|(_, seconds)| *seconds >= OUTAGE) {
        let text = format!(
            "the link of {netdev} was down for {seconds} s, since {}",
            time(at)
        );
        return Some(Finding::fault(text).with_remedy(remedy));
    }
    let count = downs.clone().count();
    let first = downs.map(|down| down.at).next()?;
    (count >= FLAPS).then(|| {
        let text = format!(
            "the link of {netdev} went down {count} times since {}",
            time(first)
        );
        Finding::warning(text).with_remedy(remedy)
    })
}

fn time(seconds: u64) -> String {
    // The last second of the year 9999, which is the last year that can be printed.
    const LAST: u64 = 253_402_300_799;
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(LAST));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Returns a warning if the transceiver of an interface reports an alarm.
fn check_transceiver(facts: &HostFacts, netdev: &str) -> Option<Finding> {
    let mut all = facts.probe.transceivers.iter();
    let found = all.find(|transceiver| transceiver.netdev == netdev)?;
    let alarm = found.alarms.first()?;
    let more = match found.alarms.len() - 1 {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let temperature = found.temperature.as_deref().unwrap_or("unknown");
    let remedy = if alarm.contains("temperature") {
        "check the airflow and the fans of the host"
    } else {
        "clean the fiber, reseat or replace the transceivers at both ends"
    };
    Some(
        Finding::warning(format!(
            "the transceiver of {netdev} reports: {alarm}{more} (temperature {temperature})"
        ))
        .with_remedy(format!("{remedy}; ethtool -m {netdev}")),
    )
}

/// Returns a warning if an interface is a bond, or part of one, that has lost an interface.
fn check_bond(facts: &HostFacts, netdev: &str) -> Option<Finding> {
    let belongs = |bond: &&Netdev| {
        let is_slave = bond.slaves.iter().any(|slave| slave == netdev);
        is_slave || (bond.name == netdev && !bond.slaves.is_empty())
    };
    let bond = facts.netdevs.iter().find(belongs)?;
    let is_down = |slave: &&String| {
        let slave = facts.netdev(slave);
        slave.is_some_and(|slave| !slave.up || slave.carrier == Some(false))
    };
    let slave = bond.slaves.iter().find(is_down)?;
    let text = format!(
        "{slave} of the bond {} is down: the bond has less bandwidth and no spare link",
        bond.name
    );
    let remedy = format!(
        "check the cable and the switch port of {slave}; ip link show {slave}; cat /proc/net/bonding/{}",
        bond.name
    );
    Some(Finding::warning(text).with_remedy(remedy))
}

/// Returns a warning if an interface belongs to a bond over two adapters. Only the ports of one
/// adapter become one RDMA device (`mlx5_lag_is_roce`; bnxt_re and irdma alike).
fn check_two_adapters(facts: &HostFacts, device: &Device, netdev: &str) -> Option<Finding> {
    // The first GID can belong to the bond, which then counts as the interface of the port.
    let belongs = |bond: &Netdev, name: &str| {
        !bond.slaves.is_empty() && (bond.name == name || bond.slaves.iter().any(|s| s == name))
    };
    let bond = facts.netdevs.iter().find(|bond| belongs(bond, netdev))?;
    let has_slave = |other: &&Device| {
        let mut netdevs = other.ports.iter().filter_map(|port| port.netdev.as_ref());
        !device.is_same_adapter(other) && netdevs.any(|name| belongs(bond, name))
    };
    let other = facts.devices.iter().find(has_slave)?;
    (other.name > device.name).then(|| {
        Finding::warning(format!(
            "the bond {} is over two adapters ({} and {}): RDMA uses one of them, and does not follow the bond to the other",
            bond.name, device.name, other.name
        ))
        .with_remedy("bond two ports of one adapter, or give each interface an address of its own and use both devices")
    })
}

fn check_link(facts: &HostFacts, device: &Device, port: &Port) -> Option<Finding> {
    let rate = port.rate?;
    if port.is_infiniband() {
        if let Some(finding) = check_infiniband(facts, device, port, rate) {
            return Some(finding);
        }
    }
    // A link of PCIe below the adapter's maximum has a warning of its own (`check_slot`). Otherwise
    // this is how the adapter is built, for example with two ports that share the link.
    let pci = device.pci.as_ref().and_then(PciLink::gbps);
    if let Some(gbps) = pci.filter(|gbps| u64::from(*gbps) * 1000 < data_mbps(port, rate)) {
        return Some(Finding::ok(format!(
            "{rate}; the PCIe link carries about {gbps} Gb/sec"
        )));
    }
    Some(Finding::ok(rate.to_string()))
}

/// Returns the data rate of a link. Lanes of InfiniBand up to QDR send 10 bits for each byte.
fn data_mbps(port: &Port, rate: Rate) -> u64 {
    let mbps = u64::from(rate.mbps);
    let qdr = LaneSpeed::from_name("QDR");
    if port.is_infiniband() && rate.lane_speed().is_some() && rate.lane_speed() <= qdr {
        return mbps * 8 / 10;
    }
    mbps
}

/// Returns a warning if the link is narrower or slower than the port supports. For a port that does
/// not report its capabilities, the limits are [`DEFAULT_LANES`] and the lane speed in [`MODELS`].
fn check_infiniband(
    facts: &HostFacts,
    device: &Device,
    port: &Port,
    rate: Rate,
) -> Option<Finding> {
    let caps = facts.link_caps(&device.name, port.port);
    let port_args = format!("-C {} -P {}", device.name, port.port);
    let when = "when nothing uses the port: ";
    let set_command = format!("ibportstate {port_args} -D 0 {}", port.port);
    let supported = caps
        .and_then(|caps| caps.supported.lanes())
        .unwrap_or(DEFAULT_LANES);
    let is_split = is_split(rate);
    if let Some(lanes) = rate.lanes.filter(|lanes| *lanes < supported && !is_split) {
        let limiting_caps =
            caps.filter(|caps| caps.enabled.lanes().is_some_and(|max| max <= lanes));
        return Some(match limiting_caps {
            Some(caps) => Finding::warning(format!(
                "{rate}: the port's settings enable only {lanes} of {supported} lanes"
            ))
            .with_remedy(format!(
                "{when}{set_command} width {} && {set_command} reset",
                caps.supported.width
            )),
            None => Finding::warning(format!(
                "{rate}: only {lanes} of {supported} lanes are up, limited by the cable or the port at one of its ends"
            ))
            .with_remedy(format!("{when}{set_command} reset; reseat or replace the cable")),
        });
    }
    let model = device
        .hca_type
        .as_ref()
        .and_then(|model| MODELS.iter().find(|(name, ..)| model.starts_with(name)));
    let (adapter, best) = match (caps.and_then(|caps| caps.supported.lane_speed()), model) {
        (Some(best), _) => ("the adapter", best),
        (None, Some((_, name, best))) => (*name, LaneSpeed::from_name(best)?),
        (None, None) => return None,
    };
    let speed = rate.lane_speed().filter(|speed| *speed < best)?;
    let limiting_caps =
        caps.filter(|caps| caps.enabled.lane_speed().is_some_and(|max| max <= speed));
    // Boards of a model differ, and a fabric can be one generation older.
    let mut others = facts
        .ports()
        .filter(|(other, _)| other.hca_type == device.hca_type);
    let is_exception =
        others.any(|(_, port)| port.rate.and_then(|rate| rate.lane_speed()) > Some(speed));
    if caps.is_none() && !is_exception && best.mbps() * 2 < speed.mbps() * 5 {
        return None;
    }
    let best = best.name();
    Some(match limiting_caps {
        Some(LinkCaps { supported, .. }) => {
            let ext = if supported.speed_ext == 0 {
                String::new()
            } else {
                format!(" espeed {}", supported.speed_ext)
            };
            Finding::warning(format!(
                "{rate}: the port's settings do not enable {best}, which {adapter} supports"
            ))
            .with_remedy(format!(
                "{when}{set_command} speed {}{ext} && {set_command} reset",
                supported.speed
            ))
        }
        None => Finding::warning(format!(
            "{rate}, but {adapter} supports {best}: limited by the cable, the switch or a setting"
        ))
        .with_remedy(format!(
            "iblinkinfo {port_args} (shows what the other end supports); use a cable for {best}"
        )),
    })
}

/// Returns `true` for HDR100 and NDR200: a cable splits a port of the switch into two links of two
/// lanes.
fn is_split(rate: Rate) -> bool {
    rate.lanes == Some(2) && rate.lane_speed() >= LaneSpeed::from_name("HDR")
}

/// Returns a warning for a PCIe link below the adapter's maximum, unless it carries the rates of
/// all active ports. An adapter often supports a newer PCIe than the slot.
fn check_slot(facts: &HostFacts, device: &Device, pci: &PciLink) -> Finding {
    let text = format!("slot: {} x{}", pci.current_speed, pci.current_width);
    if pci.current_width < pci.max_width || pci.current_transfers() < pci.max_transfers() {
        let ports = facts.ports().filter(|(other, port)| {
            device.is_same_adapter(other) && !other.is_virtual && port.is_active()
        });
        let mut ports = ports.peekable();
        if ports.peek().is_none() {
            return Finding::ok(format!("{text}; no port is in use"));
        }
        let rates = ports.filter_map(|(_, port)| Some(data_mbps(port, port.rate?)));
        let needed: u64 = rates.sum();
        let text = format!(
            "{text}, but the adapter supports {} x{}",
            pci.max_speed, pci.max_width
        );
        let mbps = pci.gbps().map(|gbps| u64::from(gbps) * 1000);
        if needed > 0 && mbps.is_some_and(|mbps| mbps >= needed) {
            return Finding::ok(format!(
                "{text}; the link carries the rate of all its ports"
            ));
        }
        // The slots of a host can be one generation older than the adapter.
        let is_full = pci.current_width >= pci.max_width;
        if is_full && pci.current_transfers() * 2.0 >= pci.max_transfers() {
            return Finding::ok(text);
        }
        return Finding::warning(text)
            .with_remedy(format!(
                "{}change the settings of the PCIe link in the BIOS; check LnkSta in: lspci -vvs $(basename $(readlink /sys/class/infiniband/{}/device))",
                if device.is_fixed() { "" } else { "use another slot, or " },
                device.name
            ));
    }
    Finding::ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hdr_and_faster_links_are_split() {
        let is_split = |text| is_split(Rate::parse(text).expect("a rate"));
        assert!(is_split("100 Gb/sec (2X HDR)") && is_split("200 Gb/sec (2X NDR)"));
        assert!(!is_split("50 Gb/sec (2X EDR)") && !is_split("200 Gb/sec (4X HDR)"));
        assert!(!is_split("50 Gb/sec (1X HDR)"));
    }
}
