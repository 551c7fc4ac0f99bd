//! A capture: the files of a host that have facts, without anything else in them.
//!
//! `FILES` lists all of them. Files of `/sys` are copied whole. Of other files a capture has only
//! the keys that are evaluated (`redaction`).

use std::io;
use std::path::{Component, Path};

use crate::adapters::{self, alias_file};
use crate::capture_directory::CaptureDirectory;
use crate::environment::{CGROUP, MANAGER};
use crate::facts::NETNS_MODE;
use crate::interface_files;
use crate::probe::Probe;
use crate::redaction as keep;
use crate::root::{PROBE, Root};
use crate::spelling::{openib_variable, opensm_variable};

/// The part of a file that a capture has.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// The whole text.
    Whole,
    /// Nothing but the existence of the file or directory.
    Existence,
    /// The last component of a link's target.
    LinkName,
    /// The result of a function.
    Redacted(fn(&str) -> String),
    /// The result of a function. Without a result, the file is omitted.
    Selected(fn(&str) -> Option<String>),
}

use Part::{Existence, LinkName, Redacted, Selected, Whole};

/// The key of `openib.conf` that is evaluated.
const OPENIB_KEYS: [&str; 1] = ["LOAD_EIPOIB"];

/// The files of a capture. `*` stands for every name, or for a part of one.
const FILES: &[(&str, Part)] = &[
    ("/sys/class/infiniband/*/node_type", Whole),
    ("/sys/class/infiniband/*/node_desc", Whole),
    ("/sys/class/infiniband/*/node_guid", Whole),
    ("/sys/class/infiniband/*/sys_image_guid", Whole),
    ("/sys/class/infiniband/*/hca_type", Whole),
    ("/sys/class/infiniband/*/fw_ver", Whole),
    ("/sys/class/infiniband/*/hw_rev", Whole),
    ("/sys/class/infiniband/*/board_id", Whole),
    ("/sys/class/infiniband/*/parent", Whole),
    ("/sys/class/infiniband/*/device/driver", LinkName),
    ("/sys/class/infiniband/*/device/physfn", LinkName),
    (
        "/sys/class/infiniband/*/device/uevent",
        Redacted(|text| keep::assignments(text, &["PCI_SLOT_NAME"], |_| Vec::new())),
    ),
    ("/sys/class/infiniband/*/device/label", Whole),
    ("/sys/class/infiniband/*/device/numa_node", Whole),
    ("/sys/class/infiniband/*/device/current_link_speed", Whole),
    ("/sys/class/infiniband/*/device/current_link_width", Whole),
    ("/sys/class/infiniband/*/device/max_link_speed", Whole),
    ("/sys/class/infiniband/*/device/max_link_width", Whole),
    ("/sys/class/infiniband/*/device/iommu_group/type", Whole),
    ("/sys/class/infiniband/*/device/net/*/dev_port", Whole),
    ("/sys/class/infiniband/*/device/net/*/type", Whole),
    ("/sys/class/infiniband/*/tc/*/traffic_class", Whole),
    ("/sys/class/infiniband/*/ports/*/state", Whole),
    ("/sys/class/infiniband/*/ports/*/phys_state", Whole),
    ("/sys/class/infiniband/*/ports/*/rate", Whole),
    ("/sys/class/infiniband/*/ports/*/lid", Whole),
    ("/sys/class/infiniband/*/ports/*/lid_mask_count", Whole),
    ("/sys/class/infiniband/*/ports/*/sm_lid", Whole),
    ("/sys/class/infiniband/*/ports/*/cap_mask", Whole),
    ("/sys/class/infiniband/*/ports/*/link_layer", Whole),
    ("/sys/class/infiniband/*/ports/*/gids/*", Whole),
    ("/sys/class/infiniband/*/ports/*/gid_attrs/types/*", Whole),
    ("/sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*", Whole),
    ("/sys/class/infiniband/*/ports/*/pkeys/*", Whole),
    ("/sys/class/infiniband/*/ports/*/counters/*", Whole),
    ("/sys/class/infiniband/*/ports/*/hw_counters/*", Whole),
    ("/sys/class/infiniband_verbs/abi_version", Existence),
    ("/sys/class/infiniband_verbs/*/ibdev", Whole),
    ("/sys/class/infiniband_verbs/*/abi_version", Whole),
    ("/sys/class/infiniband_mad/abi_version", Existence),
    ("/sys/class/infiniband_mad/*/ibdev", Whole),
    ("/sys/class/infiniband_mad/*/port", Whole),
    ("/sys/class/misc/rdma_cm", Existence),
    ("/sys/class/net/*/type", Whole),
    ("/sys/class/net/*/mtu", Whole),
    ("/sys/class/net/*/flags", Whole),
    ("/sys/class/net/*/carrier", Whole),
    ("/sys/class/net/*/operstate", Whole),
    ("/sys/class/net/*/speed", Whole),
    ("/sys/class/net/*/address", Whole),
    ("/sys/class/net/*/dev_port", Whole),
    ("/sys/class/net/*/phys_switch_id", Whole),
    ("/sys/class/net/*/mode", Whole),
    ("/sys/class/net/*/pkey", Whole),
    ("/sys/class/net/*/parent", Whole),
    ("/sys/class/net/*/bonding/slaves", Whole),
    ("/sys/class/net/*/master", LinkName),
    ("/sys/class/net/*/lower_*", LinkName),
    ("/sys/class/net/*/qos/trust", Whole),
    ("/sys/class/net/*/ecn/*/enable/*", Whole),
    ("/sys/class/net/*/ecn/roce_np/cnp_dscp", Whole),
    ("/sys/class/net/*/ecn/roce_np/cnp_802p_prio", Whole),
    ("/sys/class/net/*/eth/vifs", Whole),
    ("/sys/class/net/eth_ipoib_interfaces", Whole),
    ("/sys/class/iommu/*", Existence),
    ("/sys/bus/pci/devices/*/class", Selected(network_class)),
    ("/sys/bus/pci/devices/*/vendor", Whole),
    ("/sys/bus/pci/devices/*/device", Whole),
    ("/sys/bus/pci/devices/*/driver", LinkName),
    ("/sys/bus/pci/devices/*/physfn", LinkName),
    (
        "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        Whole,
    ),
    ("/sys/devices/system/node/node*/cpulist", Whole),
    ("/sys/devices/system/node/node*/distance", Whole),
    (
        "/sys/kernel/config/rdma_cm/*/ports/*/default_roce_mode",
        Whole,
    ),
    (
        "/sys/kernel/config/rdma_cm/*/ports/*/default_roce_tos",
        Whole,
    ),
    ("/sys/fs/selinux/enforce", Whole),
    ("/sys/kernel/mm/transparent_hugepage/enabled", Whole),
    ("/sys/module/*", Existence),
    ("/sys/module/ib_ipoib/parameters/ipoib_enhanced", Whole),
    (NETNS_MODE, Whole),
    ("/proc/cmdline", Redacted(keep::command_line)),
    (crate::gpu::VERSION, Redacted(crate::gpu::redacted)),
    (crate::gpu::KERNEL, Whole),
    ("/proc/fs/nfsd/portlist", Whole),
    (
        "/proc/meminfo",
        Redacted(|text| keep::prefixes(text, &["HugePages_", "Hugepagesize:"])),
    ),
    ("/proc/modules", Redacted(keep::first_words)),
    ("/proc/mounts", Redacted(keep::mounts_and_dev)),
    ("/proc/net/ip_tables_names", Whole),
    ("/proc/net/ip6_tables_names", Whole),
    ("/proc/net/tcp", Redacted(keep::sockets)),
    ("/proc/net/tcp6", Redacted(keep::sockets)),
    (
        "/proc/self/limits",
        Redacted(|text| keep::prefixes(text, &["Max locked memory"])),
    ),
    (
        "/proc/self/status",
        Redacted(|text| keep::prefixes(text, &["CapEff:", "Cpus_allowed_list:"])),
    ),
    (CGROUP, Redacted(keep::cgroup)),
    ("/proc/self/uid_map", Whole),
    ("/proc/sys/kernel/hostname", Whole),
    ("/proc/sys/net/ipv4/conf/*/arp_ignore", Whole),
    ("/proc/sys/net/ipv4/conf/*/arp_announce", Whole),
    ("/proc/sys/sunrpc/svc_rdma", Existence),
    ("/.dockerenv", Existence),
    ("/run/.containerenv", Redacted(rootless)),
    (MANAGER, Whole),
    ("/var/run/secrets/kubernetes.io", Existence),
    (
        "/etc/NetworkManager/system-connections/*.nmconnection",
        Selected(keep::profile),
    ),
    ("/etc/exports", Redacted(keep::exports)),
    ("/etc/exports.d/*.exports", Redacted(keep::exports)),
    ("/etc/fstab", Redacted(keep::mounts)),
    (
        "/etc/infiniband/openib.conf",
        Redacted(|text| keep::assignments(text, &OPENIB_KEYS, openib_variable)),
    ),
    (
        "/etc/infiniband-diags/error_thresholds",
        Redacted(thresholds),
    ),
    ("/etc/rdma/modules/rdma.conf", Redacted(keep::modules)),
    ("/etc/nfs.conf", Redacted(nfs_conf)),
    ("/etc/nfs.conf.d/*.conf", Redacted(nfs_conf)),
    ("/etc/rdma/opensm*", Redacted(keep::opensm)),
    ("/etc/opensm/opensm*", Redacted(keep::opensm)),
    ("/etc/rdma/partitions.conf*", Redacted(keep::partitions)),
    ("/etc/opensm/partitions.conf*", Redacted(keep::partitions)),
    ("/etc/sysconfig/opensm", Redacted(opensm_variables)),
    ("/etc/default/opensm", Redacted(opensm_variables)),
    ("/etc/security/limits.conf", Redacted(keep::memlock)),
    ("/etc/security/limits.d/*.conf", Redacted(keep::memlock)),
    (
        "/etc/udev/rules.d/70-persistent-ipoib.rules",
        Redacted(keep::udev_rules),
    ),
];

