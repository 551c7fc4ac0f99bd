//! Opens files below a directory that another user may have written, such as a captured tree.
//!
//! Only regular files and directories are opened. A link in `/sys`, `/proc` or `/dev` must stay in
//! that directory. Other links are resolved as if the directory were the root of the file system.
//! The kernel resolves them (openat2). Where it cannot, every component is opened by itself.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, Dir, DirEntry, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat,
};
use rustix::io::Errno;

/// Directories that links inside of them do not leave.
const ENCLOSED: [&str; 3] = ["sys", "proc", "dev"];
/// Number of links that are followed in a path, as in the kernel.
const MAX_LINKS: usize = 40;
/// Number of tries while the tree changes.
const TRIES: usize = 8;

const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
// A FIFO does not block, and a terminal does not become that of this process.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// A directory, and access to what is below it.
#[derive(Debug)]
pub(crate) struct Tree {
    directory: OwnedFd,
    /// The kernel has openat2 and permits it.
    has_openat2: bool,
}

impl Tree {
    /// Opens a directory.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let directory = openat(CWD, path, HANDLE | OFlags::DIRECTORY, Mode::empty())?;
        let probed = openat2(
            &directory,
            ".",
            HANDLE,
            Mode::empty(),
            ResolveFlags::IN_ROOT,
        );
        Ok(Self {
            has_openat2: probed.is_ok(),
            directory,
        })
    }

    /// Opens a regular file for reading.
    pub(crate) fn file(&self, path: &str) -> Option<File> {
        // A device is not opened, because that alone can have an effect.
        let handle = self.resolve(path, HANDLE)?;
        (file_type(&handle)? == FileType::RegularFile).then_some(())?;
        let file = self.resolve(path, READ)?;
        (file_type(&file)? == FileType::RegularFile).then(|| file.into())
    }

    /// Opens a directory, and reads at most `limit` of its entries.
    pub(crate) fn open_directory(&self, path: &str, limit: usize) -> Option<OpenDirectory> {
        let handle = self.resolve(path, READ | OFlags::DIRECTORY)?;
        let entries = Dir::read_from(&handle).ok()?.flatten().take(limit);
        let with_type = |entry: DirEntry| {
            let name = entry.file_name().to_str().ok()?.to_owned();
            Some((name, entry.file_type()))
        };
        Some(OpenDirectory {
            entries: entries.filter_map(with_type).collect(),
            handle,
        })
    }

    /// Returns the names in a directory without those that begin with a dot, at most `limit`.
    pub(crate) fn names(&self, path: &str, limit: usize) -> Vec<OsString> {
        let directory = self.resolve(path, READ | OFlags::DIRECTORY);
        let entries = directory.and_then(|directory| Dir::new(directory).ok());
        let entries = entries.into_iter().flatten().flatten();
        let names = entries.map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
        names
            .filter(|name| !name.as_bytes().starts_with(b"."))
            .take(limit)
            .collect()
    }

    /// Returns `true` if a path is a directory and `false` if it is a regular file.
    pub(crate) fn is_directory(&self, path: &str) -> Option<bool> {
        let handle = self.resolve(path, HANDLE)?;
        match file_type(&handle)? {
            FileType::Directory => Some(true),
            FileType::RegularFile => Some(false),
            _ => None,
        }
    }

    /// Returns the target of a link.
    pub(crate) fn link_target(&self, path: &str) -> Option<PathBuf> {
        let (parent, name) = path.trim_end_matches('/').rsplit_once('/')?;
        let parent = self.resolve(parent, HANDLE | OFlags::DIRECTORY)?;
        let target = readlinkat(&parent, name, Vec::new()).ok()?;
        Some(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    fn resolve(&self, path: &str, flags: OFlags) -> Option<OwnedFd> {
        let path = path.trim_matches('/');
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        if !ENCLOSED.contains(&first) {
            return self.resolve_in(&self.directory, path, flags, false);
        }
        let enclosed = HANDLE | OFlags::DIRECTORY;
        let top = self.resolve_in(&self.directory, first, enclosed, false)?;
        self.resolve_in(&top, rest, flags, true)
    }

    /// Opens a path below a directory. If `encloses`, a link that leaves it is an error; otherwise
    /// the directory is the root of links.
    fn resolve_in(
        &self,
        directory: &OwnedFd,
        path: &str,
        flags: OFlags,
        encloses: bool,
    ) -> Option<OwnedFd> {
        let path = if path.is_empty() { "." } else { path };
        if !self.has_openat2 {
            return walk(directory, path, flags, encloses);
        }
        let mut resolve = ResolveFlags::NO_MAGICLINKS;
        resolve |= if encloses {
            ResolveFlags::BENEATH
        } else {
            ResolveFlags::IN_ROOT
        };
        // The kernel cannot tell where `..` leads while a directory is renamed.
        let open = || openat2(directory, path, flags, Mode::empty(), resolve);
        let opened = (0..TRIES).map(|_| open());
        let mut opened = opened.skip_while(|result| matches!(result, Err(Errno::AGAIN)));
        opened.next()?.ok()
    }
}

/// An open directory, with its entries.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    handle: OwnedFd,
    entries: HashMap<String, FileType>,
}

