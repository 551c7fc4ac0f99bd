//! The shared secret of servers and clients, and the key that is derived from it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use base::error::{Error, Kind, Result};
use rdma_noise::{Key, TOKEN_LEN};
use rustix::process::geteuid;

/// Number of random bytes of a secret that this program creates.
const RANDOM_LEN: usize = 32;
/// Salt of the keys. Both ends must have the same one, so it is not random.
const SALT: &[u8] = b"rperf control connection";

/// A shared secret.
#[derive(Clone)]
pub struct Token {
    secret: Vec<u8>,
    key: Key,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Reads a secret from a file. Line breaks at its end are removed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, if other users may read it, if it belongs to
    /// another user and this process is root's, or if the secret is too short or too long.
    pub fn read(path: &Path) -> Result<Self> {
        let system =
            |e| Error::system(format!("cannot read the token file {}", path.display()), &e);
        // A FIFO without a writer would block.
        let mut file = File::options()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(path)
            .map_err(system)?;
        let metadata = file.metadata().map_err(system)?;
        if !metadata.is_file() {
            return Err(Error::limit(format!(
                "the token file {} is not a regular file",
                path.display()
            ))
            .with_help("write the token to a file and run `chmod 600` on it"));
        }
        check_owner(path, metadata.uid(), geteuid().as_raw())?;
        let mode = metadata.permissions().mode();
        let group = access_control_list(&file).map_or(mode >> 3 & 7, |list| group_access(&list));
        if mode & 0o007 != 0 || group != 0 {
            return Err(Error::limit(format!(
                "the token file {} is accessible to other users (mode {:o})",
                path.display(),
                mode & 0o777
            ))
            .with_help(format!("run `chmod 600 {}`", path.display())));
        }
        let mut secret = Vec::new();
        (&mut file)
            .take(*TOKEN_LEN.end() as u64 + 1)
            .read_to_end(&mut secret)
            .map_err(system)?;
        while secret.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
            secret.pop();
        }
        Self::new(secret)
            .map_err(|error| error.context(format!("the token file {}", path.display())))
    }

    /// Reads a secret from a line of text, without its line break.
    pub fn from_line(line: &str) -> Result<Self> {
        Self::new(line.trim_end_matches(['\n', '\r']).into())
    }

    /// Creates a random secret.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; RANDOM_LEN];
        getrandom::fill(&mut bytes)
            .map_err(|e| Error::new(Kind::System, format!("cannot get random numbers: {e}")))?;
        Self::new(to_hex(&bytes).into_bytes())
    }

    /// Returns the secret as a line of text, for a server that this program starts.
    pub fn line(&self) -> String {
        format!("{}\n", String::from_utf8_lossy(&self.secret))
    }

    fn new(secret: Vec<u8>) -> Result<Self> {
        let key = Key::derive(&secret, SALT).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Error::limit(error.to_string())
                .with_help("create a token with `openssl rand -hex 32`"),
            _ => Error::new(Kind::System, error.to_string()),
        })?;
        Ok(Self { secret, key })
    }

    /// Returns the key of the secret.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }
}

/// Checks the owner of a file that a user reads. Root could read the file of any user, who then
/// knows and chooses the token.
fn check_owner(path: &Path, owner: u32, reader: u32) -> Result<()> {
    if reader != 0 || owner == 0 {
        return Ok(());
    }
    let path = path.display();
    let text = format!("the token file {path} belongs to another user (UID {owner})");
    Err(Error::limit(text).with_help(format!("run `chown root {path}`")))
}

/// Returns the access control list of a file, as the kernel encodes it; `None` if it has none.
fn access_control_list(file: &File) -> Option<Vec<u8>> {
    let mut list = vec![0; 4096];
    let len = rustix::fs::fgetxattr(file, "system.posix_acl_access", &mut list).ok()?;
    list.truncate(len);
    Some(list)
}

