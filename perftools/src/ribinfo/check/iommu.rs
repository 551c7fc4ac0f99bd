//! The IOMMU: it costs cards time unless it passes through.

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let active = facts
        .root
        .list("/sys/class/iommu")
        .iter()
        .any(|unit| facts.root.exists(&format!("/sys/class/iommu/{unit}")));
    let cmdline = facts.root.value("/proc/cmdline").unwrap_or_default();
    let through = cmdline
        .split_whitespace()
        .any(|word| matches!(word, "iommu=pt" | "iommu.passthrough=1"));
    let cards: Vec<&str> = facts
        .devices
        .iter()
        .filter(|device| !device.is_software())
        .map(|device| device.name.as_str())
        .collect();
    let mut translated = Vec::new();
    for name in &cards {
        let kind = facts.root.value(&format!(
            "/sys/class/infiniband/{name}/device/iommu_group/type"
        ));
        if kind.is_some_and(|kind| kind.starts_with("DMA")) {
            translated.push(*name);
        }
    }
    vec![match (active, cards.is_empty()) {
        (false, _) => Finding::ok("there is none, or it is off"),
        (true, true) => Finding::ok("it is on, but no card is behind it"),
        (true, false) if through && translated.is_empty() => Finding::ok("it is on and passes through (iommu=pt)"),
        (true, false) if translated.is_empty() => Finding::ok("it is on"),
        (true, false) => Finding::warning(format!(
            "it translates each access of {}: registrations and transfers are slower",
            translated.join(", ")
        ))
        .mend("grubby --update-kernel=ALL --args=iommu=pt (Debian: iommu=pt in GRUB_CMDLINE_LINUX of /etc/default/grub; update-grub); reboot"),
    }]
}
