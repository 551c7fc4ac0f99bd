//! Width and speed of the link and of the slot.

use super::finding::Finding;
use crate::facts::Facts;
use crate::facts::device::{Device, PciLink, Port};
use crate::facts::rate::LaneSpeed;

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
/// What InfiniBand cards of these have.
const LANES: u32 = 4;

pub(super) fn check(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in &facts.devices {
        if device.is_software() {
            findings.push(
                Finding::ok("a software device: it is as fast as the interface and the processor").on(&device.name),
            );
            continue;
        }
        findings.extend(device.pci.as_ref().map(|pci| slot(device, pci).on(&device.name)));
        let active = device.ports.iter().filter(|port| port.is_active());
        findings
            .extend(active.filter_map(|port| Some(judge(device, port)?.on(format!("{}/{}", device.name, port.port)))));
    }
    findings
}

fn judge(device: &Device, port: &Port) -> Option<Finding> {
    let rate = port.rate?;
    let slow = Finding::warning;
    if !port.is_ethernet() {
        if let Some(lanes) = rate.lanes.filter(|lanes| *lanes < LANES) {
            return Some(slow(format!("{rate}: {lanes} of {LANES} lanes are up: the cable, or one of its ends")).mend(
                format!("seat or change the cable; ibportstate -C {} -L {} {} reset", device.name, port.lid, port.port),
            ));
        }
    }
    let model = device.hca_type.as_ref().and_then(|model| MODELS.iter().find(|(name, ..)| model.starts_with(name)));
    if let Some((_, name, best)) = model.filter(|_| !port.is_ethernet()) {
        if rate.speed.is_some_and(|speed| Some(speed) < LaneSpeed::named(best)) {
            return Some(
                slow(format!("{rate}, but {name} can do {best}: the card's own limit, the cable's or the switch's"))
                    .mend(format!(
                        "iblinkinfo -C {} -P {}: what the other end can do; a cable for {best}",
                        device.name, port.port
                    )),
            );
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

fn slot(device: &Device, pci: &PciLink) -> Finding {
    let text = format!("slot: {} x{}", pci.current_speed, pci.current_width);
    if pci.current_width < pci.max_width || pci.transfers() < pci.max_transfers() {
        return Finding::warning(format!("{text}, but the card can do {} x{}", pci.max_speed, pci.max_width))
            .mend(format!("another slot, or its settings in the firmware; lspci -vv: LnkSta of {}", device.name));
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
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}
