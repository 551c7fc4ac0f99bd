//! Files that the user names.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::error::{Error, Result};
use crate::units::Size;

/// Maximum length of a file: a device such as /dev/zero never ends.
const MAX_LEN: u64 = 64 << 20;

/// Reads a text.
///
/// # Errors
/// Returns an error if the file cannot be read, is longer than 64 MiB, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|e| Error::system(format!("cannot read {name}"), &e))?;
    read_open_text(file, &name, MAX_LEN)
}

/// Reads the text of an open file, which errors call `name`.
pub fn read_open_text(file: File, name: &str, max_len: u64) -> Result<String> {
    let error = |e| Error::system(format!("cannot read {name}"), &e);
    let mut text = String::new();
    let len = file.metadata().map_err(error)?.len();
    if len <= max_len {
        let read = file.take(max_len + 1).read_to_string(&mut text);
        read.map_err(error)?;
    }
    if len.max(text.len() as u64) > max_len {
        let limit = Error::limit(format!("it is longer than {}", Size(max_len)));
        return Err(limit.context(format!("cannot read {name}")));
    }
    Ok(text)
}

/// Creates a file with a random name beside `path`, which it replaces later. It never opens a file
/// or follows a link that another user made.
pub fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(not_regular());
    }
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory.unwrap_or(Path::new(".")))
}

/// Returns the error of a path that is not a regular file.
pub fn not_regular() -> io::Error {
    io::Error::other("it is not a regular file")
}

/// Writes a text to a new file, which replaces `path`.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    let write = || {
        let mut file = temporary(path)?;
        file.write_all(text.as_bytes())?;
        file.persist(path).map_err(|error| error.error)
    };
    write()
        .map(drop)
        .map_err(|e| Error::system(format!("cannot write {}", path.display()), &e))
}

#[cfg(test)]
mod tests {
    use super::{read_text, replace};

    #[test]
    #[cfg_attr(miri, ignore = "the file system")]
    fn a_file_without_end_is_refused() {
        let error = read_text("/dev/zero".as_ref()).unwrap_err().to_string();
        assert_eq!(error, "cannot read /dev/zero: it is longer than 64 MiB");
        assert_eq!(read_text("/dev/null".as_ref()).unwrap(), "");
        assert!(read_text("/nonexistent".as_ref()).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "the file system")]
    fn a_link_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [victim, page, fifo] =
            ["victim", "page", "fifo"].map(|name| directory.path().join(name));
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &page).unwrap();
        replace(&page, "text").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "text");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = replace(&fifo, "text").unwrap_err().to_string();
        assert!(error.contains("it is not a regular file"), "{error}");
        assert!(replace("/nonexistent/page".as_ref(), "text").is_err());
    }
}
