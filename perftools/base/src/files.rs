//! Files that the user names.

use std::fs::File;
use std::io::Read;
use std::path::Path;

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
///
/// # Errors
/// Returns an error if the file cannot be read, is longer than `max_len` bytes, or is not UTF-8.
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

#[cfg(test)]
mod tests {
    use super::read_text;

    #[test]
    #[cfg_attr(miri, ignore = "the file system")]
    fn a_file_without_end_is_refused() {
        let error = read_text("/dev/zero".as_ref()).unwrap_err().to_string();
        assert_eq!(error, "cannot read /dev/zero: it is longer than 64 MiB");
        assert_eq!(read_text("/dev/null".as_ref()).unwrap(), "");
        assert!(read_text("/nonexistent".as_ref()).is_err());
    }
}
