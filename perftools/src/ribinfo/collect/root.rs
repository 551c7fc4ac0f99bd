//! The one way to a host's files: a root that tests can move, and that can keep what was read.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::probe::Probe;

/// No file that is looked at is longer; what is beyond is not read.
const LONGEST: u64 = 1 << 20;
/// The file of a captured tree that holds what is no file.
const PROBE: &str = "probe.json";

/// Where `/sys`, `/proc`, `/etc` and `/dev` are.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    captured: Option<Box<Probe>>,
    recorded: Option<RefCell<BTreeMap<String, Recorded>>>,
}

/// One thing that was looked at, for [`Root::save`].
#[derive(Clone, Debug)]
enum Recorded {
    File(String),
    Directory,
    Link(PathBuf),
}

impl Root {
    /// This host.
    pub fn host() -> Self {
        Self {
            path: PathBuf::from("/"),
            captured: None,
            recorded: None,
        }
    }

    /// A directory that stands for `/`. If it holds a `probe.json`, it is a captured tree: nothing
    /// is asked of this host.
    ///
    /// # Errors
    /// The directory cannot be read, or its `probe.json` is not one.
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
        })
    }

    /// The same root, keeping what is read for [`save`](Root::save).
    #[must_use]
    pub fn keeping(mut self) -> Self {
        self.recorded = Some(RefCell::default());
        self
    }

    /// What is no file: the captured, or asked of this host now for the subjects that are wanted.
    pub fn probe(&self, wanted: impl Fn(&str) -> bool) -> Probe {
        self.captured
            .as_deref()
            .cloned()
            .unwrap_or_else(|| Probe::ask(&self.path("/dev/infiniband"), wanted))
    }

    /// What the verbs say: as [`probe`](Root::probe), without the rest.
    pub fn verbs(&self) -> super::verbs::Verbs {
        self.captured
            .as_ref()
            .map_or_else(super::verbs::Verbs::ask, |probe| probe.verbs.clone())
    }

    /// The subnet managers, asked at each InfiniBand port.
    ///
    /// # Errors
    /// There is no list of adapters.
    pub fn sms(&self) -> Result<Vec<super::sm::PortSm>, String> {
        self.captured
            .as_ref()
            .map_or_else(super::sm::ask, |probe| Ok(probe.sms.clone()))
    }

    /// Where an absolute path of the host is under this root.
    pub fn path(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// The text of a file; `None` if there is none, or it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        // By open(2) itself and not open64: what simulates a fabric's sysfs stands in its place.
        let file = open(
            &self.path(path),
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .ok()?;
        fs::File::from(file)
            .take(LONGEST)
            .read_to_end(&mut bytes)
            .ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.keep(path, || Recorded::File(text.clone()));
        Some(text)
    }

    /// The text of a file without surrounding white space; `None` also where nothing is left.
    pub fn value(&self, path: &str) -> Option<String> {
        self.text(path)
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
    }

    /// A number in a file, decimal or `0x` hexadecimal.
    pub fn number<N: TryFrom<i64>>(&self, path: &str) -> Option<N> {
        N::try_from(number(&self.value(path)?)?).ok()
    }

    /// Whether there is such a file or directory.
    pub fn exists(&self, path: &str) -> bool {
        let Ok(metadata) = fs::metadata(self.path(path)) else {
            return false;
        };
        if metadata.is_dir() {
            self.keep(path, || Recorded::Directory);
        } else {
            self.keep(path, || Recorded::File(String::new()));
        }
        true
    }

    /// The names in a directory, numbers in their order; empty where there is no such directory.
    pub fn list(&self, directory: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(directory)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort_by(|a, b| natural(a, b));
        names
    }

    /// The last name of what a symbolic link points at.
    pub fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        self.keep(path, || Recorded::Link(target.clone()));
        target
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
    }

    fn keep(&self, path: &str, what: impl FnOnce() -> Recorded) {
        if let Some(recorded) = &self.recorded {
            let mut recorded = recorded.borrow_mut();
            // A file's text is worth more than the knowledge that it is there.
            if !matches!(recorded.get(path), Some(Recorded::File(text)) if !text.is_empty()) {
                recorded.insert(path.to_owned(), what());
            }
        }
    }

    /// Writes what was read to a directory, with `probe`: a captured tree.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&self, to: &Path, probe: &Probe) -> io::Result<()> {
        let Some(recorded) = &self.recorded else {
            return Ok(());
        };
        for (path, recorded) in recorded.borrow().iter() {
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

/// A number as sysfs and configuration files write it.
pub fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// An unsigned number of 64 bits: a GUID or a mask.
pub fn unsigned(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `mlx5_2` before `mlx5_10`.
fn natural(a: &str, b: &str) -> Ordering {
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
    fn numbers_are_in_their_order() {
        let mut names = ["mlx5_10", "rxe0", "mlx5_2", "mlx5_02", "10", "9"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["9", "10", "mlx5_02", "mlx5_2", "mlx5_10", "rxe0"]);
    }

    #[test]
    fn what_is_not_there_is_none_and_not_an_error() {
        let root = Root::at(Path::new("/proc/self/fdinfo")).unwrap();
        assert_eq!(root.text("/sys/class/infiniband/x"), None);
        assert!(
            root.list("/sys").is_empty() && !root.exists("/etc") && root.link("/etc").is_none()
        );
        assert!(Root::at(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn odd_numbers_are_none() {
        assert_eq!(number("0x7fff\n"), Some(0x7fff));
        assert_eq!(number("-1"), Some(-1));
        assert_eq!(unsigned("0xffffffffffffffff"), Some(u64::MAX));
        for odd in [
            "",
            "0x",
            "seven",
            "0x1ffffffffffffffff",
            "99999999999999999999",
        ] {
            assert_eq!((number(odd), unsigned(odd)), (None, None), "{odd}");
        }
    }
}
