//! Device nodes: they exist and are accessible to this user.

use host::HostFacts;
use host::device::Device;
use host::probe::Node;

use super::finding::Finding;

const DIRECTORY: &str = "/dev/infiniband";
/// Classes of the device nodes, for udev.
const VERBS: &str = "infiniband_verbs";
const MAD: &str = "infiniband_mad";
const MISC: &str = "misc";

/// Permission of all users to read and write.
const PUBLIC: u32 = 0o006;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in &facts.devices {
        if facts.is_management_only(device) {
            let text = "only for management datagrams: a sub-device of type SMI";
            findings.push(Finding::ok(text).on(&device.name));
            continue;
        }
        findings.push(check_verbs(facts, device).on(&device.name));
        let ports = device
            .ports
            .iter()
            .filter_map(|port| Some((port.port, port.umad.as_ref()?)));
        findings.extend(
            ports.map(|(port, name)| check_mad(facts, name).on(format!("{}/{port}", device.name))),
        );
    }
    if !facts.devices.is_empty() && facts.modules.is_present("rdma_ucm") {
        findings.push(check_public(facts, MISC, "rdma_cm").on("rdma_cm"));
    }
    findings
}

fn node<'a>(facts: &'a HostFacts, name: &str) -> Option<&'a Node> {
    facts.probe.nodes.iter().find(|node| node.name == name)
}

/// Checks the verbs node. If this user can open it, checks that libibverbs can open the device too.
fn check_verbs(facts: &HostFacts, device: &Device) -> Finding {
    let Some(name) = &device.uverbs else {
        return if facts.modules.is_present("ib_uverbs") {
            Finding::fault("no verbs device node, although module ib_uverbs is loaded")
                .with_remedy("dmesg (for the reason of the driver)")
        } else {
            Finding::fault("no verbs device node: module ib_uverbs is not loaded")
                .with_command("modprobe ib_uverbs")
        };
    };
    let node = node(facts, name);
    let can_open = node.is_some_and(|node| node.device && node.open.is_ok());
    check_library(facts, &device.name)
        .filter(|_| can_open)
        .unwrap_or_else(|| check_public(facts, VERBS, name))
}

/// Checks a node that rdma-core's udev rules make accessible to all users. The kernel
/// itself checks the permissions of privileged verbs.
fn check_public(facts: &HostFacts, class: &str, name: &str) -> Finding {
    let (path, node) = match existing(class, name, node(facts, name)) {
        Err(finding) => return finding,
        Ok(found) => found,
    };
    let mode = node.mode;
    let Err(error) = &node.open else {
        return Finding::ok(format!("{path} is accessible (mode {mode:04o})"));
    };
    let fault = Finding::fault(format!(
        "this user cannot open {path} (mode {mode:04o}): {error}"
    ));
    // The device cgroup of a container denies access whatever the mode is.
    if facts.environment.container.is_some() && mode & PUBLIC == PUBLIC {
        return fault.with_remedy(format!(
            "start the container with --device {path}, or with the RDMA device plugin: the file alone does not permit access"
        ));
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let pattern = if stem == name {
        name.to_owned()
    } else {
        format!("{stem}*")
    };
    fault.with_remedy(format!(
        "chmod 0666 {path}; permanently: echo 'SUBSYSTEM==\"{class}\", KERNEL==\"{pattern}\", MODE=\"0666\"' >> /etc/udev/rules.d/90-rdma.rules"
    ))
}

/// Checks a node for management datagrams. It belongs to root, because management datagrams can
/// reconfigure the fabric.
fn check_mad(facts: &HostFacts, name: &str) -> Finding {
    match existing(MAD, name, node(facts, name)) {
        Err(_) if facts.environment.container.is_some() && node(facts, name).is_none() => {
            Finding::ok(format!(
                "{DIRECTORY}/{name} (management datagrams) was not given to this container, which is the safe default"
            ))
        }
        Err(finding) => finding,
        Ok((
            path,
            Node {
                mode, open: Ok(()), ..
            },
        )) => Finding::ok(format!(
            "{path} (management datagrams) is accessible (mode {mode:04o})"
        )),
        Ok((path, Node { mode, .. })) => Finding::ok(format!(
            "{path} (management datagrams) is not accessible to this user (mode {mode:04o}), which is the safe default: run `ribping -S` and `ribinfo sm` with sudo"
        )),
    }
}

/// Returns the path of a device node, or a finding if it is missing or not a device node.
fn existing<'a>(
    class: &str,
    name: &str,
    node: Option<&'a Node>,
) -> Result<(String, &'a Node), Finding> {
    let path = format!("{DIRECTORY}/{name}");
    let udev = format!("udevadm trigger --action=add --subsystem-match={class}");
    match node {
        // The kernel creates every node in the /dev of the host (devtmpfs).
        None => Err(Finding::fault(format!(
            "{path} is missing: the container was not given this device, or the node was removed"
        ))
        .with_remedy(format!(
            "start the container with --device {path}, or with the RDMA device plugin; on a host: {udev}"
        ))),
        Some(node) if !node.device => Err(Finding::fault(format!("{path} is not a device node"))
            .with_remedy(format!("rm {path} && {udev}"))),
        Some(node) => Ok((path, node)),
    }
}

/// Returns a fault if libibverbs cannot use a device of the kernel.
fn check_library(facts: &HostFacts, device: &str) -> Option<Finding> {
    let verbs = &facts.probe.verbs;
    if let Some(error) = &verbs.error {
        return Some(
            Finding::fault(format!("libibverbs cannot list the devices: {error}"))
                .with_command("modprobe ib_uverbs"),
        );
    }
    let Some(device_facts) = verbs.device(device) else {
        return Some(
            Finding::fault("the kernel has this device, but libibverbs does not list it: its provider library is missing, or too old for the kernel")
                .with_remedy("apt install ibverbs-providers (Debian) or dnf install libibverbs (Red Hat)"),
        );
    };
    let error = device_facts.opened.as_ref().err()?;
    Some(
        Finding::fault(format!(
            "the device node is accessible, but libibverbs cannot open the device: {error}"
        ))
        .with_remedy(format!(
            "strace -e openat,ioctl ibv_devinfo -d {device}; dmesg | tail"
        )),
    )
}
