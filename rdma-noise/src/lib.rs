//! Sessions of the Noise protocol framework with a pre-shared token, without I/O, for the control
//! connections of RDMA programs.
//!
//! The handshake has two messages of [`HANDSHAKE_LEN`] bytes, first that of the initiator. Then
//! each end knows that the other one has the token, and both have the [`Keys`] of the session. Each
//! direction numbers its records from 0. The number of a record is its nonce. So a record that was
//! changed, repeated, omitted or reordered is rejected.
//!
//! # Example
//! ```
//! use rdma_noise::{Handshake, Key};
//! # fn main() -> std::io::Result<()> {
//! let key = Key::derive(b"a secret of at least 16 bytes", b"example 1")?;
//! let [mut a, mut b] = [true, false].map(|initiates| Handshake::new(&key, b"", initiates));
//! let (mut a, mut b) = (a?, b?);
//! b.read(&a.write()?)?;
//! a.read(&b.write()?)?;
//! let (a, b) = (a.finish()?, b.finish()?);
//! let record = a.seal(0, b"hello")?;
//! assert_eq!(b.open(0, &record)?, b"hello");
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

use std::fmt;
use std::io::{Error, ErrorKind, Result};

use argon2::Argon2;
use snow::{Builder, HandshakeState, StatelessTransportState};

/// The pre-shared key is used in the first message, so that a responder answers only those that
/// have it.
const NOISE: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";

/// Length of either message of the handshake in bytes: an ephemeral key and a tag.
pub const HANDSHAKE_LEN: usize = 32 + TAG_LEN;
/// Length of a record minus that of its content, in bytes.
pub const TAG_LEN: usize = 16;
/// Maximum length of the content of a record in bytes.
pub const MAX_CONTENT: usize = u16::MAX as usize - TAG_LEN;
/// Limits of the length of a token in bytes.
pub const TOKEN_LEN: std::ops::RangeInclusive<usize> = 16..=4096;

