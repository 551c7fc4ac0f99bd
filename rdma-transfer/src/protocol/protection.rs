//! The protection of a control connection with a token: a Noise session, without I/O.
//!
//! Both sides send records: a length of 16 bits in network byte order, then that many bytes. The
//! first record of each side is its message of the handshake. A responder that rejects the
//! initiator sends two empty records instead. An initiator without a token reads them as an empty
//! message, which is an error for it too.

use std::collections::VecDeque;
use std::io;

use ibverbs::{Error, ErrorKind, Result};
use rdma_noise::{HANDSHAKE_LEN, Handshake, Key, Keys, MAX_CONTENT};

/// The protocol: both ends have the same one.
const PROTOCOL: &[u8] = b"rdma-transfer control connection";

/// A secret that two engines share. Each of them connects only to engines that have it.
///
/// Use a random one: `openssl rand -hex 32`. All engines that have it are equal: each can access
/// the memory of the others.
///
/// # Example
/// ```
/// use rdma_transfer::Token;
/// let token = Token::new(b"a random text of at least 16 bytes")?;
/// # Ok::<(), rdma_transfer::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Token(Key);

impl Token {
    /// Derives the key of a secret of 16 to 4096 bytes, which takes 19 MiB and tens of
    /// milliseconds, so that guessing secrets is slow.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]: the secret is too short or too long.
    pub fn new(secret: &[u8]) -> Result<Self> {
        let failed = |error: io::Error| {
            let kind = match error.kind() {
                io::ErrorKind::InvalidInput => ErrorKind::InvalidInput,
                _ => ErrorKind::Os,
            };
            Error::new(kind, "create a token", error.to_string())
                .with_help("use a text of `openssl rand -hex 32`")
        };
        Key::derive(secret, PROTOCOL).map(Self).map_err(failed)
    }
}

/// The session of one side.
pub(crate) struct Protection {
    phase: Phase,
    initiates: bool,
    /// Received bytes of a record that is not complete.
    incoming: VecDeque<u8>,
    /// The bytes that this side sends after the handshake.
    pub(crate) queued: VecDeque<u8>,
}

enum Phase {
    Handshake(Box<Handshake>),
    Protected {
        keys: Keys,
        /// Numbers of the next records.
        sent: u64,
        received: u64,
    },
    /// The handshake has failed.
    Failed,
}

impl Protection {
    /// Begins a session, and adds what must be sent to `outgoing`.
    pub(crate) fn new(
        token: &Token,
        initiates: bool,
        outgoing: &mut VecDeque<u8>,
    ) -> io::Result<Self> {
        let mut handshake = Handshake::new(&token.0, PROTOCOL, initiates)?;
        if initiates {
            add_record(outgoing, &handshake.write()?);
        }
        Ok(Self {
            phase: Phase::Handshake(Box::new(handshake)),
            initiates,
            incoming: VecDeque::new(),
            queued: VecDeque::new(),
        })
    }

    /// Adds the records of some bytes to `outgoing`, after the handshake.
    pub(crate) fn seal(&mut self, bytes: &[u8], outgoing: &mut VecDeque<u8>) -> io::Result<()> {
        let Phase::Protected { keys, sent, .. } = &mut self.phase else {
            self.queued.extend(bytes);
            return Ok(());
        };
        for content in bytes.chunks(MAX_CONTENT) {
            add_record(outgoing, &keys.seal(*sent, content)?);
            *sent += 1;
        }
        Ok(())
    }

    /// Processes received bytes: adds the content of their records to `content`, and what must be
    /// sent to `outgoing`, also if it fails.
    ///
    /// # Errors
    /// The peer does not have the token, or a record was changed.
    pub(crate) fn open(
        &mut self,
        bytes: &[u8],
        content: &mut VecDeque<u8>,
        outgoing: &mut VecDeque<u8>,
    ) -> io::Result<()> {
        self.incoming.extend(bytes);
        let opened = self.open_records(content, outgoing);
        if opened.is_err() && !self.initiates && !matches!(self.phase, Phase::Protected { .. }) {
            outgoing.extend([0; 4]);
        }
        opened
    }

    fn open_records(
        &mut self,
        content: &mut VecDeque<u8>,
        outgoing: &mut VecDeque<u8>,
    ) -> io::Result<()> {
        while let Some(record) = self.next_record()? {
            match &mut self.phase {
                Phase::Protected { keys, received, .. } => {
                    content.extend(keys.open(*received, &record)?);
                    *received += 1;
                }
                _ => self.shake(&record, outgoing)?,
            }
        }
        Ok(())
    }

