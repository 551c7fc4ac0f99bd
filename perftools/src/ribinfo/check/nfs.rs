//! NFS over RDMA.

use super::finding::Finding;
use super::modules::{Modules, present};
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::mounts::{Mount, mounts};
use crate::ribinfo::collect::root::Root;

/// The port that NFS over RDMA has.
const PORT: u16 = 20049;
const PORTLIST: &str = "/proc/fs/nfsd/portlist";

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let root = facts.root;
    let modules = Modules::read(root);
    let mut findings = Vec::new();
    let mounted = mounts(&root.text("/proc/mounts").unwrap_or_default());
    for mount in mounted.iter().filter(|mount| mount.rdma) {
        findings.push(by_rdma(mount).on(&mount.target));
    }
    for mount in mounts(&root.text("/etc/fstab").unwrap_or_default())
        .iter()
        .filter(|mount| mount.rdma)
    {
        findings.extend(
            configured(root, &modules, mount, &mounted).map(|finding| finding.on(&mount.target)),
        );
    }
    findings.extend(server(root, &modules));
    if findings.is_empty() {
        let client = if client(root, &modules) {
            "is loaded"
        } else {
            "is not loaded, which a mount does"
        };
        findings.push(Finding::ok(format!(
            "not in use (xprtrdma {client}); a mount by it: mount -o rdma,port={PORT} SERVER:/DIRECTORY /mnt"
        )));
    }
    findings
}

fn by_rdma(mount: &Mount) -> Finding {
    match mount.port {
        Some(PORT) => Finding::ok(format!("{} is mounted by RDMA, port {PORT}", mount.source)),
        Some(port) => Finding::warning(format!(
            "{} is mounted by RDMA on port {port}: {PORT} is the port for it",
            mount.source
        ))
        .mend(format!(
            "umount {0} && mount -o rdma,port={PORT} {1} {0}",
            mount.target, mount.source
        )),
        None => Finding::ok(format!("{} is mounted by RDMA", mount.source)),
    }
}

fn configured(root: &Root, modules: &Modules, mount: &Mount, mounted: &[Mount]) -> Option<Finding> {
    if mount.port != Some(PORT) {
        return Some(
            Finding::warning(format!(
                "/etc/fstab mounts {} by RDMA without port={PORT}",
                mount.source
            ))
            .mend(format!("in /etc/fstab: rdma,port={PORT}")),
        );
    }
    if !client(root, modules) {
        return Some(
            Finding::fault(format!(
                "/etc/fstab mounts {} by RDMA, but xprtrdma is not loaded",
                mount.source
            ))
            .mend(load(modules, "xprtrdma")),
        );
    }
    match mounted.iter().find(|other| other.target == mount.target) {
        Some(other) if !other.rdma => Some(
            Finding::warning(format!(
                "/etc/fstab wants {} by RDMA, but it is mounted by TCP",
                mount.source
            ))
            .mend(format!("umount {0} && mount {0}", mount.target)),
        ),
        _ => None,
    }
}

/// The module is rpcrdma; the old names are its aliases. Where it is part of the kernel, what it
/// has in common with the server shows.
fn client(root: &Root, modules: &Modules) -> bool {
    ["rpcrdma", "xprtrdma"]
        .iter()
        .any(|name| present(root, modules, name, None))
        || root.exists("/proc/sys/sunrpc/svc_rdma")
}

fn load(modules: &Modules, name: &str) -> String {
    modules
        .switch_on(name)
        .unwrap_or_else(|| format!("modprobe {name}"))
}

fn server(root: &Root, modules: &Modules) -> Option<Finding> {
    let ports = root.text(PORTLIST)?;
    let exports = root.text("/etc/exports").unwrap_or_default();
    let exports = exports
        .lines()
        .any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let rdma = ports
        .lines()
        .find_map(|line| line.strip_prefix("rdma "))
        .map(|port| port.trim().to_owned());
    if ports.trim().is_empty() {
        return None;
    }
    let on = |finding: Finding| finding.on("nfsd");
    Some(on(match rdma {
        Some(port) if port == PORT.to_string() => Finding::ok(format!(
            "it serves by RDMA on port {PORT}{}",
            if exports {
                ""
            } else {
                "; /etc/exports is empty"
            }
        )),
        Some(port) => Finding::warning(format!(
            "it serves by RDMA on port {port}: clients look for {PORT}"
        ))
        .mend(format!(
            "rdma-port={PORT} in [nfsd] of /etc/nfs.conf; systemctl restart nfs-server"
        )),
        None if !wants_rdma(root) => Finding::ok(
            "it serves by TCP only; by RDMA too: rdma=y and rdma-port=20049 in [nfsd] of /etc/nfs.conf",
        ),
        None => Finding::fault("/etc/nfs.conf wants RDMA, but it does not serve by it").mend(
            format!("{}; systemctl restart nfs-server", load(modules, "svcrdma")),
        ),
    }))
}

/// Whether nfs.conf, or what stands beside it, wants RDMA of nfsd.
fn wants_rdma(root: &Root) -> bool {
    const BESIDE: &str = "/etc/nfs.conf.d";
    let more = root
        .list(BESIDE)
        .into_iter()
        .filter(|name| name.strip_suffix(".conf").is_some());
    let files = std::iter::once("/etc/nfs.conf".to_owned())
        .chain(more.map(|name| format!("{BESIDE}/{name}")));
    // What is read last holds.
    files
        .filter_map(|file| nfsd_rdma(&root.text(&file)?))
        .last()
        .unwrap_or(false)
}

/// What the section `[nfsd]` says of RDMA.
fn nfsd_rdma(text: &str) -> Option<bool> {
    let mut inside = false;
    let mut wants = None;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            inside = section
                .trim_end_matches(']')
                .trim()
                .eq_ignore_ascii_case("nfsd");
        } else if let Some(("rdma", value)) = line
            .split_once('=')
            .map(|(key, value)| (key.trim(), value))
            .filter(|_| inside)
        {
            let value = value.trim().to_ascii_lowercase();
            wants = Some(matches!(
                value.as_str(),
                "y" | "yes" | "true" | "1" | "on" | "t" | "20049"
            ));
        }
    }
    wants
}

#[cfg(test)]
mod tests {
    use super::nfsd_rdma;

    #[test]
    fn rdma_is_wanted_in_the_section_of_nfsd_only() {
        assert_eq!(
            nfsd_rdma("[nfsd]\n# rdma=n\n rdma = y\nrdma-port=20049\n"),
            Some(true)
        );
        assert_eq!(nfsd_rdma("[nfsd]\nrdma=n\n[lockd]\nrdma=y\n"), Some(false));
        assert_eq!(
            (nfsd_rdma("[mountd]\nrdma=y\n"), nfsd_rdma("rdma=y\n[[nfsd")),
            (None, None)
        );
    }
}
