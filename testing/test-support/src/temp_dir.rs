//! A directory that is removed when it is dropped.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A new, empty directory. It is removed with its contents when it is dropped.
#[derive(Debug)]
pub struct TempDir(tempfile::TempDir);

impl TempDir {
    /// Creates a directory in the system's directory for temporary files, or in `/tmp` if the path
    /// has white space: tests write command lines that are split there.
    ///
    /// # Panics
    /// Panics if the directory cannot be created.
    pub fn new() -> Self {
        let parent = std::env::temp_dir();
        if parent.to_string_lossy().contains(char::is_whitespace) {
            return Self::new_in(Path::new("/tmp"));
        }
        Self::new_in(&parent)
    }

    /// Creates a directory in memory (`/dev/shm`) if possible: the disk of the lab is slow.
    ///
    /// # Panics
    /// Panics if the directory cannot be created.
    pub fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() {
            Self::new_in(memory)
        } else {
            Self::new()
        }
    }

    fn new_in(parent: &Path) -> Self {
        // The machines of the lab share it, with equal process IDs. Other users can read it.
        let dir = tempfile::Builder::new()
            .prefix("rdma-test-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(parent);
        Self(dir.unwrap_or_else(|error| panic!("{}: {error}", parent.display())))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, creates its parent directories, and returns its path.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a file in the directory"))
            .and_then(|()| fs::write(&path, contents))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }
}

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}