/// The key that is derived from a token.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// Derives the key of a token with Argon2id, which takes 19 MiB and tens of milliseconds, so
    /// that guessing tokens is slow. Both ends must have the same salt. It names the protocol, so
    /// that a token has another key in another one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]: the length of the token is not in [`TOKEN_LEN`]. Other kinds:
    /// there is not enough memory.
    pub fn derive(token: &[u8], salt: &[u8]) -> Result<Self> {
        if !TOKEN_LEN.contains(&token.len()) {
            let (min, max) = (TOKEN_LEN.start(), TOKEN_LEN.end());
            let what = format!(
                "the token has {} bytes: expected {min} to {max} bytes",
                token.len()
            );
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        let mut key = [0; 32];
        Argon2::default()
            .hash_password_into(token, salt, &mut key)
            .map_err(|error| Error::other(format!("cannot derive a key: {error}")))?;
        Ok(Self(key))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// The handshake of one end.
#[derive(Debug)]
pub struct Handshake(HandshakeState);

impl Handshake {
    /// Creates the handshake of the initiator or of the responder. It fails if the ends have
    /// different prologues, which are the messages before it and the version of the protocol.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn new(key: &Key, prologue: &[u8], initiates: bool) -> Result<Self> {
        let build = || {
            let builder = Builder::new(NOISE.parse()?)
                .psk(0, &key.0)?
                .prologue(prologue)?;
            if initiates {
                builder.build_initiator()
            } else {
                builder.build_responder()
            }
        };
        build().map(Self).map_err(other)
    }

    /// Returns the next message for the peer.
    ///
    /// # Errors
    /// It is not the turn of this end.
    pub fn write(&mut self) -> Result<[u8; HANDSHAKE_LEN]> {
        let mut message = [0; HANDSHAKE_LEN];
        self.0.write_message(&[], &mut message).map_err(other)?;
        Ok(message)
    }

    /// Checks the message of the peer.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`]: the peer does not have the token, or the prologue differs.
    pub fn read(&mut self, message: &[u8]) -> Result<()> {
        let read = self.0.read_message(message, &mut []);
        read.map_err(|error| Error::new(ErrorKind::PermissionDenied, error))?;
        Ok(())
    }

    /// Returns the keys after both messages.
    ///
    /// # Errors
    /// A message is missing.
    pub fn finish(self) -> Result<Keys> {
        let keys = self.0.into_stateless_transport_mode();
        keys.map(Keys).map_err(other)
    }
}

/// The keys of a session.
#[derive(Debug)]
pub struct Keys(StatelessTransportState);

impl Keys {
    /// Returns the record of a content of at most [`MAX_CONTENT`] bytes. A number must not be used
    /// again.
    ///
    /// # Errors
    /// The content is too long.
    pub fn seal(&self, number: u64, content: &[u8]) -> Result<Vec<u8>> {
        let mut record = vec![0; content.len() + TAG_LEN];
        let sealed = self.0.write_message(number, content, &mut record);
        record.truncate(sealed.map_err(other)?);
        Ok(record)
    }

    /// Returns the content of a record of the peer.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`]: it is not the record of this number.
    pub fn open(&self, number: u64, record: &[u8]) -> Result<Vec<u8>> {
        let mut content = vec![0; record.len()];
        let opened = self.0.read_message(number, record, &mut content);
        let len = opened.map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
        content.truncate(len);
        Ok(content)
    }
}

fn other(error: snow::Error) -> Error {
    Error::other(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &[u8] = b"0123456789abcdef";
    const SALT: &[u8] = b"a test of keys";

    #[test]
    fn a_key_is_that_of_argon2id_and_depends_on_token_and_salt() {
        let key = |token, salt| Key::derive(token, salt).expect("a key").0;
        let mut expected = [0; 32];
        let params = argon2::Params::new(19_456, 2, 1, None).expect("valid");
        Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params)
            .hash_password_into(TOKEN, SALT, &mut expected)
            .expect("a key");
        assert_eq!(key(TOKEN, SALT), expected);
        assert_ne!(key(b"0123456789abcdeg", SALT), expected);
        assert_ne!(key(TOKEN, b"another salt"), expected);
        for token in [&TOKEN[1..], &[0; 4097]] {
            let error = Key::derive(token, SALT).expect_err("its length");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_record_is_accepted_once_and_unchanged() {
        let key = Key::derive(TOKEN, SALT).expect("a key");
        let shake = |initiates| Handshake::new(&key, b"1", initiates).expect("a handshake");
        let [mut a, mut b] = [true, false].map(shake);
        b.read(&a.write().expect("its turn")).expect("the token");
        a.read(&b.write().expect("its turn")).expect("the token");
        let [a, b] = [a, b].map(|end| end.finish().expect("complete"));
        let record = a.seal(1, b"content").expect("short");
        assert_eq!(b.open(1, &record).expect("its record"), b"content");
        for number in [0, 2] {
            b.open(number, &record).expect_err("another number");
        }
        for index in 0..record.len() {
            let mut changed = record.clone();
            changed[index] ^= 1;
            let error = b.open(1, &changed).expect_err("changed");
            assert_eq!(error.kind(), ErrorKind::InvalidData);
        }
        a.seal(2, &vec![0; MAX_CONTENT + 1]).expect_err("too long");
        a.open(1, &record).expect_err("a record of its own");
    }

    #[test]
    fn ends_with_other_tokens_or_prologues_are_rejected() {
        let [key, other] = [TOKEN, b"0123456789abcdeg"].map(|token| Key::derive(token, SALT));
        let (key, other) = (key.expect("a key"), other.expect("a key"));
        for (key_of_b, prologue) in [(&other, b"1"), (&key, b"2")] {
            let mut a = Handshake::new(&key, b"1", true).expect("a handshake");
            let mut b = Handshake::new(key_of_b, prologue, false).expect("a handshake");
            let error = b.read(&a.write().expect("its turn")).expect_err("differs");
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        }
    }
}
