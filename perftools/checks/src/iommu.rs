//! The IOMMU. Unless it is in passthrough mode, it translates each DMA access.

use host::HostFacts;

use super::finding::Finding;

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let active = facts
        .root
        .list("/sys/class/iommu")
        .iter()
        .any(|unit| facts.root.exists(&format!("/sys/class/iommu/{unit}")));
    let cmdline = facts.root.value("/proc/cmdline").unwrap_or_default();
    let passthrough = cmdline
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
        (false, _) => Finding::ok("absent or disabled"),
        (true, true) => Finding::ok("enabled, but this host has no RDMA adapter in hardware"),
        (true, false) if passthrough && translated.is_empty() => Finding::ok("enabled in passthrough mode (iommu=pt)"),
        (true, false) if translated.is_empty() => Finding::ok("enabled"),
        (true, false) => Finding::warning(format!(
            "enabled, and translates each DMA access of {}: registrations and transfers are slower",
            translated.join(", ")
        ))
        .with_remedy("grubby --update-kernel=ALL --args=iommu=pt (Debian: add iommu=pt to GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub); reboot"),
    }]
}
