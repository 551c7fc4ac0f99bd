//! The place where this process runs.

use std::fmt;

use crate::root::{Root, is_name};

/// A kind of container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// A pod of Kubernetes.
    Pod,
    /// A container of Docker.
    Docker,
    /// A container of Podman.
    Podman,
    /// A container of LXC, LXD or Incus.
    Lxc,
    /// A container of systemd-nspawn.
    Nspawn,
    /// Another container.
    Other,
}

/// Files that only exist in a container, and its kind.
const FILES: [(&str, Container); 3] = [
    ("/var/run/secrets/kubernetes.io", Container::Pod),
    ("/.dockerenv", Container::Docker),
    ("/run/.containerenv", Container::Podman),
];
/// The mount point of a pod's last message.
pub(crate) const TERMINATION_LOG: &str = "/dev/termination-log";
/// The file in which a manager of containers gives its name
/// (<https://systemd.io/CONTAINER_INTERFACE>).
pub(crate) const MANAGER: &str = "/run/systemd/container";
/// The control group of this process (cgroups(7)).
pub(crate) const CGROUP: &str = "/proc/self/cgroup";

impl Container {
    /// Returns the kind of container in which this process runs.
    fn read(root: &Root) -> Option<Self> {
        let mut files = FILES.iter();
        let found = files.find(|(file, _)| root.exists(file));
        // The kubelet mounts this file in each container.
        let mounts = root.text("/proc/mounts").unwrap_or_default();
        let is_pod = mounts
            .lines()
            .any(|line| line.split(' ').nth(1) == Some(TERMINATION_LOG));
        let found = found.map(|(_, container)| *container);
        found.or(is_pod.then_some(Self::Pod)).or_else(|| {
            match root
                .exists(MANAGER)
                .then(|| root.value(MANAGER))?
                .as_deref()
            {
                // A virtual machine with a kernel of its own.
                Some("wsl") => None,
                Some("lxc") => Some(Self::Lxc),
                Some("systemd-nspawn") => Some(Self::Nspawn),
                Some("docker") => Some(Self::Docker),
                Some("podman") => Some(Self::Podman),
                _ => Some(Self::Other),
            }
        })
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod => "a Kubernetes pod",
            Self::Docker => "a Docker container",
            Self::Podman => "a Podman container",
            Self::Lxc => "an LXC container",
            Self::Nspawn => "a container of systemd-nspawn",
            Self::Other => "a container",
        })
    }
}

/// The program that started this process outside of a container. It sets the limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manager {
    /// A job of Slurm.
    Slurm,
    /// A service of systemd, with the name of its unit.
    Service(String),
    /// The manager of a user's services, which starts programs of a desktop too.
    User,
}

impl Manager {
    /// Returns the manager of a control group. Sessions of users, which have the limits of PAM, and
    /// the daemons that start them have none.
    pub(crate) fn from_cgroup(text: &str) -> Option<Self> {
        const LOGINS: [&str; 6] = ["sshd", "ssh", "getty", "display-manager", "cron", "crond"];
        let parts = || text.lines().flat_map(|line| line.split('/'));
        if parts().any(|part| part.starts_with("slurmstepd") || part.starts_with("slurmd")) {
            return Some(Self::Slurm);
        }
        if parts().any(|part| part.starts_with("user@") && part.ends_with(".service")) {
            return Some(Self::User);
        }
        let unit = text.lines().find_map(|line| {
            let (_, rest) = line.split_once("/system.slice/")?;
            rest.split('/').find(|part| part.ends_with(".service"))
        })?;
        let stem = unit.split(['@', '.']).next().unwrap_or_default();
        (is_name(unit) && !LOGINS.contains(&stem)).then(|| Self::Service(unit.to_owned()))
    }

    /// Returns the control group of the manager's processes.
    pub(crate) fn to_cgroup(&self) -> String {
        let unit = match self {
            Self::Slurm => "slurmd.service",
            Self::Service(unit) => unit,
            Self::User => return "0::/user.slice/user@1000.service\n".to_owned(),
        };
        format!("0::/system.slice/{unit}\n")
    }
}

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
    /// The kind of container.
    pub container: Option<Container>,
    /// The program that started this process and set its limits.
    pub manager: Option<Manager>,
    /// The user namespace is not that of the host, so limits cannot be raised from inside.
    pub is_rootless: bool,
    /// SELinux enforces its policy.
    pub has_selinux: bool,
    /// The file system of the device nodes is mounted without devices (`nodev`).
    pub is_nodev: bool,
}

impl Environment {
    /// Returns `true` unless a container or a service has another `/dev` than the host.
    pub fn has_host_dev(&self) -> bool {
        self.container.is_none() && !matches!(self.manager, Some(Manager::Service(_)))
    }

    /// Reads the facts.
    pub(crate) fn read(root: &Root) -> Self {
        Self {
            container: Container::read(root),
            manager: Manager::from_cgroup(&root.text(CGROUP).unwrap_or_default()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manager_is_that_of_the_control_group() {
        let service = |unit: &str| Some(Manager::Service(unit.to_owned()));
        for (cgroup, expected) in [
            (
                "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0",
                Some(Manager::Slurm),
            ),
            (
                "0::/system.slice/storage.service",
                service("storage.service"),
            ),
            (
                "12:devices:/system.slice/a@b.service\n0::/system.slice/a@b.service/x",
                service("a@b.service"),
            ),
            ("0::/system.slice/ssh.service", None),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope",
                Some(Manager::User),
            ),
            ("0::/user.slice/user-1000.slice/session-3.scope", None),
            ("0::/", None),
        ] {
            let manager = Manager::from_cgroup(cgroup);
            assert_eq!(manager, expected, "{cgroup}");
            let captured = manager.iter().map(Manager::to_cgroup).collect::<String>();
            assert_eq!(Manager::from_cgroup(&captured), manager, "{captured}");
        }
    }
}