fn network_class(text: &str) -> Option<String> {
    adapters::is_network_class(text).then(|| text.to_owned())
}

/// Keeps the only line of a container's description that is evaluated.
fn rootless(text: &str) -> String {
    keep::prefixes(text, &["rootless=1"])
}

fn thresholds(text: &str) -> String {
    let thresholds = crate::counters::parse_thresholds(text).into_iter();
    let lines = thresholds.map(|(name, value)| format!("{name}={value}\n"));
    lines.collect()
}

fn nfs_conf(text: &str) -> String {
    keep::ini(text, &[("nfsd", "rdma"), ("nfsd", "rdma-port")])
}

fn opensm_variables(text: &str) -> String {
    keep::assignments(text, &["GUIDS", "PORTS", "PRIORITY"], opensm_variable)
}

/// Writes the files of a host, and the facts that are not in files, to a new or an empty directory.
/// Only its owner can read them. Returns the paths of the files.
///
/// # Errors
/// Returns an error if the directory is a link, is not empty or belongs to another user, or if a
/// file cannot be written.
pub fn write(root: &Root, to: &Path, probe: &Probe) -> io::Result<Vec<String>> {
    let directory = CaptureDirectory::create(to)?;
    visit(root, probe, |path, entry| match entry {
        Entry::File(text) => directory.write(path, &text),
        // A file keeps an empty directory in version control.
        Entry::Directory => directory.write(&format!("{path}/.keep"), ""),
        Entry::Link(name) => directory.link(path, &name),
    })
}

