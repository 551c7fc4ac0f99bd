//! The IOMMU. Unless it is in passthrough mode, it translates each DMA access.

use host::HostFacts;

use super::finding::Finding;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let iommu = &facts.iommu;
    let has_hardware = facts.devices.iter().any(|device| !device.is_software());
    let translated = &iommu.translated;
    vec![match (iommu.is_active, !has_hardware) {
        (false, _) => Finding::ok("absent or disabled"),
        (true, true) => Finding::ok("enabled, but this host has no RDMA adapter in hardware"),
        (true, false) if iommu.is_passthrough && translated.is_empty() => Finding::ok("enabled in passthrough mode (iommu=pt)"),
        (true, false) if translated.is_empty() => Finding::ok("enabled"),
        (true, false) => Finding::warning(format!(
            "enabled, and translates each DMA access of {}: registrations and transfers are slower",
            translated.join(", ")
        ))
        .with_remedy("add iommu=pt (ARM: iommu.passthrough=1) to the kernel's command line: grubby --update-kernel=ALL --args=iommu=pt (Red Hat); or in GRUB_CMDLINE_LINUX of /etc/default/grub, then update-grub (Debian) or grub2-mkconfig -o /boot/grub2/grub.cfg (SUSE); reboot"),
    }]
}
