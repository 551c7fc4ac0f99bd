//! Access to the files of a host through a root directory. Tests can use another root directory,
//! and a root can record the files that are read.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

#[cfg(any(test, fuzzing, feature = "testing"))]
use super::memory_files::MemoryFiles;
use super::probe::Probe;

/// Maximum number of bytes that are read from a file.
const MAX_LEN: u64 = 1 << 20;
/// File of a captured tree with the facts that are not in files.
const PROBE: &str = "probe.json";

/// The root directory that contains `/sys`, `/proc`, `/etc` and `/dev`.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    captured: Option<Box<Probe>>,
    recorded: Option<Mutex<BTreeMap<String, Recorded>>>,
    /// Files that are read instead of those in `path`.
    #[cfg(any(test, fuzzing, feature = "testing"))]
    memory: Option<Mutex<MemoryFiles>>,
}

/// A file, directory or link that was read, for [`Root::save`].
#[derive(Clone, Debug)]
enum Recorded {
    File(String),
    Directory,
    Link(PathBuf),
}

impl Root {
    /// Creates the root of this host.
    pub fn host() -> Self {
        Self {
            path: PathBuf::from("/"),
            captured: None,
            recorded: None,
            #[cfg(any(test, fuzzing, feature = "testing"))]
            memory: None,
        }
    }