/// An entry of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A file with this text.
    File(String),
    /// An empty directory.
    Directory,
    /// A symbolic link to this name.
    Link(String),
}

/// Calls a function for each entry of a capture, and returns their paths.
pub fn visit(
    root: &Root,
    probe: &Probe,
    mut save: impl FnMut(&str, Entry) -> io::Result<()>,
) -> io::Result<Vec<String>> {
    let mut visited = Vec::new();
    for (pattern, part) in FILES {
        for path in paths(root, pattern) {
            if let Some(entry) = entry(root, &path, *part) {
                save(&path, entry)?;
                visited.push(path);
            }
        }
    }
    for (directory, begin, end, source) in interface_files::FILES {
        for path in paths(root, &format!("{directory}/{begin}*{end}")) {
            let text = root.text(&path).unwrap_or_default();
            if let Some(text) = interface_files::redacted(source, &text, &path) {
                save(&path, Entry::File(text))?;
                visited.push(path);
            }
        }
    }
    // The configuration of opensm can name other files of partitions, and files of GUIDs.
    let opensm = crate::opensm::Files::find(root);
    let partitions = crate::partitions::files(root, &opensm).into_iter();
    let partitions = partitions.map(|file| (file.path, Redacted(keep::partitions)));
    let guids = opensm.confs.iter().flat_map(|conf| &conf.guid_files);
    let guids = guids.map(|file| (file.path.clone(), Redacted(keep::guids)));
    // Only the running kernel's aliases are read.
    let aliases = [(alias_file(root), Redacted(adapters::redacted))];
    for (path, part) in partitions.chain(guids).chain(aliases) {
        let Some(path) = named_path(&path).filter(|path| !visited.contains(path)) else {
            continue;
        };
        if let Some(entry) = entry(root, &path, part) {
            save(&path, entry)?;
            visited.push(path);
        }
    }
    let mut text =
        serde_json::to_string_pretty(&keep::probe(probe.clone())).map_err(io::Error::other)?;
    text.push('\n');
    save(PROBE, Entry::File(text))?;
    visited.push(PROBE.to_owned());
    Ok(visited)
}

