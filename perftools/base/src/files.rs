//! Files that the user names.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};

/// Maximum length of a file: a device such as /dev/zero never ends.
const MAX_LEN: u64 = 64 << 20;

/// Reads a text.
///
/// # Errors
/// Returns an error if the file cannot be read, is longer than 64 MiB, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_LEN + 1).read_to_string(&mut text));
    let cannot_read = format!("cannot read {}", path.display());
    match read {
        Err(e) => Err(Error::system(cannot_read, &e)),
        Ok(_) if text.len() as u64 > MAX_LEN => {
            let limit = Error::limit(format!("it is longer than {} MiB", MAX_LEN >> 20));
            Err(limit.context(cannot_read))
        }
        Ok(_) => Ok(text),
    }
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
