//! The directory that a capture is written to.
//!
//! The names of its files come from a tree that another user may have written. Each component of a
//! path is opened by itself, without following links, so that nothing is created outside of the
//! directory.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Dir, Mode, OFlags, fchmod, fstat, mkdirat, openat, symlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A directory that only its owner can read.
#[derive(Debug)]
pub(crate) struct CaptureDirectory(OwnedFd);

impl CaptureDirectory {
    /// Creates the directory, or opens an empty one of this user.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let directory =
            openat(CWD, path, DIRECTORY, Mode::empty()).map_err(|errno| match errno {
                Errno::LOOP | Errno::NOTDIR => ErrorKind::DirectoryNotEmpty.into(),
                errno => io::Error::from(errno),
            })?;
        if fstat(&directory)?.st_uid != geteuid().as_raw() {
            return Err(io::Error::other("it belongs to another user"));
        }
        for entry in Dir::read_from(&directory)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
        }
        fchmod(&directory, Mode::RWXU)?;
        Ok(Self(directory))
    }

    /// Creates a file with a text, and the directories above it.
    pub(crate) fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(file).write_all(text.as_bytes())
    }

    /// Creates a symbolic link, and the directories above it.
    pub(crate) fn link(&self, path: &str, target: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(symlinkat(target, parent, name)?)
    }

    /// Opens the directory of a path, and creates it if necessary. Returns it with the last
    /// component.
    fn parent<'a>(&self, path: &'a str) -> io::Result<(OwnedFd, &'a str)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let components = parent.split('/').filter(|component| !component.is_empty());
        if name.is_empty() || components.clone().chain([name]).any(|part| part == "..") {
            let text = format!("`{path}` is not the path of a file below the directory");
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let mut directory = self.0.try_clone()?;
        for component in components {
            let open = || openat(&directory, component, DIRECTORY, Mode::empty());
            directory = match open() {
                Err(Errno::NOENT) => {
                    mkdirat(&directory, component, Mode::RWXU).and_then(|()| open())
                }
                opened => opened,
            }?;
        }
        Ok((directory, name))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use test_support::temp_dir::TempDir;

    use super::*;

    #[test]
    fn nothing_is_created_outside_of_the_directory() {
        let outside = TempDir::new();
        let path = outside.path().join("capture");
        let directory = CaptureDirectory::create(&path).expect("a new directory");
        directory.write("/etc/a", "a").expect("a file");
        directory.link("etc/b", "..").expect("a link");
        for path in [
            "../x",
            "etc/../../x",
            "..",
            "etc/b/x",
            "etc/b/../x",
            "etc/a/x",
            "etc/",
            "",
        ] {
            assert!(directory.write(path, "x").is_err(), "{path}");
            assert!(directory.link(path, "x").is_err(), "{path}");
        }
        directory.write("etc/a", "b").expect_err("it exists");
        // A directory that becomes a link while the capture is written.
        fs::create_dir(outside.path().join("victim")).expect("a directory");
        symlink("../victim", path.join("proc")).expect("a link");
        directory.write("proc/x", "x").expect_err("a link");
        assert_eq!(fs::read_to_string(path.join("etc/a")).expect("a text"), "a");
        assert_eq!(
            fs::read_dir(outside.path().join("victim"))
                .expect("a directory")
                .count(),
            0
        );
        assert_eq!(
            fs::read_dir(outside.path()).expect("a directory").count(),
            2
        );
    }
}
