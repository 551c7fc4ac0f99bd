//! The driver of NVIDIA's GPUs.

use crate::root::Root;

/// The file with the version of the driver.
pub(crate) const VERSION: &str = "/proc/driver/nvidia/version";
/// The file with the version of the kernel.
pub(crate) const KERNEL: &str = "/proc/sys/kernel/osrelease";
/// Words in [`VERSION`] if the kernel modules are the open ones.
const OPEN: &str = "Open Kernel Module";
/// First kernel with memory regions of dma-bufs.
const DMA_BUF: (u32, u32) = (5, 12);

/// Returns `true` if the driver and the kernel can share the memory of GPUs as dma-bufs.
pub(crate) fn has_dma_bufs(root: &Root) -> bool {
    let is_open = root.text(VERSION).is_some_and(|text| text.contains(OPEN));
    let kernel = root.value(KERNEL).unwrap_or_default();
    let mut numbers = kernel
        .split(['.', '-'])
        .map_while(|number| number.parse().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    is_open && version >= DMA_BUF
}

/// Keeps the kind of the driver.
pub(crate) fn redacted(text: &str) -> String {
    let kind = if text.contains(OPEN) { OPEN } else { "" };
    format!("NVRM version: {kind}\n")
}
