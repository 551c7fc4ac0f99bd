//! The place where this process runs.

use crate::root::Root;

/// Files that only exist in a container, and the name of its runtime.
const CONTAINERS: [(&str, &str); 4] = [
    ("/var/run/secrets/kubernetes.io", "a Kubernetes pod"),
    ("/.dockerenv", "a Docker container"),
    ("/run/.containerenv", "a Podman container"),
    ("/run/systemd/container", "a container"),
];

/// The place where this process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The kind of container, for example `a Kubernetes pod`.
    pub container: Option<&'static str>,
}

impl Environment {
    /// Reads the facts.
    pub(crate) fn read(root: &Root) -> Self {
        let mut containers = CONTAINERS.iter();
        let container = containers.find(|(file, _)| root.exists(file));
        Self {
            container: container.map(|(_, name)| *name),
        }
    }
}
