//! A secret that both ends have, and the proof of it: nothing of the secret crosses the wire.
//!
//! The server says a nonce, the client one of its own with the HMAC-SHA256 of both under the
//! secret; the server answers with another of its own, so that each knows that the other has the
//! secret. It keeps strangers out; it does not hide or sign what is said afterwards.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::common::error::{Error, Kind, Result};

/// Bytes of a nonce.
const NONCE: usize = 32;
/// The shortest secret.
const LEAST: usize = 16;
/// The longest secret.
const MOST: u64 = 4096;

/// A secret, as a file holds it.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Who proves the secret: a proof of one end is none for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prover {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// A number that is used once, in hexadecimal digits.
///
/// # Errors
/// The system has no random numbers.
pub fn nonce() -> Result<String> {
    let mut bytes = [0; NONCE];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::new(Kind::System, format!("no random numbers: {e}")))?;
    Ok(hex(&bytes))
}

impl Token {
    /// Reads the secret of a file; line ends after it are not part of it.
    ///
    /// # Errors
    /// The file cannot be read, others may read it, or it is too short or too long.
    pub fn read(path: &Path) -> Result<Self> {
        let system =
            |e| Error::system(format!("cannot read the token file {}", path.display()), &e);
        let mut file = File::open(path).map_err(system)?;
        let mode = file.metadata().map_err(system)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(Error::limit(format!(
                "the token file {} may be read by others (mode {:o}): `chmod 600` it",
                path.display(),
                mode & 0o777
            )));
        }
        let mut secret = Vec::new();
        (&mut file)
            .take(MOST + 1)
            .read_to_end(&mut secret)
            .map_err(system)?;
        while secret.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
            secret.pop();
        }
        Self::new(secret)
            .map_err(|error| error.context(format!("the token file {}", path.display())))
    }

    fn new(secret: Vec<u8>) -> Result<Self> {
        if secret.len() < LEAST || secret.len() as u64 > MOST {
            return Err(Error::limit(format!(
                "a token of {} bytes: it has from {LEAST} to {MOST}; `openssl rand -hex 32` makes one",
                secret.len()
            )));
        }
        Ok(Self(secret))
    }

    fn mac(&self, prover: Prover, server: &str, client: &str) -> Result<Hmac<Sha256>> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0);
        let mut mac = mac.map_err(|_| Error::new(Kind::System, "the token is no key"))?;
        // Parts with their lengths: no two lists of parts make the same bytes.
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

    /// The proof of `prover` over both nonces, in hexadecimal digits.
    ///
    /// # Errors
    /// None that happens: any bytes are a key.
    pub fn proof(&self, prover: Prover, server: &str, client: &str) -> Result<String> {
        Ok(hex(&self
            .mac(prover, server, client)?
            .finalize()
            .into_bytes()))
    }

    /// Whether `proof` is that of `prover`; takes the same time wherever it is wrong.
    pub fn is_proven(&self, prover: Prover, server: &str, client: &str, proof: &str) -> bool {
        match (self.mac(prover, server, client), bytes(proof)) {
            (Ok(mac), Some(bytes)) => mac.verify_slice(&bytes).is_ok(),
            _ => false,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
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
    fn a_proof_holds_for_its_secret_its_nonces_and_its_end_only() {
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
        // RFC 4231, test case 2, through the same crates.
        let mut mac = Hmac::<Sha256>::new_from_slice(b"Jefe").unwrap();
        mac.update(b"what do ya want for nothing?");
        let text = hex(&mac.finalize().into_bytes());
        assert_eq!(
            text,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_file_that_others_may_read_or_that_is_short_is_refused() {
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
                .contains("from 16")
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

    proptest::proptest! {
        #[test]
        fn any_proof_is_checked(proof: String) {
            proptest::prop_assert!(!token("0123456789abcdef").is_proven(Prover::Client, "a", "b", &proof));
        }
    }
}
