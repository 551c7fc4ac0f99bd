//! Access to the files of a host through a root directory, such as `/` or a captured tree.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(any(test, feature = "testing"))]
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

#[cfg(any(test, feature = "testing"))]
use super::memory_files::MemoryFiles;
use super::probe::Probe;
use super::tree::{OpenDirectory, Tree};

/// Maximum number of bytes that are read from a file.
const MAX_LEN: u64 = 4 << 20;
/// Length of the buffer of the first read of a file.
const FIRST_READ: usize = 512;
/// Maximum number of bytes of [`PROBE`].
const MAX_PROBE_LEN: u64 = 64 << 20;
/// Maximum number of names that are read from a directory.
const MAX_NAMES: usize = 1 << 14;
/// File of a captured tree with the facts that are not in files.
pub(crate) const PROBE: &str = "probe.json";

/// The root directory that contains `/sys`, `/proc`, `/etc` and `/dev`.
#[derive(Clone, Debug)]
pub struct Root {
    path: PathBuf,
    captured: Option<Box<Probe>>,
    /// The directory, unless the root is this host.
    tree: Option<Arc<Tree>>,
    /// Files that are read instead of those in `path`.
    #[cfg(any(test, feature = "testing"))]
    memory: Option<Arc<Mutex<MemoryFiles>>>,
}

impl Root {
    /// Creates the root of this host.
    pub fn host() -> Self {
        Self {
            path: PathBuf::from("/"),
            captured: None,
            tree: None,
            #[cfg(any(test, feature = "testing"))]
            memory: None,
        }
    }

    /// Creates a root that uses a directory instead of `/`. If the directory contains a
    /// `probe.json`, it is a captured tree, and this host is not queried.
    pub fn at(path: &Path) -> io::Result<Self> {
        if path == Path::new("/") {
            return Ok(Self::host());
        }
        let mut root = Self::host();
        path.clone_into(&mut root.path);
        root.tree = Some(Arc::new(Tree::open(path)?));
        if fs::symlink_metadata(path.join(PROBE)).is_ok() {
            let invalid = || io::Error::other(format!("{PROBE} is not a regular file"));
            let probe = root.bytes(PROBE, MAX_PROBE_LEN).ok_or_else(invalid)?;
            let probe: Probe = serde_json::from_slice(&probe).map_err(io::Error::other)?;
            root.captured = Some(Box::new(probe));
        }
        Ok(root)
    }

    /// Creates a root with the files of a directory, which are read into memory.
    #[cfg(any(test, feature = "testing"))]
    pub fn in_memory(path: &Path) -> io::Result<Self> {
        let mut root = Self::at(path)?;
        root.memory = Some(Arc::new(Mutex::new(MemoryFiles::read(path)?)));
        Ok(root)
    }

    /// Returns the files of a root that is in memory.
    #[cfg(any(test, feature = "testing"))]
    pub fn memory(&self) -> Option<std::sync::MutexGuard<'_, MemoryFiles>> {
        let files = self.memory.as_ref()?;
        Some(files.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns `true` if the root is this host.
    pub fn is_host(&self) -> bool {
        self.path == Path::new("/")
    }

    /// Returns the facts that are not in files. They come from `probe.json`, or from queries to
    /// this host.
    pub fn probe(&self) -> Probe {
        let captured = self.captured.as_deref().cloned();
        captured.unwrap_or_else(|| Probe::of_host(self.path.join("dev/infiniband")))
    }

    /// Returns the subnet manager of each InfiniBand port.
    pub fn subnet_managers(&self) -> Result<Vec<super::sm::PortSm>, String> {
        self.captured
            .as_ref()
            .map_or_else(super::sm::query, |probe| Ok(probe.sms.to_vec()))
    }

    /// Returns the text of a file, or `None` if it does not exist or cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        self.bytes(path, MAX_LEN).map(text)
    }