impl OpenDirectory {
    /// Returns the names in the directory.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.entries.keys().cloned()
    }

    /// Opens a regular file for reading. Returns `None` for everything else, such as a link, and
    /// for an entry whose type the file system does not tell.
    pub(crate) fn file(&self, name: &str) -> Option<File> {
        // A device is not opened, because that alone can have an effect. If one takes the place of
        // the file in this moment, its bytes are read up to the limit for files, without blocking.
        (self.entries.get(name)? == &FileType::RegularFile).then_some(())?;
        let file = openat(&self.handle, name, READ | OFlags::NOFOLLOW, Mode::empty());
        file.ok().map(File::from)
    }
}

fn file_type(handle: &OwnedFd) -> Option<FileType> {
    let stat = fstat(handle).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// Opens a path component by component, as openat2 does.
fn walk(directory: &OwnedFd, path: &str, flags: OFlags, encloses: bool) -> Option<OwnedFd> {
    let mut parents: Vec<OwnedFd> = Vec::new();
    let mut rest: Vec<OsString> = components(path.as_bytes());
    let mut links = 0;
    while let Some(component) = rest.pop() {
        if component == ".." {
            if parents.pop().is_none() && encloses {
                return None;
            }
            continue;
        }
        let at = parents.last().unwrap_or(directory);
        let is_last = rest.is_empty();
        let handle = openat(at, &component, HANDLE | OFlags::NOFOLLOW, Mode::empty()).ok()?;
        match file_type(&handle)? {
            FileType::Symlink => {
                links += 1;
                let target = readlinkat(at, &component, Vec::new()).ok()?.into_bytes();
                if links > MAX_LINKS || (encloses && target.starts_with(b"/")) {
                    return None;
                }
                if target.starts_with(b"/") {
                    parents.clear();
                }
                rest.extend(components(&target));
            }
            FileType::Directory => parents.push(handle),
            _ if is_last && flags.contains(OFlags::DIRECTORY) => return None,
            _ if is_last => {
                return openat(at, &component, flags | OFlags::NOFOLLOW, Mode::empty()).ok();
            }
            _ => return None,
        }
    }
    let at = parents.last().map_or(directory.as_fd(), AsFd::as_fd);
    openat(at, ".", flags, Mode::empty()).ok()
}

/// Returns the components of a path, the last one first.
fn components(path: &[u8]) -> Vec<OsString> {
    let parts = path.split(|byte| *byte == b'/').rev();
    parts
        .filter(|part| !part.is_empty() && *part != b".")
        .map(|part| OsStr::from_bytes(part).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use test_support::temp_dir::TempDir;

    /// Returns the tree twice: with openat2, and without.
    fn trees(directory: &TempDir) -> [Tree; 2] {
        let tree = || Tree::open(directory.path()).expect("a directory");
        let without = Tree {
            has_openat2: false,
            ..tree()
        };
        [tree(), without]
    }

    fn text(tree: &Tree, path: &str) -> Option<String> {
        let mut text = String::new();
        tree.file(path)?.read_to_string(&mut text).ok()?;
        Some(text)
    }

    #[test]
    fn links_do_not_leave_the_tree() {
        let (directory, outside) = (TempDir::new(), TempDir::new());
        let secret = outside.write("secret", "secret");
        directory.write("etc/real", "x");
        directory.write("sys/devices/d/file", "d");
        directory.write("sys/class/plain/file", "p");
        let link = |target: &Path, name: &str| {
            symlink(target, directory.path().join(name)).expect("a link");
        };
        link(&secret, "etc/absolute");
        link(Path::new("/etc/real"), "etc/in_root");
        link(Path::new("../../../../../../etc/real"), "etc/up");
        link(outside.path(), "etc/directory");
        link(Path::new("loop_b"), "etc/loop_a");
        link(Path::new("loop_a"), "etc/loop_b");
        link(Path::new("../devices/d"), "sys/class/d");
        link(Path::new("../../etc/real"), "sys/up");
        link(Path::new("/etc/real"), "sys/absolute");
        for tree in trees(&directory) {
            for (path, expected) in [
                ("/etc/real", Some("x")),
                ("/etc/absolute", None),
                ("/etc/in_root", Some("x")),
                ("/etc/up", Some("x")),
                ("/etc/directory/secret", None),
                ("/etc/loop_a", None),
                ("/etc/real/file", None),
                ("/sys/class/d/file", Some("d")),
                // Through a link, `..` is the parent of the link's target.
                ("/sys/class/d/../../class/plain/file", Some("p")),
                ("/sys/up", None),
                ("/sys/absolute", None),
                ("/etc", None),
                ("/sys/../etc/real", None),
            ] {
                assert_eq!(text(&tree, path).as_deref(), expected, "{path} {tree:?}");
            }
            assert_eq!(
                tree.link_target("/sys/class/d"),
                Some("../devices/d".into())
            );
            assert_eq!(tree.names("/sys/class/d", 9), ["file"]);
            assert_eq!(tree.names("/etc/directory", 9), Vec::<OsString>::new());
            assert_eq!(tree.is_directory("/sys/class/d"), Some(true));
            assert_eq!(tree.is_directory("/etc/loop_a"), None);
        }
    }

    #[test]
    fn fifos_and_devices_are_not_opened() {
        let directory = TempDir::new();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        symlink("/dev/zero", directory.path().join("zero")).expect("a link");
        for tree in trees(&directory) {
            let open = tree.open_directory("/", 9).expect("the directory");
            for name in ["fifo", "zero"] {
                let path = format!("/{name}");
                assert!(tree.file(&path).is_none() && tree.is_directory(&path).is_none());
                assert!(open.file(name).is_none());
            }
        }
        // The devices of this host.
        let host = Tree::open(Path::new("/")).expect("the root");
        assert!(host.file("/dev/zero").is_none());
    }

    #[test]
    fn an_open_directory_has_its_regular_files_only() {
        let directory = TempDir::new();
        let outside = TempDir::new();
        let secret = outside.write("secret", "secret");
        directory.write("sys/class/d/file", "d");
        directory.write("sys/class/d/below/file", "b");
        directory.write("sys/class/d/swapped", "s");
        let path = directory.path().join("sys/class/d");
        symlink(&secret, path.join("link")).expect("a link");
        for tree in trees(&directory) {
            let open = tree.open_directory("/sys/class/d", 9).expect("a directory");
            assert!(open.file("file").is_some());
            for name in ["link", "below", "below/file", "..", "../d/file", "none", ""] {
                assert!(open.file(name).is_none(), "{name}");
            }
            // A file that becomes a link after the directory was read.
            let swapped = path.join("swapped");
            std::fs::remove_file(&swapped).expect("the file");
            symlink(&secret, &swapped).expect("a link");
            assert!(open.file("swapped").is_none());
            std::fs::remove_file(&swapped).expect("the link");
            std::fs::write(&swapped, "s").expect("the file");
            assert!(tree.open_directory("/sys/class/d/file", 9).is_none());
        }
    }
}
