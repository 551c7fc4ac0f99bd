//! The place where this process runs.

use crate::root::Root;

/// Files that only exist in a container, and the name of its runtime.
const CONTAINERS: [(&str, &str); 4] = [
    ("/var/run/secrets/kubernetes.io", "a Kubernetes pod"),
    ("/.dockerenv", "a Docker container"),
    ("/run/.containerenv", "a Podman container"),
    ("/run/systemd/container", "a container"),
];

/// The map of the host's own user namespace (user_namespaces(7)).
const WHOLE_UID_MAP: [&str; 3] = ["0", "0", "4294967295"];

/// Returns `true` if the mount of `/dev/infiniband`, or else that of `/dev`, has the option
/// `nodev`.
fn is_nodev(mounts: &str) -> bool {
    let options = |target: &str| {
        let words = mounts.lines().map(|line| line.split(' '));
        let mut options = words.filter_map(|mut words| {
            (words.nth(1)? == target).then_some(())?;
            words.nth(1)
        });
        options.next_back()
    };
    let found = options("/dev/infiniband").or_else(|| options("/dev"));
    found.is_some_and(|options| options.split(',').any(|option| option == "nodev"))
}

/// The place where this process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The kind of container, for example `a Kubernetes pod`.
    pub container: Option<&'static str>,
    /// The user namespace is not that of the host, so limits cannot be raised from inside.
    pub is_rootless: bool,
    /// SELinux enforces its policy.
    pub has_selinux: bool,
    /// The file system of the device nodes is mounted without devices (`nodev`).
    pub is_nodev: bool,
}

impl Environment {
    /// Reads the facts.
    pub(crate) fn read(root: &Root) -> Self {
        let mut containers = CONTAINERS.iter();
        let container = containers.find(|(file, _)| root.exists(file));
        Self {
            container: container.map(|(_, name)| *name),
            is_rootless: root
                .value("/proc/self/uid_map")
                .is_some_and(|map| !map.split_whitespace().eq(WHOLE_UID_MAP))
                || root
                    .text("/run/.containerenv")
                    .is_some_and(|text| text.lines().any(|line| line == "rootless=1")),
            has_selinux: root.value("/sys/fs/selinux/enforce").as_deref() == Some("1"),
            is_nodev: is_nodev(&root.text("/proc/mounts").unwrap_or_default()),
        }
    }
}