    fn bytes(&self, path: &str, limit: u64) -> Option<Vec<u8>> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(memory) = self.memory() {
            return memory.file(path).map(<[u8]>::to_vec);
        }
        let file = match &self.tree {
            Some(tree) => tree.file(path)?,
            None => open_on_host(path)?,
        };
        read(file, limit, is_of_sysfs(path))
    }

    /// Opens a directory from which several files are read.
    pub(crate) fn directory(&self, path: impl Into<String>) -> Directory<'_> {
        let path = path.into();
        Directory {
            open: self.open_directory(&path),
            root: self,
            path,
        }
    }

    fn open_directory(&self, path: &str) -> Option<OpenDirectory> {
        #[cfg(any(test, feature = "testing"))]
        if self.memory.is_some() {
            return None;
        }
        let tree = self.tree.as_ref().filter(|_| is_of_sysfs(path))?;
        tree.open_directory(path, MAX_NAMES)
    }

    /// Returns the text of a file without surrounding white space, or `None` if it is empty.
    pub fn value(&self, path: &str) -> Option<String> {
        self.text(path).and_then(|text| value(&text))
    }

    /// Returns the number in a file, decimal or hexadecimal with `0x`.
    pub(crate) fn number<N: TryFrom<i64>>(&self, path: &str) -> Option<N> {
        N::try_from(number(&self.value(path)?)?).ok()
    }

    /// Returns `true` if the file or directory exists.
    pub fn exists(&self, path: &str) -> bool {
        self.is_directory(path).is_some()
    }

    /// Returns `true` if a path is a directory, and `None` if it does not exist.
    pub(crate) fn is_directory(&self, path: &str) -> Option<bool> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(memory) = self.memory() {
            return memory.is_directory(path);
        }
        match &self.tree {
            Some(tree) => tree.is_directory(path),
            None => Some(fs::metadata(path).ok()?.is_dir()),
        }
    }

    /// Returns the names in a directory, with numbers in numeric order. The list is empty if the
    /// directory does not exist.
    pub fn list(&self, directory: &str) -> Vec<String> {
        sorted(self.names(directory))
    }

    /// Returns the paths of the files in a directory whose names have this ending.
    pub(crate) fn files(&self, directory: &str, ending: &str) -> Vec<String> {
        let mut names = self.list(directory);
        names.retain(|name| name.len() > ending.len() && name.ends_with(ending));
        names
            .iter()
            .map(|name| format!("{directory}/{name}"))
            .collect()
    }

    fn names(&self, directory: &str) -> Vec<String> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(memory) = self.memory() {
            let names = memory.names(directory).into_iter().flatten();
            return names.cloned().collect();
        }
        let names: Vec<OsString> = if let Some(tree) = &self.tree {
            tree.names(directory, MAX_NAMES)
        } else {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name());
            names.take(MAX_NAMES).collect()
        };
        let names = names.into_iter();
        names.filter_map(|name| name.into_string().ok()).collect()
    }

    /// Returns the last component of the target of a symbolic link.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = self.link_target(path)?;
        target
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
    }

    fn link_target(&self, path: &str) -> Option<PathBuf> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(memory) = self.memory() {
            return memory.link(path).map(Path::to_owned);
        }
        match &self.tree {
            Some(tree) => tree.link_target(path),
            None => fs::read_link(path).ok(),
        }
    }
}

/// A directory of a root. Below a captured tree, it is opened once for all of its files, which
/// saves two thirds of the system calls.
#[derive(Debug)]
pub struct Directory<'a> {
    root: &'a Root,
    path: String,
    open: Option<OpenDirectory>,
}

impl Directory<'_> {
    /// Returns the names in the directory, as [`Root::list`].
    pub(crate) fn list(&self) -> Vec<String> {
        match &self.open {
            Some(open) => sorted(open.names().collect()),
            None => self.root.list(&self.path),
        }
    }

    /// Returns the value of a file below the directory, as [`Root::value`].
    pub(crate) fn value(&self, file: &str) -> Option<String> {
        match self.open.as_ref().and_then(|open| open.file(file)) {
            Some(opened) => value(&text(read(opened, MAX_LEN, true)?)),
            None => self.root.value(&format!("{}/{file}", self.path)),
        }
    }
}

