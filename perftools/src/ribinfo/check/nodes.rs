//! Device nodes: there, and open to this user.

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::device::Device;
use crate::ribinfo::collect::probe::Node;

const DIRECTORY: &str = "/dev/infiniband";
/// Their classes, for udev.
const VERBS: &str = "infiniband_verbs";
const MAD: &str = "infiniband_mad";
const MISC: &str = "misc";

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in &facts.devices {
        findings.push(verbs(facts, device).on(&device.name));
        let ports = device
            .ports
            .iter()
            .filter_map(|port| Some((port.port, port.umad.as_ref()?)));
        findings.extend(
            ports.map(|(port, name)| mad(facts, name).on(format!("{}/{port}", device.name))),
        );
    }
    if !facts.devices.is_empty() && facts.root.exists("/sys/class/misc/rdma_cm") {
        findings.push(for_all(MISC, "rdma_cm", node(facts, "rdma_cm")).on("rdma_cm"));
    }
    findings
}

fn node<'a>(facts: &'a HostFacts<'_>, name: &str) -> Option<&'a Node> {
    facts.probe.nodes.iter().find(|node| node.name == name)
}

/// The node of the verbs; where it can be opened, whether the library can do so as well.
fn verbs(facts: &HostFacts<'_>, device: &Device) -> Finding {
    let Some(name) = &device.uverbs else {
        return Finding::fault("the kernel offers no verbs for it: ib_uverbs is not loaded")
            .mend("modprobe ib_uverbs");
    };
    let node = node(facts, name);
    let opens = node.is_some_and(|node| node.device && node.open.is_ok());
    library(facts, &device.name)
        .filter(|_| opens)
        .unwrap_or_else(|| for_all(VERBS, name, node))
}

/// A node that rdma-core's rules open to everybody: verbs check rights themselves.
fn for_all(class: &str, name: &str, node: Option<&Node>) -> Finding {
    match there(class, name, node) {
        Err(finding) => finding,
        Ok((
            path,
            Node {
                mode, open: Ok(()), ..
            },
        )) => Finding::ok(format!("{path} can be opened (mode {mode:04o})")),
        Ok((
            path,
            Node {
                mode,
                open: Err(error),
                ..
            },
        )) => {
            let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let pattern = if stem == name {
                name.to_owned()
            } else {
                format!("{stem}*")
            };
            Finding::fault(format!("this user may not open {path}, mode {mode:04o}: {error}")).mend(format!(
                "chmod 0666 {path}; and for good: echo 'SUBSYSTEM==\"{class}\", KERNEL==\"{pattern}\", MODE=\"0666\"' >> /etc/udev/rules.d/90-rdma.rules"
            ))
        }
    }
}

/// A node that is root's: who sends management datagrams can reconfigure the fabric.
fn mad(facts: &HostFacts<'_>, name: &str) -> Finding {
    match there(MAD, name, node(facts, name)) {
        Err(finding) => finding,
        Ok((
            path,
            Node {
                mode, open: Ok(()), ..
            },
        )) => Finding::ok(format!(
            "{path} for management datagrams can be opened (mode {mode:04o})"
        )),
        Ok((path, Node { mode, .. })) => Finding::ok(format!(
            "{path} for management datagrams is not for this user (mode {mode:04o}), as it should be: sudo ribping -S, sudo ribinfo sm"
        )),
    }
}

/// The path of a node that is there and is one.
fn there<'a>(
    class: &str,
    name: &str,
    node: Option<&'a Node>,
) -> Result<(String, &'a Node), Finding> {
    let path = format!("{DIRECTORY}/{name}");
    let udev = format!("udevadm trigger --action=add --subsystem-match={class}");
    match node {
        None => Err(Finding::fault(format!("{path} is missing: udev did not make it")).mend(udev)),
        Some(node) if !node.device => Err(Finding::fault(format!("{path} is no device node"))
            .mend(format!("rm {path} && {udev}"))),
        Some(node) => Ok((path, node)),
    }
}

/// What libibverbs does not have of what the kernel has.
fn library(facts: &HostFacts<'_>, device: &str) -> Option<Finding> {
    let verbs = &facts.probe.verbs;
    if let Some(error) = &verbs.error {
        return Some(
            Finding::fault(format!("libibverbs lists no devices: {error}"))
                .mend("modprobe ib_uverbs"),
        );
    }
    let Some(known) = verbs.device(device) else {
        return Some(
            Finding::fault("the kernel has it, libibverbs does not: its provider is not installed")
                .mend("apt install ibverbs-providers (Debian), dnf install libibverbs (Red Hat)"),
        );
    };
    let error = known.opened.as_ref().err()?;
    Some(
        Finding::fault(format!(
            "its node can be opened, but not by libibverbs: {error}"
        ))
        .mend(format!(
            "strace -e openat,ioctl ibv_devinfo -d {device}; dmesg | tail"
        )),
    )
}
