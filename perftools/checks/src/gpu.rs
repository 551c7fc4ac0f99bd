//! GPUDirect RDMA: adapters that access the memory of GPUs.

use host::HostFacts;
use host::device::Device;
use host::pci::{PciFunction, path};

use super::finding::Finding;

/// Modules that let adapters register the memory of NVIDIA's GPUs. The older one is not part of the
/// driver.
const PEER_MEMORY: [&str; 2] = ["nvidia_peermem", "nv_peer_mem"];

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let hardware = || {
        let devices = facts.devices.iter();
        devices.filter(|device| !device.is_software() && facts.is_given(device))
    };
    let functions = facts.probe.pci.iter();
    // A GPU of a virtual machine needs ACS.
    let is_of_host = |gpu: &&PciFunction| gpu.driver.as_deref() != Some("vfio-pci");
    let gpus = functions.filter(|function| function.is_gpu());
    let gpus: Vec<&PciFunction> = gpus.filter(is_of_host).collect();
    if gpus.is_empty() || hardware().next().is_none() {
        return Vec::new();
    }
    let mut findings: Vec<Finding> = check_registration(facts, &gpus).into_iter().collect();
    findings.extend(hardware().filter_map(|device| check_path(facts, device, &gpus)));
    if findings.is_empty() {
        let noun = if gpus.len() == 1 { "GPU" } else { "GPUs" };
        findings.push(Finding::ok(format!(
            "adapters can access the memory of {} {noun}",
            gpus.len()
        )));
    }
    findings
}

/// Returns a warning if the memory of GPUs cannot be registered.
fn check_registration(facts: &HostFacts, gpus: &[&PciFunction]) -> Option<Finding> {
    let is_nvidia = |gpu: &&PciFunction| gpu.driver.as_deref() == Some("nvidia");
    let is_possible = facts.has_gpu_dma_bufs
        || PEER_MEMORY
            .iter()
            .any(|name| facts.modules.is_present(name));
    (gpus.iter().any(is_nvidia) && !is_possible).then(|| {
        Finding::warning(
            "adapters cannot register GPU memory: nvidia-peermem is not loaded, and the driver has no dma-bufs (open kernel modules, Linux 5.12)",
        )
        .with_command("modprobe nvidia-peermem")
    })
}

/// Returns a warning if a bridge that an adapter and a GPU share sends their requests to the root
/// complex.
fn check_path(facts: &HostFacts, device: &Device, gpus: &[&PciFunction]) -> Option<Finding> {
    let functions = &facts.probe.pci;
    let adapter = path(functions, device.slot.as_ref()?);
    let redirecting = gpus.iter().find_map(|gpu| {
        let gpu_path = path(functions, &gpu.slot);
        let shared = adapter.iter().find(|bridge| gpu_path.contains(bridge))?;
        let is_translated = |function: &PciFunction, port: &PciFunction| {
            function.ats == Some(true) && port.routes_translated()
        };
        let sides = [
            (*adapter.first()?, below(&adapter, shared)?),
            (*gpu, below(&gpu_path, shared)?),
        ];
        let found = sides
            .into_iter()
            .find(|(function, port)| port.redirects_peers() && !is_translated(function, port));
        found.map(|(_, port)| (port, *gpu))
    });
    let (port, gpu) = redirecting?;
    Some(
        Finding::warning(format!(
            "ACS of PCIe port {} redirects its transfers with GPU {} to the root complex, which is slow",
            port.slot, gpu.slot
        ))
        .on(&device.name)
        .with_remedy(format!(
            "setpci -s {} ECAP_ACS+0x6.w=0000 (after each boot; not on a host of virtual machines, which need ATS instead)",
            port.slot
        )),
    )
}

/// Returns the function before a bridge on the path from a device to the root: the bridge's port to
/// the device.
fn below<'a>(path: &[&'a PciFunction], bridge: &PciFunction) -> Option<&'a PciFunction> {
    let at = path
        .iter()
        .position(|function| function.slot == bridge.slot)?;
    path.get(at.checked_sub(1)?).copied()
}
