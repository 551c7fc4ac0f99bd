//! NFS over RDMA: mounts, exports and the configuration of the server.

use crate::gpu::KERNEL;
use crate::root::Root;

pub(crate) const EXPORTS: &str = "/etc/exports.d";
const DROP_INS: &str = "/etc/nfs.conf.d";

/// The state and the configuration of NFS on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nfs {
    /// The NFS mounts.
    pub mounts: Vec<Mount>,
    /// The NFS mounts in `/etc/fstab`.
    pub fstab: Vec<Mount>,
    /// The transport and port of each listener of nfsd, such as `rdma 20049`. Empty if nfsd does
    /// not run.
    pub listeners: Vec<String>,
    /// The kernel is older than Linux 5, which uses port 20049 for RDMA if no option has the port.
    pub needs_port: bool,
    /// A file exports a directory.
    pub has_exports: bool,
    /// The exported directories that do not exist, each with its file.
    pub missing_exports: Vec<(String, String)>,
    /// `nfs.conf` enables RDMA for nfsd.
    pub is_rdma_enabled: bool,
}

impl Nfs {
    /// Reads the state and the configuration.
    pub(crate) fn read(root: &Root) -> Self {
        let text = |file: &str| root.text(file).unwrap_or_default();
        let exports = [
            vec!["/etc/exports".to_owned()],
            root.files(EXPORTS, ".exports"),
        ]
        .concat();
        let confs = [
            vec!["/etc/nfs.conf".to_owned()],
            root.files(DROP_INS, ".conf"),
        ]
        .concat();
        let ports = text("/proc/fs/nfsd/portlist");
        Self {
            mounts: mounts(&text("/proc/mounts")),
            fstab: mounts(&text("/etc/fstab")),
            listeners: ports.lines().map(|line| line.trim().to_owned()).collect(),
            needs_port: root
                .value(KERNEL)
                .and_then(|release| release.split('.').next()?.parse::<u32>().ok())
                .is_some_and(|major| major < 5),
            missing_exports: missing_exports(root, &exports),
            has_exports: exports.iter().any(|file| has_entries(&text(file))),
            // The file that is read last wins.
            is_rdma_enabled: confs
                .iter()
                .filter_map(|file| nfsd_rdma(&text(file)))
                .next_back()
                .unwrap_or(false),
        }
    }
}

/// Returns `true` if a line is neither empty nor a comment.
fn has_entries(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .any(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Returns the exported directories that do not exist, each with its file. A captured tree has only
/// some directories, so it must have another exported directory, or the parent of the missing one.
fn missing_exports(root: &Root, files: &[String]) -> Vec<(String, String)> {
    let mut exported = Vec::new();
    for file in files {
        let text = root.text(file).unwrap_or_default();
        let paths = text
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        let paths = paths.map(|path| path.trim_matches('"').to_owned());
        let paths = paths.filter(|path| path.starts_with('/'));
        exported.extend(paths.map(|path| (path, file.clone())));
    }
    let exists = |path: &str| root.exists(path);
    let has_some = root.is_host() || exported.iter().any(|(path, _)| exists(path));
    let has_parent = |path: &str| {
        let parent = path.trim_end_matches('/').rsplit_once('/');
        parent.is_some_and(|(parent, _)| !parent.is_empty() && exists(parent))
    };
    exported.retain(|(path, _)| is_missing(root, path) && (has_some || has_parent(path)));
    exported
}

/// Returns `true` if a component of a path is not in its directory. If the directory cannot be
/// read, the path may exist.
fn is_missing(root: &Root, path: &str) -> bool {
    let mut directory = String::new();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let names = root.list(if directory.is_empty() {
            "/"
        } else {
            &directory
        });
        // Hidden names are not listed, and exports(5) writes special characters with a backslash.
        let is_listed = !name.starts_with('.') && !name.contains('\\');
        if is_listed && !names.is_empty() && names.iter().all(|other| other != name) {
            return true;
        }
        directory = format!("{directory}/{name}");
    }
    false
}

/// An NFS mount in `/proc/mounts` or `/etc/fstab`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The server and the exported directory.
    pub source: String,
    /// The mount point.
    pub target: String,
    /// `true` if the mount uses RDMA.
    pub rdma: bool,
    /// The port of the server, if the options contain it.
    pub port: Option<u16>,
    /// The mount is made on demand only: `noauto`.
    pub is_on_demand: bool,
}

/// Returns the NFS mounts in `table`, the text of `/proc/mounts` or `/etc/fstab`.
pub fn mounts(table: &str) -> Vec<Mount> {
    let parse_line = |line: &str| {
        let mut words = line.split_whitespace();
        let (source, target, kind, options) =
            (words.next()?, words.next()?, words.next()?, words.next()?);
        if source.starts_with('#') || !matches!(kind, "nfs" | "nfs4") {
            return None;
        }
        let rdma = options
            .split(',')
            .any(|option| matches!(option, "rdma" | "proto=rdma" | "proto=rdma6"));
        let port = options
            .split(',')
            .find_map(|option| option.strip_prefix("port=")?.parse().ok());
        Some(Mount {
            source: source.to_owned(),
            target: target.to_owned(),
            rdma,
            port,
            is_on_demand: options.split(',').any(|option| option == "noauto"),
        })
    };
    table.lines().filter_map(parse_line).collect()
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
    use super::*;
    use test_support::temp_dir::TempDir;

    #[test]
    fn exports_are_also_read_from_exports_d() {
        let directory = TempDir::new();
        let write = |file: &str, text: &str| {
            let path = directory.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("etc/exports", "# none\n");
        let root = Root::at(directory.path()).unwrap();
        assert!(!Nfs::read(&root).has_exports);
        write("etc/exports.d/data.exports", "/data *(ro)\n");
        assert!(Nfs::read(&root).has_exports);
    }

    #[test]
    fn rdma_mounts_are_recognized() {
        let table = "10.0.0.1:/a /mnt/a nfs4 rw,vers=4.2,proto=rdma,port=20049,timeo=600 0 0\n10.0.0.1:/b /mnt/b nfs rw,proto=tcp 0 0\n/dev/sda1 / ext4 rw 0 0\n# x:/y /z nfs rdma 0 0\nshort\n";
        let parsed = mounts(table);
        assert_eq!(
            parsed
                .iter()
                .map(|m| (m.target.as_str(), m.rdma, m.port))
                .collect::<Vec<_>>(),
            [("/mnt/a", true, Some(20049)), ("/mnt/b", false, None)]
        );
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
