//! Root directories for `ribinfo --root`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use test_support::temp_dir::TempDir;

use super::program::{apply, check};

/// A root directory with links to directories of this host.
pub(crate) struct HostRoot(TempDir);

impl HostRoot {
    /// Creates a root directory with links to these directories.
    pub(crate) fn with_links(links: &[&str]) -> Self {
        let dir = TempDir::in_memory();
        for link in links {
            let to = dir.path().join(link.trim_start_matches('/'));
            fs::create_dir_all(to.parent().expect("a parent")).expect("directories");
            symlink(link, to).expect("a link");
        }
        Self(dir)
    }

    /// Creates a root directory of this host without any configuration files.
    pub(crate) fn without_etc() -> Self {
        Self::with_links(&["/sys", "/proc", "/dev"])
    }

    /// Creates a root directory of this host in which rdma_cm prefers RoCE v1 on this device.
    pub(crate) fn with_roce_v1(device: &str) -> Self {
        let links = ["/proc", "/dev", "/sys/class", "/sys/module", "/sys/devices"];
        let root = Self::with_links(&links);
        root.write(
            &format!("/sys/kernel/config/rdma_cm/{device}/ports/1/default_roce_mode"),
            "IB/RoCE v1\n",
        );
        root
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, file: &str, text: &str) -> &Self {
        self.0.write(file, text);
        self
    }

    /// Runs the part of a remedy that changes files, in this root directory.
    pub(crate) fn apply(&self, remedy: &str) {
        let files = remedy.split(" && systemctl").next().unwrap_or_default();
        fs::create_dir_all(self.path().join("etc/modules-load.d")).expect("a directory");
        apply(&files.replace(" /etc/", &format!(" {}/etc/", self.path().display())));
    }

    /// Returns the output and the exit code of `ribinfo check` on this root directory.
    pub(crate) fn check(&self, checks: &[&str]) -> (String, i32) {
        let path = self.path().to_str().expect("a path in UTF-8");
        check(&[checks, &["--root", path]].concat())
    }
}
