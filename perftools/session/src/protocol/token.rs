//! Authentication with a shared secret, which is never sent.
//!
//! The server sends a nonce. The client replies with a nonce of its own and the HMAC-SHA256 of both
//! under the secret, and the server replies with another HMAC of both. This way, each end knows
//! that the other has the secret. The messages that follow are neither encrypted nor signed.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use base::error::{Error, Kind, Result};
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Size of a nonce in bytes.
const NONCE_LEN: usize = 32;
/// Minimum length of a secret in bytes.
const MIN_LEN: usize = 16;
/// Maximum length of a secret in bytes.
const MAX_LEN: u64 = 4096;

/// A shared secret.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The end that proves that it has the secret. A proof is valid for one end only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prover {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// Returns a random number in hexadecimal digits.
///
/// # Errors
/// Returns an error if the kernel provides no random numbers.
pub fn nonce() -> Result<String> {
    let mut bytes = [0; NONCE_LEN];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::new(Kind::System, format!("cannot get random numbers: {e}")))?;
    Ok(to_hex(&bytes))
}

impl Token {
    /// Reads a secret from a file. Line breaks at its end are removed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, if other users may read it, or if the secret is
    /// too short or too long.
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
            .take(MAX_LEN + 1)
            .read_to_end(&mut secret)
            .map_err(system)?;
        while secret.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
            secret.pop();
        }
        Self::new(secret)
            .map_err(|error| error.context(format!("the token file {}", path.display())))
    }

    /// Reads a secret from a line of text, without its line break.
    ///
    /// # Errors
    /// Returns an error if the secret is too short or too long.
    pub fn from_line(line: &str) -> Result<Self> {
        Self::new(line.trim_end_matches(['\n', '\r']).into())
    }

    /// Creates a random secret.
    ///
    /// # Errors
    /// Returns an error if the kernel provides no random numbers.
    pub fn random() -> Result<Self> {
        Self::new(nonce()?.into())
    }

    /// Returns the secret as a line of text, for a server that this program starts.
    pub fn line(&self) -> String {
        format!("{}\n", String::from_utf8_lossy(&self.0))
    }

    fn new(secret: Vec<u8>) -> Result<Self> {
        if secret.len() < MIN_LEN || secret.len() as u64 > MAX_LEN {
            return Err(Error::limit(format!(
                "the token has {} bytes: expected {MIN_LEN} to {MAX_LEN} bytes",
                secret.len()
            ))
            .with_help("create a token with `openssl rand -hex 32`"));
        }
        Ok(Self(secret))
    }

    fn mac(&self, prover: Prover, server: &str, client: &str) -> Result<Hmac<Sha256>> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0);
        let mut mac =
            mac.map_err(|_| Error::new(Kind::System, "the token is not a valid HMAC key"))?;
        // Each part is preceded by its length, so that different parts never give the same bytes.
        let role = match prover {
            Prover::Client => "rperf client",
            Prover::Server => "rperf server",
        };
        for part in [role, server, client] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        Ok(mac)
    }

    /// Returns the proof of `prover` over both nonces, in hexadecimal digits.
    ///
    /// # Errors
    /// Returns an error if the token is not a valid HMAC key, which does not happen: all byte
    /// strings are valid.
    pub fn proof(&self, prover: Prover, server: &str, client: &str) -> Result<String> {
        Ok(to_hex(
            &self.mac(prover, server, client)?.finalize().into_bytes(),
        ))
    }

    /// Returns `true` if `proof` is the proof of `prover`. The time that the check takes does not
    /// depend on the position of the first wrong byte.
    pub fn is_proven(&self, prover: Prover, server: &str, client: &str, proof: &str) -> bool {
        match (self.mac(prover, server, client), from_hex(proof)) {
            (Ok(mac), Some(bytes)) => mac.verify_slice(&bytes).is_ok(),
            _ => false,
        }
    }
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

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| {
        char::from(b)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let (pairs, rest) = hex.as_bytes().split_at(hex.len() / 2 * 2);
    if !rest.is_empty() || hex.len() > 128 {
        return None;
    }
    pairs
        .chunks(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text.into()).unwrap()
    }

    #[test]
    fn proof_depends_on_secret_nonces_and_end() {
        let (a, b) = (token("0123456789abcdef"), token("0123456789abcdeg"));
        let (server, client) = (nonce().unwrap(), nonce().unwrap());
        assert_ne!(server, client);
        let proof = a.proof(Prover::Client, &server, &client).unwrap();
        assert!(a.is_proven(Prover::Client, &server, &client, &proof));
        assert!(!b.is_proven(Prover::Client, &server, &client, &proof));
        assert!(!a.is_proven(Prover::Server, &server, &client, &proof));
        assert!(!a.is_proven(Prover::Client, &client, &server, &proof));
        for wrong in [
            "",
            "00",
            &proof[..62],
            &proof.replace(&proof[..1], "x"),
            &"é".repeat(32),
        ] {
            assert!(
                !a.is_proven(Prover::Client, &server, &client, wrong),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_mac_is_hmac_sha256() {
        // Test case 2 of RFC 4231.
        let mut mac = Hmac::<Sha256>::new_from_slice(b"Jefe").unwrap();
        mac.update(b"what do ya want for nothing?");
        let text = to_hex(&mac.finalize().into_bytes());
        assert_eq!(
            text,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

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
            write("0123456789abcdef\r\n", 0o600).unwrap().0,
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
    fn a_fifo_is_rejected_without_waiting_for_a_writer() {
        let path = std::env::temp_dir().join(format!("rperf-fifo-{}", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let error = Token::read(&path).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn random_proofs_are_rejected(proof: String) {
            proptest::prop_assert!(!token("0123456789abcdef").is_proven(Prover::Client, "a", "b", &proof));
        }
    }
}
