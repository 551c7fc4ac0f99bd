//! NFS over RDMA.

use host::HostFacts;
use host::modules::Modules;
use host::nfs::{Mount, Nfs};

use super::finding::Finding;
use super::spelling;

/// Standard port of NFS over RDMA.
const PORT: u16 = 20049;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let HostFacts { nfs, modules, .. } = facts;
    let mut findings = spelling::check(facts, "/etc/exports");
    for (path, file) in &nfs.missing_exports {
        findings.push(
            Finding::warning(format!(
                "{file} exports {path}, which does not exist, so clients cannot mount it"
            ))
            .on(path)
            .with_remedy(format!("mount the file system of {path}, or mkdir {path}, or remove the line; then: exportfs -ra")),
        );
    }
    for mount in nfs.mounts.iter().filter(|mount| mount.rdma) {
        findings.push(check_mount(mount).on(&mount.target));
    }
    for mount in nfs.fstab.iter().filter(|mount| mount.rdma) {
        let found = check_fstab(nfs, modules, mount);
        findings.extend(found.map(|finding| finding.on(&mount.target)));
    }
    findings.extend(check_server(nfs, modules));
    if findings.is_empty() {
        let state = if client_present(modules) {
            "is loaded"
        } else {
            "is not loaded, but mount loads it"
        };
        findings.push(Finding::ok(format!(
            "not in use (module xprtrdma {state}); to mount: mount -o rdma,port={PORT} SERVER:/DIRECTORY /mnt"
        )));
    }
    findings
}

fn check_mount(mount: &Mount) -> Finding {
    match mount.port {
        Some(PORT) => Finding::ok(format!(
            "{} is mounted over RDMA, port {PORT}",
            mount.source
        )),
        Some(port) => Finding::warning(format!(
            "{} is mounted over RDMA on port {port} instead of the standard port {PORT}",
            mount.source
        ))
        .with_remedy(format!(
            "when nothing uses {0}: umount {0} && mount -o rdma,port={PORT} {1} {0}",
            mount.target, mount.source
        )),
        None => Finding::ok(format!("{} is mounted over RDMA", mount.source)),
    }
}

fn check_fstab(nfs: &Nfs, modules: &Modules, mount: &Mount) -> Option<Finding> {
    // Without the option, the kernel uses the standard port (nfs_fs_context_validate), since 2019.
    if mount.port.is_none() && nfs.needs_port {
        return Some(
            Finding::warning(format!(
                "/etc/fstab mounts {} over RDMA without port={PORT}, which this kernel needs",
                mount.source
            ))
            .with_remedy(format!(
                "use the mount options rdma,port={PORT} in /etc/fstab"
            )),
        );
    }
    if let Some(port) = mount.port.filter(|port| *port != PORT) {
        return Some(
            Finding::warning(format!(
                "/etc/fstab mounts {} over RDMA with port={port}, but servers use {PORT}",
                mount.source
            ))
            .with_remedy(format!(
                "use the mount options rdma,port={PORT} in /etc/fstab, unless the server listens on {port}"
            )),
        );
    }
    // mount loads the module.
    if mount.is_on_demand && nfs.mounts.iter().all(|other| other.target != mount.target) {
        return None;
    }
    if !client_present(modules) {
        return Some(
            Finding::fault(format!(
                "/etc/fstab mounts {} over RDMA, but module xprtrdma is not loaded",
                mount.source
            ))
            .with_remedy(load_command(modules, "xprtrdma")),
        );
    }
    match nfs.mounts.iter().find(|other| other.target == mount.target) {
        Some(other) if !other.rdma => Some(
            Finding::warning(format!(
                "/etc/fstab mounts {} over RDMA, but it is currently mounted over TCP",
                mount.source
            ))
            .with_remedy(format!(
                "when nothing uses {0}: umount {0} && mount {0}",
                mount.target
            )),
        ),
        _ => None,
    }
}

/// Returns `true` if the kernel has the client. Its module is rpcrdma; xprtrdma is an alias.
fn client_present(modules: &Modules) -> bool {
    ["rpcrdma", "xprtrdma"]
        .iter()
        .any(|name| modules.is_present(name))
}

fn load_command(modules: &Modules, name: &str) -> String {
    modules
        .enable_command(name)
        .unwrap_or_else(|| format!("modprobe {name}"))
}

fn check_server(nfs: &Nfs, modules: &Modules) -> Option<Finding> {
    let ports = nfs.listeners.iter();
    let rdma: Vec<&str> = ports
        .filter_map(|line| line.strip_prefix("rdma "))
        .collect();
    // nfsd prints one line for each address family, and for each additional port.
    let standard = PORT.to_string();
    let rdma = rdma
        .iter()
        .find(|port| **port == standard)
        .or(rdma.first())
        .map(|port| (*port).to_owned());
    if nfs.listeners.is_empty() {
        return None;
    }
    let finding = match rdma {
        Some(port) if port == PORT.to_string() => Finding::ok(format!(
            "serves NFS over RDMA on port {PORT}{}",
            if nfs.has_exports {
                ""
            } else {
                "; /etc/exports and /etc/exports.d export nothing"
            }
        )),
        Some(port) => Finding::warning(format!(
            "serves NFS over RDMA on port {port}, but clients expect the standard port {PORT}"
        ))
        .with_remedy(format!(
            "set rdma-port={PORT} in [nfsd] of /etc/nfs.conf; systemctl restart nfs-server"
        )),
        None if !nfs.is_rdma_enabled => Finding::ok(
            "serves NFS over TCP only; for RDMA, set rdma=y and rdma-port=20049 in [nfsd] of /etc/nfs.conf",
        ),
        None => Finding::fault("/etc/nfs.conf enables RDMA, but nfsd does not serve NFS over RDMA")
            .with_remedy(format!(
                "{}; systemctl restart nfs-server",
                load_command(modules, "svcrdma")
            )),
    };
    Some(finding.on("nfsd"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    #[test]
    fn second_rdma_port_is_no_problem() {
        let nfs = Nfs {
            listeners: ["rdma 20050", "rdma 20049", "tcp 2049"]
                .map(String::from)
                .into(),
            has_exports: true,
            ..Nfs::default()
        };
        let finding = check_server(&nfs, &Modules::default()).expect("a server");
        assert_eq!(finding.level, Level::Ok, "{finding}");
        assert_eq!(finding.text, "serves NFS over RDMA on port 20049");
    }
}
