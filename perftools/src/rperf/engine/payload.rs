//! The payload of `--verify`. Each byte depends on the number of the message and on its offset, so
//! that lost, duplicated, reordered, shifted and torn messages are detected.

use crate::common::error::{Error, Result};

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

/// Returns the number of the message that begins with `bytes`, which must be 8 bytes or more. The
/// result is arbitrary if they are not a payload.
pub fn number(bytes: &[u8]) -> u64 {
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
pub fn check(bytes: &[u8], message: u64) -> Result<()> {
    for (index, chunk) in (0..).zip(bytes.chunks(8)) {
        let expected = word(message, index);
        if *chunk != expected[..chunk.len()] {
            let offset = chunk
                .iter()
                .zip(expected)
                .position(|(a, b)| *a != b)
                .unwrap_or(0);
            return Err(Error::test(format!(
                "message {message} arrived damaged: byte {} is {:#04x}, but it was sent as {:#04x}",
                index * 8 + offset as u64,
                chunk[offset],
                expected[offset]
            )));
        }
    }
    Ok(())
}

/// Reads every byte, like an application that uses the data.
pub fn access(bytes: &[u8]) {
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
    fn consecutive_messages_differ() {
        let (mut a, mut b) = ([0; 64], [0; 64]);
        fill(&mut a, 7);
        fill(&mut b, 8);
        assert!(a.iter().zip(b).filter(|(x, y)| **x == *y).count() < 8);
        assert!(check(&a, 8).is_err());
    }
}