/// Reads a file up to a limit. A file of sysfs ends with a read that is shorter than the buffer,
/// because the kernel writes a value into one page at a time. Not asking for more saves a system
/// call for each of thousands of files.
fn read(mut file: fs::File, limit: u64, is_of_sysfs: bool) -> Option<Vec<u8>> {
    let mut bytes = vec![0; FIRST_READ];
    let len = file.read(&mut bytes).ok()?;
    bytes.truncate(len);
    if len == FIRST_READ || !is_of_sysfs {
        let rest = limit.saturating_sub(u64::try_from(len).ok()?);
        file.take(rest).read_to_end(&mut bytes).ok()?;
    }
    Some(bytes)
}

fn is_of_sysfs(path: &str) -> bool {
    path.starts_with("/sys/")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn value(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Opens a regular file of this host. All files of sysfs are regular.
fn open_on_host(path: &str) -> Option<fs::File> {
    // std calls open64. This calls open, which the simulator of a fabric (ibsim) intercepts.
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = fs::File::from(open(path, flags, Mode::empty()).ok()?);
    if !is_of_sysfs(path) {
        file.metadata().ok().filter(fs::Metadata::is_file)?;
    }
    Some(file)
}

/// Returns `true` if the text is a valid name of a host, device or network interface.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=255).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-@+".contains(&b))
}

/// Parses a signed number, decimal or hexadecimal with `0x`.
pub fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses an unsigned 64-bit number, decimal or hexadecimal with `0x`.
pub fn unsigned(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns names in natural order, without those that begin with a dot or control a terminal. The
/// kernel has none of the latter.
fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| !name.starts_with('.') && !name.chars().any(char::is_control));
    names.sort_by(|a, b| compare_natural(a, b));
    names
}

/// Compares names with trailing numbers in numeric order: `mlx5_2` is less than `mlx5_10`.
fn compare_natural(a: &str, b: &str) -> Ordering {
    fn split(text: &str) -> (&str, Option<u64>) {
        let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (stem, digits) = text.split_at(text.len() - digits);
        (stem, digits.parse().ok())
    }
    split(a).cmp(&split(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_by_trailing_number() {
        let mut names = ["mlx5_10", "rxe0", "mlx5_2", "mlx5_02", "10", "9"];
        names.sort_by(|a, b| compare_natural(a, b));
        assert_eq!(names, ["9", "10", "mlx5_02", "mlx5_2", "mlx5_10", "rxe0"]);
    }

    #[test]
    fn an_open_directory_has_the_names_of_its_path() {
        let directory = test_support::temp_dir::TempDir::new();
        for name in ["10", "9", "below/file", ".hidden", "\u{1b}[2J"] {
            directory.write(&format!("sys/class/d/{name}"), "");
        }
        std::os::unix::fs::symlink("9", directory.path().join("sys/class/d/link")).unwrap();
        let root = Root::at(directory.path()).unwrap();
        let open = root.directory("/sys/class/d");
        assert!(open.open.is_some());
        assert_eq!(open.list(), ["9", "10", "below", "link"]);
        assert_eq!(open.list(), root.list("/sys/class/d"));
    }

    #[test]
    fn missing_file_is_none() {
        let root = Root::at(Path::new("/proc/self/fdinfo")).unwrap();
        assert_eq!(root.text("/sys/class/infiniband/x"), None);
        assert!(
            root.list("/sys").is_empty() && !root.exists("/etc") && root.link("/etc").is_none()
        );
        assert!(Root::at(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn invalid_number_is_none() {
        assert_eq!(number("0x7fff\n"), Some(0x7fff));
        assert_eq!(number("-1"), Some(-1));
        assert_eq!(unsigned("0xffffffffffffffff"), Some(u64::MAX));
        for invalid in [
            "",
            "0x",
            "seven",
            "0x1ffffffffffffffff",
            "99999999999999999999",
        ] {
            assert_eq!(
                (number(invalid), unsigned(invalid)),
                (None, None),
                "{invalid}"
            );
        }
    }
}
