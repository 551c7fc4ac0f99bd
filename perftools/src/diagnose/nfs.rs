//! NFS over RDMA.

use super::finding::Finding;
use super::modules::{Modules, present};
use crate::facts::Facts;
use crate::facts::root::Root;

/// The port that NFS over RDMA has.
const PORT: u16 = 20049;
const PORTLIST: &str = "/proc/fs/nfsd/portlist";

/// A line of `/proc/mounts` or `/etc/fstab` that is NFS.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    source: String,
    target: String,
    rdma: bool,
    port: Option<u16>,
}

pub(super) fn check(facts: &Facts<'_>) -> Vec<Finding> {
    let root = facts.root;
    let modules = Modules::read(root);
    let mut findings = Vec::new();
    let mounted = mounts(&root.text("/proc/mounts").unwrap_or_default());
    for mount in mounted.iter().filter(|mount| mount.rdma) {
        findings.push(by_rdma(mount).on(&mount.target));
    }
    for mount in mounts(&root.text("/etc/fstab").unwrap_or_default()).iter().filter(|mount| mount.rdma) {
        findings.extend(configured(root, &modules, mount, &mounted).map(|finding| finding.on(&mount.target)));
    }
    findings.extend(server(root, &modules));
    if findings.is_empty() {
        findings
            .push(Finding::ok(format!("not in use; a mount by it: mount -o rdma,port={PORT} SERVER:/DIRECTORY /mnt")));
    }
    findings
}

fn by_rdma(mount: &Mount) -> Finding {
    match mount.port {
        Some(PORT) => Finding::ok(format!("{} is mounted by RDMA, port {PORT}", mount.source)),
        Some(port) => {
            Finding::warning(format!("{} is mounted by RDMA on port {port}: {PORT} is the port for it", mount.source))
                .mend(format!("umount {0} && mount -o rdma,port={PORT} {1} {0}", mount.target, mount.source))
        }
        None => Finding::ok(format!("{} is mounted by RDMA", mount.source)),
    }
}

fn configured(root: &Root, modules: &Modules, mount: &Mount, mounted: &[Mount]) -> Option<Finding> {
    if mount.port != Some(PORT) {
        return Some(
            Finding::warning(format!("/etc/fstab mounts {} by RDMA without port={PORT}", mount.source))
                .mend(format!("in /etc/fstab: rdma,port={PORT}")),
        );
    }
    if !client(root, modules) {
        return Some(
            Finding::fault(format!("/etc/fstab mounts {} by RDMA, but xprtrdma is not loaded", mount.source))
                .mend(load(modules, "xprtrdma")),
        );
    }
    match mounted.iter().find(|other| other.target == mount.target) {
        Some(other) if !other.rdma => Some(
            Finding::warning(format!("/etc/fstab wants {} by RDMA, but it is mounted by TCP", mount.source))
                .mend(format!("umount {0} && mount {0}", mount.target)),
        ),
        _ => None,
    }
}

/// The module is rpcrdma; the old names are its aliases.
fn client(root: &Root, modules: &Modules) -> bool {
    ["rpcrdma", "xprtrdma"].iter().any(|name| present(root, modules, name, None))
        || root.exists("/proc/sys/sunrpc/rdma_slot_table_entries")
}

fn load(modules: &Modules, name: &str) -> String {
    if modules.is_switched_off(name) {
        return format!(
            "take the # from {name} in /etc/rdma/modules/rdma.conf; systemctl restart rdma-load-modules@rdma.service"
        );
    }
    format!("modprobe {name}")
}

fn server(root: &Root, modules: &Modules) -> Option<Finding> {
    let ports = root.text(PORTLIST)?;
    let exports = root.text("/etc/exports").unwrap_or_default();
    let exports = exports.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let rdma = ports.lines().find_map(|line| line.strip_prefix("rdma ")).map(|port| port.trim().to_owned());
    if ports.trim().is_empty() {
        return None;
    }
    let on = |finding: Finding| finding.on("nfsd");
    Some(on(match rdma {
        Some(port) if port == PORT.to_string() => Finding::ok(format!(
            "it serves by RDMA on port {PORT}{}",
            if exports { "" } else { "; /etc/exports is empty" }
        )),
        Some(port) => Finding::warning(format!("it serves by RDMA on port {port}: clients look for {PORT}"))
            .mend(format!("rdma-port={PORT} in [nfsd] of /etc/nfs.conf; systemctl restart nfs-server")),
        None if !root.exists("/etc/nfs.conf") || !wants_rdma(root) => {
            Finding::ok("it serves by TCP only; by RDMA too: rdma=y and rdma-port=20049 in [nfsd] of /etc/nfs.conf")
        }
        None => Finding::fault("/etc/nfs.conf wants RDMA, but it does not serve by it")
            .mend(format!("{}; systemctl restart nfs-server", load(modules, "svcrdma"))),
    }))
}

fn wants_rdma(root: &Root) -> bool {
    let text = root.text("/etc/nfs.conf").unwrap_or_default();
    text.lines().filter_map(|line| line.split_once('=')).any(|(key, value)| {
        key.trim() == "rdma"
            && matches!(value.trim().to_ascii_lowercase().as_str(), "y" | "yes" | "true" | "1" | "on" | "t" | "20049")
    })
}

/// The NFS mounts of a table.
fn mounts(table: &str) -> Vec<Mount> {
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let (source, target, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
        if source.starts_with('#') || !matches!(kind, "nfs" | "nfs4") {
            return None;
        }
        let rdma = options.split(',').any(|option| matches!(option, "rdma" | "proto=rdma" | "proto=rdma6"));
        let port = options.split(',').find_map(|option| option.strip_prefix("port=")?.parse().ok());
        Some(Mount { source: source.to_owned(), target: target.to_owned(), rdma, port })
    };
    table.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_by_rdma_are_told_apart() {
        let table = "10.0.0.1:/a /mnt/a nfs4 rw,vers=4.2,proto=rdma,port=20049,timeo=600 0 0\n10.0.0.1:/b /mnt/b nfs rw,proto=tcp 0 0\n/dev/sda1 / ext4 rw 0 0\n# x:/y /z nfs rdma 0 0\nshort\n";
        let read = mounts(table);
        assert_eq!(
            read.iter().map(|m| (m.target.as_str(), m.rdma, m.port)).collect::<Vec<_>>(),
            [("/mnt/a", true, Some(20049)), ("/mnt/b", false, None)]
        );
    }
}