/// Returns a part of a file, or `None` if there is nothing to capture.
fn entry(root: &Root, path: &str, part: Part) -> Option<Entry> {
    let text = match part {
        Whole => root.text(path)?,
        Existence if root.is_directory(path)? => return Some(Entry::Directory),
        Existence => String::new(),
        Redacted(redact) => redact(&root.text(path)?),
        Selected(select) => select(&root.text(path)?)?,
        LinkName => return Some(Entry::Link(root.link(path)?)),
    };
    Some(Entry::File(text))
}

/// Returns the path of a file that a configuration names, without `.` and repeated slashes. A path
/// with `..` is omitted, because it may lead out of the tree, as is one of the files of a capture.
fn named_path(path: &str) -> Option<String> {
    let mut plain = String::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => {
                plain.push('/');
                plain += name.to_str()?;
            }
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    (plain.trim_start_matches('/') != PROBE).then_some(plain)
}

/// Returns the paths that match a pattern.
fn paths(root: &Root, pattern: &str) -> Vec<String> {
    let mut paths = vec![String::new()];
    for component in pattern.split('/').skip(1) {
        paths = match component.split_once('*') {
            None => paths
                .iter()
                .map(|path| format!("{path}/{component}"))
                .collect(),
            Some((begin, end)) => {
                let is_match = |name: &String| {
                    name.len() >= begin.len() + end.len()
                        && name.starts_with(begin)
                        && name.ends_with(end)
                };
                let names = |path: &String| {
                    let names = root.list(path).into_iter().filter(is_match);
                    names
                        .map(|name| format!("{path}/{name}"))
                        .collect::<Vec<_>>()
                };
                paths.iter().flat_map(names).collect()
            }
        };
    }
    paths
}
