//! Huge pages and the IOMMU.

use crate::device::Device;
use crate::root::Root;

/// The huge pages of a host. A number is `None` if the kernel does not report it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// The number of reserved pages.
    pub total: Option<u64>,
    /// The number of free pages among them.
    pub free: Option<u64>,
    /// The size of a page in KiB.
    pub size_kib: Option<u64>,
    /// The mode of transparent huge pages, for example `madvise`.
    pub transparent: Option<String>,
}

impl HugePages {
    /// Reads the numbers.
    pub(crate) fn read(root: &Root) -> Self {
        let meminfo = root.text("/proc/meminfo").unwrap_or_default();
        let field = |name: &str| {
            let line = meminfo
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        };
        // The file lists all modes, with the current one in brackets.
        let modes = root.value("/sys/kernel/mm/transparent_hugepage/enabled");
        Self {
            total: field("HugePages_Total"),
            free: field("HugePages_Free"),
            size_kib: field("Hugepagesize"),
            transparent: modes.and_then(|text| Some(text.split(['[', ']']).nth(1)?.to_owned())),
        }
    }
}

/// The IOMMU of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Iommu {
    /// The kernel uses an IOMMU.
    pub is_active: bool,
    /// The kernel's command line selects passthrough mode.
    pub is_passthrough: bool,
    /// The adapters whose DMA accesses are translated.
    pub translated: Vec<String>,
}

impl Iommu {
    /// Reads the state for these devices.
    pub(crate) fn read(root: &Root, devices: &[Device]) -> Self {
        let command_line = root.value("/proc/cmdline").unwrap_or_default();
        let is_translated = |device: &&Device| {
            let file = format!(
                "/sys/class/infiniband/{}/device/iommu_group/type",
                device.name
            );
            root.value(&file)
                .is_some_and(|kind| kind.starts_with("DMA"))
        };
        let hardware = devices.iter().filter(|device| !device.is_software());
        let translated = hardware.filter(is_translated);
        let units = root.list("/sys/class/iommu");
        Self {
            is_active: units
                .iter()
                .any(|unit| root.exists(&format!("/sys/class/iommu/{unit}"))),
            is_passthrough: command_line
                .split_whitespace()
                .any(|word| matches!(word, "iommu=pt" | "iommu.passthrough=1")),
            translated: translated.map(|device| device.name.clone()).collect(),
        }
    }
}
