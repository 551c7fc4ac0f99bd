//! Device nodes: they exist and are accessible to this user.

use host::HostFacts;
use host::adapters::supported_abi;
use host::device::{Device, Port};
use host::environment::{Container, Manager};
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
        if !facts.is_given(device) {
            let text = "not given to this container (it has the node of another device)";
            findings.push(Finding::ok(text).on(&device.name));
            continue;
        }
        findings.push(check_verbs(facts, device).on(&device.name));
        findings.extend(check_guids(facts, device).map(|finding| finding.on(&device.name)));
        let ports = device
            .ports
            .iter()
            .filter_map(|port| Some((port.port, port.umad.as_ref()?)));
        findings.extend(
            ports.map(|(port, name)| check_mad(facts, name).on(format!("{}/{port}", device.name))),
        );
    }
    // A container without any device also lacks this node, and the remedy has it.
    let needs_node = |device: &Device| facts.has_node(device) && facts.has_rdma_cm(device);
    if facts.devices.iter().any(needs_node) && facts.modules.is_present("rdma_ucm") {
        findings.push(check_public(facts, MISC, "rdma_cm").on("rdma_cm"));
    }
    findings
}

/// Checks the verbs node. If this user can open it, checks that libibverbs can open the device too.
fn check_verbs(facts: &HostFacts, device: &Device) -> Finding {
    if !facts.modules.is_present("ib_uverbs") {
        return Finding::ok("no verbs device node: see the check modules (ib_uverbs)");
    }
    let Some(name) = &device.uverbs else {
        return Finding::fault("no verbs device node, although module ib_uverbs is loaded")
            .with_remedy("dmesg (for the reason of the driver)");
    };
    let node = facts.node(name);
    let can_open = node.is_some_and(|node| node.device && node.open.is_ok());
    check_library(facts, device)
        .filter(|_| can_open)
        .unwrap_or_else(|| check_public(facts, VERBS, name))
}

