//! Width and speed of the link and of the slot.

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::device::{Device, PciLink, Port};
use crate::ribinfo::collect::link_caps::LinkCaps;
use crate::ribinfo::collect::rate::{LaneSpeed, Rate};

/// Models, and the speed of a lane that the fastest of them has.
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
/// What InfiniBand cards have that do not say it.
const LANES: u32 = 4;

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in &facts.devices {
        if device.is_software() && device.ports.iter().all(Port::is_ethernet) {
            findings.push(
                Finding::ok("a software device: it is as fast as the interface and the processor")
                    .on(&device.name),
            );
            continue;
        }
        findings.extend(
            device
                .pci
                .as_ref()
                .map(|pci| slot(device, pci).on(&device.name)),
        );
        let active = device.ports.iter().filter(|port| port.is_active());
        findings.extend(active.filter_map(|port| {
            Some(judge(facts, device, port)?.on(format!("{}/{}", device.name, port.port)))
        }));
    }
    findings
}

fn judge(facts: &HostFacts<'_>, device: &Device, port: &Port) -> Option<Finding> {
    let rate = port.rate?;
    let slow = Finding::warning;
    if !port.is_ethernet() {
        if let Some(finding) = infiniband(facts, device, port, rate) {
            return Some(finding);
        }
    }
    let pci = device.pci.as_ref().and_then(PciLink::gbps);
    if let Some(gbps) = pci.filter(|gbps| u64::from(*gbps) * 1000 < u64::from(rate.mbps)) {
        return Some(
            slow(format!("{rate}, but the slot carries about {gbps} Gb/sec"))
                .mend("put the card into a slot with more lanes"),
        );
    }
    Some(Finding::ok(rate.to_string()))
}

/// A link that is narrower or slower than the port says it could be; where it does not say, than
/// others of its model are.
fn infiniband(facts: &HostFacts<'_>, device: &Device, port: &Port, rate: Rate) -> Option<Finding> {
    let caps = facts.link_caps(&device.name, port.port);
    let here = format!("-C {} -P {}", device.name, port.port);
    let set = format!("ibportstate {here} -D 0 {}", port.port);
    let can = caps
        .and_then(|caps| caps.supported.lanes())
        .unwrap_or(LANES);
    if let Some(lanes) = rate.lanes.filter(|lanes| *lanes < can) {
        let settings = caps.filter(|caps| caps.enabled.lanes().is_some_and(|most| most <= lanes));
        return Some(match settings {
            Some(caps) => Finding::warning(format!(
                "{rate}: its settings let it have {lanes} of {can} lanes"
            ))
            .mend(format!(
                "{set} width {} && {set} reset",
                caps.supported.width
            )),
            None => Finding::warning(format!(
                "{rate}: {lanes} of {can} lanes are up: the cable, or one of its ends"
            ))
            .mend(format!("{set} reset; seat or change the cable")),
        });
    }
    let model = device
        .hca_type
        .as_ref()
        .and_then(|model| MODELS.iter().find(|(name, ..)| model.starts_with(name)));
    let (who, best) = match (caps.and_then(|caps| caps.supported.lane_speed()), model) {
        (Some(best), _) => ("the card", best),
        (None, Some((_, name, best))) => (*name, LaneSpeed::named(best)?),
        (None, None) => return None,
    };
    let speed = rate.lane_speed().filter(|speed| *speed < best)?;
    let best = best.name();
    let settings = caps.filter(|caps| caps.enabled.lane_speed().is_some_and(|most| most <= speed));
    Some(match settings {
        Some(LinkCaps { supported, .. }) => {
            let ext = if supported.speed_ext == 0 {
                String::new()
            } else {
                format!(" espeed {}", supported.speed_ext)
            };
            Finding::warning(format!(
                "{rate}: its settings do not let it have {best}, which {who} can do"
            ))
            .mend(format!(
                "{set} speed {}{ext} && {set} reset",
                supported.speed
            ))
        }
        None => Finding::warning(format!(
            "{rate}, but {who} can do {best}: the cable's limit, the switch's, or a setting"
        ))
        .mend(format!(
            "iblinkinfo {here}: what the other end can do; a cable for {best}"
        )),
    })
}

fn slot(device: &Device, pci: &PciLink) -> Finding {
    let text = format!("slot: {} x{}", pci.current_speed, pci.current_width);
    if pci.current_width < pci.max_width || pci.transfers() < pci.max_transfers() {
        return Finding::warning(format!("{text}, but the card can do {} x{}", pci.max_speed, pci.max_width))
            .mend(format!(
                "another slot, or its settings in the firmware; LnkSta of: lspci -vvs $(basename $(readlink /sys/class/infiniband/{}/device))",
                device.name
            ));
    }
    Finding::ok(text)
}

impl PciLink {
    fn transfers(&self) -> f32 {
        speed(&self.current_speed)
    }

    fn max_transfers(&self) -> f32 {
        speed(&self.max_speed)
    }

    /// About what it carries one way, in Gbit/s.
    fn gbps(&self) -> Option<u32> {
        // Tenths of a Gbit/s a lane, the coding taken off.
        let lane = match self.current_speed.split_whitespace().next()? {
            "2.5" => 20,
            "5.0" | "5" => 40,
            "8.0" | "8" => 79,
            "16.0" | "16" => 158,
            "32.0" | "32" => 315,
            "64.0" | "64" => 605,
            _ => return None,
        };
        Some(lane * self.current_width.min(64) / 10)
    }
}

fn speed(text: &str) -> f32 {
    text.split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0.0)
}
