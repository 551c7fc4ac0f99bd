//! Root directories for `ribinfo --root`.

use std::fs;
use std::path::Path;

use test_support::temp_dir::TempDir;

use super::program::{check, ribinfo};

/// A root directory with a capture of this host.
pub(crate) struct HostRoot(TempDir);

impl HostRoot {
    /// Creates an empty root directory.
    pub(crate) fn empty() -> Self {
        Self(TempDir::in_memory())
    }

    /// Captures this host without any configuration files.
    pub(crate) fn without_etc() -> Self {
        let root = Self::empty();
        let (text, status) = ribinfo(&["capture", root.path().to_str().expect("a path in UTF-8")]);
        assert_eq!(status, 0, "{text}");
        root.without(&["etc", "usr", "run"])
    }

    /// Removes directories.
    pub(crate) fn without(self, directories: &[&str]) -> Self {
        for directory in directories {
            let directory = self.path().join(directory);
            if directory.exists() {
                fs::remove_dir_all(directory).expect("a directory");
            }
        }
        self
    }

    /// Captures this host, on which rdma_cm prefers RoCE v1 on this device.
    pub(crate) fn with_roce_v1(device: &str) -> Self {
        let root = Self::without_etc();
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

    /// Returns the output and the exit code of `ribinfo check` on this root directory.
    pub(crate) fn check(&self, checks: &[&str]) -> (String, i32) {
        let path = self.path().to_str().expect("a path in UTF-8");
        check(&[checks, &["--root", path]].concat())
    }
}