/// Checks a node that rdma-core's udev rules make accessible to all users. The kernel
/// itself checks the permissions of privileged verbs.
fn check_public(facts: &HostFacts, class: &str, name: &str) -> Finding {
    let (path, node) = match existing(facts, class, name) {
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
    if mode & PUBLIC == PUBLIC {
        return fault.with_remedy(allow(facts, &path, error));
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

/// Returns the remedy for a node that its mode permits to open. The kernel's other reasons are the
/// option `nodev` (`may_open_dev`, EACCES), a security module (EACCES) and the device cgroup
/// (`devcgroup_check_permission`, EPERM).
fn allow(facts: &HostFacts, path: &str, error: &str) -> String {
    let environment = &facts.environment;
    let is_cgroup = error.contains("os error 1)");
    let start = |container| {
        let give = give(container, path);
        format!("{give}: the file alone does not permit access")
    };
    if environment.is_nodev {
        let mount = "the file system of the node is mounted with nodev";
        return match environment.container {
            Some(container) => format!("{mount}: {}", start(container)),
            None => format!("{mount}: use the node in /dev, or mount -o remount,dev /dev"),
        };
    }
    match environment.container {
        _ if environment.has_selinux && !is_cgroup => format!(
            "SELinux denies it: ausearch -m avc -ts recent; restorecon -v {path}; in a container: setsebool -P container_use_devices on"
        ),
        Some(container) if is_cgroup => start(container),
        Some(container) => format!(
            "{}; or AppArmor denies it (dmesg | grep -i apparmor): --security-opt apparmor=unconfined, appArmorProfile of the pod, or lxc.apparmor.profile = unconfined",
            start(container)
        ),
        None if is_cgroup => "a device cgroup denies it: in the unit of the service, DeviceAllow=char-infiniband_verbs rw and DeviceAllow=/dev/infiniband/rdma_cm rw (systemctl edit UNIT)".to_owned(),
        None => format!(
            "the mode permits it, so a security module denies it: dmesg | grep -i -e denied -e apparmor; ls -ldZ /dev/infiniband {path}"
        ),
    }
}

/// Checks the node GUID. librdmacm identifies the device of a connection by it, and finds none if
/// it is zero (`ucma_query_addr` in librdmacm/cma.c).
fn check_guids(facts: &HostFacts, device: &Device) -> Option<Finding> {
    let guid = device.node_guid?;
    // EFA has no GUID.
    if !facts.has_rdma_cm(device) {
        return None;
    }
    if guid.0 == 0 {
        let remedy = if device.is_subfunction() {
            "on the host of the adapter: devlink port show (for the port of the subfunction); when nothing uses it: devlink port function set PORT hw_addr MAC state inactive; devlink port function set PORT state active (the driver makes the GUID of the MAC)"
        } else if device.is_virtual {
            "on the host of the adapter: ip link set PF vf N mac MAC (Ethernet; the driver makes the GUID of it) or ip link set PF vf N node_guid GUID (InfiniBand), then bind the virtual function again"
        } else {
            "set a GUID in the firmware (mlxburn, flint -d DEV sg), or start the host again"
        };
        return Some(
            Finding::fault("the node GUID is zero, so rdma_cm finds no device for a connection")
                .with_remedy(remedy),
        );
    }
    let ports = |device: &Device| {
        let ports = device.ports.iter().filter(|port| port.is_infiniband());
        ports.filter_map(Port::guid).collect::<Vec<_>>()
    };
    let own = ports(device);
    if own.iter().any(|guid| guid.0 == 0) {
        return Some(
            Finding::fault("the port GUID is zero, so the subnet manager ignores the port")
                .with_remedy("on the host of the adapter: ip link set PF vf N port_guid GUID, then bind the virtual function again"),
        );
    }
    // Software devices take the GUID of the MAC, which the VLANs of an interface share.
    let is_same = |other: &&Device| {
        let is_same_guid = other.node_guid == Some(guid);
        let shares_port = || ports(other).iter().any(|guid| own.contains(guid));
        (is_same_guid || shares_port())
            && other.name > device.name
            && (other.slot.is_none() || other.slot != device.slot)
            && !other.is_software()
            && !facts.is_management_only(other)
    };
    let mut others = facts.devices.iter().filter(|_| !device.is_software());
    let other = others.find(is_same)?;
    Some(
        Finding::fault(format!(
            "the GUIDs are also those of {}: programs and subnet managers take one for the other",
            other.name
        ))
        .with_remedy("give one of them another GUID: for a virtual function, ip link set PF vf N node_guid GUID port_guid GUID on the host of the adapter; otherwise in the firmware (flint -d DEV sg)"),
    )
}

/// Checks a node for management datagrams. It belongs to root, because management datagrams can
/// reconfigure the fabric.
fn check_mad(facts: &HostFacts, name: &str) -> Finding {
    match existing(facts, MAD, name) {
        Err(_) if facts.node(name).is_none() && !facts.environment.has_host_dev() => {
            Finding::ok(format!(
                "{DIRECTORY}/{name} (management datagrams) was not given to this container or service, which is the safe default"
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

/// Returns the remedy that gives a device node to a container.
fn give(container: Container, path: &str) -> String {
    let runtime = format!("--device {path} --device {DIRECTORY}/rdma_cm");
    match container {
        Container::Pod => format!(
            "in the resources of the pod, request that of the RDMA device plugin (kubectl describe node lists it); with a container runtime alone: {runtime}"
        ),
        Container::Docker | Container::Podman | Container::Other => {
            format!("start the container with {runtime}, or with the RDMA device plugin")
        }
        Container::Lxc => format!(
            "in the configuration of the container: lxc.cgroup2.devices.allow = c 231:* rwm and lxc.mount.entry = {DIRECTORY} dev/infiniband none bind,create=dir, and the same for the number of rdma_cm (ls -l {DIRECTORY}/rdma_cm); then start it again (LXD and Incus: lxc config device add NAME NODE unix-char source={path})"
        ),
        Container::Nspawn => format!(
            "start the container with --bind={DIRECTORY} --property='DeviceAllow=char-infiniband_verbs rw' --property='DeviceAllow={DIRECTORY}/rdma_cm rw'"
        ),
    }
}

/// Returns the path of a device node, or a finding if it is missing or not a device node.
fn existing<'a>(
    facts: &'a HostFacts,
    class: &str,
    name: &str,
) -> Result<(String, &'a Node), Finding> {
    let path = format!("{DIRECTORY}/{name}");
    let udev = format!("udevadm trigger --action=add --subsystem-match={class}");
    match facts.node(name) {
        // The kernel creates every node in the /dev of the host (devtmpfs).
        None => {
            // Not every container can be recognized.
            let remedy = match (facts.environment.container, &facts.environment.manager) {
                (Some(container), _) => give(container, &path),
                (None, Some(Manager::Service(unit))) => format!(
                    "set PrivateDevices=no in [Service] (systemctl edit {unit}); systemctl restart {unit}; if the host lacks it too: {udev}"
                ),
                _ => format!("{}; on a host: {udev}", give(Container::Other, &path)),
            };
            Err(Finding::fault(format!(
                "{path} is missing: the container was not given this device, or the node was removed"
            ))
            .with_remedy(remedy))
        }
        Some(node) if !node.device => Err(Finding::fault(format!("{path} is not a device node"))
            .with_remedy(format!("mv {path} {path}.old && {udev}"))),
        Some(node) => Ok((path, node)),
    }
}

/// Returns a fault if libibverbs cannot use a device of the kernel.
fn check_library(facts: &HostFacts, device: &Device) -> Option<Finding> {
    let verbs = &facts.probe.verbs;
    if let Some(error) = &verbs.error {
        return Some(
            Finding::fault(format!("libibverbs cannot list the devices: {error}"))
                .with_command("modprobe ib_uverbs"),
        );
    }
    let Some(device_facts) = verbs.device(&device.name) else {
        if let Some((driver, abi, supported)) = foreign_abi(device) {
            return Some(
                Finding::fault(format!(
                    "libibverbs does not list this device: its driver has ABI {abi}, and the provider of rdma-core has ABI {supported} of {driver}"
                ))
                .with_remedy(format!(
                    "install the library of the package that {driver} comes from (modinfo {driver}), or use the driver of the kernel"
                )),
            );
        }
        return Some(
            Finding::fault("the kernel has this device, but libibverbs does not list it: its provider library is missing, or too old for the kernel")
                .with_remedy("install the providers of rdma-core: apt install ibverbs-providers (Debian, Ubuntu), dnf install libibverbs (Red Hat, openEuler), zypper install libibverbs (SUSE)"),
        );
    };
    let error = device_facts.opened.as_ref().err()?;
    Some(
        Finding::fault(format!(
            "the device node is accessible, but libibverbs cannot open the device: {error}"
        ))
        .with_remedy(format!(
            "strace -e openat,ioctl ibv_devinfo -d {}; dmesg | tail",
            device.name
        )),
    )
}

/// Returns the module, the version of its ABI and the range of the provider, if a driver that is
/// not of the kernel has another ABI.
fn foreign_abi(device: &Device) -> Option<(&'static str, u32, String)> {
    let abi = device.abi_version?;
    let (module, (min, max)) = supported_abi(device.driver.as_deref()?)?;
    let range = if min == max {
        min.to_string()
    } else {
        format!("{min} to {max}")
    };
    (!(min..=max).contains(&abi)).then_some((module, abi, range))
}
