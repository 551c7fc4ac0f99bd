//! The payload of messages: the bytes of a file, or bytes that depend on the number of the message
//! and on their offset, so that `--verify` detects lost, duplicated, reordered, shifted and torn
//! messages.

use base::error::{Error, Result};

use crate::spec::Spec;
use crate::spec::payload_file::PayloadFile;

/// The payload of the messages of a test.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    /// File whose bytes fill the messages.
    file: Option<PayloadFile>,
}

impl From<&PayloadFile> for Payload {
    fn from(file: &PayloadFile) -> Self {
        Self {
            file: Some(file.clone()),
        }
    }
}

impl Payload {
    /// Returns the payload that `spec` requests.
    pub(crate) fn new(spec: &Spec) -> Self {
        spec.payload.as_ref().map(Self::from).unwrap_or_default()
    }

    /// Writes the payload of message number `message`.
    pub(crate) fn fill(&self, bytes: &mut [u8], message: u64) {
        match &self.file {
            Some(file) => file.fill(bytes),
            None => fill(bytes, message),
        }
    }

    /// Checks every byte of message number `message`. With a file, the first `header` bytes are not
    /// part of the payload.
    ///
    /// # Errors
    /// Returns an error with the first wrong byte.
    pub(crate) fn check(&self, bytes: &[u8], message: u64, header: usize) -> Result<()> {
        let Some(file) = &self.file else {
            return check(bytes, message);
        };
        let pairs = bytes.iter().copied().zip(file.repeated());
        let wrong = (0..).zip(pairs).skip(header).find(|(_, (a, b))| a != b);
        wrong.map_or(Ok(()), |(offset, (found, sent))| {
            Err(damaged(message, offset, found, sent))
        })
    }
}

fn word(message: u64, index: u64) -> [u8; 8] {
    let mixed = message.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ index.wrapping_mul(0xd1b5_4a32_d192_ed03);
    (mixed ^ (mixed >> 29)).to_le_bytes()
}

/// Writes the payload of message number `message`.
pub fn fill(bytes: &mut [u8], message: u64) {
    for (index, chunk) in (0..).zip(bytes.chunks_mut(8)) {
        chunk.copy_from_slice(&word(message, index)[..chunk.len()]);
    }
}

/// Writes the first bytes of message number `message`, which [`number`] reads, if `bytes` has 8
/// bytes.
pub(crate) fn write_number(bytes: &mut [u8], message: u64) {
    fill(bytes, message);
}

/// Returns the number of the message that begins with `bytes`, which must be 8 bytes or more. The
/// result is arbitrary if they are not a payload.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    // This inverts `word` for the first eight bytes: first the shift, then the product modulo
    // 2^64.
    const INVERSE: u64 = 0xf1de_83e1_9937_733d;
    let mut first = [0; 8];
    first.copy_from_slice(bytes.get(..8).unwrap_or(&[0; 8]));
    let mixed = u64::from_le_bytes(first);
    let mixed = mixed ^ (mixed >> 29) ^ (mixed >> 58);
    mixed.wrapping_mul(INVERSE).wrapping_sub(1)
}

/// Checks every byte of message number `message`.
///
/// # Errors
/// Returns an error with the first wrong byte.
fn check(bytes: &[u8], message: u64) -> Result<()> {
    for (index, chunk) in (0..).zip(bytes.chunks(8)) {
        let expected = word(message, index);
        if *chunk != expected[..chunk.len()] {
            let offset = chunk
                .iter()
                .zip(expected)
                .position(|(a, b)| *a != b)
                .unwrap_or(0);
            let at = index * 8 + offset as u64;
            return Err(damaged(message, at, chunk[offset], expected[offset]));
        }
    }
    Ok(())
}

fn damaged(message: u64, offset: u64, found: u8, sent: u8) -> Error {
    Error::test(format!(
        "message {message} arrived damaged: byte {offset} is {found:#04x}, but it was sent as {sent:#04x}"
    ))
}

/// Reads every byte, like an application that uses the data.
pub(crate) fn access(bytes: &[u8]) {
    std::hint::black_box(bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn every_changed_byte_is_detected(len in 1_usize..200, message: u64, at: proptest::sample::Index, flip in 1_u8..) {
            let mut bytes = vec![0; len];
            fill(&mut bytes, message);
            proptest::prop_assert!(check(&bytes, message).is_ok());
            let at = at.index(len);
            bytes[at] ^= flip;
            let text = check(&bytes, message).unwrap_err().to_string();
            proptest::prop_assert!(text.contains(&format!("byte {at} ")), "{}", text);
        }
    }

    proptest::proptest! {
        #[test]
        fn the_message_number_is_recovered(message: u64) {
            let mut bytes = [0; 8];
            fill(&mut bytes, message);
            proptest::prop_assert_eq!(number(&bytes), message);
        }
    }

    #[test]
    fn a_payload_file_is_checked_behind_the_header() {
        let payload = Payload::from(&PayloadFile::new("f", &[1, 2, 3]));
        let mut bytes = [0; 20];
        payload.fill(&mut bytes, 5);
        assert_eq!(bytes[..5], [1, 2, 3, 1, 2]);
        assert!(payload.check(&bytes, 6, 0).is_ok());
        (bytes[7], bytes[19]) = (9, 0);
        for (header, expected) in [(0, "byte 7 is 0x09"), (8, "byte 19 is 0x00")] {
            let text = payload.check(&bytes, 6, header).unwrap_err().to_string();
            assert!(
                text.starts_with("message 6 ") && text.contains(expected),
                "{text}"
            );
        }
        assert!(payload.check(&bytes[..19], 6, 8).is_ok());
    }

    #[test]
    fn consecutive_messages_differ() {
        let (mut a, mut b) = ([0; 64], [0; 64]);
        fill(&mut a, 7);
        fill(&mut b, 8);
        assert!(a.iter().zip(b).filter(|(x, y)| **x == *y).count() < 8);
        assert!(check(&a, 8).is_err());
    }
}
