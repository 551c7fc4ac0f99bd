//! NFS over RDMA.

use host::HostFacts;
use host::mounts::{Mount, mounts};
use host::root::Root;

use super::finding::Finding;
use super::modules::{Modules, present};

/// Standard port of NFS over RDMA.
const PORT: u16 = 20049;
const PORTLIST: &str = "/proc/fs/nfsd/portlist";

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let root = facts.root;
    let modules = Modules::read(root);
    let mut findings = Vec::new();
    let mounted = mounts(&root.text("/proc/mounts").unwrap_or_default());
    for mount in mounted.iter().filter(|mount| mount.rdma) {
        findings.push(check_mount(mount).on(&mount.target));
    }
    for mount in mounts(&root.text("/etc/fstab").unwrap_or_default())
        .iter()
        .filter(|mount| mount.rdma)
    {
        findings.extend(
            check_fstab(root, &modules, mount, &mounted).map(|finding| finding.on(&mount.target)),
        );
    }
    findings.extend(check_server(root, &modules));
    if findings.is_empty() {
        let state = if client_present(root, &modules) {
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
            "umount {0} && mount -o rdma,port={PORT} {1} {0}",
            mount.target, mount.source
        )),
        None => Finding::ok(format!("{} is mounted over RDMA", mount.source)),
    }
}

fn check_fstab(
    root: &Root,
    modules: &Modules,
    mount: &Mount,
    mounted: &[Mount],
) -> Option<Finding> {
    if mount.port != Some(PORT) {
        return Some(
            Finding::warning(format!(
                "/etc/fstab mounts {} over RDMA without port={PORT}",
                mount.source
            ))
            .with_remedy(format!(
                "use the mount options rdma,port={PORT} in /etc/fstab"
            )),
        );
    }
    if !client_present(root, modules) {
        return Some(
            Finding::fault(format!(
                "/etc/fstab mounts {} over RDMA, but module xprtrdma is not loaded",
                mount.source
            ))
            .with_remedy(load_command(modules, "xprtrdma")),
        );
    }
    match mounted.iter().find(|other| other.target == mount.target) {
        Some(other) if !other.rdma => Some(
            Finding::warning(format!(
                "/etc/fstab mounts {} over RDMA, but it is currently mounted over TCP",
                mount.source
            ))
            .with_remedy(format!("umount {0} && mount {0}", mount.target)),
        ),
        _ => None,
    }
}

/// Returns `true` if the kernel has the client. Its module is rpcrdma; xprtrdma is an alias. If it
/// is built in, the sysctl directory that it shares with the server exists.
fn client_present(root: &Root, modules: &Modules) -> bool {
    ["rpcrdma", "xprtrdma"]
        .iter()
        .any(|name| present(root, modules, name, None))
        || root.exists("/proc/sys/sunrpc/svc_rdma")
}

fn load_command(modules: &Modules, name: &str) -> String {
    modules
        .enable_command(name)
        .unwrap_or_else(|| format!("modprobe {name}"))
}

fn check_server(root: &Root, modules: &Modules) -> Option<Finding> {
    let ports = root.text(PORTLIST)?;
    let exports = has_exports(root);
    let rdma: Vec<&str> = ports
        .lines()
        .filter_map(|line| line.strip_prefix("rdma "))
        .map(str::trim)
        .collect();
    // nfsd prints one line for each address family, and for each additional port.
    let standard = PORT.to_string();
    let rdma = rdma
        .iter()
        .find(|port| **port == standard)
        .or(rdma.first())
        .map(|port| (*port).to_owned());
    if ports.trim().is_empty() {
        return None;
    }
    let finding = match rdma {
        Some(port) if port == PORT.to_string() => Finding::ok(format!(
            "serves NFS over RDMA on port {PORT}{}",
            if exports {
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
        None if !rdma_enabled(root) => Finding::ok(
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

/// Returns `true` if `/etc/exports` or a file in `/etc/exports.d` exports a directory.
fn has_exports(root: &Root) -> bool {
    const DIRECTORY: &str = "/etc/exports.d";
    let files = root
        .list(DIRECTORY)
        .into_iter()
        .filter(|name| name.ends_with(".exports"))
        .map(|name| format!("{DIRECTORY}/{name}"));
    std::iter::once("/etc/exports".to_owned())
        .chain(files)
        .filter_map(|file| root.text(&file))
        .any(|text| {
            text.lines()
                .map(str::trim)
                .any(|line| !line.is_empty() && !line.starts_with('#'))
        })
}

/// Returns `true` if nfs.conf, or a file in nfs.conf.d, enables RDMA for nfsd.
fn rdma_enabled(root: &Root) -> bool {
    const DROP_INS: &str = "/etc/nfs.conf.d";
    let drop_ins = root
        .list(DROP_INS)
        .into_iter()
        .filter(|name| name.strip_suffix(".conf").is_some());
    let files = std::iter::once("/etc/nfs.conf".to_owned())
        .chain(drop_ins.map(|name| format!("{DROP_INS}/{name}")));
    // The file that is read last wins.
    files
        .filter_map(|file| nfsd_rdma(&root.text(&file)?))
        .last()
        .unwrap_or(false)
}

/// Returns the value of `rdma` in section `[nfsd]`.
fn nfsd_rdma(text: &str) -> Option<bool> {
    let mut in_nfsd = false;
    let mut enabled = None;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            in_nfsd = section
                .trim_end_matches(']')
                .trim()
                .eq_ignore_ascii_case("nfsd");
        } else if let Some(("rdma", value)) = line
            .split_once('=')
            .map(|(key, value)| (key.trim(), value))
            .filter(|_| in_nfsd)
        {
            let value = value.trim().to_ascii_lowercase();
            enabled = Some(matches!(
                value.as_str(),
                "y" | "yes" | "true" | "1" | "on" | "t" | "20049"
            ));
        }
    }
    enabled
}

#[cfg(test)]
mod tests {
    use super::{check_server, nfsd_rdma};
    use crate::finding::Level;
    use crate::modules::Modules;
    use host::root::Root;

    #[test]
    fn second_rdma_port_and_exports_d_are_no_problem() {
        let directory = std::env::temp_dir().join(format!("ribinfo-nfs-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = directory.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "proc/fs/nfsd/portlist",
            "rdma 20050\nrdma 20049\ntcp 2049\n",
        );
        write("etc/exports", "# none\n");
        write("etc/exports.d/data.exports", "/data *(ro)\n");
        let root = Root::at(&directory).unwrap();
        let finding = check_server(&root, &Modules::read(&root)).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(finding.level, Level::Ok, "{finding}");
        assert_eq!(finding.text, "serves NFS over RDMA on port 20049");
    }

    #[test]
    fn rdma_is_enabled_only_in_section_nfsd() {
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