/// Returns the access of groups according to an access control list, as the bits of a mode. With a
/// list, the group bits of the mode are a mask for all entries. Entries of single users are not
/// counted: systemd gives the user of a service access to its credentials in this way.
fn group_access(list: &[u8]) -> u32 {
    const HEADER: usize = 4;
    const ENTRY: usize = 8;
    const OWNING_GROUP: u16 = 0x04;
    const NAMED_GROUP: u16 = 0x08;
    let number = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
    list.get(HEADER..)
        .unwrap_or_default()
        .chunks_exact(ENTRY)
        .filter(|entry| matches!(number(entry), OWNING_GROUP | NAMED_GROUP))
        .fold(0, |access, entry| access | u32::from(number(&entry[2..])))
}

fn to_hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

#[cfg(test)]
mod tests {
    use test_support::text::assert_contains;

    use super::*;

    #[test]
    fn readable_or_short_token_files_are_rejected() {
        let path = std::env::temp_dir().join(format!("rperf-token-{}", std::process::id()));
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&path)
        };
        assert!(
            write("0123456789abcdef\n", 0o644)
                .unwrap_err()
                .to_string()
                .contains("chmod 600")
        );
        assert!(
            write("short\n", 0o600)
                .unwrap_err()
                .to_string()
                .contains("expected 16 to")
        );
        assert_eq!(
            write("0123456789abcdef\r\n", 0o600).unwrap().secret,
            b"0123456789abcdef"
        );
        std::fs::remove_file(&path).unwrap();
        assert!(
            Token::read(&path)
                .unwrap_err()
                .to_string()
                .contains("cannot read the token file")
        );
    }

    #[test]
    fn an_access_control_list_may_name_users_only() {
        const OWNER: (u16, u16) = (0x01, 6);
        const USER: (u16, u16) = (0x02, 4);
        const MASK: (u16, u16) = (0x10, 4);
        const OTHER: (u16, u16) = (0x20, 0);
        let list = |entries: &[(u16, u16)]| {
            let mut bytes = 2_u32.to_le_bytes().to_vec();
            for (tag, access) in entries {
                bytes.extend(tag.to_le_bytes());
                bytes.extend(access.to_le_bytes());
                bytes.extend(1000_u32.to_le_bytes());
            }
            bytes
        };
        let users = list(&[OWNER, USER, (0x04, 0), MASK, OTHER]);
        assert_eq!(group_access(&users), 0);
        assert_eq!(group_access(&list(&[OWNER, (0x04, 4), MASK, OTHER])), 4);
        let group = list(&[OWNER, (0x04, 0), (0x08, 4), MASK, OTHER]);
        assert_eq!(group_access(&group), 4);
        assert_eq!(group_access(&users[..3]), 0);
        // The file systems of the tests have access control lists.
        let path = std::env::temp_dir().join(format!("rperf-acl-{}", std::process::id()));
        std::fs::write(&path, "0123456789abcdef").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let set = |list: &[u8]| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, "system.posix_acl_access", list, flags).unwrap();
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o640);
            Token::read(&path)
        };
        set(&users).unwrap();
        set(&group).unwrap_err();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_token_file_of_another_user_is_rejected_for_root() {
        let path = Path::new("token");
        let error = check_owner(path, 1000, 0).unwrap_err().to_string();
        assert_contains(&error, &["(UID 1000); help: run `chown root token`"]);
        // An access control list lets a service read the file of an administrator.
        for (owner, reader) in [(0, 0), (1000, 1000), (0, 1000), (1000, 1001)] {
            check_owner(path, owner, reader).unwrap();
        }
        let path = std::env::temp_dir().join(format!("rperf-owner-{}", std::process::id()));
        std::fs::write(&path, "0123456789abcdef").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let given_away = std::os::unix::fs::chown(&path, Some(1000), None).is_ok();
        assert_eq!(
            Token::read(&path).is_err(),
            given_away && geteuid().is_root()
        );
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_fifo_is_rejected_without_waiting_for_a_writer() {
        let path = std::env::temp_dir().join(format!("rperf-fifo-{}", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let error = Token::read(&path).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}