    /// Creates a root that uses a directory instead of `/`. If the directory contains a
    /// `probe.json`, it is a captured tree, and this host is not queried.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read or its `probe.json` is invalid.
    pub fn at(path: &Path) -> io::Result<Self> {
        fs::read_dir(path)?;
        let captured = match fs::read_to_string(path.join(PROBE)) {
            Ok(text) => Some(serde_json::from_str(&text).map_err(io::Error::other)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self {
            path: path.to_owned(),
            captured,
            recorded: None,
            #[cfg(any(test, fuzzing, feature = "testing"))]
            memory: None,
        })
    }

    /// Creates a root with the files of a directory, which are read into memory.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or its `probe.json` is invalid.
    #[cfg(any(test, fuzzing, feature = "testing"))]
    pub fn in_memory(path: &Path) -> io::Result<Self> {
        let mut root = Self::at(path)?;
        root.memory = Some(Mutex::new(MemoryFiles::read(path)?));
        Ok(root)
    }

    /// Returns the files of a root that is in memory.
    #[cfg(any(test, fuzzing, feature = "testing"))]
    pub fn memory(&self) -> Option<std::sync::MutexGuard<'_, MemoryFiles>> {
        let files = self.memory.as_ref()?;
        Some(files.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns `true` if the root is this host.
    pub fn is_host(&self) -> bool {
        self.path == Path::new("/")
    }

    /// Records what is read from now on, for [`save`](Root::save).
    #[must_use]
    pub fn recording(mut self) -> Self {
        self.recorded = Some(Mutex::default());
        self
    }

    /// Returns the facts that are not in files. They come from `probe.json`, or from queries to
    /// this host for the wanted checks.
    pub fn probe(&self, wanted: impl Fn(&str) -> bool) -> Probe {
        self.captured
            .as_deref()
            .cloned()
            .unwrap_or_else(|| Probe::query(&self.path("/dev/infiniband"), wanted))
    }

    /// Returns the verbs attributes only, as [`probe`](Root::probe).
    pub fn verbs(&self) -> super::verbs::Verbs {
        self.captured
            .as_ref()
            .map_or_else(super::verbs::Verbs::query, |probe| probe.verbs.clone())
    }

    /// Returns the subnet manager of each InfiniBand port.
    ///
    /// # Errors
    /// Returns an error if the adapters cannot be listed.
    pub fn subnet_managers(&self) -> Result<Vec<super::sm::PortSm>, String> {
        self.captured
            .as_ref()
            .map_or_else(super::sm::query, |probe| Ok(probe.sms.clone()))
    }

    /// Converts an absolute path of the host to a path below this root.
    pub fn path(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// Returns the text of a file, or `None` if it does not exist or cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.record(path, || Recorded::File(text.clone()));
        Some(text)
    }

    fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        #[cfg(any(test, fuzzing, feature = "testing"))]
        if let Some(memory) = self.memory() {
            return memory.file(path).map(<[u8]>::to_vec);
        }
        let mut bytes = Vec::new();
        // std calls open64. This calls open, which the simulator of a fabric (ibsim) intercepts.
        let file = open(
            &self.path(path),
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .ok()?;
        fs::File::from(file)
            .take(MAX_LEN)
            .read_to_end(&mut bytes)
            .ok()?;
        Some(bytes)
    }

    /// Returns the text of a file without surrounding white space, or `None` if it is empty.
    pub fn value(&self, path: &str) -> Option<String> {
        self.text(path)
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
    }

    /// Returns the number in a file, decimal or hexadecimal with `0x`.
    pub fn number<N: TryFrom<i64>>(&self, path: &str) -> Option<N> {
        N::try_from(number(&self.value(path)?)?).ok()
    }

    /// Returns `true` if the file or directory exists.
    pub fn exists(&self, path: &str) -> bool {
        let Some(is_directory) = self.is_directory(path) else {
            return false;
        };
        if is_directory {
            self.record(path, || Recorded::Directory);
        } else {
            self.record(path, || Recorded::File(String::new()));
        }
        true
    }

    fn is_directory(&self, path: &str) -> Option<bool> {
        #[cfg(any(test, fuzzing, feature = "testing"))]
        if let Some(memory) = self.memory() {
            return memory.is_directory(path);
        }
        Some(fs::metadata(self.path(path)).ok()?.is_dir())
    }

    /// Returns the names in a directory, with numbers in numeric order. The list is empty if the
    /// directory does not exist.
    pub fn list(&self, directory: &str) -> Vec<String> {
        let mut names = self.names(directory);
        names.retain(|name| !name.starts_with('.'));
        names.sort_by(|a, b| compare_natural(a, b));
        names
    }

    /// Returns the paths of the files in a directory whose names have this ending.
    pub fn files(&self, directory: &str, ending: &str) -> Vec<String> {
        let mut names = self.list(directory);
        names.retain(|name| name.len() > ending.len() && name.ends_with(ending));
        names
            .iter()
            .map(|name| format!("{directory}/{name}"))
            .collect()
    }

    fn names(&self, directory: &str) -> Vec<String> {
        #[cfg(any(test, fuzzing, feature = "testing"))]
        if let Some(memory) = self.memory() {
            let names = memory.names(directory).into_iter().flatten();
            return names.cloned().collect();
        }
        let Ok(entries) = fs::read_dir(self.path(directory)) else {
            return Vec::new();
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        entries.flatten().map(name).collect()
    }

    /// Returns the last component of the target of a symbolic link.
    pub fn link(&self, path: &str) -> Option<String> {
        let target = self.link_target(path)?;
        self.record(path, || Recorded::Link(target.clone()));
        target
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
    }

    fn link_target(&self, path: &str) -> Option<PathBuf> {
        #[cfg(any(test, fuzzing, feature = "testing"))]
        if let Some(memory) = self.memory() {
            return memory.link(path).map(Path::to_owned);
        }
        fs::read_link(self.path(path)).ok()
    }

    fn record(&self, path: &str, entry: impl FnOnce() -> Recorded) {
        if let Some(recorded) = &self.recorded {
            let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
            // Do not replace the text of a file with an empty entry from `exists`.
            if !matches!(recorded.get(path), Some(Recorded::File(text)) if !text.is_empty()) {
                recorded.insert(path.to_owned(), entry());
            }
        }
    }

    /// Writes what was recorded, and `probe`, to a directory as a captured tree.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn save(&self, to: &Path, probe: &Probe) -> io::Result<()> {
        let Some(recorded) = &self.recorded else {
            return Ok(());
        };
        for (path, recorded) in recorded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            let path = to.join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap_or(to))?;
            match recorded {
                Recorded::File(text) => fs::write(&path, text)?,
                Recorded::Directory => {
                    fs::create_dir_all(&path)?;
                    fs::write(path.join(".keep"), "")?;
                }
                Recorded::Link(target) => match std::os::unix::fs::symlink(target, &path) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error);
                    }
                    _ => {}
                },
            }
        }
        let mut text = serde_json::to_string_pretty(probe).map_err(io::Error::other)?;
        text.push('\n');
        fs::write(to.join(PROBE), text)
    }
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

/// Compares names with trailing numbers in numeric order: `mlx5_2` is less than `mlx5_10`.
fn compare_natural(a: &str, b: &str) -> Ordering {
    let split = |text: &str| {
        let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (stem, digits) = text.split_at(text.len() - digits);
        (stem.to_owned(), digits.parse::<u64>().ok())
    };
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