    fn next_record(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = self.incoming.iter();
        let (Some(&high), Some(&low)) = (bytes.next(), bytes.next()) else {
            return Ok(None);
        };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if !matches!(self.phase, Phase::Protected { .. }) && len != HANDSHAKE_LEN {
            let what = match len {
                0 => "the peer has another token",
                _ => "the peer has no token",
            };
            return Err(denied(what));
        }
        if self.incoming.len() < 2 + len {
            return Ok(None);
        }
        self.incoming.drain(..2);
        Ok(Some(self.incoming.drain(..len).collect()))
    }

    /// Processes the message of the handshake.
    fn shake(&mut self, message: &[u8], outgoing: &mut VecDeque<u8>) -> io::Result<()> {
        let phase = std::mem::replace(&mut self.phase, Phase::Failed);
        let Phase::Handshake(mut handshake) = phase else {
            return Err(denied("the handshake has failed"));
        };
        handshake
            .read(message)
            .map_err(|_| denied("the peer has another token"))?;
        if !self.initiates {
            add_record(outgoing, &handshake.write()?);
        }
        self.phase = Phase::Protected {
            keys: handshake.finish()?,
            sent: 0,
            received: 0,
        };
        let queued = std::mem::take(&mut self.queued);
        self.seal(&Vec::from(queued), outgoing)
    }
}

fn add_record(outgoing: &mut VecDeque<u8>, record: &[u8]) {
    let len = u16::try_from(record.len()).unwrap_or(u16::MAX);
    outgoing.extend(len.to_be_bytes());
    outgoing.extend(record);
}

fn denied(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One side of a connection, with the bytes that it has received.
    struct Side {
        protection: Protection,
        outgoing: VecDeque<u8>,
        content: VecDeque<u8>,
    }

    impl Side {
        fn new(secret: &[u8], initiates: bool) -> Self {
            let token = Token::new(secret).expect("long enough");
            let mut outgoing = VecDeque::new();
            Self {
                protection: Protection::new(&token, initiates, &mut outgoing).expect("begins"),
                outgoing,
                content: VecDeque::new(),
            }
        }

        fn send(&mut self, bytes: &[u8]) {
            let sealed = self.protection.seal(bytes, &mut self.outgoing);
            sealed.expect("it is the next record");
        }

        fn receive(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.protection
                .open(bytes, &mut self.content, &mut self.outgoing)
        }

        fn take_outgoing(&mut self) -> Vec<u8> {
            self.outgoing.drain(..).collect()
        }
    }

    const SECRET: &[u8] = b"0123456789abcdef";

    #[test]
    fn sides_with_the_token_exchange_bytes() {
        let (mut a, mut b) = (Side::new(SECRET, true), Side::new(SECRET, false));
        let long = vec![7; 3 * MAX_CONTENT];
        // Before the handshake.
        a.send(b"first");
        b.send(&long);
        while !a.outgoing.is_empty() || !b.outgoing.is_empty() {
            // In parts of records.
            for byte in a.take_outgoing() {
                b.receive(&[byte]).expect("valid");
            }
            a.receive(&b.take_outgoing()).expect("valid");
        }
        assert_eq!(b.content, b"first");
        assert_eq!(a.content, long);
        a.send(b"a later message");
        let mut sent = a.take_outgoing();
        assert!(!sent.windows(5).any(|part| part == b"later"));
        *sent.last_mut().expect("a record") ^= 1;
        let error = b.receive(&sent).expect_err("changed");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_side_with_another_token_or_none_gets_nothing() {
        let (mut a, mut b) = (
            Side::new(SECRET, true),
            Side::new(b"0123456789abcdeg", false),
        );
        a.send(b"a key");
        b.send(b"a key");
        let error = b.receive(&a.take_outgoing()).expect_err("another token");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let rejection = b.take_outgoing();
        assert_eq!(rejection, [0; 4]);
        a.receive(&rejection).expect_err("rejected");
        for side in [&mut a, &mut b] {
            // The length of a message without protection.
            side.receive(&[62, 0, 0, 0]).expect_err("no handshake");
            side.receive(&[0; HANDSHAKE_LEN]).expect_err("too late");
            assert!(side.take_outgoing().iter().all(|&byte| byte == 0));
            assert!(side.content.is_empty());
        }
        let error = Token::new(&SECRET[1..]).expect_err("too short");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}
