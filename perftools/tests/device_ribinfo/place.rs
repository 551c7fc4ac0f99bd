//! Network interfaces that are restored, and root directories for `ribinfo --root`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::here::{check, mend, netdev, output, wait};

/// Restores a network interface when it is dropped: up, with its MTU and its addresses.
pub(crate) struct Restore {
    pub(crate) netdev: String,
    device: String,
    mtu: String,
    pub(crate) addresses: Vec<String>,
}

impl Restore {
    pub(crate) fn of(device: &str) -> Self {
        let netdev = netdev(device);
        let (text, _) = output(
            Command::new("ip").args(["-o", "addr", "show", "dev", &netdev, "scope", "global"]),
        );
        let addresses = text
            .lines()
            .filter_map(|line| line.split_whitespace().nth(3))
            .map(str::to_owned)
            .collect();
        let mtu = fs::read_to_string(format!("/sys/class/net/{netdev}/mtu"))
            .expect("MTU")
            .trim()
            .to_owned();
        Self {
            netdev,
            device: device.to_owned(),
            mtu,
            addresses,
        }
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        let ip = |line: String| {
            let _ = Command::new("ip")
                .args(line.split_whitespace())
                .stderr(Stdio::null())
                .status();
        };
        let netdev = &self.netdev;
        ip(format!("link set {netdev} mtu {}", self.mtu));
        ip(format!("link set {netdev} up"));
        for address in &self.addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            ip(format!("addr replace {address} dev {netdev}{nodad}"));
        }
        let state = format!("/sys/class/infiniband/{}/ports/1/state", self.device);
        wait(|| {
            fs::read_to_string(&state).is_ok_and(|text| text.contains("ACTIVE"))
                && check(&["gid", "port"]).1 == 0
        });
    }
}

/// A root directory with links to directories of this host.
pub(crate) struct Tree(pub(crate) PathBuf);

impl Tree {
    pub(crate) fn new(links: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let memory = PathBuf::from("/dev/shm");
        let place = if memory.is_dir() {
            memory
        } else {
            std::env::temp_dir()
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = place.join(format!("ribinfo-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        for link in links {
            let to = path.join(link.trim_start_matches('/'));
            fs::create_dir_all(to.parent().expect("a parent")).expect("directories");
            symlink(link, to).expect("a link");
        }
        Self(path)
    }

    pub(crate) fn whole() -> Self {
        Self::new(&["/sys", "/proc", "/dev"])
    }

    pub(crate) fn put(&self, file: &str, text: &str) -> &Self {
        let path = self.0.join(file.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("a file");
        self
    }

    /// Runs the part of a remedy that changes files, in this root directory.
    pub(crate) fn mend(&self, remedy: &str) {
        let files = remedy.split(" && systemctl").next().unwrap_or_default();
        fs::create_dir_all(self.0.join("etc/modules-load.d")).expect("a directory");
        mend(&files.replace(" /etc/", &format!(" {}/etc/", self.0.display())));
    }

    pub(crate) fn check(&self, subjects: &[&str]) -> (String, i32) {
        check(
            &[
                subjects,
                &["--root", self.0.to_str().expect("a path in UTF-8")],
            ]
            .concat(),
        )
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a root directory in which rdma_cm prefers RoCE v1 on this device.
pub(crate) fn with_roce_v1(name: &str) -> Tree {
    let tree = Tree::new(&["/proc", "/dev", "/sys/class", "/sys/module", "/sys/devices"]);
    tree.put(
        &format!("/sys/kernel/config/rdma_cm/{name}/ports/1/default_roce_mode"),
        "IB/RoCE v1\n",
    );
    tree
}
